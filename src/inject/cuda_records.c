/* From CUPTI's records to those of the shared memory, and the names that they share. */
#include "inject/cuda_records.h"

#include "inject/cuda_cupti.h"

#include <stdio.h>
#include <string.h>

enum { CUDA_11 = 13 }; /* CUPTI's version from which records have graph nodes */

/* Offsets of what is used of a kind of record; 0: not there. */
typedef struct layout {
    uint8_t bytes; /* that are read, besides the graph node */
    uint8_t start, device, stream, correlation, graph_node;
} layout;

/* The end follows the start by 8 bytes. */
static const layout kernel = {112, 16, 40, 48, 92, 144};
static const layout copy = {48, 16, 32, 40, 44, 64};
static const layout peer_copy = {64, 16, 32, 40, 60, 72};
static const layout graph = {40, 8, 24, 36, 4, 0};
enum { KERNEL_NAME_AT = 104, COPY_KIND_AT = 4, GRAPH_ID_AT = 28 };
enum { CALL_BYTES = 40, CALL_START_AT = 8, CALL_THREAD_AT = 28, CALL_CORRELATION_AT = 32 };
enum { DEVICE_BYTES = 144, DEVICE_ID_AT = 112, DEVICE_UUID_AT = 120, DEVICE_NAME_AT = 136 };

static uint32_t u32_at(const void *record, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)record + offset, sizeof value);
    return value;
}

static uint64_t u64_at(const void *record, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)record + offset, sizeof value);
    return value;
}

static const char *text_at(const void *record, size_t offset)
{
    const char *text;
    memcpy(&text, (const char *)record + offset, sizeof text);
    return text;
}

/* ---- names ---- */

/* Slots of a hash table of indices + 1. A name is found by a key: its address, which CUPTI keeps as
 * long as the module is loaded. Its text is compared since another module's may lie there later. */
enum { SLOTS = 2 * PJ_CUDA_NAMES, PROBES = 64 };
static uint32_t slots[SLOTS];

static uint32_t name_add(pj_cuda_process *to, uint32_t count, const char *text)
{
    memcpy(to->names[count], text, strnlen(text, PJ_CUDA_NAME_BYTES - 1));
    atomic_store_explicit(&to->name_count, count + 1, memory_order_release);
    return count;
}

/* The last index is that of all further names. */
static uint32_t intern(pj_cuda_process *to, const char *text, uint64_t key)
{
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    uint32_t count = atomic_load_explicit(&to->name_count, memory_order_relaxed);
    for (int tries = 0; tries < PROBES; tries++, at++) {
        uint32_t *slot = &slots[at % SLOTS];
        bool is_free = *slot == 0;
        if (is_free && count >= PJ_CUDA_NAMES - 1) break;
        if (is_free) *slot = name_add(to, count, text) + 1;
        if (is_free || strncmp(to->names[*slot - 1], text, PJ_CUDA_NAME_BYTES - 1) == 0)
            return *slot - 1;
    }
    memcpy(to->names[PJ_CUDA_NAMES - 1], "further kernels", 16);
    return PJ_CUDA_NAMES - 1;
}

/* By the directions that CUPTI numbers. */
static const char *copy_name(uint8_t kind)
{
    static const char *const names[] = {"memcpy",      "memcpy HtoD", "memcpy DtoH", "memcpy HtoA",
                                        "memcpy AtoH", "memcpy AtoA", "memcpy AtoD", "memcpy DtoA",
                                        "memcpy DtoD", "memcpy HtoH", "memcpy PtoP"};
    return names[kind < sizeof names / sizeof *names ? kind : 0];
}

/* ---- records ---- */

static void put(pj_cuda_process *to, const pj_cuda_record *record)
{
    uint64_t written = atomic_load_explicit(&to->written, memory_order_relaxed);
    uint64_t read = atomic_load_explicit(&to->read, memory_order_acquire);
    if (written - read >= PJ_CUDA_RECORDS) {
        atomic_fetch_add_explicit(&to->lost, 1, memory_order_relaxed);
        return;
    }
    to->records[written % PJ_CUDA_RECORDS] = *record;
    atomic_store_explicit(&to->written, written + 1, memory_order_release);
}

static void take_work(pj_cuda_decoder *d, const char *record, const char *end, const layout *l,
                      const char *name, uint64_t key)
{
    if (end - record < l->bytes) return;
    bool may_be_node = l->graph_node && d->version >= CUDA_11 && end - record >= l->graph_node + 8;
    if (d->skips_graph_nodes && may_be_node && u64_at(record, l->graph_node)) return;
    uint64_t start = u64_at(record, l->start), stop = u64_at(record, l->start + 8u);
    if (!start || stop < start || stop > INT64_MAX / 2) { /* CUPTI had no memory to time it */
        atomic_fetch_add_explicit(&d->to->untimed, 1, memory_order_relaxed);
        return;
    }
    put(d->to, &(pj_cuda_record){.begin_ns = (int64_t)start + d->offset_ns,
                                 .end_ns = (int64_t)stop + d->offset_ns,
                                 .correlation = u32_at(record, l->correlation),
                                 .name = intern(d->to, name, key),
                                 .stream = u32_at(record, l->stream),
                                 .device = u32_at(record, l->device)});
}

static void take_call(pj_cuda_decoder *d, const char *record, const char *end)
{
    if (end - record < CALL_BYTES) return;
    uint32_t correlation = u32_at(record, CALL_CORRELATION_AT);
    pj_cuda_launch *launch = &d->to->launches[correlation % PJ_CUDA_LAUNCHES];
    atomic_store_explicit(&launch->who, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&launch->at_ns, (int64_t)u64_at(record, CALL_START_AT) + d->offset_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&launch->who,
                          (uint64_t)correlation << 32 | u32_at(record, CALL_THREAD_AT),
                          memory_order_release);
}

static void take_device(pj_cuda_decoder *d, const char *record, const char *end)
{
    if (end - record < DEVICE_BYTES) return;
    uint32_t id = u32_at(record, DEVICE_ID_AT);
    const char *name = text_at(record, DEVICE_NAME_AT);
    if (id >= PJ_CUDA_DEVICES || atomic_load(&d->to->devices[id].is_known)) return;
    pj_cuda_device *device = &d->to->devices[id];
    memcpy(device->uuid, record + DEVICE_UUID_AT, sizeof device->uuid);
    snprintf(device->name, sizeof device->name, "%s", name ? name : "");
    atomic_store_explicit(&device->is_known, 1, memory_order_release);
}

static void take_kernel(pj_cuda_decoder *d, const char *record, const char *end)
{
    if (end - record < kernel.bytes) return;
    const char *name = text_at(record, KERNEL_NAME_AT);
    if (!name || !*name) name = "unnamed kernel";
    take_work(d, record, end, &kernel, name, (uint64_t)(uintptr_t)name);
}

static void take_copy(pj_cuda_decoder *d, const char *record, const char *end, const layout *l,
                      const char *name)
{
    take_work(d, record, end, l, name, (uint64_t)(uintptr_t)name);
}

static void take_graph(pj_cuda_decoder *d, const char *record, const char *end)
{
    char name[32];
    if (end - record < graph.bytes) return;
    uint32_t id = u32_at(record, GRAPH_ID_AT);
    snprintf(name, sizeof name, "graph %u", id);
    take_work(d, record, end, &graph, name, id);
}

void pj_cuda_decode(pj_cuda_decoder *d, const void *from, const void *buffer_end)
{
    const char *record = from, *end = buffer_end;
    if (end - record < 8) return;
    switch (u32_at(record, 0)) {
    case PJ_CUPTI_KERNEL: take_kernel(d, record, end); break;
    case PJ_CUPTI_MEMCPY:
        take_copy(d, record, end, &copy, copy_name((uint8_t)record[COPY_KIND_AT]));
        break;
    case PJ_CUPTI_PEER_COPY: take_copy(d, record, end, &peer_copy, "memcpy PtoP"); break;
    case PJ_CUPTI_MEMSET: take_copy(d, record, end, &copy, "memset"); break;
    case PJ_CUPTI_GRAPH: take_graph(d, record, end); break;
    case PJ_CUPTI_DRIVER:
    case PJ_CUPTI_RUNTIME: take_call(d, record, end); break;
    case PJ_CUPTI_DEVICE: take_device(d, record, end); break;
    default: break;
    }
}

/* The kernels of a GPU: what each dispatch of a decode step reads and computes, how long it takes
 * here, and how long it would take by bandwidth and peak alone on two devices. */
#include "bench/kernels_device.h"

#include "base/clock.h"
#include "base/memory.h"
#include "bench/limits_save.h"
#include "cli/json_out.h"
#include "cli/terminal.h"
#include "engine/generation/engine_internal.h"
#include "engine/vulkan/trace.h"
#include "generate/find_model.h"
#include "record/limits.h"
#include "trace/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DISPATCHES = 8192, MOST_LINES = 64 };

/* A device on paper: what a copy reaches, single precision, and a dispatch that waits for the one
 * before. */
typedef struct paper {
    const char *name;
    double bytes_s, flops_s, dispatch_s;
} paper;

static const paper papers[] = {{"H100", 3.0e12, 67e12, 2.6e-6}, {"M4", 120e9, 4e12, 0}};
enum { PAPERS = sizeof papers / sizeof *papers };

/* Equal dispatches of a pass. */
typedef struct line {
    pj_gpu_dispatched each;
    uint32_t count;
    double seconds; /* of all; NAN: not run */
} line;

typedef struct listing {
    line lines[MOST_LINES];
    uint32_t count, dispatches, layers;
    double bytes, flops, seconds, on_paper[PAPERS]; /* of all */
    double read_bytes_s, copy_bytes_s;              /* of the device; NAN: not measured */
    char name[256];                                 /* of the device */
} listing;

/* By what binds: bandwidth or multiplications. */
static double device_seconds(const paper *p, const pj_gpu_dispatched *d)
{
    return fmax(d->bytes / p->bytes_s, d->flops / p->flops_s) + p->dispatch_s;
}

static line *device_line(listing *l, const pj_gpu_dispatched *d)
{
    for (uint32_t i = 0; i < l->count; i++) {
        line *at = &l->lines[i];
        if (strcmp(at->each.kernel, d->kernel) == 0 && at->each.bytes == d->bytes &&
            at->each.flops == d->flops)
            return at;
    }
    if (l->count == MOST_LINES) return &l->lines[MOST_LINES - 1];
    l->lines[l->count] = (line){.each = *d};
    return &l->lines[l->count++];
}

static void device_list(listing *l, const pj_gpu_trace *trace)
{
    for (uint32_t i = 0; i < trace->count; i++) {
        const pj_gpu_dispatched *d = &trace->list[i];
        line *at = device_line(l, d);
        at->count++;
        at->seconds += d->seconds;
        l->dispatches++;
        l->bytes += d->bytes;
        l->flops += d->flops;
        l->seconds += d->seconds;
        for (int p = 0; p < PAPERS; p++) l->on_paper[p] += device_seconds(&papers[p], d);
    }
}

/* ---- limits ---- */

enum { DEVICE_PEAK_MS = 200 };

/* What bounds it; kept for the rooflines of later runs on this device, which is best effort. */
static void device_measure_limits(pj_engine *e, listing *l)
{
    char key[PJ_DEVICE_KEY_BYTES], uuid[33];
    pj_error err;
    const pj_gpu_model *m = e->loaded.device;
    const pj_vk_info *info = pj_vk_device(m->vk);
    const pj_layer *first = &e->model.layers[0];
    const pj_matrix *q = first->q.w.data ? &first->q.w : &first->qkv.w;
    l->copy_bytes_s = pj_gpu_copy_speed(m);
    l->read_bytes_s = pj_engine_read_speed(e, UINT64_MAX);
    pj_machine_limits limits = {.read_bytes_s = l->read_bytes_s};
    limits.operations_s[q->type] = pj_engine_peak(e, DEVICE_PEAK_MS * PJ_NS_PER_MS);
    for (int i = 0; i < 16; i++) snprintf(uuid + 2 * i, 3, "%02x", info->uuid[i]);
    pj_device_key(uuid, info->name, key);
    if (pj_machine_limits_save(key, &limits, &err) != PJ_OK)
        pj_say("perjoule bench kernels: %s", err.text);
}

/* ---- what is listed ---- */

/* The model with as many layers as its public shape has, all like those that there are. */
static pj_status device_outline(const pj_bench_device *b, const pj_engine *e, pj_gpu_trace *trace,
                                listing *l, pj_error *err)
{
    pj_model whole = e->model;
    uint32_t layers = e->model.full_layers, made = e->model.config.layers;
    pj_gpu_model *m;
    whole.layers = pj_alloc(layers, sizeof *whole.layers);
    if (!whole.layers) return pj_fail_memory(err, "layers");
    for (uint32_t i = 0; i < layers; i++) {
        whole.layers[i] = e->model.layers[i % made];
        whole.layers[i].kv_source += i - whole.layers[i].index;
        whole.layers[i].index = i;
    }
    whole.config.layers = l->layers = layers;
    pj_status status = pj_gpu_outline_open(&whole, b->packs, &m, err);
    if (status == PJ_OK)
        status =
            pj_gpu_trace_decode(m, PJ_F16, (uint32_t)b->batch, (uint32_t)b->context, trace, err);
    pj_gpu_outline_close(m);
    pj_free(whole.layers);
    return status;
}

static pj_status device_run(const pj_bench_device *b, pj_engine *e, pj_gpu_trace *trace, listing *l,
                            pj_error *err)
{
    if (e->loaded.backend != &pj_backend_vulkan)
        return pj_fail(err, PJ_E_INVALID, "%.60s is no GPU: see perjoule devices", b->device);
    l->layers = e->model.config.layers;
    snprintf(l->name, sizeof l->name, "%s", e->loaded.facts.name);
    pj_status status = pj_gpu_trace_decode(e->loaded.device, e->kv_type, (uint32_t)b->batch,
                                           (uint32_t)b->context, trace, err);
    if (status == PJ_OK) device_measure_limits(e, l);
    return status;
}

static pj_status device_trace(const pj_bench_device *b, listing *l, pj_error *err)
{
    char path[4096];
    pj_engine *engine = NULL;
    pj_gpu_trace trace = {.list = pj_alloc(MOST_DISPATCHES, sizeof *trace.list),
                          .most = MOST_DISPATCHES};
    if (!trace.list) return pj_fail_memory(err, "dispatches");
    pj_status status = pj_model_find(b->model, NULL, path, sizeof path, err);
    pj_engine_options options = {.model = path,
                                 .dtype = b->dtype,
                                 .device = b->device ? b->device : "cpu",
                                 .no_tokenizer = true};
    if (status == PJ_OK) status = pj_engine_open(&options, &engine, err);
    if (status == PJ_OK)
        status = b->device ? device_run(b, engine, &trace, l, err)
                           : device_outline(b, engine, &trace, l, err);
    if (status == PJ_OK) device_list(l, &trace);
    pj_engine_close(engine);
    pj_free(trace.list);
    return status;
}

/* ---- printing ---- */

static void device_print_time(double seconds)
{
    if (isnan(seconds))
        printf(" %9s", "-");
    else
        printf(" %9.1f", seconds * 1e6);
}

static void device_print_table(const pj_bench_device *b, const listing *l)
{
    printf("%s, one step of %lld sequences after %lld tokens, %u layers%s%s; times in us each, of "
           "all in the last line\n\n",
           b->model, (long long)b->batch, (long long)b->context, l->layers,
           b->device ? " on " : "; nothing was run", l->name);
    printf("%-24s %6s %10s %10s %9s %7s", "kernel", "count", "MB", "MFLOP", "here", "GB/s");
    for (int p = 0; p < PAPERS; p++) printf(" %9s", papers[p].name);
    printf("\n");
    for (uint32_t i = 0; i < l->count; i++) {
        const line *at = &l->lines[i];
        double each = at->seconds / at->count;
        printf("%-24s %6u %10.3f %10.3f", at->each.kernel, at->count, at->each.bytes * 1e-6,
               at->each.flops * 1e-6);
        device_print_time(each);
        if (isnan(each))
            printf(" %7s", "-");
        else
            printf(" %7.1f", at->each.bytes / each * 1e-9);
        for (int p = 0; p < PAPERS; p++) device_print_time(device_seconds(&papers[p], &at->each));
        printf("\n");
    }
    printf("%-24s %6u %10.1f %10.1f", "all", l->dispatches, l->bytes * 1e-6, l->flops * 1e-6);
    device_print_time(l->seconds);
    printf(" %7s", "");
    for (int p = 0; p < PAPERS; p++) device_print_time(l->on_paper[p]);
    printf("\n");
    if (isfinite(l->copy_bytes_s))
        printf("\na copy moves %.3g GB/s, read and written\n", l->copy_bytes_s * 1e-9);
    if (isfinite(l->read_bytes_s))
        printf("weights are read at up to %.3g GB/s\n", l->read_bytes_s * 1e-9);
}

static void device_write_line(pj_json *json, const line *at)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kernel", at->each.kernel);
    pj_json_kv_uint(json, "count", at->count);
    pj_json_kv_double(json, "bytes", at->each.bytes);
    pj_json_kv_double(json, "flops", at->each.flops);
    pj_json_kv_double(json, "measured_us", at->seconds / at->count * 1e6);
    for (int p = 0; p < PAPERS; p++) {
        char key[40];
        snprintf(key, sizeof key, "computed_us_%s", papers[p].name);
        pj_json_kv_double(json, key, device_seconds(&papers[p], &at->each) * 1e6);
    }
    pj_json_object_end(json);
}

static pj_status device_print_json(const pj_bench_device *b, const listing *l, pj_error *err)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", b->model);
    pj_json_kv_string(json, "device", b->device ? l->name : NULL);
    pj_json_kv_uint(json, "layers", l->layers);
    pj_json_kv_uint(json, "dispatches", l->dispatches);
    pj_json_kv_double(json, "read_bytes_per_second", l->read_bytes_s);
    pj_json_kv_double(json, "copy_bytes_per_second", l->copy_bytes_s);
    pj_json_key(json, "rows");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < l->count; i++) device_write_line(json, &l->lines[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

pj_status pj_bench_device_kernels(const pj_bench_device *b, pj_error *err)
{
    listing *l = pj_alloc(1, sizeof *l);
    if (!l) return pj_fail_memory(err, "a table");
    l->read_bytes_s = l->copy_bytes_s = NAN;
    pj_status status = device_trace(b, l, err);
    if (status == PJ_OK && b->json)
        status = device_print_json(b, l, err);
    else if (status == PJ_OK)
        device_print_table(b, l);
    pj_free(l);
    return status;
}

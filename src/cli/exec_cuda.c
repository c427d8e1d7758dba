/* Reading the shared memory, which the program may have filled with anything. */
#include "cli/exec_cuda.h"

#include "base/clock.h"
#include "base/memory.h"
#include "import/device_work.h"
#include "import/kernel_name.h"
#include "inject/cuda_shared.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Between two times at which work that has come is recorded. */
#define SETTLE_NS (PJ_NS_PER_S / 2)
/* How long work waits for the description of its device. */
#define DEVICE_NS PJ_NS_PER_S
/* CUPTI interpolates between readings of the GPU's timer, which ticks every microsecond on many. */
#define CLOCK_ERROR_NS 1000
/* How far a GPU's times may seem to be ahead of ours. */
#define CLOCKS_NS 1000000

enum { STREAMS = 64 };

typedef struct stream_name {
    uint32_t stream, name; /* name 0: free */
} stream_name;

/* A process that has taken a slot. */
typedef struct cuda_process {
    pj_cuda_process *slot;             /* NULL: not taken, or it cannot be read */
    uint32_t devices[PJ_CUDA_DEVICES]; /* numbers in the run; 0: not yet declared */
    uint32_t *names;                   /* [PJ_CUDA_NAMES] names of the run; 0: not yet used */
    stream_name streams[STREAMS];      /* by stream % STREAMS: a cache */
} cuda_process;

struct pj_exec_cuda {
    pj_run *run;
    const pj_markers *markers;
    pj_device_work *work;
    pj_cuda_shared *shared;
    int fd;
    int64_t begun_ns, settled_ns;
    uint64_t unsound; /* records with impossible times or devices */
    cuda_process processes[PJ_CUDA_PROCESSES];
    char variable[96];
};

/* ---- the memory ---- */

static bool exec_cuda_share(pj_exec_cuda *c, bool in_graphs)
{
#ifdef __linux__
    c->fd = memfd_create("perjoule-cuda", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (c->fd < 0 || ftruncate(c->fd, PJ_CUDA_BYTES) != 0) return false;
    fcntl(c->fd, F_ADD_SEALS, F_SEAL_SHRINK); /* or the program could make our reads fail */
    void *memory = mmap(NULL, PJ_CUDA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (memory == MAP_FAILED) return false;
    c->shared = memory;
    c->shared->magic = PJ_CUDA_MAGIC;
    c->shared->in_graphs = in_graphs;
    snprintf(c->variable, sizeof c->variable, "PERJOULE_CUDA_BUFFERS=/proc/%ld/fd/%d",
             (long)getpid(), c->fd);
    return true;
#else
    (void)c, (void)in_graphs;
    return false;
#endif
}

static uint32_t exec_cuda_taken(const pj_exec_cuda *c)
{
    uint32_t taken = atomic_load(&c->shared->taken);
    return taken < PJ_CUDA_PROCESSES ? taken : PJ_CUDA_PROCESSES;
}

static void map_process(pj_exec_cuda *c, uint32_t index)
{
    cuda_process *p = &c->processes[index];
    if (p->slot) return;
    if (!p->names) p->names = pj_alloc(PJ_CUDA_NAMES, sizeof *p->names);
    void *memory = p->names ? mmap(NULL, PJ_CUDA_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd,
                                   PJ_CUDA_PAGE + (off_t)index * PJ_CUDA_SLOT)
                            : MAP_FAILED;
    if (memory != MAP_FAILED) p->slot = memory;
}

/* ---- what a record refers to ---- */

static uint32_t kernel_name_of(pj_exec_cuda *c, cuda_process *p, uint32_t index)
{
    char symbol[PJ_CUDA_NAME_BYTES], name[PJ_KERNEL_NAME_BYTES];
    if (index >= PJ_CUDA_NAMES) return 0;
    if (p->names[index]) return p->names[index];
    memcpy(symbol, p->slot->names[index], sizeof symbol);
    symbol[sizeof symbol - 1] = 0;
    pj_kernel_name(symbol, name);
    return p->names[index] = pj_run_name(c->run, name);
}

static uint32_t stream_name_of(pj_exec_cuda *c, cuda_process *p, uint32_t stream)
{
    char name[32];
    stream_name *s = &p->streams[stream % STREAMS];
    if (s->name && s->stream == stream) return s->name;
    snprintf(name, sizeof name, "stream %u", stream);
    *s = (stream_name){stream, pj_run_name(c->run, name)};
    return s->name;
}

/* The device's UUID, by which its rail is found, is known if CUPTI described it. */
static uint32_t device_of(pj_exec_cuda *c, cuda_process *p, uint32_t index)
{
    char name[sizeof(((pj_cuda_device *)0)->name)] = "", uuid[40] = "GPU-";
    if (index >= PJ_CUDA_DEVICES) return 0;
    if (p->devices[index]) return p->devices[index];
    const pj_cuda_device *d = &p->slot->devices[index];
    bool is_known = atomic_load_explicit(&d->is_known, memory_order_acquire) != 0;
    if (is_known) snprintf(name, sizeof name, "%.*s", (int)sizeof d->name - 1, d->name);
    if (!*name) snprintf(name, sizeof name, "CUDA device %u", index);
    for (size_t i = 0; is_known && i < sizeof d->uuid; i++)
        snprintf(uuid + 4 + 2 * i, 3, "%02x", d->uuid[i]);
    pj_device_info info = {
        .size = sizeof info, .name = name, .kind = "gpu", .uuid = is_known ? uuid : NULL};
    pj_device_declare(c->run, &info, &p->devices[index], NULL);
    return p->devices[index];
}

static bool find_launch(void *context, uint32_t source, uint32_t correlation, uint32_t *thread,
                        int64_t *at_ns)
{
    const pj_exec_cuda *c = context;
    const pj_cuda_process *slot = c->processes[source].slot;
    const pj_cuda_launch *l = &slot->launches[correlation % PJ_CUDA_LAUNCHES];
    uint64_t who = atomic_load_explicit(&l->who, memory_order_acquire);
    int64_t found_ns = atomic_load_explicit(&l->at_ns, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    bool is_whole = atomic_load_explicit(&l->who, memory_order_relaxed) == who;
    if (!who || who >> 32 != correlation || !is_whole) return false;
    *thread = (uint32_t)who;
    *at_ns = found_ns;
    return true;
}

/* ---- records ---- */

static void take_record(pj_exec_cuda *c, uint32_t index, const pj_cuda_record *r, int64_t now_ns)
{
    cuda_process *p = &c->processes[index];
    bool is_sound =
        r->begin_ns >= c->begun_ns && r->begin_ns <= r->end_ns && r->end_ns <= now_ns + CLOCKS_NS;
    uint32_t device = is_sound ? device_of(c, p, r->device) : 0;
    uint32_t name = device ? kernel_name_of(c, p, r->name) : 0;
    if (!name) {
        c->unsound++;
        return;
    }
    pj_device_work_add(c->work, &(pj_work_piece){.begin_ns = r->begin_ns,
                                                 .end_ns = r->end_ns,
                                                 .device = device,
                                                 .name = name,
                                                 .queue = stream_name_of(c, p, r->stream),
                                                 .source = index,
                                                 .correlation = r->correlation});
}

/* CUPTI may describe a device after its first work. */
static bool may_wait_for_device(const pj_cuda_process *slot, const pj_cuda_record *r,
                                int64_t now_ns)
{
    return r->device < PJ_CUDA_DEVICES && !atomic_load(&slot->devices[r->device].is_known) &&
           atomic_load(&slot->state) == PJ_CUDA_RECORDING && r->end_ns > now_ns - DEVICE_NS;
}

static void take_process(pj_exec_cuda *c, uint32_t index, bool is_last)
{
    pj_cuda_process *slot = c->processes[index].slot;
    if (!slot) return;
    if (pj_markers_has_spans(c->markers)) atomic_store(&slot->wants_launches, 1);
    uint64_t written = atomic_load_explicit(&slot->written, memory_order_acquire);
    uint64_t read = atomic_load_explicit(&slot->read, memory_order_relaxed);
    int64_t now_ns = pj_clock_ns();               /* after what was written had ended */
    if (written - read > PJ_CUDA_RECORDS) return; /* the program wrote over it */
    for (; read != written; read++) {
        pj_cuda_record record = slot->records[read % PJ_CUDA_RECORDS];
        if (!is_last && may_wait_for_device(slot, &record, now_ns)) break;
        take_record(c, index, &record, now_ns);
    }
    atomic_store_explicit(&slot->read, read, memory_order_release);
}

static void take_all(pj_exec_cuda *c, bool is_last)
{
    for (uint32_t i = 0; i < exec_cuda_taken(c); i++) {
        map_process(c, i);
        take_process(c, i, is_last);
    }
}

bool pj_exec_cuda_take(pj_exec_cuda *c)
{
    if (!atomic_load(&c->shared->taken)) return false;
    take_all(c, false);
    int64_t now_ns = pj_clock_ns();
    if (now_ns - c->settled_ns >= SETTLE_NS) {
        pj_device_work_settle(c->work, now_ns, false);
        c->settled_ns = now_ns;
    }
    return true;
}

/* ---- what is missing ---- */

static void warn_of_process(pj_exec_cuda *c, const pj_cuda_process *slot)
{
    char problem[sizeof slot->problem];
    uint32_t state = atomic_load(&slot->state), pid = slot->pid;
    if (state == PJ_CUDA_REFUSED) {
        snprintf(problem, sizeof problem, "%.*s", (int)sizeof problem - 1, slot->problem);
        for (char *at = problem; *at; at++)
            if ((unsigned char)*at < ' ') *at = '?';
        pj_run_warn(c->run, "cuda_refused", "GPU kernels of process %u are not recorded: %s", pid,
                    problem);
    }
    if (state == PJ_CUDA_STARTING || state == PJ_CUDA_RECORDING)
        pj_run_warn(c->run, "cuda_cut",
                    "process %u ended without running exit handlers: its GPU kernels that CUPTI "
                    "had not delivered by then are missing; their number is unknown",
                    pid);
}

static void warn_of_losses(pj_exec_cuda *c)
{
    uint64_t lost = pj_device_work_lost(c->work), dropped = 0, untimed = c->unsound;
    for (uint32_t i = 0; i < exec_cuda_taken(c); i++) {
        const pj_cuda_process *slot = c->processes[i].slot;
        if (!slot) continue;
        lost += atomic_load(&slot->lost);
        dropped += atomic_load(&slot->dropped);
        untimed += atomic_load(&slot->untimed);
    }
    if (lost)
        pj_run_warn(c->run, "cuda_lost",
                    "%llu GPU kernels were lost: they came faster than they could be read",
                    (unsigned long long)lost);
    if (dropped)
        pj_run_warn(c->run, "cuda_dropped", "CUPTI dropped %llu records of GPU work",
                    (unsigned long long)dropped);
    if (untimed)
        pj_run_warn(c->run, "cuda_untimed",
                    "%llu records of GPU work had no valid times or devices and are left out",
                    (unsigned long long)untimed);
}

void pj_exec_cuda_finish(pj_exec_cuda *c)
{
    uint32_t taken = atomic_load(&c->shared->taken);
    take_all(c, true);
    pj_device_work_settle(c->work, pj_clock_ns(), true);
    for (uint32_t i = 0; i < exec_cuda_taken(c); i++)
        if (c->processes[i].slot) warn_of_process(c, c->processes[i].slot);
    warn_of_losses(c);
    if (taken > PJ_CUDA_PROCESSES)
        pj_run_warn(c->run, "cuda_processes",
                    "GPU kernels of %u processes are not recorded: at most %d are",
                    taken - PJ_CUDA_PROCESSES, PJ_CUDA_PROCESSES);
}

/* ---- from begin to end ---- */

pj_exec_cuda *pj_exec_cuda_open(pj_run *run, const pj_markers *markers, bool in_graphs)
{
    pj_exec_cuda *c = pj_alloc(1, sizeof *c);
    if (!c) return NULL;
    c->run = run;
    c->markers = markers;
    c->fd = -1;
    c->begun_ns = c->settled_ns = pj_clock_ns();
    if (exec_cuda_share(c, in_graphs) &&
        pj_device_work_new(run, markers, find_launch, c, CLOCK_ERROR_NS, &c->work, NULL) == PJ_OK)
        return c;
    pj_exec_cuda_close(c);
    return NULL;
}

const char *pj_exec_cuda_variable(const pj_exec_cuda *c)
{
    return c->variable;
}

void pj_exec_cuda_close(pj_exec_cuda *c)
{
    if (!c) return;
    for (uint32_t i = 0; i < PJ_CUDA_PROCESSES; i++) {
        if (c->processes[i].slot) munmap(c->processes[i].slot, PJ_CUDA_SLOT);
        pj_free(c->processes[i].names);
    }
    if (c->shared) munmap(c->shared, PJ_CUDA_PAGE);
    if (c->fd >= 0) close(c->fd);
    pj_device_work_free(c->work);
    pj_free(c);
}

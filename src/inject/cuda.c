/*
 * libperjoule-cuda.so: GPU work as CUPTI sees it. The CUDA driver loads the library named by
 * CUDA_INJECTION64_PATH into every process that initialises CUDA, whatever its language, and calls
 * InitializeInjection; `perjoule exec` names this library. It becomes a client of the CUPTI that
 * belongs to the program (cuda_cupti.h), takes its records (cuda_records.h) and puts what is used
 * of them into memory shared with perjoule (cuda_shared.h), which does the rest.
 *
 * The program never waits, and nothing here ends it: where something fails, perjoule is told why
 * and the program runs as it would without. CUPTI calls us from threads of its own, and a thread of
 * ours asks it every 100 ms for the buffers whose work is done.
 */
#include "inject/cuda_cupti.h"
#include "inject/cuda_records.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A buffer is delivered when all of its work is done: a small one is soon. */
enum { BUFFER_BYTES = 256 << 10, FLUSH_MS = 100, STACK_BYTES = 256 << 10, EXIT_SECONDS = 2 };
enum { SPARE_BUFFERS = 8, PATIENCE_MS = 2000 };
enum { THREAD_ID_SYSTEM = 1 };

static pj_cupti cupti;
static pj_cuda_decoder decoder;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the decoder */
static pthread_mutex_t flushing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(pj_cuda_process *) slot; /* NULL: nothing is recorded, as in a forked child */
static bool has_own_clock;              /* CUPTI uses ours */

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the shared memory ---- */

/* The slot of this process; NULL: perjoule is gone, or has none left. */
static pj_cuda_process *map_slot(uint32_t *in_graphs)
{
    const char *path = getenv("PERJOULE_CUDA_BUFFERS");
    struct stat s;
    pj_cuda_process *own = NULL;
    int fd = path && *path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return NULL;
    pj_cuda_shared *shared =
        fstat(fd, &s) == 0 && s.st_size == (off_t)PJ_CUDA_BYTES
            ? mmap(NULL, PJ_CUDA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
            : MAP_FAILED;
    if (shared != MAP_FAILED && shared->magic == PJ_CUDA_MAGIC) {
        *in_graphs = shared->in_graphs;
        uint32_t index = atomic_fetch_add(&shared->taken, 1);
        void *memory = index < PJ_CUDA_PROCESSES
                           ? mmap(NULL, PJ_CUDA_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                                  PJ_CUDA_PAGE + (off_t)index * PJ_CUDA_SLOT)
                           : MAP_FAILED;
        if (memory != MAP_FAILED) own = memory;
    }
    if (shared != MAP_FAILED) munmap(shared, PJ_CUDA_PAGE);
    close(fd);
    return own;
}

/* ---- buffers ---- */

/* Buffers that have come back: new ones would cost page faults where the program launches. */
static _Atomic(uint8_t *) spare[SPARE_BUFFERS];

static void keep_buffer(uint8_t *buffer)
{
    for (int i = 0; i < SPARE_BUFFERS && buffer; i++) buffer = atomic_exchange(&spare[i], buffer);
    free(buffer);
}

/* Without a buffer CUPTI drops records and counts them. */
static void request(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *most_records = 0; /* as many as fit */
    *buffer = NULL;
    for (int i = 0; i < SPARE_BUFFERS && !*buffer; i++) *buffer = atomic_exchange(&spare[i], NULL);
    if (!*buffer) *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
}

/* Where CUPTI cannot use our clock: the difference between the two, read in a pair. */
static void compare_clocks(void)
{
    uint64_t theirs, before = clock_ns();
    if (has_own_clock || cupti.get_time(&theirs) != 0) return;
    uint64_t after = clock_ns();
    decoder.offset_ns = (int64_t)(before + (after - before) / 2 - theirs);
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    int kept = errno;
    void *record = NULL;
    size_t dropped = 0;
    pj_cuda_process *to = atomic_load(&slot);
    if (to && buffer && valid <= bytes) {
        pthread_mutex_lock(&mutex);
        compare_clocks();
        while (cupti.next_record(buffer, valid, &record) == 0 && record)
            pj_cuda_decode(&decoder, record, buffer + valid);
        if (cupti.get_dropped(context, stream, &dropped) == 0 && dropped)
            atomic_fetch_add(&to->dropped, dropped);
        pthread_mutex_unlock(&mutex);
    }
    keep_buffer(buffer);
    errno = kept;
}

/* ---- flushing ---- */

static void (*flush_ranges)(void); /* of libperjoule-nvtx.so; NULL: it is not there */

/* What the program opened before it launched the work has to be known when the work is. */
static void find_nvtx(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *address = library ? dlsym(library, "perjoule_nvtx_flush") : NULL;
    memcpy(&flush_ranges, &address, sizeof address);
}

/* Records of API calls say which thread launched what. They are half of the cost, so a program that
 * has not reported any span for a while goes without, until it does. */
static void follow_launches(int64_t waited_ms)
{
    static bool is_off;
    static const uint32_t kinds[] = {PJ_CUPTI_RUNTIME, PJ_CUPTI_DRIVER};
    bool is_wanted = atomic_load(&decoder.to->wants_launches) || waited_ms < PATIENCE_MS;
    for (int i = 0; i < 2 && is_off == is_wanted; i++)
        if (is_wanted)
            cupti.enable(kinds[i]);
        else
            cupti.disable(kinds[i]);
    is_off = !is_wanted;
}

static void *flush_from_time_to_time(void *nothing)
{
    const struct timespec period = {0, FLUSH_MS * 1000000L};
    int64_t waited_ms = 0;
    for (bool goes_on = true; goes_on; waited_ms += FLUSH_MS) {
        nanosleep(&period, NULL);
        pthread_mutex_lock(&flushing);
        goes_on = atomic_load(&slot) != NULL;
        if (!flush_ranges) find_nvtx(); /* which the program loads at its first range */
        if (goes_on && flush_ranges) flush_ranges();
        if (goes_on) cupti.flush_all(0);
        if (goes_on) follow_launches(waited_ms);
        pthread_mutex_unlock(&flushing);
    }
    return nothing;
}

/* With all signals blocked, which are the program's. Without the thread, full buffers are delivered
 * and the rest at the end. */
static void start_thread(void)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&thread, &attributes, flush_from_time_to_time, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Not pthread_mutex_timedlock(), whose limit moves when the wall clock is set. */
static bool lock_for_exit(void)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int tries = 0; tries < EXIT_SECONDS * 100; tries++) {
        if (pthread_mutex_trylock(&flushing) == 0) return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* At exit, before CUPTI's own handlers, which were registered earlier. A flush of our thread that
 * does not return keeps nobody from exiting. */
static void finish(void)
{
    pj_cuda_process *own = atomic_load(&slot);
    if (!own) return;
    bool is_mine = lock_for_exit();
    if (is_mine) cupti.flush_all(PJ_CUPTI_FLUSH_FORCED);
    atomic_store(&slot, NULL);
    if (!is_mine) return;
    pthread_mutex_unlock(&flushing);
    atomic_store(&own->state, PJ_CUDA_ENDED);
}

/* A forked child cannot use CUDA, and its parent writes the slot. */
static void forget(void)
{
    atomic_store(&slot, NULL);
    pthread_mutex_init(&mutex, NULL); /* another thread may have held it */
}

/* ---- starting ---- */

/* Graphs as wholes unless the kernels inside are wanted; where CUPTI cannot record graphs (before
 * CUDA 11.7), their kernels are all that there is. */
static bool enable_kinds(pj_cuda_process *own, bool in_graphs)
{
    static const uint32_t kinds[] = {PJ_CUPTI_DEVICE,    PJ_CUPTI_MEMCPY,  PJ_CUPTI_MEMSET,
                                     PJ_CUPTI_PEER_COPY, PJ_CUPTI_RUNTIME, PJ_CUPTI_DRIVER};
    char why[120];
    decoder.skips_graph_nodes = !in_graphs && cupti.enable(PJ_CUPTI_GRAPH) == 0;
    int result = cupti.enable(PJ_CUPTI_KERNEL);
    if (result != 0) {
        pj_cupti_name_result(&cupti, result, why, sizeof why);
        snprintf(own->problem, sizeof own->problem, "CUPTI %u does not record kernels: %s",
                 cupti.version, why);
        return false;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) cupti.enable(kinds[i]);
    return true;
}

static bool start(pj_cuda_process *own, bool in_graphs)
{
    char why[120];
    if (!pj_cupti_open(&cupti, own->problem, sizeof own->problem)) return false;
    own->version = cupti.version;
    has_own_clock = cupti.register_clock && cupti.register_clock(clock_ns) == 0;
    if (cupti.set_thread_id_type) cupti.set_thread_id_type(THREAD_ID_SYSTEM);
    int result = cupti.register_callbacks(request, completed);
    if (result != 0) {
        pj_cupti_name_result(&cupti, result, why, sizeof why);
        snprintf(own->problem, sizeof own->problem, "CUPTI %u takes no buffers: %s", cupti.version,
                 why);
        return false;
    }
    decoder = (pj_cuda_decoder){.to = own, .version = cupti.version};
    atomic_store(&slot, own);
    if (enable_kinds(own, in_graphs)) return true;
    atomic_store(&slot, NULL);
    return false;
}

/* The driver goes on whatever is returned; 1 is success. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static atomic_flag is_called = ATOMIC_FLAG_INIT;
    uint32_t in_graphs = 0;
    if (atomic_flag_test_and_set(&is_called)) return 1;
    pj_cuda_process *own = map_slot(&in_graphs);
    if (!own) return 1;
    own->pid = (uint32_t)getpid();
    atomic_store(&own->state, PJ_CUDA_STARTING);
    if (!start(own, in_graphs != 0)) {
        atomic_store(&own->state, PJ_CUDA_REFUSED);
        return 1;
    }
    atomic_store(&own->state, PJ_CUDA_RECORDING);
    pthread_atfork(NULL, NULL, forget);
    atexit(finish);
    if (cupti.flush_period) cupti.flush_period(FLUSH_MS);
    start_thread();
    return 1;
}

/* A program that uses CUDA, without CUDA: it loads the injection library as the driver does and
 * plays GPU work as records of the stand-in CUPTI, whose path is in CLIENT_CUPTI. The first
 * argument says what it does:
 *   work         kernels of three names, in ranges of NVTX, with copies and a graph; see play()
 *   overlap      kernels on two streams that overlap
 *   hostile      records that no CUPTI would write
 *   many N       N kernels; prints the processor time of each
 *   quiet        no range until launches are not recorded any more, then one
 *   _exit, kill  work, and then that end
 *   fork         work, while a forked child exits
 *   two          work, in two processes at once */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000u

static void (*put)(uint32_t kind, const void *record, size_t size);
static int (*flush)(uint32_t), (*has)(uint32_t);
static int (*get_time)(uint64_t *);
static uint32_t correlation;

static uint64_t now(void)
{
    uint64_t ns = 0;
    get_time(&ns);
    return ns;
}

static void wait_until(uint64_t ns)
{
    for (uint64_t at; (at = now()) < ns;) usleep((useconds_t)((ns - at) / 1000 + 1));
}

/* ---- NVTX, as its header loads the injection ---- */

typedef void (*function)(void);
static function core[16], *core_slots[16];

static int module_table(int module, function ***table, unsigned *count)
{
    *count = 16;
    *table = core_slots;
    return module == 1;
}

static const struct {
    size_t size;
    int (*get)(int, function ***, unsigned *);
} callbacks = {sizeof callbacks, module_table};

static const void *export_table(uint32_t id)
{
    return id == 1 ? &callbacks : NULL;
}

static void load_nvtx(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*enter)(const void *(*)(uint32_t)) = NULL;
    for (int i = 0; i < 16; i++) core_slots[i] = &core[i];
    if (library) *(void **)&enter = dlsym(library, "InitializeInjectionNvtx2");
    if (enter) enter(export_table);
}

static void push(const char *text)
{
    if (core[9]) ((int (*)(const char *))core[9])(text);
}

static void pop(void)
{
    if (core[11]) ((int (*)(void))core[11])();
}

/* ---- records ---- */

static void set32(uint8_t *record, size_t at, uint32_t value)
{
    memcpy(record + at, &value, 4);
}

static void set64(uint8_t *record, size_t at, uint64_t value)
{
    memcpy(record + at, &value, 8);
}

static uint32_t launch(uint64_t at_ns)
{
    uint8_t record[40] = {0};
    set32(record, 0, 5);
    set64(record, 8, at_ns);
    set64(record, 16, at_ns + 1000);
    set32(record, 24, (uint32_t)getpid());
    set32(record, 28, (uint32_t)syscall(SYS_gettid));
    set32(record, 32, ++correlation);
    put(5, record, sizeof record);
    return correlation;
}

/* The sizes of Kernel3 and 4 (before CUDA 11), Kernel5 to 13; what versions added follows what is
 * used. Those of copies and memsets differ by 8 bytes. */
static const size_t old_kernels[] = {120, 144}, kernels[] = {160, 168, 176, 200, 208, 216, 248};
static int is_old;

static void kernel(const char *name, uint32_t stream, uint64_t begin, uint64_t end, uint32_t by,
                   uint64_t node)
{
    static size_t turn;
    uint8_t record[248];
    size_t size = is_old ? old_kernels[turn++ % 2] : kernels[turn++ % 7];
    memset(record, 0xff, sizeof record);
    set32(record, 0, 10);
    set64(record, 16, begin);
    set64(record, 24, end);
    set32(record, 40, 0);
    set32(record, 48, stream);
    set32(record, 92, by);
    set64(record, 104, (uint64_t)(uintptr_t)name);
    set64(record, 144, node);
    put(10, record, size);
}

static void copy(uint32_t kind, size_t size, uint64_t begin, uint64_t end)
{
    uint8_t record[96] = {0};
    set32(record, 0, kind);
    record[4] = 1; /* host to device */
    set64(record, 16, begin);
    set64(record, 24, end);
    set32(record, 40, 7);
    set32(record, kind == 22 ? 60 : 44, launch(begin));
    put(kind, record, size);
}

static void graph(size_t size, uint64_t begin, uint64_t end, uint32_t by)
{
    uint8_t record[56] = {0};
    set32(record, 0, 51);
    set32(record, 4, by);
    set64(record, 8, begin);
    set64(record, 16, end);
    set32(record, 28, 5);
    set32(record, 36, 7);
    put(51, record, size);
}

/* Device2 to Device5. */
static void device(size_t size)
{
    uint8_t record[184] = {0};
    set32(record, 0, 8);
    memcpy(record + 120, "\xaa\xaa\0\1\x11\x11\x22\x22\x33\x33\x44\x44\x44\x44\x44\x44", 16);
    set64(record, 136, (uint64_t)(uintptr_t) "NVIDIA Stand-in");
    put(8, record, size);
}

/* ---- what it does ---- */

static const char gemm[] = "_ZN7cutlass7Kernel2I32cutlass_80_tensorop_bf16_gemm_tnEEvNT_6ParamsE";
static const char flash[] = "_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128E"
                            "N7cutlass10bfloat16_tEEEEvNS_16Flash_fwd_paramsE";
static const char norm[] = "rms_norm_kernel";

/* A step of 20 ms: 4 ms attention in 4 pieces, 8 ms gemm in 8, 2 ms norm in 20, a copy of 1 ms and
 * a graph of 2 ms with kernels in it; 3 ms idle. */
static void step_on_gpu(int step, uint64_t at, uint32_t by)
{
    for (int i = 0; i < 4; i++, at += MS) kernel(flash, 7, at, at + MS, by, 0);
    for (int i = 0; i < 8; i++, at += MS) kernel(gemm, 7, at, at + MS, by, 0);
    for (int i = 0; i < 20; i++, at += MS / 10) kernel(norm, 7, at, at + MS / 10, by, 0);
    copy(step % 3 == 2 ? 22 : 1, is_old ? 64 : 80 + 8 * (size_t)(step % 3), at, at + MS);
    graph(step % 2 ? 48 : 56, at + MS, at + 3 * MS, by);
    for (int i = 1; i < 3; i++)
        kernel("in_a_graph", 7, at + (uint64_t)i * MS, at + (uint64_t)(i + 1) * MS, by, 99);
}

/* The GPU works on a step while the program launches the next one, and CUPTI reports it when it is
 * done. */
static int play(int steps)
{
    uint64_t begin = now();
    uint32_t by[2] = {0};
    for (int step = 0; step < steps + 2; step++) {
        uint64_t at = begin + (uint64_t)step * 20 * MS;
        wait_until(at);
        if (step == 6) flush(0), device(144); /* after its first work */
        if (step >= 2) step_on_gpu(step - 2, at - 20 * MS, by[step % 2]);
        if (step >= steps) continue;
        push(step % 2 ? "odd" : "even");
        by[step % 2] = launch(now());
        wait_until(now() + MS);
        pop();
    }
    return 0;
}

/* Two streams: 10 ms alone, 10 ms together, 10 ms the other alone, ten times. */
static int overlap(void)
{
    uint64_t begin = now();
    device(184);
    wait_until(begin + 300 * MS);
    for (uint64_t i = 0, at = begin; i < 10; i++, at += 30 * MS) {
        kernel("first", 7, at, at + 20 * MS, launch(begin), 0);
        kernel("second", 13, at + 10 * MS, at + 30 * MS, launch(begin), 0);
    }
    return 0;
}

static int hostile(void)
{
    static char names[9000][24];
    uint64_t at = now();
    wait_until(at + 20 * MS);
    device(100);
    kernel(norm, 7, at + MS, at, 0, 0);                /* ends before it begins */
    kernel(norm, 7, 0, 0, 0, 0);                       /* CUPTI could not time it */
    kernel(norm, 7, UINT64_MAX - 1, UINT64_MAX, 0, 0); /* overflows */
    kernel(norm, 7, at, at + 86400000u * (uint64_t)MS, 0, 0);
    kernel(NULL, UINT32_MAX, at, at + MS, UINT32_MAX, 0);
    kernel("_ZN", 1, at, at + MS, 1, 0);
    kernel("bad\n\xff\x01name<", 1, at, at + MS, 1, 0);
    uint8_t record[248] = {0};
    set32(record, 0, 10);
    set64(record, 16, at);
    set64(record, 24, at + MS);
    set32(record, 40, 4000000000u); /* no such device */
    set64(record, 104, (uint64_t)(uintptr_t)norm);
    put(10, record, 248);
    put(10, record, 20); /* cut off */
    set32(record, 0, 777);
    put(5, record, 248); /* of no known kind */
    for (int i = 0; i < 9000; i++) {
        snprintf(names[i], sizeof names[i], "kernel_%d", i);
        kernel(names[i], 1, at + (uint64_t)i * 1000, at + (uint64_t)i * 1000 + 1000, 1, 0);
    }
    return 0;
}

static int many(int count)
{
    struct timespec a, b;
    uint64_t at = now();
    wait_until(at + 1000 * (uint64_t)count);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int i = 0; i < count; i++, at += 1000) {
        uint32_t by = launch(at);
        kernel(i % 3 ? gemm : flash, 7, at, at + 900, by, 0);
    }
    flush(0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    double ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
    printf("%.0f ns per kernel and its launch (processor time)\n", ns / count);
    return 0;
}

/* Ends when perjoule does what is waited for; else the test's time ends. */
static void wait_for_launches(int are_recorded)
{
    while (has(5) != are_recorded) usleep(1000);
}

static int quiet(void)
{
    wait_for_launches(0);
    push("late range");
    wait_for_launches(1);
    uint64_t at = now();
    uint32_t by = launch(at);
    wait_until(at + 2 * MS);
    pop();
    kernel(norm, 7, at + MS, at + 2 * MS, by, 0);
    return 0;
}

static int start(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH"), *cupti = getenv("CLIENT_CUPTI");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL, *fake;
    int (*initialize)(void) = NULL;
    if (library) *(void **)&initialize = dlsym(library, "InitializeInjection");
    if (!initialize || initialize() != 1 || initialize() != 1) {
        printf("not injected: %s\n", path ? path : "no path");
        return 3;
    }
    fake = cupti ? dlopen(cupti, RTLD_NOW) : NULL;
    if (!fake) return 4;
    *(void **)&put = dlsym(fake, "fake_cupti_put");
    *(void **)&flush = dlsym(fake, "cuptiActivityFlushAll");
    *(void **)&get_time = dlsym(fake, "cuptiGetTimestamp");
    *(void **)&has = dlsym(fake, "fake_cupti_has");
    is_old = dlsym(fake, "cuptiSubscribe_v2") == NULL;
    return 0;
}

static int in_child(int steps)
{
    if (start() != 0) return 1;
    return play(steps);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "work";
    if (strcmp(what, "two") == 0) {
        pid_t child = fork();
        if (child == 0) return in_child(10);
        int failed = in_child(10), status = 1;
        waitpid(child, &status, 0);
        return failed || status;
    }
    load_nvtx();
    int failed = start();
    if (failed) return failed;
    if (strcmp(what, "overlap") == 0) return overlap();
    if (strcmp(what, "hostile") == 0) return hostile();
    if (strcmp(what, "quiet") == 0) return quiet();
    if (strcmp(what, "many") == 0) return many(argc > 2 ? atoi(argv[2]) : 1000);
    if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) return 0; /* runs the exit handlers that it inherited */
        waitpid(child, NULL, 0);
        return play(10);
    }
    play(10);
    if (strcmp(what, "work") == 0) return 0;
    flush(0); /* a while later CUPTI would have delivered it by itself */
    if (strcmp(what, "kill") == 0) raise(SIGKILL);
    _exit(5);
}

/* A program with NVTX ranges that does not need NVTX: it loads the injection library as NVTX's
 * header does and calls the function pointers that it fills in. With N: N push/pop pairs, and their
 * cost. With "flood" N: N nested ranges of each kind while nobody reads; then it prints "go" and
 * waits for a line. With "kill" N: N pairs, then SIGKILL; with "_exit" N: N pairs, then
 * _exit. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

typedef void (*function)(void);
static function core[16], core2[16];
static function *core_slots[16], *core2_slots[16];

static int module_table(int module, function ***table, unsigned *count)
{
    *count = 16;
    *table = module == 1 ? core_slots : module == 5 ? core2_slots : NULL;
    return *table != NULL;
}

static const struct {
    size_t size;
    int (*get)(int, function ***, unsigned *);
} callbacks = {sizeof callbacks, module_table};

static const void *export_table(uint32_t id)
{
    return id == 1 ? &callbacks : NULL;
}

typedef struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} attributes;

static int push(const char *text)
{
    return ((int (*)(const char *))core[9])(text);
}

static int pop(void)
{
    return ((int (*)(void))core[11])();
}

static void *in_thread(void *nothing)
{
    push("thread");
    usleep(20000);
    pop();
    return nothing;
}

static int measure(int pairs)
{
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < pairs; i++) {
        push("range");
        pop();
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    double ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
    printf("%.0f ns per range (processor time)\n", ns / pairs);
    return 0;
}

static void nest(void *domain)
{
    attributes a = {.version = 2, .size = sizeof a, .message_type = 1, .message = "in the domain"};
    ((int (*)(void *, const attributes *))core2[4])(domain, &a);
    push("inner");
    pop();
    ((int (*)(void *))core2[5])(domain);
}

static int flood(int count)
{
    char line[8];
    void *domain = ((void *(*)(const char *))core2[12])("d");
    push("outer");
    for (int i = 0; i < count; i++) {
        push("middle");
        nest(domain);
        ((void (*)(uint64_t))core[7])(((uint64_t(*)(const char *))core[5])("started"));
        pop();
    }
    printf("go\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    usleep(2000);
    push("late");
    pop();
    pop();
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 0; i < 16; i++) core_slots[i] = &core[i], core2_slots[i] = &core2[i];
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*enter)(const void *(*)(uint32_t)) = NULL;
    if (library) *(void **)&enter = dlsym(library, "InitializeInjectionNvtx2");
    if (!enter || !enter(export_table) || !enter(export_table)) {
        printf("not injected: %s\n", library ? "refused" : path ? dlerror() : "no path");
        return 3;
    }
    if (argc > 2 && strcmp(argv[1], "kill") == 0) return measure(atoi(argv[2])), raise(SIGKILL);
    if (argc > 2 && strcmp(argv[1], "_exit") == 0) measure(atoi(argv[2])), _exit(5);
    if (argc > 2) return flood(atoi(argv[2]));
    if (argc > 1) return measure(atoi(argv[1]));
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    int first = push("outer"), second = ((int (*)(const wchar_t *))core[10])(L"w\u00efde");
    usleep(10000);
    pop();
    void *domain = ((void *(*)(const char *))core2[12])("torch");
    void *text = ((void *(*)(void *, const char *))core2[10])(domain, "registered\nname");
    attributes a = {.version = 2, .size = sizeof a, .message_type = 3, .message = text};
    ((int (*)(void *, const attributes *))core2[4])(domain, &a);
    uint64_t range = ((uint64_t(*)(const char *))core[5])("started");
    usleep(10000);
    ((void (*)(uint64_t))core[7])(range);
    ((void (*)(uint64_t))core[7])(range); /* ending it twice has no effect */
    ((int (*)(void *))core2[5])(domain);
    a.size = 8;
    ((int (*)(const attributes *))core[8])(&a); /* too short to hold a message */
    pop();
    int last = pop();
    pthread_join(thread, NULL);
    printf("%d %d %d %d\n", first, second, last, pop());
    return 0;
}

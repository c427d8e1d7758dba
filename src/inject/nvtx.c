/*
 * libperjoule-nvtx.so: NVTX ranges as markers. A program that emits NVTX ranges (PyTorch, vLLM,
 * TensorRT-LLM, RAPIDS, Python's nvtx) loads the library named by NVTX_INJECTION64_PATH at its
 * first NVTX call and passes it a table of function pointers to fill; `perjoule exec` names this
 * library. Push and pop become sections on a lane per thread and domain, start and end become
 * finished spans. Both are marker lines (docs/formats.md), buffered per thread and written to the
 * descriptor in PERJOULE_MARKERS when there are enough of them, every 20 ms while ranges arrive,
 * and at exit. The buffers lie in memory shared with perjoule (nvtx_shared.h), which reads what a
 * process that was killed or called _exit had not written. The program never waits: while the pipe
 * is full lines stay in the buffer; when that is full, whole ranges are dropped and counted in a
 * line `lost N`.
 *
 * No other library or NVIDIA header is needed: the few types used of NVTX's interface are declared
 * below. Each shared object of the program that uses NVTX calls the entry point once.
 */
#include "inject/nvtx_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

enum { BUFFER_BYTES = PJ_NVTX_TEXT_BYTES, NAME_BYTES = 200, OPEN_RANGES = 4096, DOMAINS = 64 };
enum {
    LINE_BYTES = 100 + NAME_BYTES,
    END_BYTES = 48,
    WRITE_BYTES = 4096 /* a pipe's atomic write */
};
#define FLUSH_NS INT64_C(20000000)
#define RETRY_NS INT64_C(1000000)   /* the pipe was full */
#define EXIT_NS  INT64_C(200000000) /* wait for a full pipe to be read at exit */

/* ---- NVTX's interface ---- */

typedef void (*function)(void);
typedef struct export_callbacks {
    size_t struct_size;
    int (*get_module_function_table)(int module, function ***table, unsigned *count);
} export_callbacks;
typedef const void *(*get_export_table)(uint32_t id);

enum { TABLE_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { START_EX = 4, START_A, START_W, RANGE_END, PUSH_EX, PUSH_A, PUSH_W, POP }; /* CORE */
enum { D_START_EX = 2, D_END, D_PUSH_EX, D_POP, REGISTER_A = 10, REGISTER_W, CREATE_A, CREATE_W };
enum { MESSAGE_CHAR = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };

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

typedef struct name {
    uint32_t bytes;
    char text[NAME_BYTES];
} name;

typedef struct domain { /* what a handle points to; never freed, since there are few */
    uint32_t number;
    name prefix; /* "NAME/" */
} domain;

static const domain default_domain;

/* ---- text ---- */

static void add_bytes(name *n, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && n->bytes < NAME_BYTES; i++) {
        unsigned char c = (unsigned char)text[i];
        n->text[n->bytes++] = c < ' ' || c == 127 ? '?' : (char)c;
    }
}

static void add_wide(name *n, const wchar_t *text)
{
    for (; text && *text && n->bytes + 4 <= NAME_BYTES; text++) {
        uint32_t c = (uint32_t)*text;
        size_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        char utf8[4] = {(char)c};
        for (size_t i = bytes; i-- > 1; c >>= 6) utf8[i] = (char)(0x80 | (c & 63));
        if (bytes > 1) utf8[0] = (char)(0xf00 >> bytes | (c & 0xff >> (bytes + 1)));
        add_bytes(n, utf8, bytes);
    }
}

static name name_of(const domain *d, int type, const void *message)
{
    name n;
    n.bytes = 0;
    add_bytes(&n, d->prefix.text, d->prefix.bytes);
    uint32_t before = n.bytes;
    if (message && type == MESSAGE_CHAR) add_bytes(&n, message, strnlen(message, NAME_BYTES));
    if (message && type == MESSAGE_WIDE) add_wide(&n, message);
    if (message && type == MESSAGE_REGISTERED)
        add_bytes(&n, ((const name *)message)->text, ((const name *)message)->bytes);
    if (n.bytes == before) add_bytes(&n, "unnamed", 7);
    return n;
}

static name name_of_attributes(const domain *d, const attributes *a)
{
    bool whole = a && a->size >= sizeof *a;
    return name_of(d, whole ? a->message_type : 0, whole ? a->message : NULL);
}

/* ---- buffers ---- */

/* The open ranges of a thread in a domain. Bit n of `is_left_out`: the range at depth n was
 * dropped, so its end must not be written. */
typedef struct lane {
    uint32_t depth;
    uint64_t is_left_out;
} lane;

typedef struct buffer {
    atomic_flag busy; /* held by the thread that writes, or by another that flushes at exit */
    bool is_stuck;    /* the pipe was full */
    uint32_t open;    /* ranges whose ends are still to be written */
    int64_t flushed_ns;
    uint64_t thread;
    lane lanes[DOMAINS]; /* by number; further domains share them */
    struct buffer *next;
    pj_nvtx_slot *slot; /* its text; NULL: of a thread that a fork did not copy */
} buffer;

static _Atomic(buffer *) buffers;
static _Thread_local buffer *mine;
static int marker_fd = -1;
static pj_nvtx_shared *shared; /* NULL: not available */

static uint32_t used_of(const buffer *b)
{
    return atomic_load_explicit(&b->slot->used, memory_order_relaxed);
}

static void set_used(buffer *b, size_t bytes)
{
    atomic_store_explicit(&b->slot->used, (uint32_t)bytes, memory_order_release);
}

static void set_done(buffer *b, size_t bytes)
{
    atomic_store_explicit(&b->slot->done, (uint32_t)bytes, memory_order_release);
}

static uint64_t lost_of(const buffer *b)
{
    return atomic_load_explicit(&b->slot->lost, memory_order_relaxed);
}

static void set_lost(buffer *b, uint64_t count)
{
    atomic_store_explicit(&b->slot->lost, count, memory_order_relaxed);
}

/* A private one when all shared ones are taken. */
static pj_nvtx_slot *take_slot(void)
{
    uint32_t index = shared ? atomic_fetch_add(&shared->taken, 1) : PJ_NVTX_SLOTS;
    return index < PJ_NVTX_SLOTS ? &shared->slots[index] : calloc(1, sizeof(pj_nvtx_slot));
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static char *put_number(char *at, uint64_t value)
{
    char digits[20];
    int count = 0;
    do digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count) *at++ = digits[--count];
    return at;
}

static char *put_text(char *at, const char *text, size_t bytes)
{
    memcpy(at, text, bytes);
    return at + bytes;
}

/* The length of the next write: whole lines, at most PIPE_BUF bytes, so that it is atomic. */
static size_t piece_of(const buffer *b, size_t done)
{
    size_t bytes = used_of(b) - done;
    if (bytes <= WRITE_BYTES) return bytes;
    bytes = WRITE_BYTES;
    while (b->slot->text[done + bytes - 1] != '\n') bytes--;
    return bytes;
}

static void put_lost(buffer *b)
{
    char *at = put_text(b->slot->text + used_of(b), "lost ", 5);
    at = put_number(at, lost_of(b));
    *at++ = '\n';
    set_lost(b, 0);
    set_used(b, (size_t)(at - b->slot->text));
}

/* Lines that the pipe does not accept stay in the buffer. Every step leaves the slot readable, in
 * case the process is killed after it. */
static void flush(buffer *b)
{
    int kept = errno;
    size_t done = 0;
    if (lost_of(b) && used_of(b) + (b->open + 1) * (size_t)END_BYTES <= BUFFER_BYTES) put_lost(b);
    while (done < used_of(b)) {
        size_t bytes = piece_of(b, done);
        if (write(marker_fd, b->slot->text + done, bytes) != (ssize_t)bytes) break;
        done += bytes;
        set_done(b, done);
    }
    size_t left = used_of(b) - done;
    if (left) memmove(b->slot->text, b->slot->text + done, left);
    set_used(b, left);
    set_done(b, 0);
    b->is_stuck = left > 0;
    errno = kept;
}

static void lock(buffer *b)
{
    while (atomic_flag_test_and_set_explicit(&b->busy, memory_order_acquire)) {
    }
}

static void unlock(buffer *b)
{
    atomic_flag_clear_explicit(&b->busy, memory_order_release);
}

static bool flush_locked(buffer *b)
{
    lock(b);
    flush(b);
    bool is_stuck = b->is_stuck;
    unlock(b);
    return is_stuck;
}

/* At exit: waits a moment for the reader to drain the pipe. */
static void flush_all(void)
{
    int64_t until_ns = now_ns() + EXIT_NS;
    for (buffer *b = atomic_load(&buffers); b; b = b->next)
        while (b->slot && flush_locked(b)) {
            struct pollfd p = {.fd = marker_fd, .events = POLLOUT};
            int64_t left_ns = until_ns - now_ns();
            if (left_ns <= 0 || poll(&p, 1, (int)(left_ns / 1000000) + 1) <= 0) break;
            if (!(p.revents & POLLOUT)) break;
        }
}

/* Ranges that another thread may end. */
typedef struct range {
    uint64_t id; /* 0: none */
    int64_t begin_ns;
    name name;
} range;

static range ranges[OPEN_RANGES];
static uint64_t last_range;
static pthread_mutex_t ranges_mutex = PTHREAD_MUTEX_INITIALIZER;

/* After fork the child leaves the slots to the parent, whose threads write them, and discards the
 * open ranges, which the parent began. If no slot is left, its ranges are not recorded. */
static void forget_all(void)
{
    for (buffer *b = atomic_load(&buffers); b; b = b->next) {
        unlock(b);
        b->slot = b == mine ? take_slot() : NULL;
        b->open = 0;
        b->is_stuck = false;
        for (int i = 0; i < DOMAINS; i++) b->lanes[i].is_left_out = UINT64_MAX;
        b->thread = b == mine ? (uint64_t)syscall(SYS_gettid) : b->thread;
    }
    memset(ranges, 0, sizeof ranges);
    pthread_mutex_init(&ranges_mutex, NULL); /* another thread may have held it */
}

static buffer *my_buffer(void)
{
    if (mine) return mine->slot ? mine : NULL;
    buffer *b = calloc(1, sizeof *b);
    if (b) b->slot = take_slot();
    if (!b || !b->slot) {
        free(b);
        return NULL;
    }
    b->thread = (uint64_t)syscall(SYS_gettid);
    b->next = atomic_load(&buffers);
    while (!atomic_compare_exchange_weak(&buffers, &b->next, b)) {
    }
    return mine = b;
}

/* ---- lines ---- */

/* Flushes a buffer that is full or old enough. False: no room for a line of `bytes` besides the
 * ends of the open ranges. */
static bool make_room(buffer *b, size_t bytes, int64_t at_ns)
{
    size_t needed = bytes + b->open * (size_t)END_BYTES;
    bool is_due = used_of(b) + LINE_BYTES > WRITE_BYTES || at_ns - b->flushed_ns > FLUSH_NS;
    bool may_try = !b->is_stuck || at_ns - b->flushed_ns > RETRY_NS;
    if (is_due && may_try) {
        flush(b);
        b->flushed_ns = at_ns;
    }
    return used_of(b) + needed <= BUFFER_BYTES;
}

/* "@BEGIN[-END] #LANE VERB[NAME]" */
static void put_line(buffer *b, int64_t begin_ns, int64_t end_ns, uint64_t lane_number,
                     const char *verb, const name *n)
{
    char *at = b->slot->text + used_of(b);
    *at++ = '@';
    at = put_number(at, (uint64_t)begin_ns);
    if (end_ns) *at++ = '-', at = put_number(at, (uint64_t)end_ns);
    at = put_text(at, " #", 2);
    at = put_number(at, lane_number);
    *at++ = ' ';
    at = put_text(at, verb, strlen(verb));
    if (n) at = put_text(at, n->text, n->bytes);
    *at++ = '\n';
    set_used(b, (size_t)(at - b->slot->text));
}

/* A thread and a domain have a lane of their own. */
static uint64_t lane_number_of(const buffer *b, const domain *d)
{
    return b->thread | (uint64_t)d->number << 32;
}

static uint64_t bit_of(uint32_t depth)
{
    return depth < 64 ? UINT64_C(1) << depth : 0;
}

static int push(const domain *d, name n)
{
    buffer *b = my_buffer();
    if (!b) return -1;
    lane *l = &b->lanes[d->number % DOMAINS];
    uint64_t bit = bit_of(l->depth);
    int64_t at_ns = now_ns();
    lock(b);
    if (make_room(b, LINE_BYTES + END_BYTES, at_ns) && bit) {
        put_line(b, at_ns, 0, lane_number_of(b, d), "begin section ", &n);
        l->is_left_out &= ~bit;
        b->open++;
    } else {
        l->is_left_out |= bit;
        set_lost(b, lost_of(b) + 1);
    }
    unlock(b);
    return (int)l->depth++;
}

static int pop(const domain *d)
{
    buffer *b = my_buffer();
    if (!b || b->lanes[d->number % DOMAINS].depth == 0) return -1;
    lane *l = &b->lanes[d->number % DOMAINS];
    uint64_t bit = bit_of(--l->depth);
    if (!bit || l->is_left_out & bit) return (int)l->depth;
    int64_t at_ns = now_ns();
    lock(b);
    make_room(b, 0, at_ns); /* cannot fail: the range's begin reserved the space */
    put_line(b, at_ns, 0, lane_number_of(b, d), "end", NULL);
    b->open--;
    unlock(b);
    return (int)l->depth;
}

/* ---- ranges that another thread may end ---- */

static void lose_one(void)
{
    buffer *b = my_buffer();
    if (!b) return;
    lock(b);
    set_lost(b, lost_of(b) + 1);
    unlock(b);
}

/* When too many are open, the oldest range is dropped. */
static uint64_t begin_range(name n)
{
    pthread_mutex_lock(&ranges_mutex);
    uint64_t id = ++last_range;
    bool is_taken = ranges[id % OPEN_RANGES].id != 0;
    ranges[id % OPEN_RANGES] = (range){id, now_ns(), n};
    pthread_mutex_unlock(&ranges_mutex);
    if (is_taken) lose_one();
    return id;
}

static void end_range(uint64_t id)
{
    buffer *b = my_buffer();
    pthread_mutex_lock(&ranges_mutex);
    range r = ranges[id % OPEN_RANGES];
    bool open = id && r.id == id; /* else it was dropped */
    if (open) ranges[id % OPEN_RANGES].id = 0;
    pthread_mutex_unlock(&ranges_mutex);
    if (!open || !b) return;
    int64_t end_ns = now_ns();
    lock(b);
    if (make_room(b, LINE_BYTES, end_ns))
        put_line(b, r.begin_ns, end_ns, (uint64_t)getpid() | UINT64_C(1) << 62, "span section ",
                 &r.name);
    else
        set_lost(b, lost_of(b) + 1);
    unlock(b);
}

/* ---- the functions that NVTX calls ---- */

static int range_push_ex(const attributes *a)
{
    return push(&default_domain, name_of_attributes(&default_domain, a));
}
static int range_push_a(const char *text)
{
    return push(&default_domain, name_of(&default_domain, MESSAGE_CHAR, text));
}
static int range_push_w(const wchar_t *text)
{
    return push(&default_domain, name_of(&default_domain, MESSAGE_WIDE, text));
}
static int range_pop(void)
{
    return pop(&default_domain);
}
static uint64_t range_start_ex(const attributes *a)
{
    return begin_range(name_of_attributes(&default_domain, a));
}
static uint64_t range_start_a(const char *text)
{
    return begin_range(name_of(&default_domain, MESSAGE_CHAR, text));
}
static uint64_t range_start_w(const wchar_t *text)
{
    return begin_range(name_of(&default_domain, MESSAGE_WIDE, text));
}
static int domain_push_ex(const domain *d, const attributes *a)
{
    if (!d) d = &default_domain;
    return push(d, name_of_attributes(d, a));
}
static int domain_pop(const domain *d)
{
    return pop(d ? d : &default_domain);
}
static uint64_t domain_start_ex(const domain *d, const attributes *a)
{
    return begin_range(name_of_attributes(d ? d : &default_domain, a));
}
static void domain_end(const domain *d, uint64_t id)
{
    (void)d;
    end_range(id);
}

static void *keep_name(int type, const void *text)
{
    name *kept = malloc(sizeof *kept);
    if (kept) *kept = name_of(&default_domain, type, text);
    return kept;
}
static void *register_a(const domain *d, const char *text)
{
    (void)d;
    return keep_name(MESSAGE_CHAR, text);
}
static void *register_w(const domain *d, const wchar_t *text)
{
    (void)d;
    return keep_name(MESSAGE_WIDE, text);
}

static void *create(int type, const void *text)
{
    static _Atomic uint32_t domains;
    domain *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->number = atomic_fetch_add(&domains, 1) + 1;
    d->prefix = name_of(&default_domain, type, text);
    if (d->prefix.bytes > NAME_BYTES / 2) d->prefix.bytes = NAME_BYTES / 2;
    d->prefix.text[d->prefix.bytes++] = '/';
    return d;
}
static void *create_a(const char *text)
{
    return create(MESSAGE_CHAR, text);
}
static void *create_w(const wchar_t *text)
{
    return create(MESSAGE_WIDE, text);
}

/* ---- the entry point ---- */

typedef struct slot {
    unsigned id;
    function ours;
} slot;

static void fill(const export_callbacks *callbacks, int module, const slot *slots, size_t count)
{
    function **table = NULL;
    unsigned size = 0;
    if (!callbacks->get_module_function_table(module, &table, &size) || !table) return;
    for (size_t i = 0; i < count; i++)
        if (slots[i].id < size && table[slots[i].id]) *table[slots[i].id] = slots[i].ours;
}

static void map_shared(void)
{
    const char *path = getenv("PERJOULE_NVTX_BUFFERS");
    struct stat s;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *memory = fstat(fd, &s) == 0 && s.st_size == (off_t)sizeof *shared
                       ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED) return;
    if (((pj_nvtx_shared *)memory)->magic == PJ_NVTX_MAGIC)
        shared = memory;
    else
        munmap(memory, sizeof *shared);
}

/* The descriptor may have been closed in this process and its number taken by a file of the
 * program's own. */
static bool is_our_pipe(int fd)
{
    struct stat s;
    if (fd < 3 || fstat(fd, &s) != 0 || !S_ISFIFO(s.st_mode)) return false;
    return !shared || s.st_ino == shared->pipe_inode;
}

static bool open_markers(void)
{
    const char *text = getenv("PERJOULE_MARKERS");
    if (marker_fd >= 0) return true;
    if (!text || !*text) return false;
    if (!shared) map_shared();
    int fd = atoi(text);
    if (!is_our_pipe(fd)) return false;
    marker_fd = fd;
    pthread_atfork(NULL, NULL, forget_all);
    return true;
}

/* Writes what all threads have buffered: for libperjoule-cuda.so, from a thread of its own. */
__attribute__((visibility("default"))) void perjoule_nvtx_flush(void)
{
    if (marker_fd < 0) return;
    for (buffer *b = atomic_load(&buffers); b; b = b->next)
        if (b->slot) flush_locked(b);
}

__attribute__((destructor)) static void finish(void)
{
    if (marker_fd < 0) return;
    for (uint64_t i = 0; i < OPEN_RANGES; i++)
        if (ranges[i].id) end_range(ranges[i].id);
    flush_all();
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(get_export_table get_table)
{
#define SLOT(id, name)                     \
    {                                      \
        id, (function)(void (*)(void))name \
    }
    static const slot core[] = {SLOT(START_EX, range_start_ex), SLOT(START_A, range_start_a),
                                SLOT(START_W, range_start_w),   SLOT(RANGE_END, end_range),
                                SLOT(PUSH_EX, range_push_ex),   SLOT(PUSH_A, range_push_a),
                                SLOT(PUSH_W, range_push_w),     SLOT(POP, range_pop)};
    static const slot core2[] = {SLOT(D_START_EX, domain_start_ex), SLOT(D_END, domain_end),
                                 SLOT(D_PUSH_EX, domain_push_ex),   SLOT(D_POP, domain_pop),
                                 SLOT(REGISTER_A, register_a),      SLOT(REGISTER_W, register_w),
                                 SLOT(CREATE_A, create_a),          SLOT(CREATE_W, create_w)};
#undef SLOT
    const export_callbacks *callbacks = get_table ? get_table(TABLE_CALLBACKS) : NULL;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks || !open_markers()) return 0;
    fill(callbacks, MODULE_CORE, core, sizeof core / sizeof *core);
    fill(callbacks, MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
    return 1;
}

#include "bench/readers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/call.h"
#include "http/websocket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Readers on other machines cost this one nothing, so these should cost little: they poll 100 times
 * per second, so that deliveries do not wake them. */
enum { SEEN_BYTES = 64, BLOCK_BYTES = 64 << 10, NAP_NS = 10 * 1000 * 1000 };
#define PATIENCE_NS (30 * PJ_NS_PER_S)

/* One reader: its position in the current frame, and its counts. */
typedef struct reader {
    int fd;
    bool deaf, cut;
    uint32_t ended;                     /* number of run ends received */
    unsigned char seen[SEEN_BYTES + 1]; /* head and begin of the payload */
    size_t seen_bytes;
    uint64_t frame_bytes; /* of head and payload; 0: incomplete head */
    uint64_t passed;      /* bytes of the frame received */
    uint64_t messages, gaps, disordered, last;
} reader;

struct pj_bench_readers {
    reader *items;
    uint32_t count;
    struct pollfd *polls;
    pthread_t thread;
    int cpu;
    uint16_t port;
    bool binary, running;
    _Atomic bool stop;
    _Atomic uint32_t ended;
    uint64_t bytes;
};

/* ---- frames ---- */

static void count_frame(pj_bench_readers *reader_set, reader *t)
{
    uint64_t payload = 0, number = 0;
    size_t head = pj_frame_parse(t->seen, t->seen_bytes, &payload);
    unsigned char *text = t->seen + head, opcode = t->seen[0] & 15;
    t->seen[t->seen_bytes] = 0;
    if (opcode > 2) return;
    t->messages++;
    if (opcode == 2) {
        number =
            text[4] | (uint32_t)text[5] << 8 | (uint32_t)text[6] << 16 | (uint32_t)text[7] << 24;
    } else {
        if (strncmp((char *)text, "{\"seq\":", 7) == 0)
            number = strtoull((char *)text + 7, NULL, 10);
        if (strstr((char *)text, "\"type\":\"gap\"")) t->gaps++;
        if (strstr((char *)text, "\"type\":\"inference_complete\"")) {
            t->ended++;
            atomic_fetch_add(&reader_set->ended, 1);
        }
    }
    if (t->messages > 2 && number <= t->last)
        t->disordered++; /* hello carries its reader's position */
    t->last = number;
}

static void take_bytes(pj_bench_readers *reader_set, reader *t, const unsigned char *bytes,
                       size_t count)
{
    while (count > 0) {
        size_t n = 1; /* byte by byte until the head is complete, then in blocks */
        if (t->frame_bytes) {
            uint64_t left = t->frame_bytes - t->passed;
            n = count < left ? count : (size_t)left;
        }
        size_t keep = SEEN_BYTES - t->seen_bytes;
        if (keep > n) keep = n;
        memcpy(t->seen + t->seen_bytes, bytes, keep);
        t->seen_bytes += keep;
        t->passed += n;
        bytes += n;
        count -= n;
        uint64_t payload;
        size_t head = t->frame_bytes ? 0 : pj_frame_parse(t->seen, t->seen_bytes, &payload);
        if (head) t->frame_bytes = head + payload;
        if (t->frame_bytes && t->passed == t->frame_bytes) {
            count_frame(reader_set, t);
            t->seen_bytes = t->passed = t->frame_bytes = 0;
        }
    }
}

static void *readers_read_all(void *context)
{
    pj_bench_readers *reader_set = context;
    unsigned char *block = malloc(BLOCK_BYTES);
    pj_thread_pin(reader_set->cpu);
    while (block && !atomic_load(&reader_set->stop)) {
        if (poll(reader_set->polls, reader_set->count, 50) <= 0) continue;
        for (uint32_t i = 0; i < reader_set->count; i++) {
            reader *t = &reader_set->items[i];
            if (!reader_set->polls[i].revents) continue;
            ssize_t n = recv(t->fd, block, BLOCK_BYTES, MSG_DONTWAIT);
            if (n > 0) {
                reader_set->bytes += (uint64_t)n;
                take_bytes(reader_set, t, block, (size_t)n);
            } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                t->cut = true;
                reader_set->polls[i].fd = -1;
            }
        }
        pj_clock_sleep_until(pj_clock_ns() + NAP_NS);
    }
    free(block);
    return NULL;
}

/* ---- connecting ---- */

static pj_status shake_hands(pj_bench_readers *reader_set, reader *t, pj_error *err)
{
    pj_url url = {.host = "127.0.0.1", .port = reader_set->port};
    pj_call call;
    pj_call_init(&call, &url);
    call.fd = t->fd;
    t->fd = -1;
    pj_call_write(&call, "GET", reader_set->binary ? "/ws/profiling?binary=1" : "/ws/profiling");
    pj_buffer_text(&call.out, PJ_WEBSOCKET_LINES "\r\n");
    pj_call_begin(&call);
    pj_call_wait(&call, pj_clock_ns() + PATIENCE_NS);
    pj_status status = PJ_OK;
    if (call.state == PJ_CALL_FAILED)
        status = pj_fail(err, PJ_E_IO, "%s", call.failure);
    else if (call.head.status != 101)
        status =
            pj_fail(err, PJ_E_IO, "the server refused a live reader: status %d", call.head.status);
    if (status == PJ_OK) {
        size_t head = call.head.bytes;
        if (!t->deaf)
            take_bytes(reader_set, t, (unsigned char *)call.in.data + head, call.in.length - head);
        t->fd = call.fd;
        call.fd = -1;
    }
    pj_call_fini(&call);
    return status;
}

static pj_status connect_reader(pj_bench_readers *reader_set, reader *t, pj_error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(reader_set->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (t->fd >= 0) close(t->fd);
    t->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (t->fd < 0) return pj_fail_errno(err, errno, "cannot open another socket (ulimit -n)");
    int small = 16 << 10;
    if (t->deaf) setsockopt(t->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(t->fd, (struct sockaddr *)&address, sizeof address) != 0)
        return pj_fail_errno(err, errno, "cannot connect to the server");
    return shake_hands(reader_set, t, err);
}

pj_status pj_bench_readers_open(uint16_t port, uint32_t readers, uint32_t deaf_every, bool binary,
                                int cpu, pj_bench_readers **out, pj_error *err)
{
    *out = NULL;
    pj_bench_readers *reader_set = pj_alloc(1, sizeof *reader_set);
    if (!reader_set) return pj_fail_memory(err, "readers");
    reader_set->cpu = cpu;
    reader_set->port = port;
    reader_set->binary = binary;
    reader_set->items = pj_alloc(readers, sizeof *reader_set->items);
    reader_set->polls = pj_alloc(readers, sizeof *reader_set->polls);
    pj_status status =
        reader_set->items && reader_set->polls ? PJ_OK : pj_fail_memory(err, "readers");
    for (uint32_t i = 0; status == PJ_OK && i < readers; i++) {
        reader *t = &reader_set->items[i];
        t->fd = -1;
        t->deaf = deaf_every && i % deaf_every == deaf_every - 1;
        status = connect_reader(reader_set, t, err);
        reader_set->polls[i] = (struct pollfd){.fd = t->deaf ? -1 : t->fd, .events = POLLIN};
        reader_set->count++;
    }
    if (status == PJ_OK)
        status = pj_thread_start(&reader_set->thread, "pj-taps", readers_read_all, reader_set, err);
    reader_set->running = status == PJ_OK;
    if (status == PJ_OK)
        *out = reader_set;
    else
        pj_bench_readers_close(reader_set, NULL);
    return status;
}

pj_status pj_bench_readers_renew_deaf(pj_bench_readers *reader_set, pj_error *err)
{
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < reader_set->count && status == PJ_OK; i++)
        if (reader_set->items[i].deaf)
            status = connect_reader(reader_set, &reader_set->items[i], err);
    return status;
}

bool pj_bench_readers_wait(pj_bench_readers *reader_set, uint32_t runs, int64_t timeout_ns)
{
    uint32_t reading = 0;
    int64_t end_ns = pj_clock_ns() + timeout_ns;
    for (uint32_t i = 0; i < reader_set->count; i++) reading += !reader_set->items[i].deaf;
    while (atomic_load(&reader_set->ended) < reading * runs) {
        if (pj_clock_ns() > end_ns) return false;
        pj_clock_sleep_until(pj_clock_ns() + 5 * PJ_NS_PER_MS);
    }
    return true;
}

static void readers_sum_up(const pj_bench_readers *reader_set, pj_bench_readers_report *r)
{
    *r = (pj_bench_readers_report){.readers = reader_set->count,
                                   .least = UINT64_MAX,
                                   .bytes = reader_set->bytes,
                                   .ended = reader_set->ended};
    for (uint32_t i = 0; i < reader_set->count; i++) {
        const reader *t = &reader_set->items[i];
        if (t->deaf) {
            r->deaf++;
            continue;
        }
        r->messages += t->messages;
        r->gaps += t->gaps;
        r->disordered += t->disordered;
        r->cut += t->cut;
        if (t->messages < r->least) r->least = t->messages;
        if (t->messages > r->most) r->most = t->messages;
    }
}

void pj_bench_readers_close(pj_bench_readers *reader_set, pj_bench_readers_report *report)
{
    if (!reader_set) return;
    atomic_store(&reader_set->stop, true);
    if (reader_set->running) pthread_join(reader_set->thread, NULL);
    if (report) readers_sum_up(reader_set, report);
    for (uint32_t i = 0; i < reader_set->count; i++)
        if (reader_set->items[i].fd >= 0) close(reader_set->items[i].fd);
    pj_free(reader_set->items);
    pj_free(reader_set->polls);
    pj_free(reader_set);
}

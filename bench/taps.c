#include "bench/taps.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

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

/* One reader: its position in the current frame, and its counts. */
typedef struct tap {
    int fd;
    bool deaf, cut;
    uint32_t ended;                     /* number of run ends received */
    unsigned char seen[SEEN_BYTES + 1]; /* head and begin of the payload */
    size_t seen_bytes;
    uint64_t frame_bytes; /* of head and payload; 0: incomplete head */
    uint64_t passed;      /* bytes of the frame received */
    uint64_t messages, gaps, disordered, last;
} tap;

struct pj_taps {
    tap *items;
    uint32_t count;
    struct pollfd *polls;
    pthread_t thread;
    int cpu;
    uint16_t port;
    bool binary, running;
    _Atomic bool stop;
    _Atomic uint32_t ended;
    uint64_t bytes;
    int64_t cpu_ns;
};

/* ---- frames -------------------------------------------------------------------------------- */

/* Length of the head, and in *payload that of the payload; 0: more bytes needed. */
static size_t read_head(const tap *t, uint64_t *payload)
{
    size_t extended = 0;
    if (t->seen_bytes < 2) return 0;
    *payload = t->seen[1] & 127;
    if (*payload >= 126) extended = *payload == 126 ? 2 : 8;
    if (t->seen_bytes < 2 + extended) return 0;
    if (extended) *payload = 0;
    for (size_t i = 0; i < extended; i++) *payload = *payload << 8 | t->seen[2 + i];
    return 2 + extended;
}

static void count_frame(pj_taps *taps, tap *t)
{
    uint64_t payload = 0, number = 0;
    size_t head = read_head(t, &payload);
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
            atomic_fetch_add(&taps->ended, 1);
        }
    }
    if (t->messages > 2 && number <= t->last)
        t->disordered++; /* hello carries its reader's position */
    t->last = number;
}

static void take_bytes(pj_taps *taps, tap *t, const unsigned char *bytes, size_t count)
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
        size_t head = t->frame_bytes ? 0 : read_head(t, &payload);
        if (head) t->frame_bytes = head + payload;
        if (t->frame_bytes && t->passed == t->frame_bytes) {
            count_frame(taps, t);
            t->seen_bytes = t->passed = t->frame_bytes = 0;
        }
    }
}

static void *read_all(void *context)
{
    pj_taps *taps = context;
    unsigned char *block = malloc(BLOCK_BYTES);
    pj_thread_pin(taps->cpu);
    while (block && !atomic_load(&taps->stop)) {
        if (poll(taps->polls, taps->count, 50) <= 0) continue;
        for (uint32_t i = 0; i < taps->count; i++) {
            tap *t = &taps->items[i];
            if (!taps->polls[i].revents) continue;
            ssize_t n = recv(t->fd, block, BLOCK_BYTES, MSG_DONTWAIT);
            if (n > 0) {
                taps->bytes += (uint64_t)n;
                take_bytes(taps, t, block, (size_t)n);
            } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                t->cut = true;
                taps->polls[i].fd = -1;
            }
        }
        pj_clock_sleep_until(pj_clock_ns() + NAP_NS);
    }
    free(block);
    taps->cpu_ns = pj_clock_thread_cpu_ns();
    return NULL;
}

/* ---- connecting ---------------------------------------------------------------------------- */

static pj_status shake_hands(int fd, uint16_t port, bool binary, pj_error *err)
{
    char head[512];
    size_t got = 0;
    int n = snprintf(head, sizeof head,
                     "GET /ws/profiling%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: Upgrade\r\n"
                     "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                     binary ? "?binary=1" : "", port);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        return pj_fail_errno(err, errno, "cannot talk to the server");
    char tail[4] = "";
    while (memcmp(tail, "\r\n\r\n", 4) != 0) { /* byte by byte: frames follow */
        char c;
        if (recv(fd, &c, 1, 0) != 1) return pj_fail(err, PJ_E_IO, "the server hung up");
        if (got < 12) head[got] = c;
        got++;
        memmove(tail, tail + 1, 3);
        tail[3] = c;
    }
    if (memcmp(head, "HTTP/1.1 101", 12) != 0)
        return pj_fail(err, PJ_E_IO, "the server refused a live reader: %.12s", head);
    return PJ_OK;
}

static pj_status connect_tap(tap *t, uint16_t port, bool binary, pj_error *err)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (t->fd >= 0) close(t->fd);
    t->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (t->fd < 0) return pj_fail_errno(err, errno, "cannot open another socket (ulimit -n)");
    int small = 16 << 10;
    if (t->deaf) setsockopt(t->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(t->fd, (struct sockaddr *)&address, sizeof address) != 0)
        return pj_fail_errno(err, errno, "cannot connect to the server");
    return shake_hands(t->fd, port, binary, err);
}

pj_status pj_taps_open(uint16_t port, uint32_t readers, uint32_t deaf_every, bool binary, int cpu,
                       pj_taps **out, pj_error *err)
{
    *out = NULL;
    pj_taps *taps = pj_alloc(1, sizeof *taps);
    if (!taps) return pj_fail_memory(err, "readers");
    taps->cpu = cpu;
    taps->port = port;
    taps->binary = binary;
    taps->items = pj_alloc(readers, sizeof *taps->items);
    taps->polls = pj_alloc(readers, sizeof *taps->polls);
    pj_status status = taps->items && taps->polls ? PJ_OK : pj_fail_memory(err, "readers");
    for (uint32_t i = 0; status == PJ_OK && i < readers; i++) {
        tap *t = &taps->items[i];
        t->fd = -1;
        t->deaf = deaf_every && i % deaf_every == deaf_every - 1;
        status = connect_tap(t, port, binary, err);
        taps->polls[i] = (struct pollfd){.fd = t->deaf ? -1 : t->fd, .events = POLLIN};
        taps->count++;
    }
    if (status == PJ_OK) status = pj_thread_start(&taps->thread, "pj-taps", read_all, taps, err);
    taps->running = status == PJ_OK;
    if (status == PJ_OK)
        *out = taps;
    else
        pj_taps_close(taps, NULL);
    return status;
}

pj_status pj_taps_renew_deaf(pj_taps *taps, pj_error *err)
{
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < taps->count && status == PJ_OK; i++)
        if (taps->items[i].deaf)
            status = connect_tap(&taps->items[i], taps->port, taps->binary, err);
    return status;
}

bool pj_taps_wait(pj_taps *taps, uint32_t runs, int64_t timeout_ns)
{
    uint32_t reading = 0;
    int64_t end_ns = pj_clock_ns() + timeout_ns;
    for (uint32_t i = 0; i < taps->count; i++) reading += !taps->items[i].deaf;
    while (atomic_load(&taps->ended) < reading * runs) {
        if (pj_clock_ns() > end_ns) return false;
        pj_clock_sleep_until(pj_clock_ns() + 5 * PJ_NS_PER_MS);
    }
    return true;
}

static void sum_up(const pj_taps *taps, pj_taps_report *r)
{
    *r = (pj_taps_report){.readers = taps->count,
                          .least = UINT64_MAX,
                          .bytes = taps->bytes,
                          .ended = taps->ended,
                          .cpu_s = (double)taps->cpu_ns / 1e9};
    for (uint32_t i = 0; i < taps->count; i++) {
        const tap *t = &taps->items[i];
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

void pj_taps_close(pj_taps *taps, pj_taps_report *report)
{
    if (!taps) return;
    atomic_store(&taps->stop, true);
    if (taps->running) pthread_join(taps->thread, NULL);
    if (report) sum_up(taps, report);
    for (uint32_t i = 0; i < taps->count; i++)
        if (taps->items[i].fd >= 0) close(taps->items[i].fd);
    pj_free(taps->items);
    pj_free(taps->polls);
    pj_free(taps);
}

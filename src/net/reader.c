#include "net/reader.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wslay/wslay.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum { TURN_BYTES = 16 << 10 };

/* ---- inbound ------------------------------------------------------------------------------- */

static ssize_t receive_bytes(wslay_event_context_ptr context, uint8_t *out, size_t max, int flags,
                             void *user)
{
    pj_reader *r = user;
    ssize_t n = -1;
    errno = EAGAIN;
    if (r->early_used < r->early_bytes) {
        size_t left = r->early_bytes - r->early_used;
        n = (ssize_t)(left < max ? left : max);
        memcpy(out, r->early + r->early_used, (size_t)n);
        r->early_used += (size_t)n;
    } else if (r->turn_bytes < TURN_BYTES) { /* the rest of a flood is read in the next round */
        do n = recv(r->fd, out, max, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
    }
    if (n > 0) {
        r->turn_bytes += (size_t)n;
        return n;
    }
    wslay_event_set_error(context, n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)
                                       ? WSLAY_ERR_WOULDBLOCK
                                       : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

/* Called by wslay for its own frames (pong, close): appends to `control`, possibly in pieces. */
static ssize_t send_control(wslay_event_context_ptr context, const uint8_t *bytes, size_t count,
                            int flags, void *user)
{
    pj_reader *r = user;
    if (r->control_sent == r->control_used) r->control_sent = r->control_used = 0;
    size_t room = sizeof r->control - r->control_used;
    size_t n = count < room ? count : room;
    if (n == 0) {
        wslay_event_set_error(context, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(r->control + r->control_used, bytes, n);
    r->control_used += (uint32_t)n;
    return (ssize_t)n;
}

static const struct wslay_event_callbacks callbacks = {.recv_callback = receive_bytes,
                                                       .send_callback = send_control};

bool pj_reader_listens(const pj_reader *r)
{
    return !r->closing && r->control_used - r->control_sent < sizeof r->control / 2;
}

/* Moves wslay's pending output into `control`. */
static bool take_control(pj_reader *r)
{
    if (wslay_event_want_write(r->wslay) && wslay_event_send(r->wslay) != 0) return false;
    r->talking = wslay_event_want_write(r->wslay);
    if (wslay_event_get_close_sent(r->wslay)) r->closing = true;
    return true;
}

bool pj_reader_receive(pj_reader *r)
{
    r->turn_bytes = 0;
    if (wslay_event_want_read(r->wslay) && wslay_event_recv(r->wslay) != 0) return false;
    return take_control(r);
}

void pj_reader_ping(pj_reader *r, int64_t now_ns)
{
    r->ping_ns = now_ns;
    if (r->closing || !pj_reader_listens(r)) return;
    struct wslay_event_msg ping = {.opcode = WSLAY_PING};
    if (wslay_event_queue_msg(r->wslay, &ping) == 0) take_control(r);
}

void pj_reader_say_goodbye(pj_reader *r, unsigned code)
{
    if (r->closing) return;
    if (wslay_event_queue_close(r->wslay, (uint16_t)code, NULL, 0) == 0) take_control(r);
    r->closing = true;
}

/* ---- outbound ------------------------------------------------------------------------------ */

static void lose(pj_reader *r, uint64_t from, uint64_t to)
{
    if (r->gap_from == 0) r->gap_from = from;
    r->gap_to = to;
    r->skipped += to - from + 1;
}

static pj_message *gap_message(pj_reader *r)
{
    char text[128];
    int n = snprintf(text, sizeof text,
                     "{\"type\":\"gap\",\"run_id\":null,\"t_ms\":null,\"from\":%llu,"
                     "\"to\":%llu}",
                     (unsigned long long)r->gap_from, (unsigned long long)r->gap_to);
    pj_publication publication = {.bytes = text, .count = (size_t)n, .audience = PJ_FOR_ALL};
    pj_message *message = pj_message_new(&publication, r->gap_to);
    if (message) r->gap_from = 0;
    return message;
}

static bool is_for(const pj_reader *r, const pj_ring_slot *slot)
{
    return (slot->audience & r->audience) &&
           (r->run_key == 0 || slot->run_key == 0 || slot->run_key == r->run_key);
}

/* The next message for this reader, with a reference; NULL: none now. */
static pj_message *reader_choose(pj_reader *r, const pj_message_ring *ring)
{
    if (r->cursor < ring->tail) {
        lose(r, r->cursor, ring->tail - 1);
        r->cursor = ring->tail;
    }
    for (; r->cursor < ring->head; r->cursor++) {
        const pj_ring_slot *slot = pj_message_ring_at(ring, r->cursor);
        if (!is_for(r, slot)) continue;
        if (!slot->message || (r->lagging && slot->state)) {
            lose(r, r->cursor, r->cursor);
            continue;
        }
        if (r->gap_from) return gap_message(r);
        r->cursor++;
        return pj_message_ref(slot->message);
    }
    r->lagging = false;
    return r->gap_from ? gap_message(r) : NULL;
}

/* All news as one block, for readers that are up to date and unfiltered. */
static pj_message *choose_block(pj_reader *r, const pj_reader_news *news)
{
    pj_message *block = news->blocks[r->audience == PJ_FOR_BINARY];
    if (!block || r->cursor != news->from || r->gap_from || r->lagging || r->run_key) return NULL;
    r->cursor = news->ring->head;
    return pj_message_ref(block);
}

static void reader_fill(pj_reader *r, const pj_reader_news *news)
{
    const pj_message_ring *ring = news->ring;
    if (r->blocked && ring->head - r->cursor > PJ_HUB_LAG) r->lagging = true;
    while (r->pending_count < PJ_READER_PENDING && !r->closing) {
        pj_message *message = choose_block(r, news);
        if (!message) message = reader_choose(r, ring);
        if (!message) break;
        r->pending[r->pending_count++] = message;
    }
}

/* Control frames go between messages: after a partly sent message, else first. */
static int reader_gather(const pj_reader *r, struct iovec *parts)
{
    int n = 0;
    uint32_t i = 0;
    if (r->offset > 0) {
        pj_message *first = r->pending[i++];
        parts[n++] = (struct iovec){first->frame + r->offset, first->bytes - r->offset};
    }
    if (r->control_sent < r->control_used) {
        union { /* iovec is not const, though sending only reads */
            const unsigned char *constant;
            void *bytes;
        } control = {.constant = r->control + r->control_sent};
        parts[n++] = (struct iovec){control.bytes, r->control_used - r->control_sent};
    }
    for (; i < r->pending_count && !r->closing; i++)
        parts[n++] = (struct iovec){r->pending[i]->frame, r->pending[i]->bytes};
    return n;
}

/* Consumes `count` sent bytes of pending[0]; true when it was sent completely. */
static bool send_off(pj_reader *r, size_t *count)
{
    size_t left = r->pending[0]->bytes - r->offset;
    if (*count < left) {
        r->offset += *count;
        *count = 0;
        return false;
    }
    *count -= left;
    r->sent += r->pending[0]->count;
    pj_message_unref(r->pending[0]);
    memmove(r->pending, r->pending + 1, --r->pending_count * sizeof *r->pending);
    r->offset = 0;
    return true;
}

static void account(pj_reader *r, size_t count)
{
    if (r->offset > 0 && !send_off(r, &count)) return;
    size_t control = r->control_used - r->control_sent;
    if (control > count) control = count;
    r->control_sent += (uint32_t)control;
    count -= control;
    while (count > 0 && r->pending_count > 0 && send_off(r, &count)) continue;
}

bool pj_reader_send(pj_reader *r, const pj_reader_news *news, int64_t now_ns)
{
    for (;;) {
        struct iovec parts[PJ_READER_PENDING + 1];
        reader_fill(r, news);
        if (r->talking && !take_control(r)) return false;
        int count = reader_gather(r, parts);
        if (count == 0) {
            r->blocked = false;
            return !r->closing;
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (unsigned)count};
        ssize_t n = sendmsg(r->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!r->blocked) r->progress_ns = now_ns;
            r->blocked = true;
            return true;
        }
        if (n < 0) return false;
        r->progress_ns = now_ns;
        account(r, (size_t)n);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

pj_reader *pj_reader_new(int fd, const pj_reader_options *options, const void *early,
                         size_t early_bytes)
{
    pj_reader *r = pj_alloc(1, sizeof *r);
    if (!r) return NULL;
    r->fd = fd;
    r->run_key = pj_run_key(options->run_id);
    r->audience = options->binary ? PJ_FOR_BINARY : PJ_FOR_JSON;
    if (early_bytes > 0 && (r->early = pj_alloc(early_bytes, 1))) {
        memcpy(r->early, early, early_bytes);
        r->early_bytes = early_bytes;
    }
    if ((early_bytes > 0 && !r->early) ||
        wslay_event_context_server_init(&r->wslay, &callbacks, r) != 0) {
        pj_free(r->early);
        pj_free(r);
        return NULL;
    }
    wslay_event_config_set_max_recv_msg_length(r->wslay, PJ_INBOUND_MAX_BYTES);
    return r;
}

void pj_reader_free(pj_reader *r, bool reset)
{
    struct linger at_once = {1, 0}; /* discards unsent data in the kernel */
    if (reset) setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(r->fd);
    for (uint32_t i = 0; i < r->pending_count; i++) pj_message_unref(r->pending[i]);
    wslay_event_context_free(r->wslay);
    pj_free(r->early);
    pj_free(r);
}

void pj_reader_greet(pj_reader *r, pj_message *hello)
{
    r->pending[r->pending_count++] = hello;
}

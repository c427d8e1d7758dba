#include "http/websocket.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { RECEIVE_BYTES = 64 << 10, TEXT = 1, CLOSE = 8, PING = 9, FIN = 0x80, MASK = 0x80 };

/* ---- frames ---------------------------------------------------------------------------------- */

typedef struct frame {
    int opcode;
    const unsigned char *payload;
    size_t bytes, whole; /* of the payload; with the head */
} frame;

size_t pj_frame_head(unsigned char head[PJ_FRAME_HEAD_MAX], bool binary, size_t payload_bytes)
{
    size_t length_bytes = payload_bytes < 126 ? 0 : payload_bytes < 65536 ? 2 : 8;
    head[0] = binary ? 0x82 : 0x81;
    head[1] = length_bytes == 0 ? (unsigned char)payload_bytes : length_bytes == 2 ? 126 : 127;
    for (size_t i = 0; i < length_bytes; i++)
        head[2 + i] = (unsigned char)((uint64_t)payload_bytes >> 8 * (length_bytes - 1 - i));
    return 2 + length_bytes;
}

size_t pj_frame_parse(const unsigned char *bytes, size_t count, uint64_t *payload)
{
    size_t extended = 0;
    if (count < 2) return 0;
    *payload = bytes[1] & 127;
    if (*payload >= 126) extended = *payload == 126 ? 2 : 8;
    if (count < 2 + extended) return 0;
    if (extended) *payload = 0;
    for (size_t i = 0; i < extended; i++) *payload = *payload << 8 | bytes[2 + i];
    return 2 + extended;
}

/* 1: a complete frame was received; 0: not yet; -1: not a frame that a hub sends. */
static int frame_next(const unsigned char *at, size_t left, frame *f)
{
    uint64_t length;
    size_t head = pj_frame_parse(at, left, &length);
    if (!head) return 0;
    if (!(at[0] & FIN) || (at[0] & 0x70) || (at[1] & MASK) || length > PJ_FRAME_MAX_BYTES)
        return -1;
    *f = (frame){at[0] & 15, at + head, (size_t)length, head + (size_t)length};
    if (f->opcode >= CLOSE && length > 125) return -1;
    return left >= f->whole;
}

/* ---- the reader ------------------------------------------------------------------------------ */

void pj_frame_reader_init(pj_frame_reader *r, int fd, pj_frame_text_fn *take, void *context)
{
    *r = (pj_frame_reader){.fd = fd, .take = take, .context = context};
    pj_buffer_init(&r->bytes, PJ_FRAME_MAX_BYTES + 2 * RECEIVE_BYTES);
}

void pj_frame_reader_fini(pj_frame_reader *r)
{
    pj_buffer_fini(&r->bytes);
}

/* A client's frames are masked; zeros as the mask leave the payload as it is. */
static void frame_send_pong(int fd, const unsigned char *payload, size_t count)
{
    unsigned char pong[6 + 125] = {FIN | 10, (unsigned char)(MASK | count)};
    memcpy(pong + 6, payload, count);
    send(fd, pong, 6 + count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool frame_reader_process(pj_frame_reader *r)
{
    size_t at = 0;
    int found;
    frame f;
    while ((found = frame_next((unsigned char *)r->bytes.data + at, r->bytes.length - at, &f)) >
           0) {
        if (f.opcode == CLOSE) return false;
        if (f.opcode == PING) frame_send_pong(r->fd, f.payload, f.bytes);
        if (f.opcode == TEXT) r->take(r->context, (const char *)f.payload, f.bytes);
        at += f.whole;
    }
    if (at) memmove(r->bytes.data, r->bytes.data + at, r->bytes.length - at);
    r->bytes.length -= at;
    return found == 0;
}

bool pj_frame_reader_take(pj_frame_reader *r, const char *bytes, size_t count)
{
    return pj_buffer_append(&r->bytes, bytes, count) && frame_reader_process(r);
}

bool pj_frame_reader_receive(pj_frame_reader *r)
{
    if (!pj_buffer_reserve(&r->bytes, RECEIVE_BYTES)) return false;
    ssize_t n = recv(r->fd, r->bytes.data + r->bytes.length, RECEIVE_BYTES, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    r->bytes.length += (size_t)n;
    return n > 0 && frame_reader_process(r);
}

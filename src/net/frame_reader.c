#include "net/frame_reader.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { RECEIVE_BYTES = 64 << 10, TEXT = 1, CLOSE = 8, PING = 9, FIN = 0x80, MASK = 0x80 };

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
static void send_pong(int fd, const unsigned char *payload, size_t count)
{
    unsigned char frame[6 + 125] = {FIN | 10, (unsigned char)(MASK | count)};
    memcpy(frame + 6, payload, count);
    send(fd, frame, 6 + count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

typedef struct frame {
    int opcode;
    const unsigned char *payload;
    size_t bytes, whole; /* of the payload; with the head */
} frame;

/* 1: a complete frame was received; 0: not yet; -1: not a frame that a hub sends. */
static int next_frame(const unsigned char *at, size_t left, frame *f)
{
    size_t head = 2;
    if (left < 2) return 0;
    uint64_t length = at[1] & 0x7f;
    if (length == 126) head = 4;
    if (length == 127) head = 10;
    if (left < head) return 0;
    if (head > 2) length = 0;
    for (size_t i = 2; i < head; i++) length = length << 8 | at[i];
    if (!(at[0] & FIN) || (at[0] & 0x70) || (at[1] & MASK) || length > PJ_FRAME_MAX_BYTES)
        return -1;
    *f = (frame){at[0] & 15, at + head, (size_t)length, head + (size_t)length};
    if (f->opcode >= CLOSE && length > 125) return -1;
    return left >= f->whole;
}

static bool take_bytes(pj_frame_reader *r, const char *bytes, size_t count)
{
    size_t at = 0;
    int found;
    frame f;
    if (!pj_buffer_append(&r->bytes, bytes, count)) return false;
    while ((found = next_frame((unsigned char *)r->bytes.data + at, r->bytes.length - at, &f)) >
           0) {
        if (f.opcode == CLOSE) return false;
        if (f.opcode == PING) send_pong(r->fd, f.payload, f.bytes);
        if (f.opcode == TEXT) r->take(r->context, (const char *)f.payload, f.bytes);
        at += f.whole;
    }
    if (at) memmove(r->bytes.data, r->bytes.data + at, r->bytes.length - at);
    r->bytes.length -= at;
    return found == 0;
}

bool pj_frame_reader_receive(pj_frame_reader *r)
{
    static _Thread_local char bytes[RECEIVE_BYTES];
    ssize_t n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    return n > 0 && take_bytes(r, bytes, (size_t)n);
}

/* Frames that a WebSocket reader may send, in pieces: the first byte selects how they are split.
 * The output in between must remain a sequence of whole frames. */
#include "net/reader.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns all messages since `from` as one block, like the hub. */
static bool send_news(pj_reader *reader, const pj_message_ring *ring, uint64_t from)
{
    pj_reader_news news = {ring, from, {pj_message_ring_join(ring, from, PJ_FOR_JSON, 1 << 16)}};
    bool lives = pj_reader_send(reader, &news, pj_clock_ns());
    pj_message_unref(news.blocks[0]);
    return lives;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses the output as frames; false if a server must not send these bytes. */
static bool frames_are_whole(const unsigned char *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        uint64_t length;
        size_t head = pj_frame_parse(bytes + at, count - at, &length);
        if (!head || (bytes[at] & 0x70) || (bytes[at + 1] & 0x80)) return false;
        if (length > 65535 || count - at < head + length) return false;
        at += head + (size_t)length;
    }
    return true;
}

static void put(pj_message_ring *ring, const char *text)
{
    pj_publication p = {.bytes = text, .count = strlen(text), .audience = PJ_FOR_ALL};
    pj_message *message = pj_message_new(&p, ring->head);
    if (message) pj_message_ring_put(ring, message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { PIECES_MAX = 32 };
    static unsigned char out[1 << 20];
    int pair[2];
    pj_message_ring ring;
    size_t used = 0, cut = size ? 1 + data[0] : 1;
    if (cut < size / PIECES_MAX) cut = size / PIECES_MAX; /* a piece costs system calls */
    if (size > 65536 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) return 0;
    if (pj_message_ring_init(&ring, 64, 1 << 20, NULL) != PJ_OK) abort();
    pj_reader *reader = pj_reader_new(pair[1], &(pj_reader_options){0}, data, size < 3 ? size : 3);
    if (!reader) abort();
    reader->cursor = 1;
    bool lives = true;
    for (size_t at = 3; lives && at < size; at += cut) {
        size_t n = size - at < cut ? size - at : cut;
        if (send(pair[0], data + at, n, MSG_NOSIGNAL) != (ssize_t)n) break;
        uint64_t number = ring.head;
        put(&ring, "{\"n\":1}");
        put(&ring, "{\"n\":2}");
        if (pj_reader_listens(reader)) lives = pj_reader_receive(reader);
        if (lives) pj_reader_ping(reader, pj_clock_ns());
        if (lives) lives = send_news(reader, &ring, number);
        ssize_t got = recv(pair[0], out + used, sizeof out - used, 0);
        if (got > 0) used += (size_t)got;
    }
    if (!frames_are_whole(out, used)) abort();
    pj_reader_free(reader, false);
    pj_message_ring_fini(&ring);
    close(pair[0]);
    return 0;
}

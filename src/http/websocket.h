/* WebSockets (RFC 6455): heads of frames, and the client's side: the request that opens a
 * connection, and a reader of frames as a server sends them, unmasked. Text frames are passed to a
 * callback, pings are answered, everything else is skipped. */
#ifndef PJ_HTTP_WEBSOCKET_H
#define PJ_HTTP_WEBSOCKET_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum { PJ_FRAME_MAX_BYTES = 8 << 20, PJ_FRAME_HEAD_MAX = 10 };

/* Lines of a request's head. The key only ties the answer to the request; it is not a secret. */
#define PJ_WEBSOCKET_LINES                                                       \
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
    "Sec-WebSocket-Key: cGVyam91bGUtbWFjaGluZQ==\r\n"

/* The head of an unmasked, final frame; returns its length. */
size_t pj_frame_head(unsigned char head[PJ_FRAME_HEAD_MAX], bool binary, size_t payload_bytes);
/* Length of an unmasked frame's head, and in *payload that of the payload; 0: more bytes are
 * needed. */
size_t pj_frame_parse(const unsigned char *bytes, size_t count, uint64_t *payload);

typedef void pj_frame_text_fn(void *context, const char *text, size_t bytes);

typedef struct pj_frame_reader {
    int fd;
    pj_buffer bytes; /* received and not yet processed */
    pj_frame_text_fn *take;
    void *context;
} pj_frame_reader;

void pj_frame_reader_init(pj_frame_reader *reader, int fd, pj_frame_text_fn *take, void *context);
void pj_frame_reader_fini(pj_frame_reader *reader);
/* Processes bytes that were received already. False as of pj_frame_reader_receive. */
bool pj_frame_reader_take(pj_frame_reader *reader, const char *bytes, size_t count);
/* Processes available input without waiting. False: the peer has closed the connection or sent a
 * frame that a hub does not send. */
bool pj_frame_reader_receive(pj_frame_reader *reader);

#endif

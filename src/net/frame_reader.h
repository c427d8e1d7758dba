/* Reads WebSocket frames from a peer that acts as a server: not masked, as a hub sends them. Text
 * frames are passed to a callback, pings are answered, everything else is skipped. */
#ifndef PJ_NET_FRAME_READER_H
#define PJ_NET_FRAME_READER_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum { PJ_FRAME_MAX_BYTES = 8 << 20 };

typedef void pj_frame_text_fn(void *context, const char *text, size_t bytes);

typedef struct pj_frame_reader {
    int fd;
    pj_buffer bytes; /* received and not yet processed */
    pj_frame_text_fn *take;
    void *context;
} pj_frame_reader;

void pj_frame_reader_init(pj_frame_reader *reader, int fd, pj_frame_text_fn *take, void *context);
void pj_frame_reader_fini(pj_frame_reader *reader);
/* Processes available input without waiting. False: the peer has closed the connection or sent a
 * frame that a hub does not send. */
bool pj_frame_reader_receive(pj_frame_reader *reader);

#endif

/*
 * An answer of any size in constant memory: a producer thread writes into a bounded queue (256 kB),
 * and libmicrohttpd's thread of the connection takes from it. A slow reader holds the producer
 * back; a reader that is gone cancels it. What fits into the queue whole is answered with its
 * length, and a producer that fails before its first byte becomes a problem document.
 */
#ifndef PJ_NET_STREAM_H
#define PJ_NET_STREAM_H

#include "net/http.h"

/* False: nobody wants more, or memory is out; the producer should return. Same shape as
 * pj_json_write_fn. */
typedef bool pj_stream_write_fn(void *stream, const char *bytes, size_t count);
/* Runs on the producer thread; calls pj_stream_write(stream, ...). Owns nothing afterwards. */
typedef pj_status pj_stream_produce_fn(void *context, void *stream, pj_error *err);

typedef struct pj_stream_source {
    pj_stream_produce_fn *produce;
    void *context; /* freed by free_context when producer and reader are done */
    void (*free_context)(void *context);
    const char *content_type; /* static */
} pj_stream_source;

bool pj_stream_write(void *stream, const char *bytes, size_t count);
/* Takes source->context whatever the outcome. Headers (Content-Disposition) are added before. More
 * than PJ_STREAMS_MAX at a time are refused with 503. */
enum { PJ_STREAMS_MAX = 16 };
enum MHD_Result pj_stream_reply(pj_http *http, const pj_stream_source *source);

#endif

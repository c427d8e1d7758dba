/* An answer of any size in constant memory: a producer thread writes into a bounded queue (256 kB),
 * and the connection's libmicrohttpd thread reads from it. A slow client blocks the producer; a
 * disconnected one cancels it. An answer that fits into the queue is sent with its length, and a
 * producer that fails before its first byte becomes a problem document. */
#ifndef PJ_NET_STREAM_H
#define PJ_NET_STREAM_H

#include "net/http.h"

/* False: the client is gone, or out of memory; the producer should return. Same signature as
 * pj_json_write_fn. */
typedef bool pj_stream_write_fn(void *stream, const char *bytes, size_t count);
/* Runs on the producer thread; calls pj_stream_write(stream, ...). */
typedef pj_status pj_stream_produce_fn(void *context, void *stream, pj_error *err);

typedef struct pj_stream_source {
    pj_stream_produce_fn *produce;
    void *context; /* freed by free_context when producer and reader are done */
    void (*free_context)(void *context);
    const char *content_type; /* static */
    /* Adds headers that the producer knows when it first writes; NULL: none. */
    void (*add_headers)(void *context, pj_http *http);
} pj_stream_source;

bool pj_stream_write(void *stream, const char *bytes, size_t count);
/* Takes ownership of source->context whatever the outcome. Headers (Content-Disposition) must be
 * added before. More than PJ_STREAMS_MAX concurrent streams are refused with 503. */
enum { PJ_STREAMS_MAX = 32 };
enum MHD_Result pj_stream_reply(pj_http *http, const pj_stream_source *source);

#endif

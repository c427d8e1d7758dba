#include "net/stream.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/gzip.h"

#include <stdatomic.h>
#include <string.h>

enum {
    QUEUE_BYTES = 256 << 10,
    BLOCK_BYTES = 64 << 10,
    GRACE_S = 60,               /* after this time the reader must have averaged this rate: */
    LEAST_BYTES_PER_S = 2 << 10 /* else a dripping client would hold a stream for ever */
};

typedef struct stream {
    pj_stream_source source;
    pj_gzip *gzip; /* NULL: sent as it is produced */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t moved;
    size_t read, used; /* of `queue`, a ring buffer */
    bool ended, cancelled;
    pj_status status;
    pj_error err;
    uint64_t sent_bytes; /* reader only */
    int64_t begin_ns;
    char queue[QUEUE_BYTES];
} stream;

static _Atomic int open_streams;

static size_t stream_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool stream_put(void *context, const char *bytes, size_t count)
{
    stream *s = context;
    pthread_mutex_lock(&s->mutex);
    while (count > 0 && !s->cancelled) {
        if (s->used == QUEUE_BYTES) {
            pthread_cond_wait(&s->moved, &s->mutex);
            continue;
        }
        size_t at = (s->read + s->used) % QUEUE_BYTES;
        size_t n = stream_least(count, stream_least(QUEUE_BYTES - s->used, QUEUE_BYTES - at));
        memcpy(s->queue + at, bytes, n);
        s->used += n;
        bytes += n;
        count -= n;
        pthread_cond_broadcast(&s->moved);
    }
    bool wanted = !s->cancelled;
    pthread_mutex_unlock(&s->mutex);
    return wanted;
}

bool pj_stream_write(void *context, const char *bytes, size_t count)
{
    stream *s = context;
    return s->gzip ? pj_gzip_write(s->gzip, bytes, count) : stream_put(s, bytes, count);
}

static void *produce(void *context)
{
    stream *s = context;
    pj_error err = {0};
    pj_status status = s->source.produce(s->source.context, s, &err);
    if (s->gzip && status == PJ_OK && !pj_gzip_finish(s->gzip))
        status = pj_fail(&err, PJ_E_IO, "the client is gone");
    pthread_mutex_lock(&s->mutex);
    s->status = status;
    s->err = err;
    s->ended = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static void free_stream(stream *s)
{
    s->source.free_context(s->source.context);
    pj_gzip_free(s->gzip);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->moved);
    pj_free(s);
    atomic_fetch_sub(&open_streams, 1);
}

/* libmicrohttpd is done with the response: everything was sent, or the client is gone. */
static void stream_over(void *context)
{
    stream *s = context;
    pthread_mutex_lock(&s->mutex);
    s->cancelled = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    free_stream(s);
}

static bool drips(const stream *s)
{
    int64_t seconds = (pj_clock_ns() - s->begin_ns) / PJ_NS_PER_S;
    return seconds > GRACE_S && s->sent_bytes / (uint64_t)seconds < LEAST_BYTES_PER_S;
}

static ssize_t stream_give(void *context, uint64_t position, char *out, size_t max)
{
    stream *s = context;
    if (drips(s)) return MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_mutex_lock(&s->mutex);
    while (s->used == 0 && !s->ended) pthread_cond_wait(&s->moved, &s->mutex);
    ssize_t given = 0;
    while (s->used > 0 && (size_t)given < max) {
        size_t n = stream_least(max - (size_t)given, stream_least(s->used, QUEUE_BYTES - s->read));
        memcpy(out + given, s->queue + s->read, n);
        s->read = (s->read + n) % QUEUE_BYTES;
        s->used -= n;
        given += (ssize_t)n;
    }
    if (given == 0)
        given = s->status == PJ_OK ? MHD_CONTENT_READER_END_OF_STREAM
                                   : MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->mutex);
    if (given > 0) s->sent_bytes += (uint64_t)given;
    return given;
}

/* Waits until the producer has ended or filled the queue, after which the answer can begin. Returns
 * the length if all of it is in the queue. */
static uint64_t wait_for_begin(stream *s)
{
    pthread_mutex_lock(&s->mutex);
    while (!s->ended && s->used < QUEUE_BYTES) pthread_cond_wait(&s->moved, &s->mutex);
    uint64_t size = s->ended ? s->used : MHD_SIZE_UNKNOWN;
    pthread_mutex_unlock(&s->mutex);
    return size;
}

static stream *new_stream(const pj_stream_source *source)
{
    stream *s = NULL;
    if (atomic_fetch_add(&open_streams, 1) < PJ_STREAMS_MAX) s = pj_alloc(1, sizeof *s);
    if (!s) {
        atomic_fetch_sub(&open_streams, 1);
        source->free_context(source->context);
        return NULL;
    }
    s->source = *source;
    s->begin_ns = pj_clock_ns();
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->moved, NULL);
    return s;
}

/* Nothing is produced for HEAD: libmicrohttpd would send the body's chunks. */
static enum MHD_Result reply_head(pj_http *http, const pj_stream_source *source)
{
    source->free_context(source->context);
    return pj_http_reply(http, 200, source->content_type, NULL, 0);
}

enum MHD_Result pj_stream_reply(pj_http *http, const pj_stream_source *source)
{
    pj_error err = {0};
    if (strcmp(http->method, "HEAD") == 0) return reply_head(http, source);
    stream *s = new_stream(source);
    if (!s)
        return pj_http_problem(http, 503,
                               "%d large responses are already being sent; try again in a moment",
                               PJ_STREAMS_MAX);
    bool is_packed = pj_http_gzips(http, source->content_type);
    if (is_packed && pj_gzip_new(PJ_HTTP_GZIP_LEVEL, stream_put, s, &s->gzip, &err) != PJ_OK) {
        free_stream(s);
        return pj_http_failure(http, 400, &err);
    }
    if (pj_thread_start(&s->thread, "pj-stream", produce, s, &err)) {
        free_stream(s);
        return pj_http_failure(http, 400, &err);
    }
    uint64_t size = wait_for_begin(s);
    if (size != MHD_SIZE_UNKNOWN && s->status != PJ_OK) {
        err = s->err;
        stream_over(s);
        return pj_http_failure(http, 400, &err);
    }
    struct MHD_Response *response =
        MHD_create_response_from_callback(size, BLOCK_BYTES, stream_give, s, stream_over);
    if (!response) {
        stream_over(s);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", source->content_type);
    if (is_packed) MHD_add_response_header(response, "Content-Encoding", "gzip");
    if (source->add_headers) source->add_headers(source->context, http);
    return pj_http_queue(http, 200, response);
}

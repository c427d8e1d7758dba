/* One HTTP request and its answer, between libmicrohttpd and the routes. The front (front.h) has
 * rejected heads that libmicrohttpd accepts and must not; method, sender and target are checked
 * here, and every answer gets the same security headers. One thread works on one request. */
#ifndef PJ_NET_HTTP_H
#define PJ_NET_HTTP_H

#include "base/buffer.h"
#include "net/gate.h"
#include "net/params.h"

#include <microhttpd.h>

enum { PJ_BODY_MAX_BYTES = 1 << 20, PJ_REPLY_MAX_BYTES = 64 << 20, PJ_ANSWER_HEADERS = 8 };
enum {
    PJ_HTTP_GZIP_LEVEL = 1
}; /* 100 MB/s and more; level 6: a quarter smaller, three times slower */

/* A header that an answer sets itself. */
typedef struct pj_http_own_header {
    const char *name;
    char value[160];
} pj_http_own_header;

typedef struct pj_http {
    struct MHD_Connection *connection;
    const char *method; /* of the allow-list: GET, HEAD, POST, PATCH, DELETE */
    const char *host;   /* the Host header, already accepted */
    char *raw_target;   /* a copy: libmicrohttpd decodes its own in place */
    pj_target target;
    pj_arena arena;
    pj_buffer body;
    int64_t begin_ns;
    bool answering;  /* counted by the server */
    unsigned status; /* queued; 0: none yet */
    void *upgrade;   /* handed from the handshake to the upgrade; pj_free */
    pj_http_own_header headers[PJ_ANSWER_HEADERS];
    int header_count;
} pj_http;

pj_http *pj_http_new(const char *raw_target); /* NULL when memory is out */
void pj_http_free(pj_http *http);

/* Checks the head before routing, and answers a bad one. MHD_NO: the connection must be dropped. */
enum MHD_Result pj_http_check_head(pj_http *http, const pj_gate *gate);
/* The id that the client gives of its session; NULL: none. */
const char *pj_http_session(const pj_http *http, const pj_gate *gate);
/* Refuses a token unchecked. */
enum MHD_Result pj_http_too_many(pj_http *http);
/* Whether the client will send nothing more: it has left, or (rarely) waits for its last answer. */
bool pj_http_is_closing(const pj_http *http);
/* The client's IPv4 address or IPv6 network (of 64 bits: one client's addresses), "local" without
 * one. */
enum { PJ_HTTP_ADDRESS_BYTES = 64 };
void pj_http_client(const pj_http *http, char text[PJ_HTTP_ADDRESS_BYTES]);
const char *pj_http_header(const pj_http *http, const char *name); /* NULL: absent */

/* ---- answers: each may be given once ------------------------------------------------------- */

/* Whether an answer of this type is to be compressed for this client; says so to caches. */
bool pj_http_gzips(pj_http *http, const char *content_type);
/* Takes ownership of `text` (pj_free), which is compressed if the client accepts that. */
enum MHD_Result pj_http_reply(pj_http *http, unsigned status, const char *content_type, char *text,
                              size_t bytes);
/* Sends a finished document; one that is too large or ran out of memory becomes a problem
 * document. */
enum MHD_Result pj_http_reply_buffer(pj_http *http, unsigned status, const char *content_type,
                                     pj_buffer *buffer);
enum MHD_Result pj_http_reply_empty(pj_http *http, unsigned status);
/* application/problem+json with the formatted sentence as detail. */
enum MHD_Result pj_http_problem(pj_http *http, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Problem document for a failed call. `invalid` is the status for PJ_E_INVALID: 400 for errors in
 * the address, 422 for errors in the body. */
enum MHD_Result pj_http_failure(pj_http *http, unsigned invalid, const pj_error *err);
/* Adds a header to the next answer; at most a handful. */
void pj_http_add_header(pj_http *http, const char *name, const char *value);
/* Queues a response made elsewhere, with the common headers. Takes ownership of `response`. */
enum MHD_Result pj_http_queue(pj_http *http, unsigned status, struct MHD_Response *response);

#endif

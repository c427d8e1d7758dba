/* HTTP requests and TLS connections through libcurl, which is opened at run time: telemetry and
 * joined servers can use TLS and proxies, and a server that uses neither does not need libcurl.
 * Certificates are verified against libcurl's bundle, or the file in CURL_CA_BUNDLE or
 * SSL_CERT_FILE. */
#ifndef PJ_SERVE_CURL_H
#define PJ_SERVE_CURL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pj_curl_request {
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    const char *body;
    size_t body_bytes;
    int timeout_ms;
} pj_curl_request;

/* Loads libcurl once per process; fails with what to install. */
pj_status pj_curl_load(pj_error *err);
/* POSTs; *http_status is 0 when no answer came. The answer's body is discarded. The error names the
 * address without a user or password in it. */
pj_status pj_curl_post(const pj_curl_request *request, long *http_status, pj_error *err);

/* A connection to https://host:port, of bytes in both directions. Not safe for several threads. */
typedef struct pj_curl_connection pj_curl_connection;

typedef enum pj_curl_moved { PJ_CURL_DONE, PJ_CURL_AGAIN, PJ_CURL_CLOSED } pj_curl_moved;

/* Blocks until connected and the certificate is verified; `is_stopped`, polled about once a second,
 * ends it early. */
pj_status pj_curl_connect(const char *url, int timeout_ms, bool (*is_stopped)(void *context),
                          void *context, pj_curl_connection **connection, pj_error *err);
int pj_curl_socket(const pj_curl_connection *connection); /* for poll; -1: none */
/* Never block. */
pj_curl_moved pj_curl_send(pj_curl_connection *connection, const void *bytes, size_t count,
                           size_t *sent);
pj_curl_moved pj_curl_receive(pj_curl_connection *connection, void *bytes, size_t count,
                              size_t *received);
void pj_curl_disconnect(pj_curl_connection *connection); /* NULL is allowed */

#endif

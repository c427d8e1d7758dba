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

/* A TLS connection as an ordinary socket: one end of a socket pair whose bytes a thread carries to
 * and from an https server. The caller need not know about TLS. */
typedef struct pj_tunnel pj_tunnel;

/* Returns at once; what is written to `fd` waits until the connection is there. `fd`, non-blocking,
 * is the caller's to close. End of file on it means that the connection failed or ended. */
pj_status pj_tunnel_open(const char *url, int timeout_ms, pj_tunnel **tunnel, int *fd,
                         pj_error *err);
/* Whether it has ended; then `why` holds any failure to connect (status PJ_OK: it did not). */
bool pj_tunnel_has_ended(pj_tunnel *tunnel, pj_error *why);
/* Ends it within about a second. */
void pj_tunnel_close(pj_tunnel *tunnel);

#endif

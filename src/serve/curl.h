/* HTTP requests through libcurl, which is opened at run time: telemetry can use TLS and proxies,
 * and a server that sends none does not need libcurl. */
#ifndef PJ_SERVE_CURL_H
#define PJ_SERVE_CURL_H

#include "base/error.h"

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

#endif

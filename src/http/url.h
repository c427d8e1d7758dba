/*
 * Addresses of servers: "http://host:port/prefix". Pure text; nothing is resolved here.
 *
 * Clients of engines speak http only: an engine whose energy can be measured runs on this machine
 * or on one monitored by a perjoule server, and neither needs TLS; pj_url_parse rejects https://
 * with an explanation. A caller that can use TLS calls pj_url_parse_tls.
 */
#ifndef PJ_HTTP_URL_H
#define PJ_HTTP_URL_H

#include "base/error.h"

enum {
    PJ_URL_HOST_BYTES = 256,
    PJ_URL_PATH_BYTES = 512,
    PJ_URL_HTTP_PORT = 80,
    PJ_URL_AUTHORITY_BYTES = PJ_URL_HOST_BYTES + 8 /* with brackets and port */
};

typedef struct pj_url {
    char host[PJ_URL_HOST_BYTES];   /* without brackets */
    char prefix[PJ_URL_PATH_BYTES]; /* "" or "/v1", without a trailing slash */
    int port;
} pj_url;

pj_status pj_url_parse(const char *text, int default_port, pj_url *url, pj_error *err);
/* Accepts https:// as well; its default port is 443. */
pj_status pj_url_parse_tls(const char *text, pj_url *url, bool *is_tls, pj_error *err);
/* "host:port", "[v6]:port" or ":port" (all of this machine's loopback). */
pj_status pj_url_parse_listen(const char *text, pj_url *url, pj_error *err);
/* "host", "host:port", "[v6]" or "[v6]:port" as in a Host header: sets host, and port if there is
 * one. False: it is none of these. */
bool pj_url_take_authority(const char *text, size_t length, pj_url *url);
/* "host:port" as in a Host header. */
void pj_url_authority(const pj_url *url, char *text, size_t bytes);
/* 127.0.0.0/8, ::1, localhost: a server there is covered by this machine's sensors. */
bool pj_host_is_loopback(const char *host);

#endif

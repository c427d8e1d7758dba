/* Joins another server, so that this machine's live stream can be watched through it (net/relay.h
 * is the other side). One connection lies idle there; when somebody watches, it becomes a reader of
 * this machine's hub and a new one is dialled. */
#ifndef PJ_SERVE_JOIN_H
#define PJ_SERVE_JOIN_H

#include "net/hub.h"

typedef struct pj_join pj_join;

typedef struct pj_join_options {
    const char *url;     /* "http://fleet.lab:8000" */
    const char *token;   /* of that server; NULL: none */
    const char *machine; /* this machine's name */
    pj_hub *hub;
    void (*say)(
        const char *text); /* told when the server cannot be reached, and when it can again */
} pj_join_options;

/* Everything is borrowed. Fails if the URL is not one; a server that is away is tried again. */
pj_status pj_join_open(const pj_join_options *options, pj_join **join, pj_error *err);
void pj_join_close(pj_join *join); /* before the hub; NULL is allowed */

#endif

/* Joins another server, so that this machine's live stream can be watched through it (net/relay.h
 * is the server's side). One idle connection is kept open; when somebody watches, it becomes a
 * reader of this machine's hub and a new idle one is opened. */
#ifndef PJ_SERVE_JOIN_H
#define PJ_SERVE_JOIN_H

#include "net/hub.h"

typedef struct pj_join pj_join;

typedef struct pj_join_options {
    const char *url;     /* "http://fleet.lab:8000" or https://, whose certificate is
                            verified */
    const char *token;   /* that server's token; NULL: none */
    const char *machine; /* this machine's name */
    pj_hub *hub;
    void (*say)(const char *text); /* gets a message when the server becomes unreachable and when it
                                      is reachable again */
} pj_join_options;

/* Everything is borrowed. Fails for an invalid URL; an unreachable server is retried. */
pj_status pj_join_open(const pj_join_options *options, pj_join **join, pj_error *err);
void pj_join_close(pj_join *join); /* before the hub; NULL is allowed */

#endif

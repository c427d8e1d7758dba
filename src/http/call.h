/*
 * One HTTP exchange as a client, which never blocks: it sends and receives as far as the socket
 * allows, whenever the caller finds it ready. A connection that the server keeps alive carries the
 * next exchange. Plain http; for TLS the caller sets `fd` to a socket that leads through it.
 */
#ifndef PJ_HTTP_CALL_H
#define PJ_HTTP_CALL_H

#include "base/buffer.h"
#include "http/head.h"
#include "http/socket.h"

typedef enum pj_call_state {
    PJ_CALL_IDLE = 0,
    PJ_CALL_CONNECTING,
    PJ_CALL_SENDING,
    PJ_CALL_HEAD,
    PJ_CALL_BODY,
    PJ_CALL_DONE,
    PJ_CALL_FAILED
} pj_call_state;

typedef struct pj_call {
    const pj_url *url; /* borrowed */
    pj_address address;
    pj_buffer out; /* the request */
    /* Hooks for the answer's head and the pieces of its body; may be NULL. */
    void *context;
    void (*take_head)(void *context);
    bool (*take_body)(void *context, const char *bytes, size_t count); /* false: not acceptable */
    int fd;                                                            /* -1: none */
    pj_call_state state;
    bool is_reused; /* the connection carried an exchange before */
    size_t sent;    /* of `out` */
    int64_t sent_ns, heard_ns;
    pj_buffer in; /* the answer's head, and what arrived with it */
    pj_head head;
    pj_body body;
    char failure[320]; /* why it failed */
} pj_call;

/* Without an address; set it, or `fd`, before the call begins. */
void pj_call_init(pj_call *call, const pj_url *url);
void pj_call_fini(pj_call *call); /* closes the connection */
/* Begins a new request in `out`: "METHOD path HTTP/1.1" (the path follows the URL's prefix), Host
 * and User-Agent. The caller appends further lines, the empty line and the body. */
void pj_call_write(pj_call *call, const char *method, const char *path);
/* Begins the exchange, over the open connection or a new one. */
void pj_call_begin(pj_call *call);
bool pj_call_is_running(const pj_call *call);
/* Goes on after `events`, as poll reports them. PJ_CALL_DONE: the answer is complete, or it is 101
 * and the connection now speaks another protocol: what has arrived of that lies in `in` behind the
 * head. */
void pj_call_step(pj_call *call, short events);
short pj_call_events(const pj_call *call); /* to poll for */
/* Polls once and steps. */
void pj_call_poll(pj_call *call, int timeout_ms);
/* Polls until the call is done (true) or has failed, at the latest at `until_ns`. */
bool pj_call_wait(pj_call *call, int64_t until_ns);
void pj_call_fail(pj_call *call, const char *what, int error_number); /* "what HOST:PORT: why" */

/* One small GET: the status and the body, which the caller frees with pj_buffer_fini. `lines`: more
 * lines of the head, each with CR LF; or NULL. */
pj_status pj_call_get(const pj_url *url, const char *path, const char *lines, int64_t timeout_ns,
                      int *status, pj_buffer *body, pj_error *err);

#endif

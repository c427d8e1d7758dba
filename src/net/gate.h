/*
 * Access control: names in Host and Origin, and the token. Pure functions over strings, so that
 * they can be tested and fuzzed without a socket.
 *
 * A page of another site in the same browser can send requests to 127.0.0.1. It cannot forge
 * Origin, and with DNS rebinding its own name appears in Host. So Host must be a name of this
 * machine, and a request with an Origin that changes anything or opens the live stream must come
 * from a page that this server delivered.
 */
#ifndef PJ_NET_GATE_H
#define PJ_NET_GATE_H

#include "base/error.h"
#include "net/sessions.h"

typedef struct pj_gate {
    bool loopback;                    /* bound to loopback: only loopback names are accepted */
    const char *host;                 /* what the server was bound to */
    pj_sessions *sessions;            /* of browsers; NULL: none */
    const char *token;                /* NULL: no token is required */
    const char *const *join_tokens;   /* "SECRET" or "NAME=SECRET"; NULL-terminated, or NULL */
    const char *const *extra_hosts;   /* NULL-terminated, or NULL */
    const char *const *extra_origins; /* "http://localhost:5173": for developing the dashboard */
} pj_gate;

/* Whether "name", "name:port" or "[v6]:port" is an accepted name of this machine. */
bool pj_gate_host(const pj_gate *gate, const char *host_header);
/* Whether an Origin belongs to this server's own pages; `host_header` has been accepted already. */
bool pj_gate_origin(const pj_gate *gate, const char *origin, const char *host_header);
/* Whether the token is given, as "Bearer ..." or as a query parameter (each may be NULL), in
 * constant time. */
bool pj_gate_token(const pj_gate *gate, const char *authorization, const char *parameter);

/* Whether a machine of that name may join with the token: one of the join tokens that holds for it,
 * or, when there are none, the server's token. A join token opens nothing else. */
bool pj_gate_join(const pj_gate *gate, const char *authorization, const char *machine);
/* The secret of "SECRET" or "NAME=SECRET"; a base64 secret's final '=' names nobody. */
const char *pj_join_token_secret(const char *token);

/* The name of the cookie with the id of a session (sessions.h). It is derived from the token, so
 * that servers on several ports of one host, which share their cookies, do not take each other's.
 * False: no token, no sessions. */
enum { PJ_COOKIE_NAME_BYTES = 32 };
bool pj_gate_cookie_name(const pj_gate *gate, char name[PJ_COOKIE_NAME_BYTES]);

#endif

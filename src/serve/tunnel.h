/* A TLS connection as an ordinary socket: one end of a socket pair whose bytes a thread carries to
 * and from an https server. Whoever uses the socket need not know about TLS. */
#ifndef PJ_SERVE_TUNNEL_H
#define PJ_SERVE_TUNNEL_H

#include "base/error.h"

typedef struct pj_tunnel pj_tunnel;

/* Returns at once; what is written to `fd` waits until the connection is there. `fd`, non-blocking,
 * is the caller's to close. End of file on it means that the connection failed or ended. */
pj_status pj_tunnel_open(const char *url, int timeout_ms, pj_tunnel **tunnel, int *fd,
                         pj_error *err);
/* Whether it has ended; then `why` says whether it failed to connect (status PJ_OK: it did not). */
bool pj_tunnel_has_ended(pj_tunnel *tunnel, pj_error *why);
/* Ends it within about a second. */
void pj_tunnel_close(pj_tunnel *tunnel);

#endif

/* Keeps slow connections from shutting others out: when few slots are left, a new connection
 * replaces the one whose request has been incomplete for longest. (The front holds connections
 * until their head is complete, libmicrohttpd ends silent ones, and a body that only drips in is
 * given up after PJ_REQUEST_DEADLINE_S; see server.c.) */
#ifndef PJ_NET_WATCH_H
#define PJ_NET_WATCH_H

#include "base/error.h"

#include <microhttpd.h>

enum { PJ_REQUEST_DEADLINE_S = 40 };

typedef struct pj_watch pj_watch;

pj_watch *pj_watch_new(uint32_t connections_max); /* NULL: out of memory */
void pj_watch_free(pj_watch *watch); /* after the daemon has stopped; NULL is allowed */
/* MHD_NotifyConnectionCallback; the context is the pj_watch. */
void pj_watch_connection(void *context, struct MHD_Connection *connection, void **slot,
                         enum MHD_ConnectionNotificationCode code);
/* The connection's request is complete, which is its only one: its answer may take its time. */
void pj_watch_complete(pj_watch *watch, struct MHD_Connection *connection);

#endif

/* Cuts off connections that make no progress: libmicrohttpd ends silent ones after its timeout, but
 * a client that sends a byte now and then could hold a slot for hours. A connection must deliver a
 * whole request, head and body, within PJ_REQUEST_DEADLINE_S of being opened or of the end of its
 * last request. When few slots are left, a new connection replaces the one silent longest, so that
 * idle connections keep nobody out. */
#ifndef PJ_NET_WATCH_H
#define PJ_NET_WATCH_H

#include "base/error.h"

#include <microhttpd.h>

enum { PJ_REQUEST_DEADLINE_S = 40 };

typedef struct pj_watch pj_watch;

pj_status pj_watch_open(uint32_t connections_max, pj_watch **watch, pj_error *err);
void pj_watch_close(pj_watch *watch); /* after the daemon has stopped; NULL is allowed */
/* MHD_NotifyConnectionCallback; the context is the pj_watch. */
void pj_watch_connection(void *context, struct MHD_Connection *connection, void **location,
                         enum MHD_ConnectionNotificationCode code);
/* The request is complete: its answer may take its time. */
void pj_watch_request(pj_watch *watch, struct MHD_Connection *connection);
/* The request is over: the next one is awaited. */
void pj_watch_idle(pj_watch *watch, struct MHD_Connection *connection);

#endif

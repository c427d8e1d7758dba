/*
 * Live streams of other machines. A machine that joins (`perjoule serve --join`) dials this server,
 * so that it needs no open port, and its connection lies idle until somebody wants to watch it.
 * Then this server sends the text frame "watch", and the machine puts the connection into its own
 * hub like any reader of its live stream: one reader, however many watch here, which loses
 * intermediate states when it is slow. That bounds the load on the machine; without watchers there
 * is none.
 *
 * The machine's messages go through a hub of their own here, so that watchers are numbered, paced
 * and dropped as those of this server's runs are. When nobody has watched for some seconds the
 * connection is closed; the machine has dialled a spare one by then.
 *
 * Threads: every call from any thread. One thread per machine that is being watched.
 */
#ifndef PJ_NET_RELAY_H
#define PJ_NET_RELAY_H

#include "net/hub.h"

enum { PJ_RELAY_NAME_BYTES = 256, PJ_RELAY_MACHINES = 4096, PJ_RELAY_WATCHED = 64 };

typedef struct pj_relay pj_relay;

pj_status pj_relay_open(pj_relay **relay, pj_error *err);
void pj_relay_close(pj_relay *relay); /* after the server; NULL is allowed */
/* A machine's connection after its handshake; takes the socket. It replaces an idle one. */
void pj_relay_join(pj_relay *relay, const char *machine, int fd);
/* Whether a machine could be watched now. NULL: no. */
bool pj_relay_has(pj_relay *relay, const char *machine);
/* The hub for a new watcher of the machine; it lives as long as the relay. NULL: not joined, or too
 * many machines are watched. */
pj_hub *pj_relay_watch(pj_relay *relay, const char *machine, pj_error *err);

#endif

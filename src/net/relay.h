/*
 * Live streams of other machines. A machine that joins (`perjoule serve --join`) connects to this
 * server, so that it needs no open port, and its connection stays idle until somebody watches it.
 * This server then sends the text frame "watch", and the machine adds the connection to its own hub
 * like any reader of its live stream. However many watchers there are here, the machine has one
 * reader, which loses intermediate states when it is slow. That bounds the load on the machine;
 * without watchers there is none.
 *
 * Each machine has a hub of its own here, with the same sequence numbers, pacing and limits as for
 * this server's runs. When there has been no watcher for some seconds the connection is closed; the
 * machine has opened a new idle one by then.
 *
 * Threads: every call from any thread. One thread per machine that is being watched, and one that
 * waits for the idle connections to end.
 */
#ifndef PJ_NET_RELAY_H
#define PJ_NET_RELAY_H

#include "net/hub.h"

enum {
    PJ_RELAY_NAME_BYTES = 256,
    PJ_RELAY_KEY_BYTES = 64,
    PJ_RELAY_MACHINES = 4096,
    PJ_RELAY_WATCHED = 64
};

typedef struct pj_relay pj_relay;

pj_status pj_relay_open(pj_relay **relay, pj_error *err);
void pj_relay_close(pj_relay *relay); /* after the server; NULL is allowed */
/* Whether a machine may join under this name: nobody has it, or the holder gave the same key, a
 * random text that a machine keeps while it runs ("": none was given). PJ_E_STATE: another machine
 * has the name; PJ_E_UNAVAILABLE: no place is left. */
pj_status pj_relay_may_join(pj_relay *relay, const char *machine, const char *key, pj_error *err);
/* Adds a machine's connection after its handshake and takes ownership of the socket. Replaces the
 * machine's idle one; one that may not join is closed. A connection that ends is dropped at once,
 * and a machine without connections is forgotten. */
void pj_relay_join(pj_relay *relay, const char *machine, const char *key, int fd);
/* Whether a machine can be watched now. NULL relay: no. */
bool pj_relay_has(pj_relay *relay, const char *machine);
/* The hub for a new watcher of the machine, valid for half a minute, and while it has readers.
 * NULL: not joined, or too many machines are being watched. */
pj_hub *pj_relay_watch(pj_relay *relay, const char *machine, pj_error *err);

#endif

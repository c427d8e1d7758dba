/*
 * Sessions of browsers, which stand for the token, and the slowing of those who guess it.
 *
 * A session is a random id that only this process knows: it ends when the browser signs out, after
 * 12 hours without a request, and with the process.
 *
 * After some wrong tokens from an address each further one is checked only when its turn has come:
 * turns follow each other with a pause that grows to two seconds, whatever the number of
 * connections. Sessions are not affected, as nobody guesses 256 random bits.
 *
 * Threads: every call from any thread.
 */
#ifndef PJ_NET_SESSIONS_H
#define PJ_NET_SESSIONS_H

#include "base/error.h"
#include "base/ids.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_sessions pj_sessions;

/* `say` gets wrong tokens: the first from an address, the second, fourth, eighth ...; NULL: nobody.
 */
pj_status pj_sessions_open(void (*say)(const char *text), pj_sessions **sessions, pj_error *err);
void pj_sessions_close(pj_sessions *sessions); /* NULL is allowed */

/* A new session; of too many, the one that was idle for longest ends. False: no random numbers. */
bool pj_sessions_begin(pj_sessions *sessions, char id[PJ_SECRET_BYTES]);
/* Whether there is such a session, which then has been used now. NULL `id`: no. */
bool pj_sessions_has(pj_sessions *sessions, const char *id);
void pj_sessions_end(pj_sessions *sessions, const char *id); /* NULL and unknown ids are allowed */

/* Waits until a token from this address may be checked. False: too many are waiting already. */
bool pj_sessions_wait_turn(pj_sessions *sessions, const char *address);
void pj_sessions_note_wrong(pj_sessions *sessions, const char *address);

#endif

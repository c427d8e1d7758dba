/*
 * Sessions of browsers, which stand for the token, and the slowing of those who guess it.
 *
 * A session is a random id that only this process knows: it ends when the browser signs out, after
 * 12 hours without a request, and with the process.
 *
 * After some wrong tokens from an address the next token from there is checked only after a pause,
 * which grows to two seconds and begins anew with each wrong one, whatever the number of
 * connections. A right one takes no pause: a client with an old token does not slow those that
 * share its address, as behind a proxy. But it waits like the others, since an answer at once would
 * tell it from wrong ones. Sessions are not affected, as nobody guesses 256 random bits.
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

/* Whether a token is the right one; compares, and nothing more. */
typedef bool pj_token_check(const void *context);
/* 0: right. Else the status of the refusal: 401 wrong, 429 not checked, as its turn did not come.
 */
unsigned pj_sessions_check(pj_sessions *sessions, const char *address, pj_token_check *is_right,
                           const void *context);

#endif

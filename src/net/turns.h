/* Answers computed from all runs hold the figures of all of them, some 100 MB for 10,000 runs. Few
 * are computed at a time; some requests wait for their turn, more are refused. */
#ifndef PJ_NET_TURNS_H
#define PJ_NET_TURNS_H

#include <pthread.h>
#include <stdbool.h>

enum { PJ_TURNS_AT_ONCE = 2, PJ_TURNS_WAITING = 32 };

typedef struct pj_turns {
    pthread_mutex_t mutex;
    pthread_cond_t free;
    int taken, waiting;
    bool closing;
} pj_turns;

void pj_turns_init(pj_turns *turns);
void pj_turns_fini(pj_turns *turns);
/* False: too many wait already, or the server closes. */
bool pj_turns_take(pj_turns *turns, bool *has_waited);
void pj_turns_give(pj_turns *turns);
void pj_turns_close(pj_turns *turns); /* those that wait get none */

#endif

#include "net/turns.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

void pj_turns_init(pj_turns *t)
{
    *t = (pj_turns){0};
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->free, NULL);
}

void pj_turns_fini(pj_turns *t)
{
    pthread_cond_destroy(&t->free);
    pthread_mutex_destroy(&t->mutex);
}

bool pj_turns_take(pj_turns *t, bool *has_waited)
{
    pthread_mutex_lock(&t->mutex);
    bool may = t->taken < PJ_TURNS_AT_ONCE || t->waiting < PJ_TURNS_WAITING;
    *has_waited = t->taken == PJ_TURNS_AT_ONCE;
    t->waiting++;
    while (may && !t->closing && t->taken == PJ_TURNS_AT_ONCE)
        pthread_cond_wait(&t->free, &t->mutex);
    t->waiting--;
    may = may && !t->closing;
    if (may) t->taken++;
    pthread_mutex_unlock(&t->mutex);
    return may;
}

void pj_turns_give(pj_turns *t)
{
#ifdef __GLIBC__
    malloc_trim(0); /* what the figures took is not kept beside what the next ones take */
#endif
    pthread_mutex_lock(&t->mutex);
    t->taken--;
    pthread_cond_signal(&t->free);
    pthread_mutex_unlock(&t->mutex);
}

void pj_turns_close(pj_turns *t)
{
    pthread_mutex_lock(&t->mutex);
    t->closing = true;
    pthread_cond_broadcast(&t->free);
    pthread_mutex_unlock(&t->mutex);
}

#include "net/sessions.h"

#include "base/clock.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SESSIONS_MAX = 256,
    ADDRESSES_MAX = 256,
    ADDRESS_BYTES = 64,
    FREE_TRIES = 5,   /* people mistype */
    DOUBLINGS = 5,    /* of the first pause */
    WAITING_MAX = 16, /* of an address, so that guesses do not occupy all connections */
};

#define IDLE_NS    (12 * 3600 * PJ_NS_PER_S)
#define PAUSE_NS   (60 * PJ_NS_PER_MS)
#define WAIT_NS    (3 * PJ_NS_PER_S) /* at most */
#define FORGIVE_NS (600 * PJ_NS_PER_S)

typedef struct session {
    char id[PJ_SECRET_BYTES]; /* "": free */
    int64_t used_ns;
} session;

typedef struct guesser {
    char address[ADDRESS_BYTES]; /* "": free */
    uint32_t wrong, waiting;
    int64_t wrong_ns, turn_ns; /* last wrong token; when the next one may be checked */
} guesser;

struct pj_sessions {
    pthread_mutex_t mutex; /* guards the tables */
    session sessions[SESSIONS_MAX];
    guesser guessers[ADDRESSES_MAX];
    void (*say)(const char *text);
};

pj_status pj_sessions_open(void (*say)(const char *text), pj_sessions **out, pj_error *err)
{
    pj_sessions *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "sessions");
    pthread_mutex_init(&s->mutex, NULL);
    s->say = say;
    *out = s;
    return PJ_OK;
}

void pj_sessions_close(pj_sessions *s)
{
    if (!s) return;
    pthread_mutex_destroy(&s->mutex);
    pj_free(s);
}

/* ---- sessions -------------------------------------------------------------------------------- */

bool pj_sessions_begin(pj_sessions *s, char id[PJ_SECRET_BYTES])
{
    if (!pj_secret_make(id)) return false;
    pthread_mutex_lock(&s->mutex);
    session *oldest = s->sessions;
    for (session *each = s->sessions; each < s->sessions + SESSIONS_MAX; each++)
        if (!each->id[0] || (oldest->id[0] && each->used_ns < oldest->used_ns)) oldest = each;
    oldest->used_ns = pj_clock_ns();
    memcpy(oldest->id, id, PJ_SECRET_BYTES);
    pthread_mutex_unlock(&s->mutex);
    return true;
}

/* Takes the same time wherever they differ. */
static bool same_id(const char *a, const char *b)
{
    volatile unsigned difference = 0;
    for (int i = 0; i < PJ_SECRET_BYTES; i++)
        difference |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return difference == 0;
}

/* With the mutex held. */
static session *sessions_find(pj_sessions *s, const char *id)
{
    session *found = NULL;
    int64_t now_ns = pj_clock_ns();
    if (!id || strlen(id) != PJ_SECRET_BYTES - 1) return NULL;
    for (session *each = s->sessions; each < s->sessions + SESSIONS_MAX; each++) {
        if (each->id[0] && now_ns - each->used_ns > IDLE_NS) *each = (session){0};
        if (same_id(each->id, id)) found = each;
    }
    return found;
}

bool pj_sessions_has(pj_sessions *s, const char *id)
{
    pthread_mutex_lock(&s->mutex);
    session *found = sessions_find(s, id);
    if (found) found->used_ns = pj_clock_ns();
    pthread_mutex_unlock(&s->mutex);
    return found != NULL;
}

void pj_sessions_end(pj_sessions *s, const char *id)
{
    pthread_mutex_lock(&s->mutex);
    session *found = sessions_find(s, id);
    if (found) *found = (session){0};
    pthread_mutex_unlock(&s->mutex);
}

/* ---- wrong tokens ---------------------------------------------------------------------------- */

/* With the mutex held; NULL: nothing wrong came from there lately. */
static guesser *guesser_find(pj_sessions *s, const char *address)
{
    int64_t now_ns = pj_clock_ns();
    for (guesser *g = s->guessers; g < s->guessers + ADDRESSES_MAX; g++) {
        if (g->address[0] && now_ns - g->wrong_ns > FORGIVE_NS) *g = (guesser){0};
        if (strcmp(g->address, address) == 0) return g;
    }
    return NULL;
}

/* In the place of the address whose last wrong token is longest ago. */
static guesser *guesser_add(pj_sessions *s, const char *address)
{
    guesser *oldest = s->guessers;
    for (guesser *g = s->guessers; g < s->guessers + ADDRESSES_MAX; g++)
        if (g->wrong_ns < oldest->wrong_ns) oldest = g;
    *oldest = (guesser){0};
    snprintf(oldest->address, sizeof oldest->address, "%s", address);
    return oldest;
}

static int64_t pause_after(uint32_t wrong)
{
    uint32_t doublings = wrong - FREE_TRIES;
    return PAUSE_NS << (doublings < DOUBLINGS ? doublings : DOUBLINGS);
}

/* With the mutex held. False: the turn did not come, or too many wait for it. */
static bool wait_for_turn(pj_sessions *s, const char *address)
{
    int64_t last_ns = pj_clock_ns() + WAIT_NS;
    for (guesser *g; (g = guesser_find(s, address)) && g->turn_ns > pj_clock_ns();) {
        int64_t turn_ns = g->turn_ns;
        if (turn_ns > last_ns || g->waiting == WAITING_MAX) return false;
        g->waiting++;
        pthread_mutex_unlock(&s->mutex);
        pj_clock_sleep_until(turn_ns);
        pthread_mutex_lock(&s->mutex);
        g = guesser_find(s, address); /* another's wrong token may have taken its place */
        if (g && g->waiting) g->waiting--;
    }
    return true;
}

/* With the mutex held; returns their number. */
static uint32_t note_wrong(pj_sessions *s, const char *address)
{
    guesser *g = guesser_find(s, address);
    if (!g) g = guesser_add(s, address);
    g->wrong++;
    g->wrong_ns = pj_clock_ns();
    if (g->wrong >= FREE_TRIES) g->turn_ns = g->wrong_ns + pause_after(g->wrong);
    return g->wrong;
}

unsigned pj_sessions_check(pj_sessions *s, const char *address, pj_token_check *is_right,
                           const void *context)
{
    char text[ADDRESS_BYTES + 64];
    pthread_mutex_lock(&s->mutex);
    bool may = wait_for_turn(s, address), right = may && is_right(context);
    uint32_t wrong = may && !right ? note_wrong(s, address) : 0;
    pthread_mutex_unlock(&s->mutex);
    if (s->say && wrong && (wrong & (wrong - 1)) == 0) {
        snprintf(text, sizeof text, "wrong token from %.63s (%u so far)", address, wrong);
        s->say(text);
    }
    return right ? 0 : may ? 401 : 429;
}

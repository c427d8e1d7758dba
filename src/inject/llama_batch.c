/* Counts tokens per sequence, and keeps a list of what was added to each opaque batch. */
#include "inject/llama_batch.h"

#include "inject/llama_real.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

enum { SEQUENCES = 256, BATCHES = 32 };

bool pj_batch_follow;

typedef struct entry {
    int32_t sequence;
    bool is_wanted;
} entry;

typedef struct tally {
    uint32_t tokens[SEQUENCES], wanted[SEQUENCES];
} tally;

static void tally_add(tally *t, int32_t sequence, bool is_wanted)
{
    uint32_t s = (uint32_t)sequence % SEQUENCES;
    t->tokens[s]++;
    t->wanted[s] += is_wanted;
}

static pj_batch_contents sum(const tally *t)
{
    pj_batch_contents c = {0};
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        if (t->tokens[s] > 1) c.prompt_tokens += t->tokens[s];
        if (t->tokens[s] == 1) c.generated++;
        if (t->wanted[s]) c.outputs++;
    }
    return c;
}

/* ---- llama_batch ---- */

/* Its members are read only if llama.cpp's own constructor allocated them. */
static bool check_layout(void)
{
    REAL(pj_llama_batch(*)(int32_t, int32_t, int32_t), "llama_batch_init");
    void (*free_batch)(pj_llama_batch);
    void *symbol = pj_find_real("llama_batch_free");
    memcpy(&free_batch, &symbol, sizeof free_batch);
    if (!real || !symbol) return false;
    pj_llama_batch b = real(2, 0, 1);
    bool is_known = b.count == 0 && b.token && !b.embedding && b.position && b.sequence_count &&
                    b.sequence && b.sequence[0] && b.sequence[1] && !b.sequence[2] && b.wanted;
    free_batch(b);
    return is_known;
}

static bool layout_is_known(void)
{
    static _Atomic int known; /* 0: not yet checked, 1: no, 2: yes */
    if (!atomic_load(&known)) atomic_store(&known, check_layout() ? 2 : 1);
    return atomic_load(&known) == 2;
}

pj_batch_contents pj_batch_count(const pj_llama_batch *b)
{
    tally t = {0};
    bool is_known = layout_is_known(), has_sequences = b->sequence && b->sequence_count;
    for (int32_t i = 0; i < b->count; i++) {
        bool in_one = is_known && has_sequences && b->sequence_count[i] > 0;
        bool is_last = i == b->count - 1;
        tally_add(&t, in_one ? b->sequence[i][0] : 0,
                  is_known && b->wanted ? b->wanted[i] : is_last);
    }
    return sum(&t);
}

/* ---- llama_batch_ext ---- */

static struct list {
    const void *batch;
    entry *entries;
    uint32_t count, capacity;
} lists[BATCHES];
static pthread_mutex_t lists_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The list of a batch, or (`batch` NULL) a free one. */
static struct list *find_list(const void *batch)
{
    for (int i = 0; i < BATCHES; i++)
        if (lists[i].batch == batch) return &lists[i];
    return NULL;
}

static void note(const void *batch, int32_t index, int32_t sequence)
{
    struct list *l;
    if (!pj_batch_follow || index < 0) return;
    pthread_mutex_lock(&lists_mutex);
    if (!(l = find_list(batch)) && (l = find_list(NULL))) *l = (struct list){.batch = batch};
    if (l && (uint32_t)index >= l->capacity) {
        uint32_t wanted = (uint32_t)index < 256 ? 512 : 2 * (uint32_t)index;
        entry *more = realloc(l->entries, wanted * sizeof *more);
        if (more) l->entries = more, l->capacity = wanted;
    }
    if (l && (uint32_t)index < l->capacity) {
        l->entries[index] = (entry){.sequence = sequence};
        l->count = (uint32_t)index + 1;
    }
    pthread_mutex_unlock(&lists_mutex);
}

static void want(const void *batch, int32_t index, bool is_wanted)
{
    if (!pj_batch_follow) return;
    pthread_mutex_lock(&lists_mutex);
    struct list *l = find_list(batch);
    if (l && index >= 0 && (uint32_t)index < l->count) l->entries[index].is_wanted = is_wanted;
    pthread_mutex_unlock(&lists_mutex);
}

static void empty(const void *batch, bool is_freed)
{
    if (!pj_batch_follow || !batch) return;
    pthread_mutex_lock(&lists_mutex);
    struct list *l = find_list(batch);
    if (l) l->count = 0;
    if (l && is_freed) {
        free(l->entries);
        *l = (struct list){0};
    }
    pthread_mutex_unlock(&lists_mutex);
}

pj_batch_contents pj_batch_ext_count(const void *batch)
{
    tally t = {0};
    pthread_mutex_lock(&lists_mutex);
    struct list *l = find_list(batch);
    for (uint32_t i = 0; l && i < l->count; i++)
        tally_add(&t, l->entries[i].sequence, l->entries[i].is_wanted);
    pthread_mutex_unlock(&lists_mutex);
    return sum(&t);
}

PJ_EXPORT int32_t llama_batch_ext_add(void *batch, int32_t sequence)
{
    REAL(int32_t(*)(void *, int32_t), "llama_batch_ext_add");
    int32_t index = real ? real(batch, sequence) : -1;
    note(batch, index, sequence);
    return index;
}

PJ_EXPORT int32_t llama_batch_ext_add_token(void *batch, int32_t sequence, int32_t token)
{
    REAL(int32_t(*)(void *, int32_t, int32_t), "llama_batch_ext_add_token");
    int32_t index = real ? real(batch, sequence, token) : -1;
    note(batch, index, sequence);
    return index;
}

typedef struct embedding { /* llama_embd, with room to spare */
    const float *data;
    size_t numbers[5];
} embedding;

PJ_EXPORT int32_t llama_batch_ext_add_embd(void *batch, int32_t sequence, embedding e)
{
    REAL(int32_t(*)(void *, int32_t, embedding), "llama_batch_ext_add_embd");
    int32_t index = real ? real(batch, sequence, e) : -1;
    note(batch, index, sequence);
    return index;
}

PJ_EXPORT bool llama_batch_ext_set_output_logits(void *batch, int32_t index, bool value)
{
    REAL(bool (*)(void *, int32_t, bool), "llama_batch_ext_set_output_logits");
    want(batch, index, value);
    return real && real(batch, index, value);
}

PJ_EXPORT void llama_batch_ext_clear(void *batch)
{
    REAL(void (*)(void *), "llama_batch_ext_clear");
    empty(batch, false);
    if (real) real(batch);
}

PJ_EXPORT void llama_batch_ext_free(void *batch)
{
    REAL(void (*)(void *), "llama_batch_ext_free");
    empty(batch, true);
    if (real) real(batch);
}

/* A tokenizer in memory: created empty, filled by the readers of the file formats, indexed, queried
 * for single tokens, and closed. */
#include "engine/text/tokenizer/parts.h"

#include <string.h>

pj_tokenizer *pj_tokenizer_new(void)
{
    pj_tokenizer *t = pj_alloc(1, sizeof *t);
    if (!t) return NULL;
    pj_arena_init(&t->arena, 0);
    pj_vocab_init(&t->vocab);
    t->bpe.prefix = t->bpe.suffix = "";
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void pj_tokenizer_close(pj_tokenizer *t)
{
    if (!t) return;
    pj_step_list *stages[] = {&t->normalizers, &t->splitters, &t->decoders};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (uint32_t k = 0; k < stages[i]->count; k++)
            pj_regex_free(stages[i]->items[k].pattern.regex);
    pj_trie_fini(&t->raw_trie);
    pj_trie_fini(&t->normalized_trie);
    pj_vocab_fini(&t->vocab);
    pj_free(t->added_by_id);
    pj_workspace_free(t->workspace);
    pj_arena_fini(&t->arena);
    pthread_mutex_destroy(&t->lock);
    pj_free(t);
}

uint32_t pj_tokenizer_size(const pj_tokenizer *t)
{
    return t->size;
}

const char *pj_tokenizer_token(const pj_tokenizer *t, int32_t id)
{
    if (id < 0 || (uint32_t)id >= t->size) return NULL;
    if (t->added_by_id[id] > 0) return t->added[t->added_by_id[id] - 1].content;
    const pj_vocab_entry *entry = pj_vocab_entry_of(&t->vocab, (uint32_t)id);
    return entry ? t->vocab.text + entry->offset : NULL;
}

bool pj_tokenizer_is_special(const pj_tokenizer *t, int32_t id)
{
    if (id < 0 || (uint32_t)id >= t->size || t->added_by_id[id] == 0) return false;
    return t->added[t->added_by_id[id] - 1].special;
}

int32_t pj_tokenizer_find(const pj_tokenizer *t, const char *token)
{
    size_t bytes = strlen(token);
    for (uint32_t i = 0; i < t->added_count; i++)
        if (t->added[i].bytes == bytes && memcmp(t->added[i].content, token, bytes) == 0)
            return (int32_t)t->added[i].id;
    return (int32_t)pj_vocab_find(&t->vocab, token, bytes);
}

pj_status pj_tokenizer_index(pj_tokenizer *t, const char *name, pj_error *err)
{
    t->size = t->vocab.size;
    for (uint32_t i = 0; i < t->added_count; i++)
        if (t->added[i].id >= t->size) t->size = t->added[i].id + 1;
    t->added_by_id = pj_alloc((size_t)t->size + 1, sizeof *t->added_by_id);
    if (!t->added_by_id) return pj_fail_memory(err, "a tokenizer");
    for (uint32_t i = 0; i < t->added_count; i++) t->added_by_id[t->added[i].id] = i + 1;
    for (uint32_t i = 0; i < t->template.count; i++)
        if (t->template.ids[i] >= 0 && !pj_tokenizer_token(t, t->template.ids[i]))
            return pj_fail(err, PJ_E_INVALID,
                           "%s: the template adds the id %d, which does not exist", name,
                           t->template.ids[i]);
    return PJ_OK;
}

/* Byte-pair encoding of one word: splits it into symbols, then merges, lowest rank first, leftmost
 * on ties. Short words are merged by scanning; long ones with a heap, so that no text takes
 * quadratic time. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

enum { SHORT_WORD = 32 };

typedef struct pj_symbol {
    uint32_t id;
    int32_t prev, next; /* -1: none */
    bool dead;
} pj_symbol;

typedef struct pj_candidate {
    uint32_t rank, at, result;
} pj_candidate;

void pj_bpe_scratch_fini(pj_bpe_scratch *scratch)
{
    pj_free(scratch->symbols);
    pj_free(scratch->heap);
    pj_buffer_fini(&scratch->letters);
    *scratch = (pj_bpe_scratch){0};
}

/* Whether the merge at index a precedes that at b; no merge comes last. */
static inline bool is_sooner(const pj_vocab *vocab, uint32_t a, uint32_t b)
{
    if (!vocab->ranks || a == PJ_NO_MERGE || b == PJ_NO_MERGE) return a < b;
    return vocab->ranks[a] < vocab->ranks[b];
}

/* ---- a short word ---- */

static size_t merge_short(const pj_vocab *vocab, int32_t *ids, size_t count)
{
    uint32_t pair[SHORT_WORD]; /* merge of symbols i and i + 1 */
    for (size_t i = 0; i + 1 < count; i++)
        pair[i] = pj_vocab_merge(vocab, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (is_sooner(vocab, pair[i], pair[best])) best = i;
        if (pair[best] == PJ_NO_MERGE) break;
        ids[best] = (int32_t)vocab->merges[pair[best]].result;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        if (best + 2 < count)
            memmove(pair + best, pair + best + 1, (count - best - 2) * sizeof *pair);
        count--;
        if (best > 0)
            pair[best - 1] = pj_vocab_merge(vocab, (uint32_t)ids[best - 1], (uint32_t)ids[best]);
        if (best + 1 < count)
            pair[best] = pj_vocab_merge(vocab, (uint32_t)ids[best], (uint32_t)ids[best + 1]);
    }
    return count;
}

/* ---- a long word ---- */

static bool bpe_before(pj_candidate a, pj_candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(pj_candidate *heap, size_t *count, pj_candidate item)
{
    size_t i = (*count)++;
    for (; i > 0 && bpe_before(item, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static pj_candidate heap_pop(pj_candidate *heap, size_t *count)
{
    pj_candidate top = heap[0], last = heap[--*count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && bpe_before(heap[child + 1], heap[child])) child++;
        if (!bpe_before(heap[child], last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* Every merge removes a symbol and adds at most two candidates: 3 n suffices. */
static bool reserve_long(pj_bpe_scratch *scratch, size_t count)
{
    if (count > INT32_MAX / 4) return false;
    if (scratch->symbol_capacity < count) {
        pj_symbol *symbols = pj_resize(scratch->symbols, count, sizeof *symbols);
        if (!symbols) return false;
        scratch->symbols = symbols;
        scratch->symbol_capacity = count;
    }
    if (scratch->heap_capacity < 3 * count) {
        pj_candidate *heap = pj_resize(scratch->heap, 3 * count, sizeof *heap);
        if (!heap) return false;
        scratch->heap = heap;
        scratch->heap_capacity = 3 * count;
    }
    return true;
}

static void add_candidate(const pj_vocab *vocab, pj_bpe_scratch *s, size_t *count, int32_t left)
{
    if (left < 0 || s->symbols[left].next < 0) return;
    uint32_t right = s->symbols[s->symbols[left].next].id;
    uint32_t index = pj_vocab_merge(vocab, s->symbols[left].id, right);
    if (index == PJ_NO_MERGE) return;
    uint32_t rank = vocab->ranks ? vocab->ranks[index] : index;
    heap_push(s->heap, count, (pj_candidate){rank, (uint32_t)left, vocab->merges[index].result});
}

static void merge_at(pj_symbol *symbols, int32_t at, uint32_t result)
{
    int32_t right = symbols[at].next, after = symbols[right].next;
    symbols[at].id = result;
    symbols[at].next = after;
    symbols[right].dead = true;
    if (after >= 0) symbols[after].prev = at;
}

static bool merge_long(const pj_vocab *vocab, pj_bpe_scratch *s, int32_t *ids, size_t *count)
{
    size_t candidates = 0, left = 0;
    if (!reserve_long(s, *count)) return false;
    int32_t total = (int32_t)*count;
    for (int32_t i = 0; i < total; i++)
        s->symbols[i] = (pj_symbol){(uint32_t)ids[i], i - 1, i + 1 < total ? i + 1 : -1, false};
    for (int32_t i = 0; i + 1 < total; i++) add_candidate(vocab, s, &candidates, i);
    while (candidates > 0) {
        pj_candidate top = heap_pop(s->heap, &candidates);
        const pj_symbol *symbol = &s->symbols[top.at];
        if (symbol->dead || symbol->next < 0) continue;
        /* Stale candidate: the pair may have changed since it was queued. */
        uint32_t index = pj_vocab_merge(vocab, symbol->id, s->symbols[symbol->next].id);
        if (index == PJ_NO_MERGE || vocab->merges[index].result != top.result) continue;
        merge_at(s->symbols, (int32_t)top.at, top.result);
        add_candidate(vocab, s, &candidates, symbol->prev);
        add_candidate(vocab, s, &candidates, (int32_t)top.at);
    }
    for (int32_t i = 0; i >= 0; i = s->symbols[i].next) ids[left++] = (int32_t)s->symbols[i].id;
    *count = left;
    return true;
}

/* ---- symbols ---- */

/* Partially read word: an unknown symbol is written only when the next known one arrives. */
typedef struct builder {
    const pj_tokenizer *tokenizer;
    pj_ids *ids;
    bool unk_waits;
    bool no_memory, no_unk;
} builder;

static void put_id(builder *b, int64_t id)
{
    if (!pj_ids_append(b->ids, (int32_t)id)) b->no_memory = true;
}

static void flush_unk(builder *b)
{
    if (b->unk_waits) put_id(b, b->tokenizer->bpe.unk);
    b->unk_waits = false;
}

static bool put_bytes(builder *b, const char *text, size_t bytes)
{
    const int64_t *tokens = b->tokenizer->bpe.byte_tokens;
    for (size_t i = 0; i < bytes; i++)
        if (tokens[(unsigned char)text[i]] < 0) return false;
    for (size_t i = 0; i < bytes; i++) put_id(b, tokens[(unsigned char)text[i]]);
    return true;
}

static void put_symbol(builder *b, const char *text, size_t bytes)
{
    const pj_bpe *bpe = &b->tokenizer->bpe;
    int64_t id = pj_vocab_find(&b->tokenizer->vocab, text, bytes);
    if (id >= 0) {
        flush_unk(b);
        put_id(b, id);
        return;
    }
    if (bpe->byte_fallback && put_bytes(b, text, bytes)) return;
    if (bpe->unk_missing) b->no_unk = true;
    if (bpe->unk < 0) return; /* no token for it and no unknown token: it is dropped */
    if (b->unk_waits && !bpe->fuse_unk) put_id(b, bpe->unk);
    b->unk_waits = true;
}

/* A symbol with the model's prefix (for all but the first) and suffix (for the last). */
static void put_affixed(builder *b, const char *text, size_t bytes, bool first, bool last)
{
    const pj_bpe *bpe = &b->tokenizer->bpe;
    char symbol[4 + 2 * 256];
    size_t length = 0;
    if (!first) memcpy(symbol, bpe->prefix, length = bpe->prefix_bytes);
    memcpy(symbol + length, text, bytes);
    length += bytes;
    if (last) memcpy(symbol + length, bpe->suffix, bpe->suffix_bytes);
    put_symbol(b, symbol, length + (last ? bpe->suffix_bytes : 0));
}

static void put_symbols(builder *b, const char *word, size_t bytes)
{
    const pj_bpe *bpe = &b->tokenizer->bpe;
    bool plain = bpe->prefix_bytes == 0 && bpe->suffix_bytes == 0;
    for (size_t i = 0, n; i < bytes; i += n) {
        uint32_t c;
        n = pj_utf8_step(word + i, bytes - i, &c);
        if (plain)
            put_symbol(b, word + i, n);
        else
            put_affixed(b, word + i, n, i == 0, i + n == bytes);
    }
    flush_unk(b);
}

static const char *to_letters(pj_bpe_scratch *scratch, const char *word, size_t *bytes)
{
    pj_buffer *out = &scratch->letters;
    if (out->max_bytes == 0) pj_buffer_init(out, SIZE_MAX / 2);
    pj_buffer_clear(out);
    pj_put_byte_letters(word, *bytes, out);
    *bytes = out->length;
    return out->failed ? NULL : pj_buffer_get(out);
}

static pj_status no_memory(pj_error *err)
{
    return pj_fail_memory(err, "token ids");
}

pj_status pj_bpe_encode(const pj_tokenizer *tokenizer, pj_bpe_scratch *scratch, const char *word,
                        size_t bytes, bool raw, pj_ids *ids, pj_error *err)
{
    const pj_bpe *bpe = &tokenizer->bpe;
    size_t base = ids->count;
    builder b = {tokenizer, ids};
    bool direct = raw && bpe->all_letters && bpe->prefix_bytes == 0 && bpe->suffix_bytes == 0;
    const char *text = word;
    size_t text_bytes = bytes;
    if (raw && (!direct || bpe->ignore_merges)) {
        text = to_letters(scratch, word, &text_bytes);
        if (!text) return no_memory(err);
    }
    if (bpe->ignore_merges) {
        int64_t id = pj_vocab_find(&tokenizer->vocab, text, text_bytes);
        if (id >= 0) return pj_ids_append(ids, (int32_t)id) ? PJ_OK : no_memory(err);
    }
    if (direct)
        for (size_t i = 0; i < bytes; i++) put_id(&b, bpe->letters[(unsigned char)word[i]]);
    else
        put_symbols(&b, text, text_bytes);
    if (b.no_unk)
        return pj_fail(err, PJ_E_INVALID,
                       "the text has a character that is not in the vocabulary, "
                       "nor is the tokenizer's unknown token");
    if (b.no_memory) return no_memory(err);
    size_t count = ids->count - base;
    if (count > SHORT_WORD) {
        if (!merge_long(&tokenizer->vocab, scratch, ids->ids + base, &count)) return no_memory(err);
    } else if (count > 1) {
        count = merge_short(&tokenizer->vocab, ids->ids + base, count);
    }
    ids->count = base + count;
    return PJ_OK;
}

/* The merges of a model, up to hundreds of thousands. Both parts of each and its result must be in
 * the vocabulary, whose table exceeds the inner caches: parts of a few dozen merges are looked up
 * in a batch, so that cache misses overlap. A merge's result is nearly always the same as that of
 * the previous merge, or the next token, which then takes only a comparison. */
#include "engine/files/gguf.h"
#include "engine/text/tokenizer/parts.h"

#include <string.h>

enum { MAX_MERGES = 1 << 26, BATCH = 32, LEAST_MERGE_BYTES = 6 /* "a b", */ };

/* Its texts are in the reader's buffer: the result, which begins with the left part; then the right
 * part, if it has a prefix that the result lacks. */
typedef struct waiting_merge {
    size_t at, left_bytes, right_at, right_bytes, made_bytes;
    int64_t made; /* index in the vocabulary; -1: missing */
} waiting_merge;

typedef struct merge_reader {
    pj_tokenizer *t;
    pj_json_scan *scan;
    const char *name;
    pj_error *err;
    pj_buffer texts, first;
    waiting_merge waiting[BATCH];
    size_t count;      /* number of waiting merges */
    uint32_t expected; /* index of the previous merge's result */
} merge_reader;

static pj_status bad_merge(merge_reader *r, const char *problem, const char *text, size_t bytes)
{
    return pj_fail(r->err, PJ_E_INVALID, "%s: merge %u %s%.*s", r->name, r->t->vocab.merge_count,
                   problem, (int)(bytes < 60 ? bytes : 60), text);
}

static pj_status settle_one(merge_reader *r, const waiting_merge *w, const pj_vocab_query *parts)
{
    static const char joins[] = "joins a token that is not in the vocabulary: ";
    pj_vocab *vocab = &r->t->vocab;
    for (int i = 0; i < 2; i++)
        if (parts[i].id < 0) return bad_merge(r, joins, parts[i].text, parts[i].bytes);
    if (w->made < 0)
        return bad_merge(r, "produces a token that is not in the vocabulary: ", parts[0].text,
                         w->made_bytes);
    vocab->merges[vocab->merge_count++] =
        (pj_merge){(uint32_t)parts[0].id, (uint32_t)parts[1].id, vocab->entries[w->made].id};
    return PJ_OK;
}

/* Looks up the parts of the waiting merges, and adds the merges to the vocabulary. */
static pj_status merges_settle(merge_reader *r)
{
    pj_vocab_query parts[2 * BATCH];
    const char *texts = pj_buffer_get(&r->texts);
    pj_status status = PJ_OK;
    if (r->texts.failed) return pj_fail_memory(r->err, "merges");
    for (size_t i = 0; i < r->count; i++) {
        const waiting_merge *w = &r->waiting[i];
        parts[2 * i] = (pj_vocab_query){.text = texts + w->at, .bytes = w->left_bytes};
        parts[2 * i + 1] = (pj_vocab_query){.text = texts + w->right_at, .bytes = w->right_bytes};
    }
    pj_vocab_find_all(&r->t->vocab, parts, 2 * r->count);
    for (size_t i = 0; status == PJ_OK && i < r->count; i++)
        status = settle_one(r, &r->waiting[i], &parts[2 * i]);
    r->count = 0;
    pj_buffer_clear(&r->texts);
    return status;
}

/* An error of the merge after the waiting ones; errors of those are reported first. */
static pj_status merges_refuse(merge_reader *r, const char *problem, const char *text, size_t bytes)
{
    pj_status status = merges_settle(r);
    return status == PJ_OK ? bad_merge(r, problem, text, bytes) : status;
}

static int64_t find_made(merge_reader *r, const char *text, size_t bytes)
{
    const pj_vocab *vocab = &r->t->vocab;
    if (pj_vocab_is_at(vocab, r->expected, text, bytes)) return r->expected;
    if (pj_vocab_is_at(vocab, r->expected + 1, text, bytes)) return ++r->expected;
    int64_t index = pj_vocab_number(vocab, text, bytes);
    if (index >= 0) r->expected = (uint32_t)index;
    return index;
}

static pj_status add_merge(merge_reader *r, pj_json_text a, pj_json_text b)
{
    size_t prefix = r->t->bpe.prefix_bytes;
    if (b.bytes < prefix)
        return merges_refuse(r, "has a part without the prefix: ", b.text, b.bytes);
    waiting_merge *w = &r->waiting[r->count++];
    *w = (waiting_merge){.at = r->texts.length,
                         .left_bytes = a.bytes,
                         .right_at = r->texts.length + a.bytes,
                         .right_bytes = b.bytes,
                         .made_bytes = a.bytes + b.bytes - prefix};
    pj_buffer_append(&r->texts, a.text, a.bytes);
    pj_buffer_append(&r->texts, b.text + prefix, b.bytes - prefix);
    if (prefix) {
        w->right_at = r->texts.length;
        pj_buffer_append(&r->texts, b.text, b.bytes);
    }
    if (r->texts.failed) return merges_settle(r);
    w->made = find_made(r, r->texts.data + w->at, w->made_bytes);
    pj_vocab_note_parts(&r->t->vocab, a.text, a.bytes, b.text, b.bytes);
    return r->count == BATCH ? merges_settle(r) : PJ_OK;
}

/* "a b" */
static pj_status merges_take_text(merge_reader *r, pj_json_text text)
{
    if (text.bytes >= 8 && memcmp(text.text, "#version", 8) == 0) return PJ_OK;
    const char *space = memchr(text.text, ' ', text.bytes);
    size_t left = space ? (size_t)(space - text.text) : 0, rest = text.bytes - left - 1;
    if (!space || memchr(space + 1, ' ', rest))
        return merges_refuse(r, "does not have two parts: ", text.text, text.bytes);
    return add_merge(r, (pj_json_text){text.text, left}, (pj_json_text){space + 1, rest});
}

static pj_status merges_read_text(merge_reader *r)
{
    pj_json_text text;
    return pj_json_scan_string(r->scan, &text) ? merges_take_text(r, text) : PJ_E_INVALID;
}

/* ["a", "b"] */
static pj_status read_pair(merge_reader *r)
{
    pj_json_text a, b, more;
    int count = 0;
    pj_json_scan_enter(r->scan, '[');
    while (pj_json_scan_next(r->scan, '[')) {
        if (!pj_json_scan_string(r->scan, count == 0 ? &a : count == 1 ? &b : &more))
            return PJ_E_INVALID;
        if (count++ > 0) continue;
        /* Reading the second may overwrite the first. */
        pj_buffer_clear(&r->first);
        if (!pj_buffer_append(&r->first, a.text, a.bytes)) return pj_fail_memory(r->err, "merges");
    }
    if (pj_json_scan_failed(r->scan)) return PJ_E_INVALID;
    if (count != 2) return merges_refuse(r, "does not have two parts", "", 0);
    return add_merge(r, (pj_json_text){pj_buffer_get(&r->first), r->first.length}, b);
}

static pj_status merges_begin(merge_reader *r, size_t most)
{
    pj_buffer_init(&r->texts, 1 << 30);
    pj_buffer_init(&r->first, 1 << 30);
    return pj_vocab_reserve_merges(&r->t->vocab, most) ? PJ_OK : pj_fail_memory(r->err, "merges");
}

static pj_status merges_end(merge_reader *r, pj_status status)
{
    if (status == PJ_OK) status = merges_settle(r);
    pj_buffer_fini(&r->texts);
    pj_buffer_fini(&r->first);
    return status;
}

pj_status pj_load_merges(pj_tokenizer *tokenizer, pj_json_scan *scan, const char *name,
                         pj_error *err)
{
    merge_reader r = {.t = tokenizer, .scan = scan, .name = name, .err = err};
    pj_status status = merges_begin(&r, pj_json_scan_left(scan) / LEAST_MERGE_BYTES + 1);
    if (status == PJ_OK) pj_json_scan_enter(scan, '[');
    while (status == PJ_OK && pj_json_scan_next(scan, '['))
        status = pj_json_scan_peek(scan) == '[' ? read_pair(&r) : merges_read_text(&r);
    return merges_end(&r, status);
}

pj_status pj_load_merge_texts(pj_tokenizer *tokenizer, const pj_gguf_value *list, const char *name,
                              pj_error *err)
{
    merge_reader r = {.t = tokenizer, .name = name, .err = err};
    const unsigned char *at = list->data;
    if (list->count > MAX_MERGES)
        return pj_fail(err, PJ_E_INVALID, "%s has more than %d merges", name, MAX_MERGES);
    pj_status status = merges_begin(&r, (size_t)list->count + 1);
    for (uint64_t i = 0; status == PJ_OK && i < list->count; i++) {
        pj_gguf_text text = pj_gguf_next_string(&at);
        status = merges_take_text(&r, (pj_json_text){text.text, text.bytes});
    }
    return merges_end(&r, status);
}

/* From text to ids: added tokens are cut out of the raw text, the rest is normalised, added tokens
 * that match normalised text are cut out of that, the rest is pre-tokenised, and every piece goes
 * through the model. Recent words are cached with their ids, since most words of a text repeat. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

/* ---- the cache of recent words ---- */

enum {
    CACHE_SLOTS = 1 << 16,
    CACHE_WORDS = CACHE_SLOTS / 2, /* emptied when full */
    CACHE_WORD_BYTES = 48,
    INLINE_IDS = 3
};

typedef struct cached_word {
    uint64_t hash; /* 0: free */
    uint32_t text; /* offset in cache_texts */
    uint16_t bytes, count;
    int32_t ids[INLINE_IDS]; /* inline, or, if there are more, their offset in cache_ids */
} cached_word;

typedef struct pj_workspace {
    pj_buffer repaired, normalized, scratch;
    pj_split_state split;
    pj_bpe_scratch bpe;
    cached_word *cache; /* [CACHE_SLOTS] */
    uint32_t cache_count;
    pj_buffer cache_texts;
    pj_ids cache_ids;
} pj_workspace;

static pj_workspace *workspace_new(void)
{
    pj_workspace *w = pj_alloc(1, sizeof *w);
    if (!w) return NULL;
    pj_buffer *buffers[] = {&w->repaired, &w->normalized, &w->scratch, &w->cache_texts};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        pj_buffer_init(buffers[i], SIZE_MAX / 2);
    pj_split_state_init(&w->split);
    w->cache = pj_alloc(CACHE_SLOTS, sizeof *w->cache);
    if (w->cache) return w;
    pj_workspace_free(w);
    return NULL;
}

void pj_workspace_free(pj_workspace *w)
{
    if (!w) return;
    pj_buffer_fini(&w->repaired);
    pj_buffer_fini(&w->normalized);
    pj_buffer_fini(&w->scratch);
    pj_buffer_fini(&w->cache_texts);
    pj_ids_fini(&w->cache_ids);
    pj_split_state_fini(&w->split);
    pj_bpe_scratch_fini(&w->bpe);
    pj_free(w->cache);
    pj_free(w);
}

static void cache_clear(pj_workspace *w)
{
    memset(w->cache, 0, CACHE_SLOTS * sizeof *w->cache);
    w->cache_count = 0;
    w->cache_ids.count = 0;
    pj_buffer_clear(&w->cache_texts);
}

static cached_word *cache_slot(pj_workspace *w, const char *word, size_t bytes, uint64_t hash)
{
    for (size_t slot = (size_t)hash & (CACHE_SLOTS - 1);; slot = (slot + 1) & (CACHE_SLOTS - 1)) {
        cached_word *entry = &w->cache[slot];
        if (entry->hash == 0) return entry;
        if (entry->hash == hash && entry->bytes == bytes &&
            memcmp(w->cache_texts.data + entry->text, word, bytes) == 0)
            return entry;
    }
}

/* Best effort: a word that does not fit is encoded again next time. */
static void cache_add(pj_workspace *w, cached_word *entry, const char *word, size_t bytes,
                      uint64_t hash, const int32_t *ids, size_t count)
{
    cached_word made = {
        hash, (uint32_t)w->cache_texts.length, (uint16_t)bytes, (uint16_t)count, {0}};
    if (count <= INLINE_IDS) {
        memcpy(made.ids, ids, count * sizeof *ids);
    } else {
        made.ids[0] = (int32_t)w->cache_ids.count;
        if (!pj_ids_extend(&w->cache_ids, ids, count)) return;
    }
    if (!pj_buffer_append(&w->cache_texts, word, bytes)) return;
    *entry = made;
    if (++w->cache_count == CACHE_WORDS) cache_clear(w);
}

static bool put_cached(const pj_workspace *w, const cached_word *entry, pj_ids *ids)
{
    const int32_t *from =
        entry->count <= INLINE_IDS ? entry->ids : w->cache_ids.ids + entry->ids[0];
    return pj_ids_extend(ids, from, entry->count);
}

/* ---- one call ---- */

typedef struct encoder {
    const pj_tokenizer *t;
    pj_workspace *w;
    pj_ids *ids;
    const pj_text_span *literals;
    size_t literal_count;
    pj_error *err;
} encoder;

static pj_status encode_word(encoder *e, const char *word, size_t bytes)
{
    bool cached = bytes <= CACHE_WORD_BYTES;
    uint64_t hash = cached ? pj_text_hash(word, bytes, e->t->vocab.seed) | 1 : 0;
    cached_word *entry = cached ? cache_slot(e->w, word, bytes, hash) : NULL;
    if (entry && entry->hash)
        return put_cached(e->w, entry, e->ids) ? PJ_OK : pj_fail_memory(e->err, "token ids");
    size_t base = e->ids->count;
    pj_status status =
        pj_bpe_encode(e->t, &e->w->bpe, word, bytes, e->t->letters_last, e->ids, e->err);
    if (status == PJ_OK && entry && e->ids->count > base) /* without ids there may be no list yet */
        cache_add(e->w, entry, word, bytes, hash, e->ids->ids + base, e->ids->count - base);
    return status;
}

/* A piece of possibly several words: if no merge of the vocabulary crosses the beginning of a word,
 * words can be encoded separately. */
static pj_status encode_piece(encoder *e, const char *text, size_t bytes)
{
    if (!e->t->bpe.cut_at_mark || e->t->letters_last) return encode_word(e, text, bytes);
    pj_status status = PJ_OK;
    size_t begin = 0, at = 0;
    bool after_mark = true;
    while (status == PJ_OK && at < bytes) {
        const char *found = memmem(text + at, bytes - at, PJ_SPACE_MARK, 3);
        size_t next = found ? (size_t)(found - text) : bytes;
        if (next > at) after_mark = false;
        if (found && !after_mark && next > begin) {
            status = encode_word(e, text + begin, next - begin);
            begin = next;
        }
        after_mark = true;
        at = found ? next + 3 : bytes;
    }
    return status == PJ_OK && begin < bytes ? encode_word(e, text + begin, bytes - begin) : status;
}

/* ---- added tokens ---- */

static bool word_touches(const char *text, size_t bytes, size_t begin, size_t end)
{
    uint32_t c;
    if (begin > 0 && pj_unicode_is_word(pj_utf8_before(text, begin))) return true;
    return end < bytes && pj_utf8_next(text + end, bytes - end, &c) && pj_unicode_is_word(c);
}

static size_t space_before(const char *text, size_t at)
{
    while (at > 0) {
        uint32_t c = pj_utf8_before(text, at);
        char bytes[4];
        if (!pj_unicode_is_space(c)) break;
        at -= pj_utf8_put(c, bytes);
    }
    return at;
}

static size_t space_after(const char *text, size_t bytes, size_t at)
{
    uint32_t c;
    for (size_t n; at < bytes && (n = pj_utf8_next(text + at, bytes - at, &c)); at += n)
        if (!pj_unicode_is_space(c)) break;
    return at;
}

static bool in_literal(const encoder *e, size_t begin, size_t end)
{
    for (size_t i = 0; i < e->literal_count; i++)
        if (begin < e->literals[i].end && end > e->literals[i].begin) return true;
    return false;
}

/* A part of the text, and its offset in the original. After a normalizer, offsets inside it are no
 * longer valid (`moved`); then it is only known whether a user wrote any of it. */
typedef struct section {
    const char *text;
    size_t bytes, offset;
    bool moved, literal;
    bool beheaded; /* the normalizer removed the beginning of the text */
} section;

typedef pj_status between_fn(encoder *e, section part);

static section encode_part_of(section whole, size_t begin, size_t end)
{
    section part = whole;
    part.text += begin;
    part.bytes = end - begin;
    part.offset += begin;
    return part;
}

/* Whether the token counts here: not a control token spelled by a user, and not inside a word if it
 * must be a single word. */
static bool encode_counts(const encoder *e, const pj_added_token *token, section s, size_t begin,
                          size_t end)
{
    bool written = s.moved ? s.literal : in_literal(e, s.offset + begin, s.offset + end);
    if (token->special && written) return false;
    return !token->single_word || !word_touches(s.text, s.bytes, begin, end);
}

/* Cuts the tokens of a trie out of a section, leftmost first, longest at each position; the search
 * continues after the match itself, regardless of white space that the token absorbs. */
static pj_status cut_added(encoder *e, const pj_trie *trie, section s, between_fn *between)
{
    pj_status status = PJ_OK;
    size_t done = 0, at = 0, end = 0;
    while (status == PJ_OK && trie->count > 0 && at < s.bytes) {
        int32_t index = trie->starts[(unsigned char)s.text[at]]
                            ? pj_trie_longest(trie, s.text, s.bytes, at, &end)
                            : -1;
        if (index < 0) {
            at++;
            continue;
        }
        const pj_added_token *token = &e->t->added[index];
        size_t begin = at, stop = end;
        at = end;
        if (!encode_counts(e, token, s, begin, stop)) continue;
        if (token->lstrip) {
            size_t left = space_before(s.text, begin);
            begin = left > done ? left : done;
        }
        if (token->rstrip) stop = space_after(s.text, s.bytes, stop);
        if (done < begin) status = between(e, encode_part_of(s, done, begin));
        /* A token inside white space that the previous one absorbed has nothing left. */
        bool remains = begin < stop;
        if (status == PJ_OK && remains && !pj_ids_append(e->ids, (int32_t)token->id))
            status = pj_fail_memory(e->err, "token ids");
        done = stop;
    }
    return status == PJ_OK && done < s.bytes ? between(e, encode_part_of(s, done, s.bytes))
                                             : status;
}

static pj_status encode_normalized(encoder *e, section part)
{
    bool first = part.offset == 0 && !part.beheaded;
    pj_status status = pj_split(e->t, &e->w->split, part.text, part.bytes, first, e->err);
    const pj_split_state *split = &e->w->split;
    for (size_t i = 0; status == PJ_OK && i < split->pieces.count; i++) {
        pj_piece piece = split->pieces.items[i];
        status = encode_piece(e, split->text + piece.begin, piece.end - piece.begin);
    }
    return status;
}

static pj_status encode_raw(encoder *e, section part)
{
    if (e->t->normalizers.count > 0) {
        pj_workspace *w = e->w;
        uint32_t c;
        size_t head = part.offset == 0 ? pj_utf8_next(part.text, part.bytes, &c) : 0;
        pj_status status =
            pj_normalize(e->t, part.text, part.bytes, &w->normalized, &w->scratch, &head, e->err);
        if (status != PJ_OK) return status;
        part.beheaded = head == 0;
        part.moved = true;
        part.literal = in_literal(e, part.offset, part.offset + part.bytes);
        part.text = pj_buffer_get(&w->normalized);
        part.bytes = w->normalized.length;
    }
    return cut_added(e, &e->t->normalized_trie, part, encode_normalized);
}

/* ---- the call ---- */

/* Converts the text to valid UTF-8 and adjusts the literal spans. `moved` has room for the
 * spans. */
static bool repair(pj_workspace *w, const char *text, size_t bytes,
                   const pj_encode_options *options, pj_text_span *moved)
{
    size_t at = 0;
    pj_buffer_clear(&w->repaired);
    for (size_t i = 0; i < options->literal_count; i++) {
        pj_text_span span = options->literals[i];
        if (span.begin < at) span.begin = at;
        if (span.begin > bytes) span.begin = bytes;
        if (span.end < span.begin) span.end = span.begin;
        if (span.end > bytes) span.end = bytes;
        pj_utf8_repair(text + at, span.begin - at, &w->repaired);
        moved[i].begin = w->repaired.length;
        pj_utf8_repair(text + span.begin, span.end - span.begin, &w->repaired);
        moved[i].end = w->repaired.length;
        at = span.end;
    }
    return pj_utf8_repair(text + at, bytes - at, &w->repaired);
}

/* The post-processor: adds its tokens around the text's ids, which end the list. */
static bool apply_template(const pj_template *template, pj_ids *ids, size_t base)
{
    pj_ids text = {0};
    bool ok = ids->count == base || pj_ids_extend(&text, ids->ids + base, ids->count - base);
    ids->count = base;
    for (uint32_t i = 0; ok && i < template->count; i++)
        ok = template->ids[i] >= 0 ? pj_ids_append(ids, template->ids[i])
                                   : pj_ids_extend(ids, text.ids, text.count);
    pj_ids_fini(&text);
    return ok;
}

static pj_status encode_locked(encoder *e, const char *text, size_t bytes,
                               const pj_encode_options *options)
{
    pj_text_span *moved = NULL;
    pj_status status = PJ_OK;
    e->literals = options->literals;
    e->literal_count = options->literal_count;
    if (!pj_utf8_valid(text, bytes)) {
        moved = pj_alloc(options->literal_count + 1, sizeof *moved);
        if (!moved || !repair(e->w, text, bytes, options, moved))
            status = pj_fail_memory(e->err, "a text");
        e->literals = moved;
        text = pj_buffer_get(&e->w->repaired);
        bytes = e->w->repaired.length;
    }
    section whole = {.text = text, .bytes = bytes};
    if (status == PJ_OK) status = cut_added(e, &e->t->raw_trie, whole, encode_raw);
    pj_free(moved);
    return status;
}

pj_status pj_tokenizer_encode(const pj_tokenizer *tokenizer, const char *text, size_t bytes,
                              const pj_encode_options *options, pj_ids *ids, pj_error *err)
{
    static const pj_encode_options none = {0};
    pj_tokenizer *t = (pj_tokenizer *)(uintptr_t)tokenizer; /* only its lock and workspace change */
    size_t base = ids->count;
    if (!options) options = &none;
    if (!text) text = ""; /* no pointer arithmetic on NULL */
    pthread_mutex_lock(&t->lock);
    if (!t->workspace) t->workspace = workspace_new();
    encoder e = {.t = t, .w = t->workspace, .ids = ids, .err = err};
    pj_status status =
        t->workspace ? encode_locked(&e, text, bytes, options) : pj_fail_memory(err, "encoding");
    pthread_mutex_unlock(&t->lock);
    if (status == PJ_OK && t->template.ids && !options->no_special &&
        !apply_template(&t->template, ids, base))
        status = pj_fail_memory(err, "token ids");
    if (status != PJ_OK) ids->count = base;
    return status;
}

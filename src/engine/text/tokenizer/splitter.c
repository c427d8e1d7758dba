/* Pre-tokenizers. A text is a list of pieces; each step splits every piece into ranges that match
 * its pattern and ranges in between, and its behaviour decides which of them become pieces, alone
 * or joined. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

void pj_split_state_init(pj_split_state *state)
{
    *state = (pj_split_state){0};
    for (int i = 0; i < 2; i++) pj_buffer_init(&state->buffers[i], SIZE_MAX / 2);
}

void pj_split_state_fini(pj_split_state *state)
{
    for (int i = 0; i < 2; i++) pj_buffer_fini(&state->buffers[i]);
    pj_free(state->pieces.items);
    pj_free(state->next.items);
    state->pieces = state->next = (pj_pieces){0};
}

static bool splitter_add_piece(pj_pieces *pieces, size_t begin, size_t end)
{
    if (pieces->count == pieces->capacity) {
        size_t capacity = pieces->capacity ? 2 * pieces->capacity : 256;
        pj_piece *grown = pj_resize(pieces->items, capacity, sizeof *grown);
        if (!grown) return false;
        pieces->items = grown;
        pieces->capacity = capacity;
    }
    pieces->items[pieces->count++] = (pj_piece){begin, end};
    return true;
}

/* One piece being split: its parts in the list, and the state of the behaviour. */
typedef struct fold {
    pj_pieces *out;
    size_t base; /* first part of this piece */
    pj_behavior behavior;
    bool invert, previous; /* the previous range was a match */
    bool failed;
} fold;

static void splitter_push(fold *f, size_t begin, size_t end)
{
    if (!splitter_add_piece(f->out, begin, end)) f->failed = true;
}

static void push_or_extend(fold *f, size_t begin, size_t end, bool extend)
{
    if (extend && f->out->count > f->base)
        f->out->items[f->out->count - 1].end = end;
    else
        splitter_push(f, begin, end);
}

static void splitter_take(fold *f, size_t begin, size_t end, bool match)
{
    match ^= f->invert;
    switch (f->behavior) {
    case PJ_BEHAVIOR_REMOVED:
        if (!match) splitter_push(f, begin, end);
        break;
    case PJ_BEHAVIOR_ISOLATED: splitter_push(f, begin, end); break;
    case PJ_BEHAVIOR_CONTIGUOUS: push_or_extend(f, begin, end, match == f->previous); break;
    case PJ_BEHAVIOR_WITH_PREVIOUS: push_or_extend(f, begin, end, match && !f->previous); break;
    case PJ_BEHAVIOR_WITH_NEXT: push_or_extend(f, begin, end, !match && f->previous); break;
    }
    f->previous = match;
}

static void drop_empty(pj_pieces *pieces, size_t base)
{
    size_t kept = base;
    for (size_t i = base; i < pieces->count; i++)
        if (pieces->items[i].end > pieces->items[i].begin) pieces->items[kept++] = pieces->items[i];
    pieces->count = kept;
}

/* The next match of a step in text[cursor->from, bytes): 1, 0 or -1. */
static int next_match(const pj_step *step, const char *text, size_t bytes, pj_regex_cursor *cursor,
                      size_t *begin, size_t *end)
{
    if (step->kind != PJ_SPLITTER_CLASS)
        return pj_pattern_next(&step->pattern, text, bytes, cursor, begin, end);
    while (cursor->from < bytes) {
        uint32_t c;
        *begin = cursor->from;
        *end = cursor->from += pj_utf8_step(text + cursor->from, bytes - cursor->from, &c);
        if (step->in_class ? step->in_class(c) : c == step->delimiter) return 1;
    }
    return 0;
}

static bool split_by_match(const pj_step *step, const pj_split_state *state, pj_piece piece,
                           pj_pieces *out)
{
    const char *text = state->text + piece.begin;
    size_t bytes = piece.end - piece.begin, begin, end, plain = 0;
    fold f = {out, out->count, step->behavior, step->invert};
    pj_regex_cursor cursor = {0, SIZE_MAX};
    int found;
    while ((found = next_match(step, text, bytes, &cursor, &begin, &end)) > 0) {
        if (begin > plain) splitter_take(&f, piece.begin + plain, piece.begin + begin, false);
        splitter_take(&f, piece.begin + begin, piece.begin + end, true);
        plain = end;
    }
    if (bytes > plain) splitter_take(&f, piece.begin + plain, piece.end, false);
    drop_empty(out, f.base);
    return found == 0 && !f.failed;
}

static int word_kind(uint32_t c)
{
    return pj_unicode_is_word(c) ? 1 : pj_unicode_is_space(c) ? 0 : 2;
}

static bool splitter_split_words(const pj_split_state *state, pj_piece piece, pj_pieces *out)
{
    size_t begin = piece.begin;
    int before = 0;
    for (size_t at = piece.begin; at < piece.end;) {
        uint32_t c;
        size_t n = pj_utf8_step(state->text + at, piece.end - at, &c);
        int kind = word_kind(c);
        if (kind != before) {
            if (before && !splitter_add_piece(out, begin, at)) return false;
            begin = at;
            before = kind;
        }
        at += n;
    }
    return !before || splitter_add_piece(out, begin, piece.end);
}

static bool split_fixed(const pj_step *step, const pj_split_state *state, pj_piece piece,
                        pj_pieces *out)
{
    size_t begin = piece.begin, characters = 0;
    for (size_t at = piece.begin; at < piece.end;) {
        uint32_t c;
        at += pj_utf8_step(state->text + at, piece.end - at, &c);
        if (++characters < step->length && at < piece.end) continue;
        if (!splitter_add_piece(out, begin, at)) return false;
        begin = at;
        characters = 0;
    }
    return true;
}

/* Splits each piece of state->pieces into pieces of state->next, then swaps the lists. */
static bool split_all(const pj_step *step, pj_split_state *state)
{
    state->next.count = 0;
    for (size_t i = 0; i < state->pieces.count; i++) {
        pj_piece piece = state->pieces.items[i];
        bool ok = step->kind == PJ_SPLITTER_WORDS ? splitter_split_words(state, piece, &state->next)
                  : step->kind == PJ_SPLITTER_FIXED
                      ? split_fixed(step, state, piece, &state->next)
                      : split_by_match(step, state, piece, &state->next);
        if (!ok) return false;
    }
    pj_pieces swap = state->pieces;
    state->pieces = state->next;
    state->next = swap;
    return true;
}

/* ---- steps that rewrite the text ---- */

/* The buffer that does not hold the current text, emptied. */
static pj_buffer *other_buffer(pj_split_state *state)
{
    int holds = state->text && state->text == state->buffers[0].data;
    pj_buffer *other = &state->buffers[holds ? 1 : 0];
    pj_buffer_clear(other);
    return other;
}

typedef void rewrite_fn(const pj_step *step, const char *text, size_t bytes, bool first,
                        pj_buffer *out);

static bool rewrite_all(const pj_step *step, pj_split_state *state, rewrite_fn *rewrite)
{
    pj_buffer *out = other_buffer(state);
    if (state->pieces.count > 0 && state->pieces.items[0].begin > 0) state->first = false;
    for (size_t i = 0; i < state->pieces.count; i++) {
        pj_piece *piece = &state->pieces.items[i];
        size_t begin = out->length;
        rewrite(step, state->text + piece->begin, piece->end - piece->begin, i == 0 && state->first,
                out);
        *piece = (pj_piece){begin, out->length};
    }
    state->text = pj_buffer_get(out);
    return !out->failed;
}

static void rewrite_prefix(const pj_step *step, const char *text, size_t bytes, bool first,
                           pj_buffer *out)
{
    if (bytes > 0 && text[0] != ' ') pj_buffer_char(out, ' ');
    pj_buffer_append(out, text, bytes);
}

static void rewrite_letters(const pj_step *step, const char *text, size_t bytes, bool first,
                            pj_buffer *out)
{
    pj_put_byte_letters(text, bytes, out);
}

static void rewrite_metaspace(const pj_step *step, const char *text, size_t bytes, bool first,
                              pj_buffer *out)
{
    bool marked = (bytes > 0 && text[0] == ' ') ||
                  (bytes >= step->character_bytes &&
                   memcmp(text, step->character, step->character_bytes) == 0);
    bool prepend =
        step->prepend == PJ_PREPEND_ALWAYS || (step->prepend == PJ_PREPEND_FIRST && first);
    if (prepend && !marked) pj_buffer_append(out, step->character, step->character_bytes);
    size_t plain = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != ' ') continue;
        pj_buffer_append(out, text + plain, i - plain);
        pj_buffer_append(out, step->character, step->character_bytes);
        plain = i + 1;
    }
    pj_buffer_append(out, text + plain, bytes - plain);
}

static bool splitter_run_step(const pj_step *step, pj_split_state *state, bool keep_bytes)
{
    switch (step->kind) {
    case PJ_SPLITTER_BYTE_LEVEL:
        return (!step->add_prefix_space || rewrite_all(step, state, rewrite_prefix)) &&
               (!step->pattern.regex || split_all(step, state)) &&
               (keep_bytes || rewrite_all(step, state, rewrite_letters));
    case PJ_SPLITTER_METASPACE:
        return rewrite_all(step, state, rewrite_metaspace) &&
               (!step->split || split_all(step, state));
    default: return split_all(step, state);
    }
}

pj_status pj_split(const pj_tokenizer *tokenizer, pj_split_state *state, const char *text,
                   size_t bytes, bool first, pj_error *err)
{
    state->text = text;
    state->first = first;
    state->pieces.count = 0;
    bool ok = bytes == 0 || splitter_add_piece(&state->pieces, 0, bytes);
    for (uint32_t i = 0; ok && i < tokenizer->splitters.count; i++) {
        bool last = i + 1 == tokenizer->splitters.count;
        ok = splitter_run_step(&tokenizer->splitters.items[i], state,
                               last && tokenizer->letters_last);
    }
    if (ok) return PJ_OK;
    return pj_fail(err, PJ_E_FULL,
                   "the text cannot be split: a pattern of the tokenizer takes too "
                   "long, or memory is out");
}

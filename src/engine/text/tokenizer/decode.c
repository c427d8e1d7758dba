/* From ids to text. A complete text goes through the decoders as specified: lists of strings, step
 * by step. A stream takes a direct path if the decoders allow it (each token yields bytes, complete
 * characters are emitted); for any other list of decoders it decodes a window of tokens again for
 * each new one. The window restarts at the newest tokens wherever the text ends with what they give
 * alone, and never holds more than MOST_WINDOW, so that a text takes time linear in its tokens. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

/* Strings passed between decoders: bytes in a buffer and the end of each. */
typedef struct strings {
    pj_buffer text, ends; /* `ends` holds size_t */
} strings;

static void strings_init(strings *s)
{
    pj_buffer_init(&s->text, SIZE_MAX / 2);
    pj_buffer_init(&s->ends, SIZE_MAX / 2);
}

static void strings_fini(strings *s)
{
    pj_buffer_fini(&s->text);
    pj_buffer_fini(&s->ends);
}

static size_t strings_count(const strings *s)
{
    return s->ends.length / sizeof(size_t);
}

/* Ends the string appended to s->text. */
static void strings_end(strings *s)
{
    pj_buffer_append(&s->ends, &s->text.length, sizeof s->text.length);
}

static void strings_add(strings *s, const char *text, size_t bytes)
{
    pj_buffer_append(&s->text, text, bytes);
    strings_end(s);
}

static const char *strings_get(const strings *s, size_t index, size_t *bytes)
{
    const size_t *ends = (const size_t *)(const void *)s->ends.data;
    size_t begin = index ? ends[index - 1] : 0;
    *bytes = ends[index] - begin;
    return pj_buffer_get(&s->text) + begin;
}

/* ---- one token ---- */

/* The text of an id for the decoders; NULL for none. An added token that the normalizer changes is
 * decoded in its changed form, and then does not count as special by name. */
static const char *decoder_text(const pj_tokenizer *t, int32_t id, bool skip_special, size_t *bytes)
{
    if (id < 0 || (uint32_t)id >= t->size) return NULL;
    uint32_t index = t->added_by_id[id];
    if (index > 0) {
        const pj_added_token *token = &t->added[index - 1];
        bool changed = token->pattern != token->content;
        if (skip_special && token->special && !changed) return NULL;
        *bytes = token->pattern_bytes;
        return token->pattern;
    }
    const pj_vocab_entry *entry = pj_vocab_entry_of(&t->vocab, (uint32_t)id);
    if (!entry) return NULL;
    *bytes = entry->bytes;
    return t->vocab.text + entry->offset;
}

/* Converts byte-level letters to bytes; a token with any other character stays as it is. */
static void put_letters(const char *text, size_t bytes, pj_buffer *out)
{
    size_t base = out->length;
    for (size_t i = 0, n; i < bytes; i += n) {
        uint32_t c;
        n = pj_utf8_next(text + i, bytes - i, &c);
        int byte = n ? pj_letter_byte(c) : -1;
        if (byte < 0) {
            out->length = base;
            pj_buffer_append(out, text, bytes);
            return;
        }
        pj_buffer_char(out, (char)byte);
    }
}

static int decode_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x41>": 0x41; -1 for any other token. */
static int byte_token(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = decode_hex_digit(text[3]), low = decode_hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool put_replaced(const pj_step *step, const char *text, size_t bytes, pj_buffer *out)
{
    return pj_pattern_replace(&step->pattern, text, bytes, step->content, step->content_bytes, out);
}

static bool has_at(const pj_step *step, const char *text, size_t bytes)
{
    return bytes >= step->character_bytes &&
           memcmp(text, step->character, step->character_bytes) == 0;
}

static void put_stripped(const pj_step *step, const char *text, size_t bytes, pj_buffer *out)
{
    size_t size = step->character_bytes;
    for (size_t i = 0; i < step->start && has_at(step, text, bytes); i++) {
        text += size;
        bytes -= size;
    }
    for (size_t i = 0; i < step->stop && bytes >= size; i++) {
        if (!has_at(step, text + bytes - size, size)) break;
        bytes -= size;
    }
    pj_buffer_append(out, text, bytes);
}

static void put_metaspace(const pj_step *step, const char *text, size_t bytes, bool first,
                          pj_buffer *out)
{
    for (size_t i = 0; i < bytes;) {
        if (!has_at(step, text + i, bytes - i)) {
            pj_buffer_char(out, text[i++]);
            continue;
        }
        if (!first || !step->drop_first) pj_buffer_char(out, ' ');
        i += step->character_bytes;
    }
}

/* ---- all tokens, decoder by decoder ---- */

/* A run of byte tokens is one string if it is valid UTF-8, else one U+FFFD per byte. */
static void flush_bytes(pj_buffer *run, strings *out)
{
    out->text.failed |= run->failed;
    if (run->length == 0) return;
    bool valid = pj_utf8_valid(run->data, run->length);
    for (size_t i = 0; i < run->length && !valid; i++) strings_add(out, "\xef\xbf\xbd", 3);
    if (valid) strings_add(out, run->data, run->length);
    pj_buffer_clear(run);
}

static void join_bytes(const strings *in, strings *out)
{
    pj_buffer run;
    pj_buffer_init(&run, SIZE_MAX / 2);
    for (size_t i = 0; i < strings_count(in); i++) {
        size_t bytes;
        const char *text = strings_get(in, i, &bytes);
        int byte = byte_token(text, bytes);
        if (byte >= 0) {
            pj_buffer_char(&run, (char)byte);
            continue;
        }
        flush_bytes(&run, out);
        strings_add(out, text, bytes);
    }
    flush_bytes(&run, out);
    pj_buffer_fini(&run);
}

static void join_letters(const strings *in, strings *out)
{
    pj_buffer bytes_of_all;
    pj_buffer_init(&bytes_of_all, SIZE_MAX / 2);
    for (size_t i = 0; i < strings_count(in); i++) {
        size_t bytes;
        const char *text = strings_get(in, i, &bytes);
        put_letters(text, bytes, &bytes_of_all);
    }
    pj_utf8_repair(pj_buffer_get(&bytes_of_all), bytes_of_all.length, &out->text);
    out->text.failed |= bytes_of_all.failed;
    strings_end(out);
    pj_buffer_fini(&bytes_of_all);
}

static bool decode_each(const pj_step *step, const strings *in, strings *out)
{
    bool ok = true;
    for (size_t i = 0; i < strings_count(in); i++) {
        size_t bytes;
        const char *text = strings_get(in, i, &bytes);
        switch (step->kind) {
        case PJ_DECODER_STRIP: put_stripped(step, text, bytes, &out->text); break;
        case PJ_DECODER_METASPACE: put_metaspace(step, text, bytes, i == 0, &out->text); break;
        case PJ_DECODER_SUFFIX: {
            pj_step space = *step;
            space.content = i + 1 == strings_count(in) ? "" : " ";
            space.content_bytes = strlen(space.content);
            ok = put_replaced(&space, text, bytes, &out->text) && ok;
            break;
        }
        default: ok = put_replaced(step, text, bytes, &out->text) && ok; break;
        }
        strings_end(out);
    }
    return ok;
}

static bool run_decoder(const pj_step *step, const strings *in, strings *out)
{
    pj_buffer_clear(&out->text);
    pj_buffer_clear(&out->ends);
    switch (step->kind) {
    case PJ_DECODER_BYTE_LEVEL: join_letters(in, out); return true;
    case PJ_DECODER_BYTE_FALLBACK: join_bytes(in, out); return true;
    case PJ_DECODER_FUSE: strings_add(out, pj_buffer_get(&in->text), in->text.length); return true;
    default: return decode_each(step, in, out);
    }
}

static void decode_collect(const pj_tokenizer *t, const int32_t *ids, size_t count,
                           bool skip_special, strings *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *text = decoder_text(t, ids[i], skip_special, &bytes);
        if (!text) continue;
        if (!t->has_decoder && strings_count(out) > 0) pj_buffer_char(&out->text, ' ');
        strings_add(out, text, bytes);
    }
}

pj_status pj_tokenizer_decode(const pj_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool skip_special, pj_buffer *text, pj_error *err)
{
    pj_tokenizer *t = (pj_tokenizer *)(uintptr_t)tokenizer; /* only its lock changes */
    strings lists[2];
    strings *now = &lists[0], *next = &lists[1];
    strings_init(now);
    strings_init(next);
    decode_collect(t, ids, count, skip_special, now);
    bool ok = !now->text.failed && !now->ends.failed;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; ok && i < t->decoders.count; i++) {
        ok = run_decoder(&t->decoders.items[i], now, next) && !next->text.failed &&
             !next->ends.failed;
        strings *swap = now;
        now = next;
        next = swap;
    }
    pthread_mutex_unlock(&t->lock);
    ok = ok && pj_buffer_append(text, pj_buffer_get(&now->text), now->text.length);
    strings_fini(now);
    strings_fini(next);
    return ok ? PJ_OK : pj_fail_memory(err, "a decoded text");
}

/* ---- streams ---- */

enum { MOST_WINDOW = 64 };

struct pj_token_stream {
    const pj_tokenizer *t;
    bool skip_special, direct, any;
    const pj_step *replace, *metaspace, *strip; /* direct path: the decoders present */
    bool letters, fallback;
    size_t strip_left; /* characters that may still be stripped from the start */
    pj_buffer held;    /* direct path: bytes of an incomplete character; else the window's text */
    pj_buffer work;
    pj_ids window; /* window path only */
    size_t window_old;
    uint64_t decoded; /* ids, again and again */
};

/* Whether the direct path supports the decoders: byte-level letters alone, or [Replace]
 * [ByteFallback] [Fuse] [Strip from the start], or Metaspace. */
static bool understand(pj_token_stream *s)
{
    const pj_tokenizer *t = s->t;
    uint32_t i = 0, count = t->decoders.count;
    const pj_step *d = t->decoders.items;
    if (count == 0) return t->has_decoder;
    if (count == 1 && d[0].kind == PJ_DECODER_BYTE_LEVEL) return s->letters = true;
    if (count == 1 && d[0].kind == PJ_DECODER_METASPACE) return (s->metaspace = &d[0], true);
    if (i < count && d[i].kind == PJ_DECODER_REPLACE && !d[i].pattern.regex) s->replace = &d[i++];
    if (i < count && d[i].kind == PJ_DECODER_BYTE_FALLBACK) s->fallback = (i++, true);
    if (i < count && d[i].kind == PJ_DECODER_FUSE) {
        i++;
        if (i < count && d[i].kind == PJ_DECODER_STRIP && d[i].stop == 0) s->strip = &d[i++];
    }
    return i == count;
}

pj_status pj_token_stream_new(const pj_tokenizer *tokenizer, bool skip_special,
                              pj_token_stream **stream, pj_error *err)
{
    *stream = NULL;
    pj_token_stream *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "a token stream");
    s->t = tokenizer;
    s->skip_special = skip_special;
    s->direct = understand(s);
    s->strip_left = s->strip ? s->strip->start : 0;
    pj_buffer_init(&s->held, SIZE_MAX / 2);
    pj_buffer_init(&s->work, SIZE_MAX / 2);
    /* Reserve memory now rather than between two tokens of a measured decode. */
    if (!pj_buffer_reserve(&s->held, 4096) || !pj_buffer_reserve(&s->work, 4096)) {
        pj_token_stream_free(s);
        return pj_fail_memory(err, "a token stream");
    }
    *stream = s;
    return PJ_OK;
}

void pj_token_stream_free(pj_token_stream *s)
{
    if (!s) return;
    pj_buffer_fini(&s->held);
    pj_buffer_fini(&s->work);
    pj_ids_fini(&s->window);
    pj_free(s);
}

uint64_t pj_token_stream_work(const pj_token_stream *s)
{
    return s->decoded;
}

/* Invalid byte tokens: U+FFFD per byte, not per sequence. */
static void put_repaired_bytes(const char *text, size_t bytes, pj_buffer *out)
{
    for (size_t i = 0, n; i < bytes; i += n) {
        uint32_t c;
        char character[4];
        n = pj_utf8_step(text + i, bytes - i, &c);
        pj_buffer_append(out, character, pj_utf8_put(c, character));
    }
}

/* Moves complete characters out of `held`; everything when the stream ends. */
static void decode_release(pj_token_stream *s, bool all, pj_buffer *text)
{
    size_t keep = all ? 0 : pj_utf8_unfinished(pj_buffer_get(&s->held), s->held.length);
    size_t whole = s->held.length - keep;
    pj_buffer_clear(&s->work);
    if (s->fallback)
        put_repaired_bytes(pj_buffer_get(&s->held), whole, &s->work);
    else
        pj_utf8_repair(pj_buffer_get(&s->held), whole, &s->work);
    const char *from = pj_buffer_get(&s->work);
    size_t bytes = s->work.length;
    while (s->strip_left > 0 && bytes > 0) {
        if (!has_at(s->strip, from, bytes)) {
            s->strip_left = 0;
            break;
        }
        from += s->strip->character_bytes;
        bytes -= s->strip->character_bytes;
        s->strip_left--;
    }
    pj_buffer_append(text, from, bytes);
    memmove(s->held.data, s->held.data + whole, keep);
    s->held.length = keep;
}

static void push_direct(pj_token_stream *s, const char *token, size_t bytes, pj_buffer *text)
{
    int byte = s->fallback ? byte_token(token, bytes) : -1;
    if (s->letters) {
        put_letters(token, bytes, &s->held);
    } else if (byte >= 0) {
        pj_buffer_char(&s->held, (char)byte);
    } else {
        decode_release(s, true, text); /* a character never continues after a run of byte tokens */
        if (s->replace)
            put_replaced(s->replace, token, bytes, &s->held);
        else if (s->metaspace)
            put_metaspace(s->metaspace, token, bytes, !s->any, &s->held);
        else
            pj_buffer_append(&s->held, token, bytes);
    }
    s->any = true;
    decode_release(s, false, text);
}

static pj_status decode_window(pj_token_stream *s, size_t from, pj_buffer *text, pj_error *err)
{
    s->decoded += s->window.count - from;
    const int32_t *ids = s->window.count ? s->window.ids + from : NULL;
    return pj_tokenizer_decode(s->t, ids, s->window.count - from, s->skip_special, text, err);
}

/* How much of the window's text was already emitted. It cannot be taken back: if a new id changes
 * it, as many characters are skipped. */
static size_t given_out(const pj_buffer *held, const char *now, size_t bytes)
{
    if (bytes >= held->length && memcmp(now, pj_buffer_get(held), held->length) == 0)
        return held->length;
    size_t at = 0;
    for (size_t i = 0; i < held->length; i++) {
        uint32_t c;
        if (((unsigned char)held->data[i] & 0xc0) == 0x80) continue;
        at += pj_utf8_step(now + at, bytes - at, &c);
    }
    return at;
}

/* Drops older ids where the text ends with what the newest ones give without them: what follows is
 * then the same, though a text's first token may be treated differently (no space before it). A
 * full window drops its older half in any case. */
static pj_status shorten_window(pj_token_stream *s, bool full, pj_error *err)
{
    size_t from = full ? s->window.count - MOST_WINDOW / 2 : s->window_old;
    size_t count = s->window.count - from;
    pj_buffer_clear(&s->held);
    pj_status status = decode_window(s, from, &s->held, err);
    if (status != PJ_OK) return status;
    const pj_buffer *held = &s->held, *work = &s->work;
    bool ends_so = held->length > 0 && held->length <= work->length &&
                   memcmp(held->data, work->data + work->length - held->length, held->length) == 0;
    if (ends_so || full) {
        memmove(s->window.ids, s->window.ids + from, count * sizeof *s->window.ids);
        s->window.count = count;
    } else {
        pj_buffer swap = s->held;
        s->held = s->work;
        s->work = swap;
    }
    s->window_old = s->window.count;
    return PJ_OK;
}

/* Window path: the text of a window of ids, without what was already emitted. */
static pj_status push_window(pj_token_stream *s, bool all, pj_buffer *text, pj_error *err)
{
    pj_buffer_clear(&s->work);
    pj_status status = decode_window(s, 0, &s->work, err);
    if (status != PJ_OK) return status;
    const char *now = pj_buffer_get(&s->work);
    size_t bytes = s->work.length, given = given_out(&s->held, now, bytes);
    bool open = bytes >= 3 && memcmp(now + bytes - 3, "\xef\xbf\xbd", 3) == 0;
    bool full = s->window.count >= MOST_WINDOW;
    if (!full && (given == bytes || (open && !all))) return PJ_OK;
    pj_buffer_append(text, now + given, bytes - given);
    return shorten_window(s, full, err);
}

pj_status pj_token_stream_push(pj_token_stream *s, int32_t id, pj_buffer *text, pj_error *err)
{
    size_t bytes;
    if (s->direct) {
        const char *token = decoder_text(s->t, id, s->skip_special, &bytes);
        if (token) push_direct(s, token, bytes, text);
    } else {
        if (!pj_ids_append(&s->window, id)) return pj_fail_memory(err, "a token stream");
        pj_status status = push_window(s, false, text, err);
        if (status != PJ_OK) return status;
    }
    if (s->held.failed || s->work.failed) return pj_fail_memory(err, "a token stream");
    return pj_buffer_status(text, "streamed text", err);
}

pj_status pj_token_stream_finish(pj_token_stream *s, pj_buffer *text, pj_error *err)
{
    if (!s->direct) return push_window(s, true, text, err);
    decode_release(s, true, text);
    return pj_buffer_status(text, "streamed text", err);
}

/* Normalizers: each step reads one buffer and writes the other. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

typedef struct text_view {
    const char *text;
    size_t bytes;
} text_view;

static void put_character(pj_buffer *out, uint32_t c)
{
    char bytes[4];
    pj_buffer_append(out, bytes, pj_utf8_put(c, bytes));
}

static uint32_t next_character(text_view in, size_t *at)
{
    uint32_t c;
    *at += pj_utf8_step(in.text + *at, in.bytes - *at, &c);
    return c;
}

static void put_lower(pj_buffer *out, uint32_t c)
{
    if (c == 0x130) { /* the only letter whose lower case has two characters */
        put_character(out, 'i');
        put_character(out, 0x307);
    } else {
        put_character(out, pj_unicode_lower(c));
    }
}

static void lowercase(text_view in, pj_buffer *out)
{
    for (size_t at = 0; at < in.bytes;) put_lower(out, next_character(in, &at));
}

static void remove_class(text_view in, bool (*in_class)(uint32_t), pj_buffer *out)
{
    for (size_t at = 0; at < in.bytes;) {
        uint32_t c = next_character(in, &at);
        if (!in_class(c)) put_character(out, c);
    }
}

static void strip(const pj_step *step, text_view in, pj_buffer *out)
{
    size_t begin = 0, end = in.bytes;
    while (step->left && begin < end) {
        size_t at = begin;
        if (!pj_unicode_is_space(next_character(in, &at))) break;
        begin = at;
    }
    while (step->right && end > begin) {
        uint32_t c = pj_utf8_before(in.text, end);
        if (!pj_unicode_is_space(c)) break;
        char bytes[4];
        end -= pj_utf8_put(c, bytes);
    }
    pj_buffer_append(out, in.text + begin, end - begin);
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static void put_bert(const pj_step *step, uint32_t c, pj_buffer *out)
{
    bool line = c == '\t' || c == '\n' || c == '\r';
    if (step->clean && (c == 0 || c == 0xfffd || (!line && pj_unicode_is_other(c)))) return;
    if (step->clean && pj_unicode_is_space(c)) c = ' ';
    if (step->chinese && is_chinese(c)) {
        put_character(out, ' ');
        put_character(out, c);
        c = ' ';
    }
    put_character(out, c);
}

static bool bert(const pj_step *step, text_view in, pj_buffer *out)
{
    pj_buffer work, plain;
    bool ok = true;
    pj_buffer_init(&work, SIZE_MAX / 2);
    pj_buffer_init(&plain, SIZE_MAX / 2);
    for (size_t at = 0; at < in.bytes;) put_bert(step, next_character(in, &at), &work);
    if (step->accents) {
        ok = pj_unicode_normalize(PJ_FORM_NFD, pj_buffer_get(&work), work.length, &plain);
        pj_buffer_clear(&work);
        remove_class((text_view){pj_buffer_get(&plain), plain.length}, pj_unicode_is_nonspacing,
                     &work);
    }
    text_view done = {pj_buffer_get(&work), work.length};
    if (step->lowercase)
        lowercase(done, out);
    else
        pj_buffer_append(out, done.text, done.bytes);
    ok = ok && !work.failed && !plain.failed;
    pj_buffer_fini(&work);
    pj_buffer_fini(&plain);
    return ok;
}

static bool normalizer_apply(const pj_step *step, text_view in, pj_buffer *out)
{
    switch (step->kind) {
    case PJ_NORMALIZER_FORM: return pj_unicode_normalize(step->form, in.text, in.bytes, out);
    case PJ_NORMALIZER_LOWERCASE: lowercase(in, out); return true;
    case PJ_NORMALIZER_STRIP_ACCENTS: remove_class(in, pj_unicode_is_mark, out); return true;
    case PJ_NORMALIZER_STRIP: strip(step, in, out); return true;
    case PJ_NORMALIZER_REPLACE:
        return pj_pattern_replace(&step->pattern, in.text, in.bytes, step->content,
                                  step->content_bytes, out);
    case PJ_NORMALIZER_BYTE_LEVEL: pj_put_byte_letters(in.text, in.bytes, out); return true;
    case PJ_NORMALIZER_BERT: return bert(step, in, out);
    case PJ_NORMALIZER_PREPEND:
        if (in.bytes > 0) pj_buffer_append(out, step->content, step->content_bytes);
        pj_buffer_append(out, in.text, in.bytes);
        return true;
    default: return false;
    }
}

/* ---- the beginning of the text ---- */

static size_t head_replaced(const pj_step *step, text_view in, size_t head)
{
    pj_regex_cursor cursor = {0, SIZE_MAX};
    size_t begin, end, plain = 0, kept = 0;
    while (plain < head &&
           pj_pattern_next(&step->pattern, in.text, in.bytes, &cursor, &begin, &end) > 0) {
        if (begin >= head) break;
        kept += begin - plain;
        if (end > head) return kept; /* the replacement is counted where the match ended */
        kept += step->content_bytes;
        plain = end;
    }
    return kept + head - plain;
}

/* Number of bytes at the front of a step's result that come from the first `head` bytes of `in`. */
static size_t head_after(const pj_step *step, text_view in, size_t head)
{
    pj_step front = *step;
    pj_buffer out;
    if (step->kind == PJ_NORMALIZER_REPLACE) return head_replaced(step, in, head);
    front.right = false; /* stripping at the end does not affect the front */
    pj_buffer_init(&out, SIZE_MAX / 2);
    normalizer_apply(&front, (text_view){in.text, head}, &out);
    size_t bytes = out.length;
    pj_buffer_fini(&out);
    return bytes;
}

/* Steps that each double the text would otherwise make any text as large as memory allows. The
 * largest growth of a published tokenizer's step is that of NFKC, eleven times. */
static size_t most_bytes(size_t bytes)
{
    enum { GROWTH = 64, AT_LEAST = 4096 };
    return bytes < SIZE_MAX / 4 / GROWTH ? bytes * GROWTH + AT_LEAST : SIZE_MAX / 2;
}

pj_status pj_normalize(const pj_tokenizer *tokenizer, const char *text, size_t bytes,
                       pj_buffer *out, pj_buffer *scratch, size_t *head, pj_error *err)
{
    text_view in = {text, bytes};
    pj_buffer *now = out, *other = scratch;
    uint32_t count = tokenizer->normalizers.count;
    if (count == 0) {
        pj_buffer_clear(out);
        pj_buffer_append(out, text, bytes);
    }
    if (count % 2 == 0) { /* so that the last step writes `out` */
        now = scratch;
        other = out;
    }
    for (uint32_t i = 0; i < count; i++) {
        pj_buffer_clear(now);
        now->max_bytes = most_bytes(bytes);
        if (head && *head > 0) *head = head_after(&tokenizer->normalizers.items[i], in, *head);
        if (!normalizer_apply(&tokenizer->normalizers.items[i], in, now) || now->failed)
            return pj_fail(err, PJ_E_FULL, "the text cannot be normalised: %s",
                           now->failed ? "it becomes too large" : "a pattern takes too long");
        in = (text_view){pj_buffer_get(now), now->length};
        pj_buffer *swap = now;
        now = other;
        other = swap;
    }
    return PJ_OK;
}

/* String operations shared by filters and methods, which preserve the marks of data. */
#include "engine/text/jinja/library.h"

#include "base/utf8.h"
#include "engine/text/tokenizer/parts.h"

#include <string.h>

bool jv_is_blank(uint32_t code)
{
    return pj_unicode_is_space(code) || (code >= 0x1c && code <= 0x1f);
}

static bool is_stripped(jv_run *run, const jv_string *s, size_t at, size_t used, uint32_t code,
                        const jv_string *characters)
{
    if (!characters) return jv_is_blank(code);
    if (!jv_look(run, characters->bytes)) return false;
    return memmem(characters->text, characters->bytes, s->text + at, used) != NULL;
}

jv jv_strip(jv_run *run, const jv_string *s, const jv_string *characters, int sides)
{
    size_t begin = 0, end = s->bytes;
    uint32_t code;
    if (!jv_step(run, s->bytes / 16)) return jv_undefined(NULL);
    for (size_t used; (sides & JV_LEFT) && begin < end; begin += used) {
        used = pj_utf8_step(s->text + begin, s->bytes - begin, &code);
        if (!is_stripped(run, s, begin, used, code, characters)) break;
    }
    while ((sides & JV_RIGHT) && end > begin) {
        size_t at = end - 1;
        while (at > begin && ((unsigned char)s->text[at] & 0xc0) == 0x80) at--;
        size_t used = pj_utf8_step(s->text + at, s->bytes - at, &code);
        if (at + used != end) break; /* invalid bytes are not whitespace */
        if (!is_stripped(run, s, at, used, code, characters)) break;
        end = at;
    }
    return jv_slice(run, s, begin, end);
}

jv jv_replace(jv_run *run, const jv_string *s, const jv_string *old, const jv_string *new,
              int64_t count)
{
    jv_builder b = {.run = run};
    size_t at = 0;
    if (!jv_look(run, s->bytes)) return jv_undefined(NULL);
    while (!run->failed && at <= s->bytes && count != 0) {
        size_t found, next;
        if (old->bytes) {
            const char *hit = memmem(s->text + at, s->bytes - at, old->text, old->bytes);
            if (!hit) break;
            found = (size_t)(hit - s->text);
            next = found + old->bytes;
            jv_add_part(&b, s, at, found);
            jv_add_string(&b, new);
        } else { /* an empty string is found before every character and at the end */
            uint32_t code;
            next = at < s->bytes ? at + pj_utf8_step(s->text + at, s->bytes - at, &code) : at + 1;
            jv_add_string(&b, new);
            if (at < s->bytes) jv_add_part(&b, s, at, next);
        }
        at = next;
        count -= count > 0;
    }
    if (at < s->bytes) jv_add_part(&b, s, at, s->bytes);
    return jv_built(&b);
}

jv jv_join(jv_run *run, const jv_list *items, const jv_string *separator)
{
    jv_builder b = {.run = run};
    for (size_t i = 0; i < items->count && jv_step(run, 1); i++) {
        if (i) jv_add_string(&b, separator);
        jv_add_value(&b, items->items[i]);
    }
    return jv_built(&b);
}

jv jv_change_case(jv_run *run, jv self, const jv_arguments *a)
{
    jv_case to = (jv_case)a->how;
    jv text = jv_to_string(run, self);
    if (run->failed) return text;
    const jv_string *s = text.string;
    jv_builder b = {.run = run};
    bool first = true; /* of a word, or of the text */
    for (size_t at = 0, used; at < s->bytes && !run->failed; at += used) {
        uint32_t code;
        used = pj_utf8_step(s->text + at, s->bytes - at, &code);
        if (code == 0xfffd) {
            jv_add_part(&b, s, at, at + used);
            continue;
        }
        bool upper = to == JV_UPPER || (first && to != JV_LOWER);
        uint32_t changed = upper ? pj_unicode_upper(code) : pj_unicode_lower(code);
        char out[4];
        uint8_t marks[4] = {0};
        if (s->marks) memset(marks, s->marks[at], sizeof marks);
        size_t bytes = pj_utf8_put(changed, out);
        jv_add(&b, out, s->marks ? marks : NULL, bytes);
        first = (to == JV_TITLE && !pj_unicode_is_letter(code)) ||
                (to == JV_WORDS &&
                 (pj_unicode_is_space(code) || (code < 0x80 && strchr("-({[<", (int)code))));
    }
    return jv_built(&b);
}

jv jv_is_case(jv_run *run, jv self, const jv_arguments *a)
{
    const jv_arguments other = {.how = a->how == JV_UPPER ? JV_LOWER : JV_UPPER};
    jv text = jv_to_string(run, self), same = jv_change_case(run, text, a);
    jv changed = jv_change_case(run, text, &other);
    return jv_bool(!run->failed && jv_equal(run, text, same) && !jv_equal(run, text, changed));
}

jv jv_mark_safe(jv_run *run, jv string)
{
    jv_string *copy = run->failed ? NULL : jv_alloc(run, 1, sizeof *copy);
    if (!copy) return jv_undefined(NULL);
    *copy = *string.string;
    copy->safe = true;
    return (jv){.kind = JV_STRING, .string = copy};
}

jv jv_escape(jv_run *run, jv string)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    jv_builder b = {.run = run};
    if (run->failed || string.string->safe) return string;
    const jv_string *s = string.string;
    for (size_t i = 0; i < s->bytes && !run->failed; i++) {
        const char *hit = s->text[i] ? strchr(from, s->text[i]) : NULL;
        if (hit)
            jv_add_text(&b, to[hit - from]);
        else
            jv_add_part(&b, s, i, i + 1);
    }
    return jv_mark_safe(run, jv_built(&b));
}

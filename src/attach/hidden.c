#include "attach/hidden.h"

#include "http/head.h"

#include <string.h>
#include <strings.h>

enum { CUT_MIN_BYTES = 6 }; /* shorter beginnings tell nothing and are found by chance */

void pj_hidden_init(pj_hidden *h)
{
    pj_buffer_init(&h->values, PJ_HIDDEN_MAX_BYTES);
}

void pj_hidden_fini(pj_hidden *h)
{
    pj_buffer_fini(&h->values);
}

static bool holds_secret(const pj_head_field *field)
{
    static const char *const names[] = {
        "Authorization",  "Proxy-Authorization", "X-Api-Key", "Api-Key",
        "X-Goog-Api-Key", "X-Perjoule-Token",    NULL};
    for (int i = 0; names[i]; i++)
        if (pj_field_is(field, names[i])) return true;
    return false;
}

/* "Bearer SECRET" is repeated with the scheme or without: the secret is in both. */
static void hidden_add(pj_hidden *h, const char *value, size_t bytes)
{
    const char *space = memchr(value, ' ', bytes);
    size_t scheme = space ? (size_t)(space - value) + 1 : 0;
    while (scheme < bytes && value[scheme] == ' ') scheme++;
    if (scheme == bytes) return;
    pj_buffer_append(&h->values, value + scheme, bytes - scheme);
    pj_buffer_append(&h->values, "", 1);
}

void pj_hidden_take(pj_hidden *h, const char *lines, size_t bytes)
{
    pj_head_field field;
    for (size_t at = 0; pj_head_next(lines, bytes, &at, &field);)
        if (holds_secret(&field)) hidden_add(h, field.value, field.value_bytes);
}

static void mask_value(const char *value, size_t count, char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++) {
        size_t left = bytes - at, n = count < left ? count : left;
        if (n < count && n < CUT_MIN_BYTES) return;
        if (text[at] == *value && memcmp(text + at, value, n) == 0) memset(text + at, '*', n);
    }
}

void pj_hidden_mask(const pj_hidden *h, char *text, size_t bytes, size_t least)
{
    for (size_t at = 0; at < h->values.length;) {
        const char *value = h->values.data + at;
        size_t count = strlen(value);
        if (count >= least) mask_value(value, count, text, bytes);
        at += count + 1;
    }
}

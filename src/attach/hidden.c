#include "attach/hidden.h"

#include "http/head.h"

#include <string.h>
#include <strings.h>

enum {
    CUT_MIN_BYTES = 6, /* shorter beginnings tell nothing and are found by chance */
    /* bounds the time for a text that nearly repeats a long secret everywhere */
    TELLING_MAX_BYTES = 64,
    PAIR_MIN_BYTES = 8 /* shorter values of cookies and queries are words of any text */
};

void pj_hidden_init(pj_hidden *h)
{
    pj_buffer_init(&h->values, PJ_HIDDEN_MAX_BYTES);
}

void pj_hidden_fini(pj_hidden *h)
{
    pj_buffer_fini(&h->values);
}

/* Servers and gateways have names of their own: X-Api-Key, X-Auth-Token, Ocp-Apim-Subscription-Key.
 */
static bool names_secret(const char *name, size_t bytes)
{
    static const char *const words[] = {"auth", "key", "token", "secret", "passw", NULL};
    for (int i = 0; words[i]; i++)
        for (size_t at = 0, count = strlen(words[i]); at + count <= bytes; at++)
            if (strncasecmp(name + at, words[i], count) == 0) return true;
    return false;
}

static void hidden_add(pj_hidden *h, const char *value, size_t bytes)
{
    if (!bytes) return;
    pj_buffer_append(&h->values, value, bytes);
    pj_buffer_append(&h->values, "", 1);
}

/* "Bearer SECRET" is repeated with the scheme or without: the secret is in both. */
static void add_credentials(pj_hidden *h, const char *value, size_t bytes)
{
    const char *space = memchr(value, ' ', bytes);
    size_t scheme = space ? (size_t)(space - value) + 1 : 0;
    while (scheme < bytes && value[scheme] == ' ') scheme++;
    hidden_add(h, value + scheme, bytes - scheme);
}

/* "a=1; b=2" of a cookie, "a=1&b=2" of a query. */
static void add_pairs(pj_hidden *h, const char *text, size_t bytes, char separator, bool all)
{
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, separator, (size_t)(end - at));
        if (!stop) stop = end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (equals && stop - equals > PAIR_MIN_BYTES &&
            (all || names_secret(at, (size_t)(equals - at))))
            hidden_add(h, equals + 1, (size_t)(stop - equals) - 1);
        at = stop + 1;
    }
}

static void take_query(pj_hidden *h, const char *lines, size_t bytes)
{
    const char *end = memchr(lines, '\n', bytes);
    const char *query = end ? memchr(lines, '?', (size_t)(end - lines)) : NULL;
    const char *stop = query ? memchr(query, ' ', (size_t)(end - query)) : NULL;
    if (stop) add_pairs(h, query + 1, (size_t)(stop - query) - 1, '&', false);
}

void pj_hidden_take(pj_hidden *h, const char *lines, size_t bytes)
{
    pj_head_field field;
    take_query(h, lines, bytes);
    for (size_t at = 0; pj_head_next(lines, bytes, &at, &field);)
        if (pj_field_is(&field, "Cookie"))
            add_pairs(h, field.value, field.value_bytes, ';', true);
        else if (names_secret(field.name, field.name_bytes))
            add_credentials(h, field.value, field.value_bytes);
}

/* How much of a secret's beginning tells it: errors abbreviate keys, "sk-12345678...". */
static size_t telling_bytes(size_t count)
{
    size_t half = (count + 1) / 2;
    if (half > TELLING_MAX_BYTES) half = TELLING_MAX_BYTES;
    if (half < CUT_MIN_BYTES) half = CUT_MIN_BYTES;
    return half < count ? half : count;
}

static void mask_value(const char *value, size_t count, char *text, size_t bytes)
{
    size_t telling = telling_bytes(count);
    for (size_t at = 0; at < bytes; at++) {
        size_t left = bytes - at, n = telling < left ? telling : left;
        if (n < telling && n < CUT_MIN_BYTES) return;
        if (strncasecmp(text + at, value, n) != 0) continue;
        while (n < count && n < left && strncasecmp(text + at + n, value + n, 1) == 0) n++;
        memset(text + at, '*', n);
        at += n - 1;
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

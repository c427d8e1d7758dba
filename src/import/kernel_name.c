#include "import/kernel_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_NESTED = 64, MOST_WRAPPED = 4 };

typedef struct path {
    char text[PJ_KERNEL_NAME_BYTES];
    size_t length, last;   /* where its last part begins */
    const char *arguments; /* the first template argument of the last part; NULL: none */
} path;

/* ---- text ---- */

static void path_add(path *p, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && p->length + 1 < sizeof p->text; i++) {
        unsigned char c = (unsigned char)text[i];
        p->text[p->length++] = c < ' ' || c >= 127 ? '?' : (char)c;
    }
    p->text[p->length] = 0;
}

static void add_part(path *p, const char *text, size_t bytes)
{
    bool is_nameless =
        strncmp(text, "_GLOBAL__N_", 11) == 0 || strncmp(text, "_INTERNAL_", 10) == 0;
    p->arguments = NULL;
    if (is_nameless) return;
    if (p->length) path_add(p, "::", 2);
    p->last = p->length;
    path_add(p, text, bytes);
}

/* ---- what is left out ---- */

static const char *skip_digits(const char *at)
{
    while (isdigit((unsigned char)*at)) at++;
    return at;
}

/* "12", "S1_", "T_", "A4_", "UlvE0_": up to and with the underscore. */
static const char *skip_number(const char *at)
{
    while (isalnum((unsigned char)*at)) at++;
    return *at == '_' ? at + 1 : at;
}

/* An identifier with its length before it; NULL: it is cut off. */
static const char *take_identifier(const char *at, const char **text, size_t *bytes)
{
    size_t length = 0;
    for (; isdigit((unsigned char)*at) && length < 1 << 20; at++)
        length = 10 * length + (size_t)(*at - '0');
    if (strnlen(at, length) < length) return NULL;
    *text = at;
    *bytes = length;
    return at + length;
}

static const char *skip_substitution(const char *at)
{
    return islower((unsigned char)at[1]) ? at + 2 : skip_number(at + 1);
}

/* A literal "Li4E" or "LN3foo3barE2E": its value is not an identifier. */
static const char *skip_literal(const char *at, char *stack, int *depth)
{
    if (islower((unsigned char)at[1])) {
        const char *end = strchr(at, 'E');
        return end ? end + 1 : at + strlen(at);
    }
    stack[(*depth)++] = 'L';
    return at + 1;
}

/* From an 'I' to after its 'E': a list of types, values and expressions, of which only what nests
 * is understood. NULL: cut off, or deeper than any compiler writes. */
static const char *skip_arguments(const char *at)
{
    char stack[MOST_NESTED];
    int depth = 0;
    do {
        const char *text;
        size_t bytes;
        bool closes_type = false;
        if (depth + 1 >= MOST_NESTED) return NULL;
        switch (*at) {
        case 0: return NULL;
        case 'L': at = skip_literal(at, stack, &depth); break;
        case 'S': at = skip_substitution(at); break;
        case 'T':
        case 'A': at = skip_number(at + 1); break;
        case 'D':
            if (at[1] == 'v')
                at = skip_number(skip_digits(at + 2));
            else if (at[1] == 'T' || at[1] == 't')
                stack[depth++] = 'D', at += 2;
            else
                at += at[1] ? 2 : 1;
            break;
        case 'U':
            if (at[1] == 'l')
                stack[depth++] = 'U', at += 2;
            else
                at = skip_number(at + (at[1] ? 2 : 1));
            break;
        case 'N':
        case 'I':
        case 'J':
        case 'X':
        case 'F':
        case 'Z': stack[depth++] = *at++; break;
        case 'E':
            closes_type = stack[--depth] == 'N' && depth && stack[depth - 1] == 'L';
            at = stack[depth] == 'U' ? skip_number(at + 1) : at + 1;
            if (closes_type) at = skip_digits(at);
            break;
        default:
            if (!isdigit((unsigned char)*at)) {
                at++;
            } else {
                at = take_identifier(at, &text, &bytes);
                if (!at) return NULL;
            }
        }
    } while (depth > 0);
    return at;
}

/* ---- the path ---- */

/* One step of a path; NULL: its end. */
static const char *take_part(path *p, const char *at)
{
    const char *text;
    size_t bytes;
    if (*at == 'L' || *at == 'K' || *at == 'V' || *at == 'r') return at + 1;
    if (isdigit((unsigned char)*at)) {
        at = take_identifier(at, &text, &bytes);
        if (at) add_part(p, text, bytes);
        return at;
    }
    if (at[0] == 'S' && at[1] == 't') {
        add_part(p, "std", 3);
        return at + 2;
    }
    if (*at == 'S') return skip_substitution(at);
    if (*at == 'B') return take_identifier(at + 1, &text, &bytes);
    if (*at != 'I') return NULL;
    p->arguments = at + 1;
    return skip_arguments(at);
}

static void take_path(path *p, const char *at)
{
    *p = (path){.length = 0};
    bool is_nested = *at == 'N';
    if (is_nested) at++;
    while (at && *at && *at != 'E') {
        bool is_name = isdigit((unsigned char)*at);
        at = take_part(p, at);
        bool goes_on = at && (is_nested || *at == 'I' || (!is_name && !p->arguments));
        if (!goes_on) break;
    }
}

static bool is_wrapper(const path *p)
{
    const char *last = p->text + p->last;
    return p->arguments && strncmp(p->text, "cutlass::", 9) == 0 &&
           (strcmp(last, "Kernel") == 0 || strcmp(last, "Kernel2") == 0 ||
            strcmp(last, "device_kernel") == 0);
}

/* "void ns::kernel<float, 4>(float *)", as tools print it: the last word before the parameters. */
static void take_plain(path *p, const char *symbol)
{
    int depth = 0;
    *p = (path){.length = 0};
    for (const char *at = symbol; *at; at++) {
        if (strncmp(at, "(anonymous namespace)::", 23) == 0) {
            at += 22;
        } else if (*at == '<') {
            depth++;
        } else if (*at == '>' && depth) {
            depth--;
        } else if (depth == 0 && *at == '(') {
            break;
        } else if (depth == 0 && *at == ' ' && strpbrk(at, "<(")) {
            p->length = 0;
        } else if (depth == 0) {
            path_add(p, at, 1);
        }
    }
}

void pj_kernel_name(const char *symbol, char name[PJ_KERNEL_NAME_BYTES])
{
    path p = {.length = 0};
    if (strncmp(symbol, "_Z", 2) == 0) {
        take_path(&p, symbol + 2 + strspn(symbol + 2, "Z")); /* Z: in a function, which names it */
        for (int i = 0; i < MOST_WRAPPED && is_wrapper(&p); i++) {
            path inner;
            take_path(&inner, p.arguments);
            if (!inner.length) break;
            p = inner;
        }
    }
    if (!p.length) take_plain(&p, symbol);
    if (!p.length) path_add(&p, "unnamed kernel", 14);
    memcpy(name, p.text, sizeof p.text);
}

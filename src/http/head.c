#include "http/head.h"

#include <string.h>
#include <strings.h>

enum { LENGTH_DIGITS = 18 };

typedef struct framing {
    bool has_length, chunked, close, keep, has_authorization, has_origin;
    uint64_t length;
} framing;

/* Always false. */
static bool head_refuse(pj_head_fault *fault, int status, const char *detail)
{
    *fault = (pj_head_fault){status, detail};
    return false;
}

/* RFC 9110, 5.6.2: methods and names of fields. */
static bool head_is_token(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (!c || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return bytes > 0;
}

static void head_trim(const char **text, size_t *length)
{
    while (*length && (**text == ' ' || **text == '\t')) (*text)++, (*length)--;
    while (*length && ((*text)[*length - 1] == ' ' || (*text)[*length - 1] == '\t')) (*length)--;
}

/* ---- fields --------------------------------------------------------------------------------- */

static pj_head_field head_field_of(const char *line, size_t length)
{
    pj_head_field field = {.line = line, .line_bytes = length + 2, .name = line};
    const char *colon = memchr(line, ':', length);
    field.name_bytes = colon ? (size_t)(colon - line) : length;
    field.value = colon ? colon + 1 : line + length;
    field.value_bytes = length - field.name_bytes - (colon ? 1 : 0);
    head_trim(&field.value, &field.value_bytes);
    return field;
}

/* A server ignores an empty line before the request line (RFC 9112, 2.2). */
static size_t head_start(const char *bytes, size_t count)
{
    return count >= 2 && bytes[0] == '\r' && bytes[1] == '\n' ? 2 : 0;
}

bool pj_head_next(const char *head, size_t bytes, size_t *at, pj_head_field *field)
{
    for (int lines = *at ? 1 : 2; lines; lines--) { /* the first call skips the start line */
        size_t begin = *at ? *at : head_start(head, bytes);
        const char *end = begin < bytes ? memchr(head + begin, '\n', bytes - begin) : NULL;
        if (!end || end <= head + begin + 1) return false;
        *at = (size_t)(end - head) + 1;
        *field = head_field_of(head + begin, *at - begin - 2);
    }
    return true;
}

bool pj_field_is(const pj_head_field *field, const char *name)
{
    return field->name_bytes == strlen(name) &&
           strncasecmp(field->name, name, field->name_bytes) == 0;
}

const char *pj_head_find(const char *head, size_t bytes, const char *name, size_t *length)
{
    pj_head_field field;
    for (size_t at = 0; pj_head_next(head, bytes, &at, &field);)
        if (pj_field_is(&field, name)) {
            *length = field.value_bytes;
            return field.value;
        }
    *length = 0;
    return NULL;
}

bool pj_field_has(const char *value, size_t length, const char *token)
{
    while (length) {
        const char *comma = memchr(value, ',', length);
        const char *item = value;
        size_t item_length = comma ? (size_t)(comma - value) : length;
        value += item_length + (comma ? 1 : 0);
        length -= item_length + (comma ? 1 : 0);
        const char *parameter = memchr(item, ';', item_length);
        if (parameter) item_length = (size_t)(parameter - item);
        head_trim(&item, &item_length);
        if (item_length == strlen(token) && strncasecmp(item, token, item_length) == 0) return true;
    }
    return false;
}

/* ---- the start line ------------------------------------------------------------------------- */

/* RFC 9110, 2.5: a higher minor version is understood as 1.1. */
static bool head_take_version(const char *text, size_t length, pj_head *head, pj_head_fault *fault)
{
    if (length != 8 || memcmp(text, "HTTP/", 5) != 0 || text[6] != '.' || text[5] < '0' ||
        text[5] > '9' || text[7] < '0' || text[7] > '9')
        return head_refuse(fault, 400, "the first line has no version of HTTP");
    if (text[5] != '1') return head_refuse(fault, 505, "only HTTP/1.x is supported");
    head->minor = text[7] > '0';
    return true;
}

static bool head_take_request_line(const char *line, size_t length, pj_head *head,
                                   pj_head_fault *fault)
{
    const char *end = line + length, *space = memchr(line, ' ', length);
    const char *version = space ? memchr(space + 1, ' ', (size_t)(end - space - 1)) : NULL;
    if (!version || version == space + 1 || memchr(version + 1, ' ', (size_t)(end - version - 1)) ||
        !head_is_token(line, (size_t)(space - line)))
        return head_refuse(fault, 400, "the request line is not METHOD TARGET VERSION");
    if ((size_t)(space - line) >= sizeof head->method)
        return head_refuse(fault, 501, "unknown method");
    memcpy(head->method, line, (size_t)(space - line));
    head->target = space + 1;
    head->target_bytes = (size_t)(version - space) - 1;
    for (const char *c = head->target; c < version; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return head_refuse(fault, 400, "the address contains a control character");
    return head_take_version(version + 1, (size_t)(end - version) - 1, head, fault);
}

static bool head_take_status_line(const char *line, size_t length, pj_head *head,
                                  pj_head_fault *fault)
{
    if (!head_take_version(line, length < 8 ? length : 8, head, fault)) return false;
    bool is = length >= 12 && line[8] == ' ' && (length == 12 || line[12] == ' ') &&
              !memchr(line, 0, length);
    for (int i = 9; is && i < 12; i++) {
        is = line[i] >= '0' && line[i] <= '9';
        head->status = head->status * 10 + (line[i] - '0');
    }
    return (is && head->status >= 100) || head_refuse(fault, 400, "the first line has no status");
}

/* ---- header fields -------------------------------------------------------------------------- */

static bool head_check_field(const pj_head_field *field, pj_head_fault *fault)
{
    if (field->line[0] == ' ' || field->line[0] == '\t')
        return head_refuse(fault, 400, "a header may not be folded over several lines");
    if (!head_is_token(field->name, field->name_bytes) ||
        field->name_bytes + 2 == field->line_bytes) /* no colon */
        return head_refuse(fault, 400, "a header has no valid name");
    for (size_t i = 0; i < field->value_bytes; i++) {
        unsigned char c = (unsigned char)field->value[i];
        if ((c < ' ' && c != '\t') || c == 127)
            return head_refuse(fault, 400, "a header contains a control character");
    }
    return true;
}

static bool head_take_length(const pj_head_field *field, framing *f, const pj_head *head,
                             pj_head_fault *fault)
{
    uint64_t length = 0;
    for (size_t i = 0; i < field->value_bytes; i++) {
        if (field->value[i] < '0' || field->value[i] > '9')
            return head_refuse(fault, 400, "Content-Length is not a number");
        if (i < LENGTH_DIGITS) length = length * 10 + (uint64_t)(field->value[i] - '0');
    }
    if (!field->value_bytes) return head_refuse(fault, 400, "Content-Length is not a number");
    if (field->value_bytes > LENGTH_DIGITS) return head_refuse(fault, 413, "the body is too large");
    if (f->has_length && (head->is_request || f->length != length))
        return head_refuse(fault, 400, "the body length is ambiguous");
    f->has_length = true;
    f->length = length;
    return true;
}

static bool head_take_coding(const pj_head_field *field, framing *f, pj_head_fault *fault)
{
    if (f->chunked) return head_refuse(fault, 400, "the body length is ambiguous");
    f->chunked = field->value_bytes == 7 && strncasecmp(field->value, "chunked", 7) == 0;
    return f->chunked ||
           head_refuse(fault, 501, "unsupported transfer coding; send Content-Length");
}

static bool head_take_once(bool *has, pj_head_fault *fault)
{
    if (*has) return head_refuse(fault, 400, "Host, Authorization and Origin may occur only once");
    return *has = true;
}

static bool head_take_request_field(const pj_head_field *field, framing *f, pj_head *head,
                                    pj_head_fault *fault)
{
    if (pj_field_is(field, "Host")) return head_take_once(&head->has_host, fault);
    if (pj_field_is(field, "Authorization")) return head_take_once(&f->has_authorization, fault);
    if (pj_field_is(field, "Origin")) return head_take_once(&f->has_origin, fault);
    if (pj_field_is(field, "Expect"))
        head->wrong_expectation |=
            field->value_bytes != 12 || strncasecmp(field->value, "100-continue", 12) != 0;
    return true;
}

static bool head_take_field(const pj_head_field *field, framing *f, pj_head *head,
                            pj_head_fault *fault)
{
    if (!head_check_field(field, fault)) return false;
    if (pj_field_is(field, "Content-Length")) return head_take_length(field, f, head, fault);
    if (pj_field_is(field, "Transfer-Encoding")) return head_take_coding(field, f, fault);
    if (pj_field_is(field, "Upgrade")) head->upgrades = true;
    if (pj_field_is(field, "Connection")) {
        f->close |= pj_field_has(field->value, field->value_bytes, "close");
        f->keep |= pj_field_has(field->value, field->value_bytes, "keep-alive");
    }
    return !head->is_request || head_take_request_field(field, f, head, fault);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static pj_head_verdict head_decide_body(const framing *f, pj_head *head, pj_head_fault *fault)
{
    if (f->chunked && f->has_length)
        head_refuse(fault, 400, "the body length is ambiguous");
    else if (f->chunked && head->minor == 0)
        head_refuse(fault, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (fault->detail) return PJ_HEAD_BAD;
    head->length = f->length;
    head->keep_alive = head->minor == 1 ? !f->close : f->keep && !f->close;
    bool empty =
        !head->is_request && (head->status < 200 || head->status == 204 || head->status == 304);
    if (empty)
        head->body = PJ_BODY_NONE;
    else if (f->chunked)
        head->body = PJ_BODY_CHUNKED;
    else if (f->has_length)
        head->body = f->length ? PJ_BODY_LENGTH : PJ_BODY_NONE;
    else
        head->body = head->is_request ? PJ_BODY_NONE : PJ_BODY_UNTIL_CLOSE;
    if (head->body == PJ_BODY_UNTIL_CLOSE) head->keep_alive = false;
    return PJ_HEAD_COMPLETE;
}

static bool head_take_line(const char *line, size_t length, bool is_first, framing *f,
                           pj_head *head, pj_head_fault *fault)
{
    if (is_first)
        return head->is_request ? head_take_request_line(line, length, head, fault)
                                : head_take_status_line(line, length, head, fault);
    pj_head_field field = head_field_of(line, length);
    return head_take_field(&field, f, head, fault);
}

pj_head_verdict pj_head_parse(const char *bytes, size_t count, bool is_request, size_t max_bytes,
                              pj_head *head, pj_head_fault *fault)
{
    framing f = {0};
    size_t limit = count < max_bytes ? count : max_bytes;
    size_t begin = is_request ? head_start(bytes, limit) : 0, at = begin;
    const char *feed;
    *head = (pj_head){.is_request = is_request};
    *fault = (pj_head_fault){0};
    while (at < limit && (feed = memchr(bytes + at, '\n', limit - at))) {
        const char *line = bytes + at;
        size_t length = (size_t)(feed - line); /* with CR */
        at += length + 1;
        if (!length || memchr(line, '\r', length) != feed - 1) {
            head_refuse(fault, 400, "a header line does not end with CR LF");
            return PJ_HEAD_BAD;
        }
        if (length == 1 && line != bytes + begin) {
            head->bytes = at;
            return head_decide_body(&f, head, fault);
        }
        if (!head_take_line(line, length - 1, line == bytes + begin, &f, head, fault))
            return PJ_HEAD_BAD;
    }
    if (count < max_bytes) return PJ_HEAD_INCOMPLETE;
    if (at == begin)
        head_refuse(fault, 414, "the address is too long");
    else
        head_refuse(fault, 431, "the head is too long");
    return PJ_HEAD_BAD;
}

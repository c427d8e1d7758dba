/* Heads and bodies of HTTP/1.1 messages. */
#include "attach/wire.h"

#include <string.h>
#include <strings.h>

/* ---- heads ---------------------------------------------------------------------------------- */

static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static pj_wire_verdict bad(const char **why, const char *sentence)
{
    if (why) *why = sentence;
    return PJ_WIRE_BAD;
}

static bool take_version(const char *text, size_t length, int *minor)
{
    if (length != 8 || memcmp(text, "HTTP/1.", 7) != 0) return false;
    if (text[7] != '0' && text[7] != '1') return false;
    *minor = text[7] - '0';
    return true;
}

static bool take_request_line(const char *line, size_t length, pj_wire_head *head)
{
    const char *end = line + length, *space = memchr(line, ' ', length);
    size_t method = space ? (size_t)(space - line) : 0;
    if (!method || method >= sizeof head->method) return false;
    for (size_t i = 0; i < method; i++)
        if (!is_token_char(line[i])) return false;
    memcpy(head->method, line, method);
    const char *target = space + 1;
    const char *version = memchr(target, ' ', (size_t)(end - target));
    size_t target_length = version ? (size_t)(version - target) : 0;
    if (!target_length || target_length >= sizeof head->target) return false;
    for (size_t i = 0; i < target_length; i++)
        if ((unsigned char)target[i] <= ' ' || target[i] == 127) return false;
    memcpy(head->target, target, target_length);
    return take_version(version + 1, (size_t)(end - version - 1), &head->minor);
}

static bool take_status_line(const char *line, size_t length, pj_wire_head *head)
{
    if (length < 12 || !take_version(line, 8, &head->minor) || line[8] != ' ') return false;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9') return false;
        head->status = head->status * 10 + (line[i] - '0');
    }
    return head->status >= 100 && (length == 12 || line[12] == ' ');
}

/* One line from `at`, without CR LF; false: it is incomplete. */
static bool next_line(const char *bytes, size_t count, size_t at, size_t *length)
{
    const char *end = memchr(bytes + at, '\n', count - at);
    if (!end || end == bytes + at || end[-1] != '\r') return false;
    *length = (size_t)(end - bytes) - at - 1;
    return true;
}

static void trim(const char **text, size_t *length)
{
    while (*length && (**text == ' ' || **text == '\t')) (*text)++, (*length)--;
    while (*length && ((*text)[*length - 1] == ' ' || (*text)[*length - 1] == '\t')) (*length)--;
}

bool pj_wire_next_field(const char *head, size_t bytes, size_t *at, pj_wire_line *line)
{
    size_t length;
    if (*at == 0) {
        if (!next_line(head, bytes, 0, &length)) return false;
        *at = length + 2;
    }
    if (*at >= bytes || !next_line(head, bytes, *at, &length) || length == 0) return false;
    *line = (pj_wire_line){.line = head + *at, .line_bytes = length + 2, .name = head + *at};
    *at += length + 2;
    const char *colon = memchr(line->name, ':', length);
    line->name_bytes = colon ? (size_t)(colon - line->name) : length;
    line->value = colon ? colon + 1 : line->name + length;
    line->value_bytes = length - line->name_bytes - (colon ? 1 : 0);
    trim(&line->value, &line->value_bytes);
    return true;
}

bool pj_wire_name_is(const pj_wire_line *line, const char *name)
{
    return line->name_bytes == strlen(name) && strncasecmp(line->name, name, line->name_bytes) == 0;
}

const char *pj_wire_field(const char *head, size_t bytes, const char *name, size_t *length)
{
    pj_wire_line line;
    for (size_t at = 0; pj_wire_next_field(head, bytes, &at, &line);)
        if (pj_wire_name_is(&line, name)) {
            *length = line.value_bytes;
            return line.value;
        }
    *length = 0;
    return NULL;
}

bool pj_wire_has_token(const char *value, size_t length, const char *token)
{
    while (length) {
        const char *comma = memchr(value, ',', length);
        const char *item = value;
        size_t item_length = comma ? (size_t)(comma - value) : length;
        value += item_length + (comma ? 1 : 0);
        length -= item_length + (comma ? 1 : 0);
        const char *parameter = memchr(item, ';', item_length);
        if (parameter) item_length = (size_t)(parameter - item);
        trim(&item, &item_length);
        if (item_length == strlen(token) && strncasecmp(item, token, item_length) == 0) return true;
    }
    return false;
}

static bool is_field(const pj_wire_line *line)
{
    if (!line->name_bytes || line->name + line->name_bytes == line->line + line->line_bytes - 2)
        return false;
    for (size_t i = 0; i < line->name_bytes; i++)
        if (!is_token_char(line->name[i])) return false;
    for (size_t i = 0; i < line->value_bytes; i++) {
        unsigned char c = (unsigned char)line->value[i];
        if ((c < ' ' && c != '\t') || c == 127) return false;
    }
    return true;
}

static bool take_length(const pj_wire_line *line, uint64_t *length)
{
    uint64_t value = 0;
    if (!line->value_bytes || line->value_bytes > 18) return false;
    for (size_t i = 0; i < line->value_bytes; i++) {
        if (line->value[i] < '0' || line->value[i] > '9') return false;
        value = value * 10 + (uint64_t)(line->value[i] - '0');
    }
    *length = value;
    return true;
}

typedef struct framing {
    bool has_length, chunked, encoded, close, keep;
    uint64_t length;
} framing;

static const char *take_field(const pj_wire_line *line, framing *f, pj_wire_head *head)
{
    if (!is_field(line)) return "a header field is malformed";
    if (pj_wire_name_is(line, "Content-Length")) {
        uint64_t length;
        if (!take_length(line, &length)) return "Content-Length is no number";
        if (f->has_length && f->length != length) return "two values of Content-Length";
        f->has_length = true;
        f->length = length;
    } else if (pj_wire_name_is(line, "Transfer-Encoding")) {
        if (f->encoded || line->value_bytes != 7 || strncasecmp(line->value, "chunked", 7) != 0)
            return "a Transfer-Encoding other than chunked";
        f->encoded = f->chunked = true;
    } else if (pj_wire_name_is(line, "Connection")) {
        f->close |= pj_wire_has_token(line->value, line->value_bytes, "close");
        f->keep |= pj_wire_has_token(line->value, line->value_bytes, "keep-alive");
    } else if (pj_wire_name_is(line, "Upgrade")) {
        head->upgrades = true;
    } else if (pj_wire_name_is(line, "Expect")) {
        head->expects_continue = pj_wire_has_token(line->value, line->value_bytes, "100-continue");
    }
    return NULL;
}

static const char *decide(const framing *f, pj_wire_head *head)
{
    if (f->chunked && f->has_length) return "both Content-Length and Transfer-Encoding";
    if (f->chunked && head->minor == 0) return "Transfer-Encoding in HTTP/1.0";
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
    return NULL;
}

/* The head's length including its empty line; 0: incomplete. */
static size_t find_end(const char *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        const char *line_end = memchr(bytes + at, '\n', count - at);
        if (!line_end) return 0;
        size_t next = (size_t)(line_end - bytes) + 1;
        if (next - at <= 2 && at > 0) return next;
        at = next;
    }
    return 0;
}

pj_wire_verdict pj_wire_parse(const char *bytes, size_t count, bool is_request, pj_wire_head *head,
                              const char **why)
{
    framing f = {0};
    pj_wire_line line;
    size_t length;
    *head = (pj_wire_head){.is_request = is_request};
    size_t end = find_end(bytes, count < PJ_WIRE_HEAD_MAX_BYTES ? count : PJ_WIRE_HEAD_MAX_BYTES);
    if (!end)
        return count >= PJ_WIRE_HEAD_MAX_BYTES ? bad(why, "a head of more than 64 kB")
                                               : PJ_WIRE_INCOMPLETE;
    head->bytes = end;
    if (memchr(bytes, 0, end)) return bad(why, "a NUL byte in the head");
    if (!next_line(bytes, end, 0, &length) || !(is_request ? take_request_line(bytes, length, head)
                                                           : take_status_line(bytes, length, head)))
        return bad(why, is_request ? "no request line of HTTP/1" : "no status line of HTTP/1");
    size_t at = 0, seen = length + 2;
    while (pj_wire_next_field(bytes, end, &at, &line)) {
        const char *wrong = take_field(&line, &f, head);
        if (wrong) return bad(why, wrong);
        seen = at;
    }
    if (seen + 2 != end) return bad(why, "a line of the head does not end in CR LF");
    const char *wrong = decide(&f, head);
    return wrong ? bad(why, wrong) : PJ_WIRE_COMPLETE;
}

/* ---- bodies --------------------------------------------------------------------------------- */

enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
    TRAILER,
    TRAILER_LINE,
    TRAILER_LF,
    LAST_LF
};
enum { MOST_SIZE_DIGITS = 15, MOST_LINE_BYTES = 16 << 10 };

void pj_wire_body_begin(pj_wire_body *body, pj_body_kind kind, uint64_t length)
{
    *body = (pj_wire_body){.kind = kind, .left = kind == PJ_BODY_LENGTH ? length : 0};
    body->done = kind == PJ_BODY_NONE || (kind == PJ_BODY_LENGTH && length == 0);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Consumes one byte of framing. Returns the kind of part that ends with it, or FRAMING. */
static pj_wire_part_kind take_framing(pj_wire_body *b, char c)
{
    int digit = hex_value(c);
    switch (b->state) {
    case SIZE:
        if (digit >= 0) {
            if (b->digits++ >= MOST_SIZE_DIGITS) return PJ_WIRE_BROKEN;
            b->left = b->left * 16 + (unsigned)digit;
            return PJ_WIRE_FRAMING;
        }
        if (!b->digits) return PJ_WIRE_BROKEN;
        b->state = c == '\r' ? SIZE_LF : EXTENSION;
        return c == '\r' || c == ';' || c == ' ' || c == '\t' ? PJ_WIRE_FRAMING : PJ_WIRE_BROKEN;
    case EXTENSION:
        if (c == '\r') b->state = SIZE_LF;
        return c == '\n' || ++b->line_bytes > MOST_LINE_BYTES ? PJ_WIRE_BROKEN : PJ_WIRE_FRAMING;
    case SIZE_LF:
        b->digits = 0;
        b->line_bytes = 0;
        b->state = b->left ? CHUNK : TRAILER;
        if (c != '\n') return PJ_WIRE_BROKEN;
        return b->left ? PJ_WIRE_CHUNK : PJ_WIRE_FRAMING;
    case CHUNK_CR: b->state = CHUNK_LF; return c == '\r' ? PJ_WIRE_FRAMING : PJ_WIRE_BROKEN;
    case CHUNK_LF: b->state = SIZE; return c == '\n' ? PJ_WIRE_FRAMING : PJ_WIRE_BROKEN;
    case TRAILER:
        b->state = c == '\r' ? LAST_LF : TRAILER_LINE;
        return c == '\n' ? PJ_WIRE_BROKEN : PJ_WIRE_FRAMING;
    case TRAILER_LINE:
        if (c == '\r') b->state = TRAILER_LF;
        return c == '\n' || ++b->line_bytes > MOST_LINE_BYTES ? PJ_WIRE_BROKEN : PJ_WIRE_FRAMING;
    case TRAILER_LF: b->state = TRAILER; return c == '\n' ? PJ_WIRE_FRAMING : PJ_WIRE_BROKEN;
    default: b->done = true; return c == '\n' ? PJ_WIRE_END : PJ_WIRE_BROKEN;
    }
}

static pj_wire_part take_data(pj_wire_body *b, size_t count)
{
    size_t bytes = count < b->left ? count : (size_t)b->left;
    b->left -= bytes;
    if (b->left == 0 && b->kind == PJ_BODY_LENGTH) b->done = true;
    if (b->left == 0 && b->kind == PJ_BODY_CHUNKED) b->state = CHUNK_CR;
    return (pj_wire_part){.kind = PJ_WIRE_DATA, .bytes = bytes};
}

pj_wire_part pj_wire_body_next(pj_wire_body *b, const char *bytes, size_t count)
{
    pj_wire_part part = {0};
    if (b->done || count == 0) return (pj_wire_part){.kind = PJ_WIRE_END};
    if (b->kind == PJ_BODY_UNTIL_CLOSE) return (pj_wire_part){PJ_WIRE_DATA, count, 0};
    if (b->kind == PJ_BODY_LENGTH || b->state == CHUNK) return take_data(b, count);
    while (part.bytes < count && b->state != CHUNK && part.kind == PJ_WIRE_FRAMING)
        part.kind = take_framing(b, bytes[part.bytes++]);
    if (part.kind == PJ_WIRE_CHUNK) part.chunk_bytes = b->left;
    return part;
}

bool pj_wire_body_between(const pj_wire_body *b)
{
    return b->kind == PJ_BODY_CHUNKED && b->state == SIZE && !b->digits;
}

bool pj_wire_body_ending(const pj_wire_body *b)
{
    return b->kind == PJ_BODY_CHUNKED && !b->done && b->state >= TRAILER;
}

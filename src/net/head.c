/* Parses a request head line by line. */
#include "net/head.h"

#include "net/params.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

typedef struct fields {
    unsigned hosts, lengths, encodings;
    bool chunked, other_coding, bad_length, large, http_1_0, wrong_expectation;
} fields;

typedef struct line {
    const char *text;
    size_t bytes;
} line;

static pj_head_verdict refuse(pj_head_verdict verdict, unsigned status, const char *detail)
{
    verdict.status = status;
    verdict.detail = detail;
    return verdict;
}

/* RFC 9110, 5.6.2: the characters of names. */
static bool is_token(const char *text, size_t bytes)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (!c || !strchr(marks, c))) return false;
    }
    return bytes > 0;
}

static bool is(line value, const char *word)
{
    return value.bytes == strlen(word) && strncasecmp(value.text, word, value.bytes) == 0;
}

/* ---- the request line ----------------------------------------------------------------------- */

static pj_head_verdict judge_request_line(line l, pj_head_verdict verdict, fields *f)
{
    const char *end = l.text + l.bytes, *first = memchr(l.text, ' ', l.bytes);
    const char *second = first ? memchr(first + 1, ' ', (size_t)(end - first - 1)) : NULL;
    if (!first || !second || first == l.text || second == first + 1 ||
        memchr(second + 1, ' ', (size_t)(end - second - 1)))
        return refuse(verdict, 400, "the request line is not METHOD TARGET VERSION");
    line version = {second + 1, (size_t)(end - second - 1)};
    verdict.is_head = first - l.text == 4 && memcmp(l.text, "HEAD", 4) == 0;
    if (version.bytes != 8 || memcmp(version.text, "HTTP/", 5) != 0 || version.text[6] != '.' ||
        version.text[5] < '0' || version.text[5] > '9' || version.text[7] < '0' ||
        version.text[7] > '9')
        return refuse(verdict, 400, "the request line does not end with a version of HTTP");
    /* RFC 9110, 2.5: a higher minor version is understood as 1.1 */
    if (version.text[5] != '1') return refuse(verdict, 505, "only HTTP/1.x is supported");
    f->http_1_0 = version.text[7] == '0';
    if ((size_t)(second - first) > PJ_TARGET_MAX_BYTES)
        return refuse(verdict, 414, "the address is too long");
    return verdict;
}

/* ---- header fields -------------------------------------------------------------------------- */

static void take_length(line value, fields *f)
{
    uint64_t length = 0;
    f->lengths++;
    f->bad_length |= value.bytes == 0;
    if (value.bytes > 19 && strspn(value.text, "0123456789") >= value.bytes) {
        f->large = true; /* overflows 64 bits */
        return;
    }
    for (size_t i = 0; i < value.bytes && !f->bad_length; i++) {
        f->bad_length = value.text[i] < '0' || value.text[i] > '9';
        if (!f->bad_length) length = length * 10 + (uint64_t)(value.text[i] - '0');
    }
    f->large |= !f->bad_length && length > PJ_LENGTH_MAX_BYTES;
}

static void take_field(line name, line value, fields *f)
{
    if (is(name, "Host")) f->hosts++;
    if (is(name, "Content-Length")) take_length(value, f);
    if (is(name, "Expect") && !is(value, "100-continue")) f->wrong_expectation = true;
    if (!is(name, "Transfer-Encoding")) return;
    f->encodings++;
    f->chunked |= is(value, "chunked");
    f->other_coding |= !is(value, "chunked");
}

static pj_head_verdict judge_field(line l, pj_head_verdict verdict, fields *f)
{
    const char *colon = memchr(l.text, ':', l.bytes);
    if (l.text[0] == ' ' || l.text[0] == '\t')
        return refuse(verdict, 400, "a header may not be folded over several lines");
    if (!colon || !is_token(l.text, (size_t)(colon - l.text)))
        return refuse(verdict, 400, "a header has no valid name");
    line name = {l.text, (size_t)(colon - l.text)};
    line value = {colon + 1, l.bytes - name.bytes - 1};
    while (value.bytes && (value.text[0] == ' ' || value.text[0] == '\t'))
        value = (line){value.text + 1, value.bytes - 1};
    while (value.bytes &&
           (value.text[value.bytes - 1] == ' ' || value.text[value.bytes - 1] == '\t'))
        value.bytes--;
    for (size_t i = 0; i < value.bytes; i++)
        if (((unsigned char)value.text[i] < ' ' && value.text[i] != '\t') || value.text[i] == 0x7f)
            return refuse(verdict, 400, "the head of the request holds a control character");
    take_field(name, value, f);
    return verdict;
}

/* The framing decides where the next request begins: anything ambiguous is refused (request
 * smuggling). */
static pj_head_verdict judge_framing(const fields *f, pj_head_verdict verdict)
{
    if (f->hosts > 1 || (f->hosts == 0 && !f->http_1_0))
        return refuse(verdict, 400, "a request needs exactly one Host header");
    if (f->lengths > 1 || f->encodings > 1 || (f->lengths && f->encodings))
        return refuse(verdict, 400, "the length of the body is given in more than one way");
    if (f->large) return refuse(verdict, 413, "the body is too large");
    if (f->bad_length) return refuse(verdict, 400, "Content-Length is not a number");
    if (f->encodings && f->http_1_0)
        return refuse(verdict, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (f->other_coding)
        return refuse(verdict, 501, "there is no such transfer coding here; send Content-Length");
    if (f->chunked)
        return refuse(verdict, 411, "send the body with Content-Length instead of in chunks");
    if (f->wrong_expectation)
        return refuse(verdict, 417, "only Expect: 100-continue is known here");
    return verdict;
}

/* ---- all lines ------------------------------------------------------------------------------ */

/* The next line without its CRLF; false: incomplete, or refused in `verdict`. */
static bool next_line(const char **at, const char *end, line *l, pj_head_verdict *verdict)
{
    const char *feed = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = feed ? feed : end;
    if (memchr(*at, 0, (size_t)(stop - *at))) {
        *verdict = refuse(*verdict, 400, "the head of the request holds a control character");
        return false;
    }
    if (!feed) return false;
    *l = (line){*at, (size_t)(feed - *at)};
    if (l->bytes == 0 || l->text[--l->bytes] != '\r' || memchr(l->text, '\r', l->bytes)) {
        *verdict = refuse(*verdict, 400, "a line of the head does not end with CR LF");
        return false;
    }
    *at = feed + 1;
    return true;
}

pj_head_verdict pj_head_judge(const char *bytes, size_t count)
{
    pj_head_verdict verdict = {0};
    fields f = {0};
    line l;
    const char *at = bytes, *end = bytes + count;
    if (count >= 2 && bytes[0] == '\r' && bytes[1] == '\n') at += 2; /* RFC 9112, 2.2 */
    const char *begin = at;
    while (next_line(&at, end, &l, &verdict)) {
        if (l.text == begin)
            verdict = judge_request_line(l, verdict, &f);
        else if (l.bytes > 0)
            verdict = judge_field(l, verdict, &f);
        else {
            verdict.complete = true;
            return judge_framing(&f, verdict);
        }
        if (verdict.status) return verdict;
    }
    if (verdict.status || count < PJ_HEAD_MAX_BYTES) return verdict;
    if (at == begin) return refuse(verdict, 414, "the address is too long");
    return refuse(verdict, 431, "the head of the request is too long");
}

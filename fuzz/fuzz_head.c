/* Heads of requests and responses, parsed incrementally: the result must not depend on how the head
 * is split into packets, every rejection has a status and a message, and the fields of a complete
 * head lie inside it. */
#include "http/head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 24 << 10 };

typedef struct judged {
    pj_head_verdict verdict;
    pj_head head;
    pj_head_fault fault;
} judged;

static void check_fields(const char *bytes, const pj_head *head)
{
    pj_head_field field;
    size_t at = 0, last = 0;
    while (pj_head_next(bytes, head->bytes, &at, &field)) {
        if (at <= last || at > head->bytes - 2 || !field.name_bytes) abort();
        if (field.value < field.line || field.value_bytes > field.line_bytes) abort();
        last = at;
    }
    if (last && last != head->bytes - 2) abort();
}

/* Each prefix is copied into an allocation of its size, so that sanitizers detect reads beyond it.
 */
static judged judge(const uint8_t *data, size_t size, bool is_request)
{
    judged j;
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    j.verdict = pj_head_parse(copy, size, is_request, MAX_BYTES, &j.head, &j.fault);
    if (j.verdict == PJ_HEAD_COMPLETE) {
        if (j.head.bytes > size) abort();
        check_fields(copy, &j.head);
    }
    free(copy);
    bool is_refused = j.verdict == PJ_HEAD_BAD;
    if (is_refused && (j.fault.status < 400 || j.fault.status > 505)) abort();
    if (is_refused != (j.fault.detail && j.fault.detail[0])) abort();
    return j;
}

static void check(const uint8_t *data, size_t size, bool is_request)
{
    judged whole = judge(data, size, is_request);
    size_t step = size / 16 + 1;
    for (size_t cut = 0; cut < size; cut += step) {
        judged part = judge(data, cut, is_request);
        if (part.verdict == PJ_HEAD_INCOMPLETE) continue;
        if (part.verdict != whole.verdict || part.fault.status != whole.fault.status ||
            part.head.bytes != whole.head.bytes)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size, true);
    check(data, size, false);
    return 0;
}

/* HTTP request heads, parsed incrementally: the result must not depend on how the head is split
 * into packets, and every rejection has a status and a message. */
#include "net/head.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each prefix is copied into an allocation of its size, so that sanitizers detect reads beyond it.
 */
static pj_head_verdict judge(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    pj_head_verdict verdict = pj_head_judge(copy, size);
    free(copy);
    return verdict;
}

static void check(const pj_head_verdict *verdict)
{
    if (verdict->status && (verdict->status < 400 || verdict->status > 505)) abort();
    if (verdict->status && (!verdict->detail || !verdict->detail[0])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_head_verdict whole = judge(data, size);
    check(&whole);
    size_t step = size / 16 + 1;
    for (size_t cut = 0; cut < size; cut += step) {
        pj_head_verdict part = judge(data, cut);
        check(&part);
        bool decided = part.complete || part.status;
        if (decided && (part.status != whole.status || part.complete != whole.complete)) abort();
    }
    return 0;
}

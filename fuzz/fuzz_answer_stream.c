/*
 * Responses of a server that perjoule attaches to: HTTP head, body framing, server-sent events and
 * their JSON. The first byte selects how the input is split into reads, so that every parser state
 * is suspended and resumed; for any input the counts must be consistent and no read out of bounds.
 */
#include "attach/exchange.h"
#include "attach/usage_spot.h"
#include "base/memory.h"
#include "http/head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_exchange(const pj_exchange *x)
{
    size_t rows;
    pj_exchange_counts counts = pj_exchange_count(x);
    pj_exchange_token *tokens = pj_exchange_tokens(x, &rows);
    if (rows > counts.output || counts.input < -1 || counts.cached > counts.input + (1 << 28))
        abort();
    for (size_t i = 0; i < rows; i++) {
        if (i && tokens[i].at_ns < tokens[i - 1].at_ns) abort();
    }
    pj_free(tokens);
}

static void feed_payload(pj_exchange *x, pj_usage_spot *spot, const char *bytes, size_t count,
                         int64_t at_ns)
{
    pj_exchange_payload(x, bytes, count, at_ns);
    for (size_t at = 0; at < count;) {
        long found = pj_usage_spot_find(spot, bytes + at, count - at);
        if (found < 0) break;
        if ((size_t)found >= count - at || bytes[at + (size_t)found] != '}') abort();
        at += (size_t)found + 1;
    }
}

static void feed(pj_exchange *x, const char *bytes, size_t size, size_t step)
{
    pj_head head;
    pj_head_fault fault;
    pj_body body;
    pj_usage_spot spot;
    size_t type_bytes, at;
    if (pj_head_parse(bytes, size, false, PJ_HEAD_MAX_BYTES, &head, &fault) != PJ_HEAD_COMPLETE)
        return;
    const char *type = pj_head_find(bytes, head.bytes, "content-type", &type_bytes);
    pj_exchange_head(x, head.status, type, type_bytes, false);
    pj_usage_spot_init(&spot, pj_events_mode_of(type, type_bytes));
    pj_body_begin(&body, head.body, head.length);
    for (at = head.bytes; at < size && !body.done;) {
        size_t count = size - at < step ? size - at : step;
        pj_body_part part = pj_body_next(&body, bytes + at, count);
        if (part.kind == PJ_PART_BROKEN) break;
        if (part.bytes == 0 || part.bytes > count) abort();
        if (part.kind == PJ_PART_DATA)
            feed_payload(x, &spot, bytes + at, part.bytes, (int64_t)at + 3);
        at += part.bytes;
    }
    pj_exchange_end(x, body.done ? PJ_EXCHANGE_COMPLETED : PJ_EXCHANGE_FAILED, NULL,
                    (int64_t)size + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    size_t step = data[0] & 0x3f ? data[0] & 0x3f : size;
    pj_exchange *x = pj_exchange_new("POST", data[0] & 0x40 ? "/api/chat" : "/v1/completions",
                                     (const char *)data + 1, size - 1, 1);
    if (!x) return 0;
    feed(x, (const char *)data + 1, size - 1, step);
    check_exchange(x);
    pj_exchange_free(x);
    return 0;
}

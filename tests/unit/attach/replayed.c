/* Replays recorded bytes; see replayed.h. */
#include "replayed.h"

#include <string.h>

void replay_begin(replayed *r, const char *path, const char *request_body)
{
    *r = (replayed){0};
    pj_buffer_init(&r->waiting, 1 << 20);
    r->exchange = pj_exchange_new("POST", path, request_body, strlen(request_body), 1);
}

static void take_head(replayed *r, int64_t at_ns)
{
    const char *bytes = pj_buffer_get(&r->waiting);
    size_t type_bytes;
    pj_head_fault fault;
    pj_head_verdict verdict =
        pj_head_parse(bytes, r->waiting.length, false, PJ_HEAD_MAX_BYTES, &r->head, &fault);
    if (verdict == PJ_HEAD_BAD) r->broken = true;
    if (verdict != PJ_HEAD_COMPLETE) return;
    const char *type = pj_head_find(bytes, r->head.bytes, "content-type", &type_bytes);
    pj_exchange_head(r->exchange, r->head.status, type, type_bytes, false);
    pj_body_begin(&r->body, r->head.body, r->head.length);
    r->has_head = true;
}

static void take_body(replayed *r, const char *bytes, size_t count, int64_t at_ns)
{
    while (count && !r->body.done && !r->broken) {
        pj_body_part part = pj_body_next(&r->body, bytes, count);
        if (part.kind == PJ_PART_BROKEN) r->broken = true;
        if (part.kind == PJ_PART_DATA) pj_exchange_payload(r->exchange, bytes, part.bytes, at_ns);
        bytes += part.bytes;
        count -= part.bytes;
    }
}

void replay_feed(replayed *r, const char *bytes, size_t count, int64_t at_ns)
{
    if (r->has_head) {
        take_body(r, bytes, count, at_ns);
        return;
    }
    pj_buffer_append(&r->waiting, bytes, count);
    take_head(r, at_ns);
    if (r->has_head)
        take_body(r, r->waiting.data + r->head.bytes, r->waiting.length - r->head.bytes, at_ns);
}

void replay_end(replayed *r, int64_t at_ns)
{
    bool whole = r->has_head && (r->body.done || r->head.body == PJ_BODY_UNTIL_CLOSE);
    pj_exchange_end(r->exchange, whole ? PJ_EXCHANGE_COMPLETED : PJ_EXCHANGE_FAILED, NULL, at_ns);
}

void replay_fini(replayed *r)
{
    pj_exchange_free(r->exchange);
    pj_buffer_fini(&r->waiting);
}

/*
 * Forwards answers to the client and inserts the energy of their requests. Chunk boundaries are
 * preserved; a chunk with a figure inserted is merely longer.
 */
#include "attach/proxy_pair.h"

#include "attach/body_insert.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- figures -------------------------------------------------------------------------------- */

static void write_energy(const pj_proxy_energy *e, pj_buffer *to)
{
    pj_json json;
    pj_json_init(&json, to);
    pj_json_object_begin(&json);
    pj_json_kv_double(&json, "total", e->total);
    pj_json_kv_double(&json, "input", e->input);
    pj_json_kv_double(&json, "output", e->output);
    pj_json_kv_double(&json, "lo", e->lo);
    pj_json_kv_double(&json, "hi", e->hi);
    pj_json_kv_string(&json, "source", e->source);
    pj_json_kv_string(&json, "method", e->method);
    pj_json_kv_bool(&json, "provisional", e->provisional);
    pj_json_kv_string(&json, "scope", "machine");
    pj_json_object_end(&json);
    pj_json_finish(&json);
}

static pj_proxy_energy energy_now(const pj_pair *p, int64_t now_ns)
{
    if (p->request_hook)
        return p->options->hooks.energy(p->options->hooks.context, p->request_hook, now_ns);
    return (pj_proxy_energy){NAN, NAN, NAN, NAN, NAN, "unavailable", NULL, false};
}

/* Copies the received bytes (including chunk framing) with `"energy_joules": {...}` inserted at the
 * marked offsets. False: out of memory. */
static bool proxy_answer_insert(const pj_pair *p, const char *bytes, size_t count,
                                pj_proxy_energy energy, pj_buffer *to)
{
    pj_buffer member;
    pj_buffer_init(&member, 4096);
    pj_buffer_text(&member, "\"energy_joules\":");
    write_energy(&energy, &member);
    const double figures[PJ_FIGURE_COUNT] = {energy.total, energy.input, energy.output, energy.lo,
                                             energy.hi};
    pj_energy_fields_write(&p->fields, figures, &member);
    pj_body_insert in = {.member = pj_buffer_get(&member),
                         .member_bytes = member.length,
                         .at = p->spots,
                         .is_empty = p->spot_empty,
                         .count = member.failed ? 0 : p->spot_count};
    if (p->answer_body.kind == PJ_BODY_CHUNKED)
        pj_body_insert_chunked(&in, bytes, count, to);
    else
        pj_body_insert_plain(&in, bytes, count, to);
    pj_buffer_fini(&member);
    return !to->failed;
}

/* X-Energy-Joules and related fields, for a head or trailer section. */
static void write_lines(const pj_pair *p, pj_proxy_energy e, pj_buffer *to)
{
    if (p->wants_none || !p->request_hook) return;
    if (isnan(e.total)) {
        pj_buffer_text(to, "X-Energy-Method: unavailable\r\n");
        return;
    }
    pj_buffer_printf(to, "X-Energy-Joules: %.9g\r\nX-Energy-Method: %s; source=%s%s\r\n", e.total,
                     e.method, e.source, e.provisional ? "; provisional" : "");
}

/* ---- queueing ------------------------------------------------------------------------------- */

void pj_pair_queue(pj_outgoing *to, const void *bytes, size_t count)
{
    size_t left = to->bytes.length - to->sent;
    if (!left) {
        pj_buffer_clear(&to->bytes);
        to->sent = 0;
    } else if (to->sent >= PJ_PAIR_HOLD_BYTES && to->sent >= left) {
        /* a receiver that is always behind never empties the queue */
        memmove(to->bytes.data, to->bytes.data + to->sent, left);
        to->bytes.length = left;
        to->sent = 0;
    }
    pj_buffer_append(&to->bytes, bytes, count);
}

/* ---- parsing ----------------------------------------------------------------------------- */

void pj_pair_poll(pj_pair *p)
{
    if (!p->unseen.length) return;
    pj_exchange_payload(p->exchange, p->unseen.data, p->unseen.length, p->unseen_ns);
    pj_buffer_clear(&p->unseen);
    if (p->request_hook) p->options->hooks.progress(p->options->hooks.context, p->request_hook);
}

/* An answer is parsed only after its bytes have been queued for the client. */
static void sample_later(pj_pair *p, const char *bytes, size_t count, int64_t now_ns)
{
    if (!p->exchange) return;
    if (p->unseen_ns != now_ns) pj_pair_poll(p);
    p->unseen_ns = now_ns;
    if (pj_buffer_append(&p->unseen, bytes, count)) return;
    p->unseen.failed = false; /* out of memory: parse immediately, stored bytes first */
    pj_pair_poll(p);
    pj_exchange_payload(p->exchange, bytes, count, now_ns);
}

void pj_pair_end_exchange(pj_pair *p, pj_exchange_outcome outcome, const char *why, int64_t now_ns)
{
    if (!p->exchange || p->ended) return;
    pj_pair_poll(p);
    p->ended = true;
    p->ended_ns = now_ns;
    pj_exchange_end(p->exchange, outcome, why, now_ns);
    p->options->hooks.end(p->options->hooks.context, p->request_hook, p->exchange);
    p->exchange = NULL;
}

/* ---- heads ---------------------------------------------------------------------------------- */

static bool wants_figures(const pj_pair *p)
{
    return p->exchange && p->request_hook && !p->wants_none && !p->options->headers_only;
}

/* The head with our fields added, and with Content-Length replaced by `length` unless that is
 * negative. */
static void queue_head(pj_pair *p, const pj_buffer *lines, long length)
{
    const char *head = pj_buffer_get(&p->head);
    pj_head_field line;
    size_t bytes = p->answer.bytes, at = 0, first = (size_t)(strchr(head, '\n') - head) + 1;
    pj_pair_queue(&p->to_client, head, first);
    while (pj_head_next(head, bytes, &at, &line)) {
        char changed[64];
        if (length >= 0 && pj_field_is(&line, "Content-Length")) {
            int n = snprintf(changed, sizeof changed, "%.*s: %ld\r\n", (int)line.name_bytes,
                             line.name, length);
            pj_pair_queue(&p->to_client, changed, (size_t)n);
        } else {
            pj_pair_queue(&p->to_client, line.line, line.line_bytes);
        }
    }
    if (lines->length) pj_pair_queue(&p->to_client, lines->data, lines->length);
    pj_pair_queue(&p->to_client, "\r\n", 2);
}

static void queue_stream_head(pj_pair *p)
{
    pj_buffer lines;
    pj_buffer_init(&lines, 4096);
    if (p->request_hook && !p->wants_none) {
        pj_buffer_printf(&lines, "X-Energy-Run: %s\r\n",
                         p->options->hooks.id(p->options->hooks.context, p->request_hook));
        if (p->takes_trailers && p->answer.body == PJ_BODY_CHUNKED)
            pj_buffer_text(&lines, "Trailer: X-Energy-Joules, X-Energy-Method\r\n");
    }
    queue_head(p, &lines, -1);
    pj_buffer_fini(&lines);
}

void pj_pair_take_head(pj_pair *p)
{
    const char *head = pj_buffer_get(&p->head);
    size_t type_bytes, coding_bytes;
    const char *type = pj_head_find(head, p->answer.bytes, "content-type", &type_bytes);
    const char *coding = pj_head_find(head, p->answer.bytes, "content-encoding", &coding_bytes);
    bool no_body = strcmp(p->request.method, "HEAD") == 0;
    pj_events_mode events = pj_events_mode_of(type, type_bytes);
    p->has_head = true;
    p->mode = PJ_ANSWER_PASS;
    p->in_chunk = p->chunk_raw = p->framing_sent = false;
    p->spot_count = 0;
    pj_buffer_clear(&p->hold);
    pj_body_begin(&p->answer_body, no_body ? PJ_BODY_NONE : p->answer.body, p->answer.length);
    if (p->exchange)
        pj_exchange_head(p->exchange, p->answer.status, type, type_bytes, coding != NULL);
    pj_usage_spot_init(&p->spot, events);
    bool small = p->answer.body != PJ_BODY_LENGTH || p->answer.length <= PJ_PAIR_WHOLE_BYTES;
    bool looks = p->exchange && p->request_hook && !coding && !p->wants_none;
    if (looks && !p->answer_body.done) {
        if (events != PJ_EVENTS_WHOLE)
            p->mode = PJ_ANSWER_STREAM;
        else if (small)
            p->mode = PJ_ANSWER_WHOLE;
    }
    if (p->mode != PJ_ANSWER_WHOLE) queue_stream_head(p);
}

/* ---- chunks --------------------------------------------------------------------------------- */

static void mark_spots(pj_pair *p, const char *bytes, size_t count)
{
    if (!wants_figures(p)) return;
    size_t base = p->hold.length;
    for (size_t at = 0; at < count;) {
        long found = pj_usage_spot_find(&p->spot, bytes + at, count - at);
        if (found < 0) return;
        if (p->spot_count < PJ_PAIR_SPOTS) {
            p->spot_empty[p->spot_count] = p->spot.is_empty;
            p->spots[p->spot_count++] = base + at + (size_t)found;
        }
        at += (size_t)found + 1;
    }
}

static void queue_hold(pj_pair *p)
{
    if (p->hold.length) pj_pair_queue(&p->to_client, p->hold.data, p->hold.length);
    p->to_client.bytes.failed |=
        p->hold.failed; /* the answer cannot be completed: close the connection */
    pj_buffer_clear(&p->hold);
    p->spot_count = 0;
}

void pj_pair_flush_hold(pj_pair *p)
{
    if (p->mode != PJ_ANSWER_STREAM || !p->hold.length) return;
    if (p->takes_trailers && pj_body_ending(&p->answer_body)) return;
    p->chunk_raw = p->in_chunk;
    p->framing_sent = !p->in_chunk && !pj_body_between(&p->answer_body);
    queue_hold(p);
}

/* Handles a complete held chunk, including its size line. */
static void queue_chunk(pj_pair *p, int64_t now_ns)
{
    pj_buffer grown;
    bool wants = p->spot_count && !p->chunk_raw;
    p->in_chunk = false;
    pj_buffer_init(&grown, PJ_PAIR_HOLD_BYTES + 64 * 1024);
    if (wants &&
        proxy_answer_insert(p, p->hold.data, p->hold.length, energy_now(p, now_ns), &grown)) {
        pj_pair_queue(&p->to_client, grown.data, grown.length);
        pj_buffer_clear(&p->hold);
    }
    queue_hold(p);
    pj_buffer_fini(&grown);
}

static bool must_wait(const pj_pair *p)
{
    return p->wants_wait && p->spot_count && p->exchange && p->exchange->answer.finish_reason[0];
}

/* The last chunk and the trailer section, which may have arrived in pieces, with our trailers
 * added. */
static void queue_end(pj_pair *p, int64_t now_ns)
{
    pj_buffer lines;
    size_t last = p->hold.length >= 2 ? p->hold.length - 2 : 0;
    pj_buffer_init(&lines, 4096);
    if (p->takes_trailers && last) {
        write_lines(p, energy_now(p, now_ns), &lines);
        pj_pair_queue(&p->to_client, p->hold.data, last);
        pj_pair_queue(&p->to_client, lines.data, lines.length);
        pj_pair_queue(&p->to_client, p->hold.data + last, 2);
        pj_buffer_clear(&p->hold);
    }
    queue_hold(p);
    pj_buffer_fini(&lines);
}

/* Forwards the data of an unchunked stream at once; figures can be inserted only if the
 * connection's end delimits it. */
static void pass_data(pj_pair *p, const char *bytes, size_t count, int64_t now_ns)
{
    if (p->answer_body.kind == PJ_BODY_UNTIL_CLOSE) mark_spots(p, bytes, count);
    if (p->spot_count) {
        pj_buffer grown;
        pj_buffer_init(&grown, count + 64 * 1024);
        pj_pair_poll(p);
        bool is_grown = proxy_answer_insert(p, bytes, count, energy_now(p, now_ns), &grown);
        pj_pair_queue(&p->to_client, is_grown ? grown.data : bytes,
                      is_grown ? grown.length : count);
        pj_buffer_fini(&grown);
        p->spot_count = 0;
    } else {
        pj_pair_queue(&p->to_client, bytes, count);
    }
}

static pj_answer_step take_stream_part(pj_pair *p, pj_body_part part, const char *bytes,
                                       int64_t now_ns)
{
    bool chunked = p->answer_body.kind == PJ_BODY_CHUNKED;
    if (part.kind == PJ_PART_DATA) {
        sample_later(p, bytes, part.bytes, now_ns);
        if (!chunked) {
            pass_data(p, bytes, part.bytes, now_ns);
            return PJ_STEP_MORE;
        }
        mark_spots(p, bytes, part.bytes);
        if (p->spot_count) pj_pair_poll(p); /* the figure covers the tokens before it */
        if (!p->hold.length) p->hold_ns = now_ns;
        pj_buffer_append(&p->hold, bytes, part.bytes);
        p->chunk_bytes -= part.bytes;
        if (p->chunk_bytes == 0 && must_wait(p)) return PJ_STEP_WAIT;
        if (p->chunk_bytes == 0)
            queue_chunk(p, now_ns);
        else if (p->hold.length > PJ_PAIR_HOLD_BYTES || p->chunk_raw)
            pj_pair_flush_hold(p);
        return PJ_STEP_MORE;
    }
    if (!p->hold.length) p->hold_ns = now_ns;
    pj_buffer_append(&p->hold, bytes, part.bytes);
    if (part.kind == PJ_PART_END) {
        pj_pair_end_exchange(p, PJ_EXCHANGE_COMPLETED, NULL, now_ns);
        queue_end(p, now_ns);
        return PJ_STEP_DONE;
    }
    if (part.kind == PJ_PART_CHUNK) {
        p->in_chunk = true;
        p->chunk_raw = p->framing_sent;
        p->framing_sent = false;
        p->chunk_bytes = part.chunk_bytes;
        if (part.chunk_bytes > PJ_PAIR_HOLD_BYTES) pj_pair_flush_hold(p);
    }
    return PJ_STEP_MORE;
}

/* ---- whole answers -------------------------------------------------------------------------- */

static void queue_whole(pj_pair *p, int64_t now_ns)
{
    pj_buffer lines, grown;
    pj_proxy_energy energy = energy_now(p, now_ns); /* the same in head and body */
    pj_buffer_init(&lines, 4096);
    pj_buffer_init(&grown, PJ_PAIR_WHOLE_BYTES + 64 * 1024);
    pj_buffer_printf(&lines, "X-Energy-Run: %s\r\n",
                     p->options->hooks.id(p->options->hooks.context, p->request_hook));
    write_lines(p, energy, &lines);
    if (p->spot_count && proxy_answer_insert(p, p->hold.data, p->hold.length, energy, &grown)) {
        pj_buffer_fini(&p->hold);
        p->hold = grown;
        pj_buffer_init(&grown, 0);
    }
    queue_head(p, &lines, p->answer.body == PJ_BODY_LENGTH ? (long)p->hold.length : -1);
    queue_hold(p);
    pj_buffer_fini(&lines);
    pj_buffer_fini(&grown);
}

/* From here on the answer is forwarded unchanged: it is too large to hold, or was cut off. */
static void give_up_whole(pj_pair *p)
{
    queue_stream_head(p);
    queue_hold(p);
    p->mode = PJ_ANSWER_PASS;
}

static pj_answer_step end_whole(pj_pair *p, int64_t now_ns)
{
    pj_pair_end_exchange(p, PJ_EXCHANGE_COMPLETED, NULL, now_ns);
    if (p->wants_wait) return PJ_STEP_WAIT;
    queue_whole(p, now_ns);
    return PJ_STEP_DONE;
}

static pj_answer_step take_whole_part(pj_pair *p, pj_body_part part, const char *bytes,
                                      int64_t now_ns)
{
    if (part.kind == PJ_PART_DATA) {
        sample_later(p, bytes, part.bytes, now_ns);
        mark_spots(p, bytes, part.bytes);
    }
    pj_buffer_append(&p->hold, bytes, part.bytes);
    return part.kind == PJ_PART_END || p->answer_body.done ? end_whole(p, now_ns) : PJ_STEP_MORE;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static pj_answer_step take_part(pj_pair *p, pj_body_part part, const char *bytes, int64_t now_ns)
{
    pj_answer_step step = PJ_STEP_MORE;
    if (p->mode == PJ_ANSWER_STREAM) {
        step = take_stream_part(p, part, bytes, now_ns);
    } else if (p->mode == PJ_ANSWER_WHOLE) {
        return take_whole_part(p, part, bytes, now_ns);
    } else {
        if (part.kind == PJ_PART_DATA) sample_later(p, bytes, part.bytes, now_ns);
        pj_pair_queue(&p->to_client, bytes, part.bytes);
    }
    if (step == PJ_STEP_MORE && p->answer_body.done) {
        pj_pair_end_exchange(p, PJ_EXCHANGE_COMPLETED, NULL, now_ns);
        step = PJ_STEP_DONE;
    }
    return step;
}

void pj_pair_pass_what_came(pj_pair *p)
{
    if (p->has_head && p->mode == PJ_ANSWER_WHOLE) give_up_whole(p);
    queue_hold(p);
}

pj_answer_step pj_pair_take_body(pj_pair *p, const char *bytes, size_t count, int64_t now_ns)
{
    while (count && !p->answer_body.done) {
        if (p->mode == PJ_ANSWER_WHOLE && p->hold.length + count > PJ_PAIR_WHOLE_BYTES)
            give_up_whole(p);
        pj_body_part part = pj_body_next(&p->answer_body, bytes, count);
        if (part.kind == PJ_PART_BROKEN) {
            pj_pair_pass_what_came(p);
            pj_pair_queue(&p->to_client, bytes, count);
            return PJ_STEP_BROKEN;
        }
        pj_answer_step step = take_part(p, part, bytes, now_ns);
        bytes += part.bytes;
        count -= part.bytes;
        if (step == PJ_STEP_WAIT && count) pj_buffer_append(&p->late, bytes, count);
        if (step != PJ_STEP_MORE) return step;
    }
    if (p->mode == PJ_ANSWER_STREAM && !p->in_chunk && pj_body_between(&p->answer_body))
        queue_hold(p);
    return p->answer_body.done ? PJ_STEP_DONE : PJ_STEP_MORE;
}

pj_answer_step pj_pair_take_end(pj_pair *p, int64_t now_ns)
{
    if (!p->has_head || p->answer_body.kind != PJ_BODY_UNTIL_CLOSE) {
        pj_pair_pass_what_came(p);
        return PJ_STEP_BROKEN;
    }
    p->answer_body.done = true;
    if (p->mode == PJ_ANSWER_WHOLE) return end_whole(p, now_ns);
    pj_pair_end_exchange(p, PJ_EXCHANGE_COMPLETED, NULL, now_ns);
    return PJ_STEP_DONE;
}

pj_answer_step pj_pair_go_on(pj_pair *p, int64_t now_ns)
{
    if (p->mode == PJ_ANSWER_WHOLE) {
        queue_whole(p, now_ns);
        return PJ_STEP_DONE;
    }
    queue_chunk(p, now_ns);
    pj_buffer late = p->late;
    p->late = (pj_buffer){.max_bytes = late.max_bytes};
    p->wants_wait = false;
    pj_answer_step step = pj_pair_take_body(p, pj_buffer_get(&late), late.length, now_ns);
    pj_buffer_fini(&late);
    return step;
}

/* One generation from prompts to texts: tokenisation, prefill, decode and sampling, detokenisation,
 * each in its phase and section. Everything that the decode loop needs is allocated before it
 * begins. */
#include "base/clock.h"
#include "engine/generation/engine_internal.h"
#include "engine/generation/reply.h"
#include "engine/generation/speculation.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES_PER_TOKEN = 16, MAX_TEXT_BYTES = 1 << 28, MAX_SEQUENCES = 4096 };

typedef struct sequence_state {
    pj_sequence_result *result; /* its ids grow during generation */
    pj_sampler sampler;
    pj_token_stream *stream; /* NULL: no tokenizer */
    pj_reply reply;
} sequence_state;

/* A token of the current step: its text as a range of the reply. */
typedef struct fresh_token {
    uint32_t sequence, position;
    size_t at, bytes;
} fresh_token;

typedef struct generation {
    pj_engine *engine;
    const pj_generate_request *request;
    pj_generate_result *result;
    pj_error *err;
    pj_compute compute;
    sequence_state *sequences; /* [count] */
    uint32_t count;            /* sequences */
    uint32_t longest;          /* length of the longest prompt */
    uint64_t prompt_tokens;
    pj_speculation speculation;
    uint32_t draft_tokens; /* tokens proposed per step; 0: no draft model */
    bool greedy;           /* the device chooses: only ids come to the host, no logits */
    fresh_token *fresh;    /* [rows of logits] of the step, not announced yet */
    uint32_t fresh_count;
    /* for a pass */
    int32_t *ids;              /* [max_tokens] */
    pj_pass_segment *segments; /* [count] */
    uint32_t *logit_rows;      /* [rows of logits] */
    uint32_t *row_sequence;    /* [count] of each row of logits */
} generation;

const char *pj_stop_reason_name(pj_stop_reason reason)
{
    static const char *const names[] = {"none", "length", "eos", "stop", "cancelled"};
    return (unsigned)reason < sizeof names / sizeof *names ? names[reason] : "none";
}

/* ---- phases ------------------------------------------------------------------------------- */

static void begin_phase(generation *g, pj_phase phase)
{
    pj_lane *lane = g->engine->instrument.lane;
    if (lane) pj_span_begin(lane, PJ_SPAN_PHASE, (uint32_t)phase);
}

static void begin_token(generation *g, uint32_t position)
{
    pj_lane *lane = g->engine->instrument.lane;
    if (lane) pj_span_begin(lane, PJ_SPAN_TOKEN, position);
}

static void generate_end_span(generation *g)
{
    pj_instrument_end(&g->engine->instrument);
}

/* A pass over `rows` tokens of g->ids in `segments` segments, with logits for `logits` of them. */
static pj_status run_pass(generation *g, uint32_t rows, uint32_t segments, uint32_t logits,
                          bool is_prefill)
{
    pj_pass pass = {.ids = g->ids,
                    .tokens = rows,
                    .segments = g->segments,
                    .segment_count = segments,
                    .logit_rows = g->logit_rows,
                    .logit_count = logits,
                    .prefill = is_prefill,
                    .greedy = g->greedy,
                    .cancel = g->request->cancel};
    pj_status status = pj_compute_forward(&g->compute, &pass);
    return status ? status : pj_engine_check_files(g->engine, g->err);
}

/* ---- before inference --------------------------------------------------------------------- */

static pj_status check_prompt(generation *g, const pj_sequence_result *r, uint32_t index)
{
    const pj_engine *e = g->engine;
    uint64_t wanted = (uint64_t)r->prompt_count + g->request->max_tokens;
    if (r->prompt_count == 0)
        return pj_fail(g->err, PJ_E_INVALID, "prompt %u is empty: there is nothing to continue",
                       index + 1);
    if (wanted > e->context)
        return pj_fail(g->err, PJ_E_INVALID,
                       "prompt %u has %u tokens; with %u new ones that is more than the model's "
                       "context of %u: shorten the prompt or ask for fewer",
                       index + 1, r->prompt_count, g->request->max_tokens, e->context);
    for (uint32_t i = 0; i < r->prompt_count; i++)
        if (r->prompt_ids[i] < 0 || (uint32_t)r->prompt_ids[i] >= e->model.config.vocab)
            return pj_fail(g->err, PJ_E_INVALID,
                           "token id %d is outside the model's vocabulary of %u",
                           (int)r->prompt_ids[i], e->model.config.vocab);
    return PJ_OK;
}

static pj_status encode_prompt(generation *g, const pj_prompt *prompt, pj_sequence_result *r)
{
    const pj_generate_request *request = g->request;
    if (!prompt->ids && (request->chat || prompt->messages))
        return pj_engine_encode_chat(g->engine,
                                     &(pj_chat_request){prompt->text, prompt->bytes,
                                                        prompt->messages, request->system,
                                                        request->chat_variables},
                                     &r->prompt_ids, &r->prompt_count, g->err);
    if (!prompt->ids)
        return pj_engine_encode(g->engine, prompt->text, prompt->bytes, &r->prompt_ids,
                                &r->prompt_count, g->err);
    r->prompt_ids = pj_alloc(prompt->id_count, sizeof *r->prompt_ids);
    if (!r->prompt_ids) return pj_fail_memory(g->err, "the prompt");
    memcpy(r->prompt_ids, prompt->ids, prompt->id_count * sizeof *prompt->ids);
    r->prompt_count = prompt->id_count;
    return PJ_OK;
}

/* Encodes prompts; equal prompts are encoded each time, as separate requests would be. */
static pj_status encode_prompts(generation *g)
{
    pj_status status = PJ_OK;
    pj_instrument_section(&g->engine->instrument, PJ_N_TOKENIZATION);
    for (uint32_t i = 0; i < g->count && !status; i++) {
        pj_sequence_result *r = &g->result->sequences[i];
        status = encode_prompt(g, &g->request->prompts[i % g->request->prompt_count], r);
        if (!status) status = check_prompt(g, r, i % g->request->prompt_count);
        g->prompt_tokens += r->prompt_count;
        if (r->prompt_count > g->longest) g->longest = r->prompt_count;
    }
    g->result->input_tokens = g->prompt_tokens;
    generate_end_span(g);
    return status;
}

/* Records the prompts before anything runs, so that they are known even if the run dies. */
static pj_status record_prompts(generation *g)
{
    if (!g->request->run) return PJ_OK;
    uint32_t *lengths = pj_alloc(g->count, sizeof *lengths);
    if (!lengths) return pj_fail_memory(g->err, "the prompts");
    for (uint32_t i = 0; i < g->count; i++) lengths[i] = g->result->sequences[i].prompt_count;
    pj_run_set_prompts(g->request->run, lengths, g->count);
    pj_free(lengths);
    return PJ_OK;
}

/* Each sequence has its own generator derived from the seed, so that sequences with equal prompts
 * differ. A single sequence uses the seed itself. */
static uint64_t seed_of_stream(uint64_t seed, uint64_t stream)
{
    pj_random derived = {seed ^ stream * 0xd1342543de82ef95u};
    return stream ? pj_random_u64(&derived) : seed;
}

static pj_status prepare_sequence(generation *g, uint32_t index)
{
    const pj_engine *e = g->engine;
    sequence_state *s = &g->sequences[index];
    pj_sequence_result *r = s->result = &g->result->sequences[index];
    pj_sampling sampling = g->request->sampling;
    uint32_t vocab = sampling.temperature > 0 ? e->vocab_limit : e->model.config.vocab;
    sampling.seed = seed_of_stream(sampling.seed, (uint64_t)g->request->first_stream + index);
    pj_status status = pj_sampler_init(&s->sampler, &sampling, vocab, g->err);
    for (uint32_t i = 0; i < r->prompt_count && !status; i++)
        pj_sampler_accept(&s->sampler, r->prompt_ids[i], false);
    if (!status && e->tokenizer)
        status = pj_token_stream_new(e->tokenizer, true, &s->stream, g->err);
    if (status) return status;
    r->ids = pj_alloc((size_t)g->request->max_tokens + 1, sizeof *r->ids);
    pj_reply_init(&s->reply, g->request->stop, MAX_TEXT_BYTES);
    if (!r->ids || !pj_buffer_reserve(&s->reply.text,
                                      ((size_t)g->request->max_tokens + 4) * TEXT_BYTES_PER_TOKEN))
        return pj_fail_memory(g->err, "the generated text");
    return PJ_OK;
}

static pj_status generate_prepare(generation *g)
{
    pj_engine *e = g->engine;
    uint64_t tokens = g->prompt_tokens < e->options.chunk ? g->prompt_tokens : e->options.chunk;
    if (tokens < g->count) tokens = g->count;
    uint32_t rows = g->count + g->draft_tokens; /* of logits */
    if (tokens < rows) tokens = rows;
    pj_state_options options = {.sequences = g->count,
                                .context = g->longest + g->request->max_tokens,
                                .max_tokens = (uint32_t)tokens,
                                .max_logits = rows,
                                .rewind = g->draft_tokens,
                                .without = g->request->without,
                                .kv_type = e->kv_type};
    g->greedy = !e->loaded.facts.host_memory && pj_sampling_is_argmax(&g->request->sampling);
    pj_instrument_section(&e->instrument, PJ_N_KV_CACHE_INIT);
    pj_status status = pj_engine_compute(e, &options, &g->compute, g->err);
    g->sequences = pj_alloc(g->count, sizeof *g->sequences);
    g->ids = pj_alloc(tokens, sizeof *g->ids);
    g->segments = pj_alloc(g->count, sizeof *g->segments);
    g->logit_rows = pj_alloc(rows, sizeof *g->logit_rows);
    g->row_sequence = pj_alloc(g->count, sizeof *g->row_sequence);
    g->fresh = pj_alloc(rows, sizeof *g->fresh);
    if (!status && (!g->sequences || !g->ids || !g->segments || !g->logit_rows ||
                    !g->row_sequence || !g->fresh))
        status = pj_fail_memory(g->err, "the batch");
    for (uint32_t i = 0; i < g->count && !status; i++) status = prepare_sequence(g, i);
    if (!status && g->draft_tokens)
        status = pj_speculation_open(&g->speculation, e->draft, options.context, options.max_tokens,
                                     g->err);
    generate_end_span(g);
    return status;
}

/* ---- a token ------------------------------------------------------------------------------ */

/* Four interleaved hash streams hide the latency of the multiplication. */
static uint64_t hash_logits(uint64_t hash, const float *logits, size_t count)
{
    uint64_t h[4] = {hash, 1, 2, 3};
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        h[i % 4] = (h[i % 4] ^ bits) * 0x100000001b3u;
    }
    return ((h[0] * 31 + h[1]) * 31 + h[2]) * 31 + h[3];
}

static bool is_eos(const generation *g, int32_t id)
{
    const pj_model_config *c = &g->engine->model.config;
    for (uint32_t i = 0; i < c->eos_count && !g->request->ignore_eos; i++)
        if (c->eos[i] == id) return true;
    return false;
}

/* Appends the token's text to the reply. */
static pj_status append_text(generation *g, sequence_state *s, int32_t id)
{
    if (s->stream) return pj_token_stream_push(s->stream, id, &s->reply.text, g->err);
    char text[16];
    int n = snprintf(text, sizeof text, "%s%d", s->result->count > 1 ? " " : "", (int)id);
    pj_buffer_append(&s->reply.text, text, (size_t)n);
    return pj_buffer_status(&s->reply.text, "the generated text", g->err);
}

/* The next token by row `row` of the pass's results. */
static int32_t choose_id(generation *g, sequence_state *s, uint32_t row)
{
    size_t vocab = g->engine->model.config.vocab;
    if (g->greedy) return g->compute.ids[row];
    float *logits = g->compute.logits + row * vocab;
    g->result->logits_hash = hash_logits(g->result->logits_hash, logits, vocab);
    return pj_sampler_draw(&s->sampler, logits);
}

/* Samples the next token of sequence `index` from row `row` of the pass's logits. */
static pj_status generate_draw(generation *g, uint32_t index, uint32_t row)
{
    sequence_state *s = &g->sequences[index];
    pj_sequence_result *r = s->result;
    int32_t id = choose_id(g, s, row);
    pj_sampler_accept(&s->sampler, id, true);
    r->ids[r->count++] = id;
    g->result->output_tokens++;
    pj_status status = PJ_OK;
    if (is_eos(g, id))
        r->stop = PJ_STOP_EOS;
    else if (!(status = append_text(g, s, id)) && pj_reply_check(&s->reply))
        r->stop = PJ_STOP_STRING;
    else if (r->count == g->request->max_tokens)
        r->stop = PJ_STOP_LENGTH;
    if (r->stop && s->stream && !s->reply.stopped && !status) {
        status = pj_token_stream_finish(s->stream, &s->reply.text, g->err);
        if (pj_reply_check(&s->reply)) r->stop = PJ_STOP_STRING;
    }
    return status;
}

/* Records the sequence's new token, while its span is open, and keeps it for report_tokens. */
static void record_token(generation *g, uint32_t index)
{
    sequence_state *s = &g->sequences[index];
    const pj_sequence_result *r = s->result;
    pj_lane *lane = g->engine->instrument.lane;
    fresh_token *t = &g->fresh[g->fresh_count++];
    *t = (fresh_token){.sequence = index, .position = r->count - 1, .at = s->reply.given};
    const char *text = pj_reply_take(&s->reply, r->stop != PJ_STOP_NONE, &t->bytes);
    if (lane && g->request->is_private) /* reveals only which sequence the step belongs to */
        pj_token_text(lane, index, -1, NULL, 0);
    else if (lane)
        pj_token_text(lane, index, r->ids[t->position], text, t->bytes);
}

/* Samples for each of the `count` rows of logits of a pass, and records the tokens. */
static pj_status draw_all(generation *g, uint32_t count)
{
    pj_status status = PJ_OK;
    pj_instrument_section(&g->engine->instrument, PJ_N_SAMPLING);
    for (uint32_t i = 0; i < count && !status; i++)
        status = generate_draw(g, g->row_sequence[i], i);
    generate_end_span(g);
    for (uint32_t i = 0; i < count && !status; i++) record_token(g, g->row_sequence[i]);
    return status;
}

/* Passes the step's tokens on to the caller, outside their span. */
static void report_tokens(generation *g)
{
    for (uint32_t i = 0; i < g->fresh_count && g->request->on_token; i++) {
        const fresh_token *t = &g->fresh[i];
        const sequence_state *s = &g->sequences[t->sequence];
        g->request->on_token(g->request->context,
                             &(pj_generated){.sequence = t->sequence,
                                             .position = t->position,
                                             .text = pj_buffer_get(&s->reply.text) + t->at,
                                             .bytes = t->bytes,
                                             .context = s->result->prompt_count + t->position + 1,
                                             .context_limit = g->engine->context});
    }
    g->fresh_count = 0;
}

/* ---- prefill ------------------------------------------------------------------------------ */

/* One pass over as many prompt tokens as fit, of one or more sequences in order. `next` and `done`
 * are where the previous pass ended. Returns the number of prompts completed by it. */
static pj_status prefill_pass(generation *g, uint32_t *next, uint32_t *done, uint32_t *ended)
{
    uint32_t rows = 0, segments = 0, room = g->compute.options.max_tokens;
    *ended = 0;
    while (rows < room && *next < g->count) {
        const pj_sequence_result *r = &g->result->sequences[*next];
        uint32_t left = r->prompt_count - *done, n = left < room - rows ? left : room - rows;
        if (*done == 0)
            g->compute.sequences[*next].generation =
                pj_rope_generation(&g->engine->model.ropes[0], r->prompt_count);
        g->segments[segments++] = (pj_pass_segment){.sequence = *next, .row = rows, .count = n};
        memcpy(g->ids + rows, r->prompt_ids + *done, n * sizeof *g->ids);
        rows += n;
        *done += n;
        if (*done == r->prompt_count) {
            g->row_sequence[*ended] = *next;
            g->logit_rows[(*ended)++] = rows - 1;
            *done = 0;
            ++*next;
        }
    }
    return run_pass(g, rows, segments, *ended, true);
}

/* What the draft model computes is one part, beside those of the model that checks it. */
static void begin_draft(generation *g)
{
    pj_instrument *r = &g->engine->instrument;
    pj_instrument_section(r, PJ_N_DRAFT);
    if (r->module) pj_instrument_component(r, PJ_N_DRAFT_PASS, 0);
}

static void end_draft(generation *g)
{
    if (g->engine->instrument.module) generate_end_span(g);
    generate_end_span(g);
}

/* A head reads each pass's part of the prompt, `count` tokens, with what the pass computed. */
static pj_status follow_prompt(generation *g, uint32_t count)
{
    pj_speculation *p = &g->speculation;
    if (!pj_speculation_is_head(p)) return PJ_OK;
    begin_draft(g);
    pj_status status = pj_speculation_follow(p, &g->compute, g->ids, count, g->request->cancel);
    end_draft(g);
    return status;
}

/* Fills the draft's KV cache with the prompt. */
static pj_status prefill_draft(generation *g)
{
    const pj_sequence_result *r = &g->result->sequences[0];
    if (!g->draft_tokens || r->stop || pj_speculation_is_head(&g->speculation)) return PJ_OK;
    begin_draft(g);
    pj_status status =
        pj_speculation_feed(&g->speculation, r->prompt_ids, r->prompt_count, g->request->cancel);
    end_draft(g);
    return status;
}

static pj_status prefill(generation *g)
{
    int64_t begin = pj_clock_ns(), cpu_begin = pj_clock_process_cpu_ns();
    pj_status status = PJ_OK;
    bool wanted = g->request->max_tokens > 0;
    begin_phase(g, PJ_PHASE_PREFILL);
    begin_token(g, 0);
    for (uint32_t next = 0, done = 0, ended; next < g->count && !status;) {
        status = prefill_pass(g, &next, &done, &ended);
        if (!status && wanted && ended) status = draw_all(g, ended);
        if (!status && wanted) status = follow_prompt(g, g->segments[0].count);
    }
    if (!status && wanted) status = prefill_draft(g);
    generate_end_span(g);
    generate_end_span(g);
    g->result->prefill_ns = pj_clock_ns() - begin;
    g->result->prefill_cpu_ns = pj_clock_process_cpu_ns() - cpu_begin;
    for (uint32_t i = 0; i < g->count && !status && !wanted; i++)
        g->result->sequences[i].stop = PJ_STOP_LENGTH;
    if (!status) report_tokens(g);
    return status;
}

/* ---- decode ------------------------------------------------------------------------------- */

/* Recomputes keys of sequences that crossed a change of the RoPE frequencies. */
static pj_status follow_rope(generation *g, uint32_t sequence)
{
    const pj_sequence *q = &g->compute.sequences[sequence];
    return pj_engine_feed(g->engine, &g->compute, sequence, NULL, 0, q->length + 1, false,
                          g->request->cancel);
}

/* One token for every sequence that has not ended; *live is their number. */
static pj_status decode_step(generation *g, uint32_t *live)
{
    uint32_t rows = 0;
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < g->count && !status; i++) {
        const pj_sequence_result *r = &g->result->sequences[i];
        if (r->stop) continue;
        status = follow_rope(g, i);
        g->segments[rows] = (pj_pass_segment){.sequence = i, .row = rows, .count = 1};
        g->ids[rows] = r->ids[r->count - 1];
        g->logit_rows[rows] = rows;
        g->row_sequence[rows] = i;
        rows++;
    }
    *live = rows;
    if (!status) status = run_pass(g, rows, rows, rows, false);
    return status ? status : draw_all(g, rows);
}

/* How many tokens the draft may propose, limited so that the text does not end, and the RoPE
 * frequencies do not change, within the step. */
static uint32_t proposal_count(const generation *g)
{
    const pj_sequence_result *r = &g->result->sequences[0];
    const pj_rope *rope = &g->engine->model.ropes[0];
    uint32_t length = g->compute.sequences[0].length, n = g->draft_tokens;
    uint32_t left = g->request->max_tokens - r->count - 1;
    if (n > left) n = left;
    while (n && pj_rope_generation(rope, length + 1 + n) != pj_rope_generation(rope, length + 1))
        n--;
    return n;
}

/* Runs the pass over the last token and the proposals, with logits for each. */
static pj_status check_proposals(generation *g)
{
    const pj_sequence_result *r = &g->result->sequences[0];
    const pj_speculation *p = &g->speculation;
    uint32_t rows = 1 + p->count;
    g->segments[0] = (pj_pass_segment){.count = rows};
    g->ids[0] = r->ids[r->count - 1];
    memcpy(g->ids + 1, p->proposed, p->count * sizeof *g->ids);
    for (uint32_t i = 0; i < rows; i++) g->logit_rows[i] = i;
    return run_pass(g, rows, 1, rows, false);
}

/* Samples a token per position, until one differs from the proposal. */
static pj_status draw_checked(generation *g, uint32_t *accepted)
{
    const pj_sequence_result *r = &g->result->sequences[0];
    const pj_speculation *p = &g->speculation;
    pj_status status = PJ_OK;
    *accepted = 0;
    pj_instrument_section(&g->engine->instrument, PJ_N_SAMPLING);
    for (uint32_t i = 0; i <= p->count && !status; i++) {
        status = generate_draw(g, 0, i);
        if (status) break;
        record_token(g, 0);
        bool same = i < p->count && r->ids[r->count - 1] == p->proposed[i];
        *accepted += same;
        if (!same || r->stop) break;
    }
    generate_end_span(g);
    return status;
}

/* One step with a draft model: one to 1 + draft_tokens new tokens. */
static pj_status speculative_step(generation *g, uint32_t *drawn)
{
    pj_speculation *p = &g->speculation;
    const pj_sequence_result *r = &g->result->sequences[0];
    uint32_t first = r->count, accepted;
    pj_status status = follow_rope(g, 0);
    begin_draft(g);
    if (!status)
        status = pj_speculation_propose(p, &g->compute, r->ids + first, proposal_count(g),
                                        g->request->cancel);
    end_draft(g);
    if (!status) status = check_proposals(g);
    if (!status) status = draw_checked(g, &accepted);
    if (status) return status;
    *drawn = r->count - first;
    pj_compute_rewind(&g->compute, 0, *drawn);
    g->result->proposed += p->count;
    g->result->accepted += accepted;
    if (r->stop) return PJ_OK;
    pj_speculation_accept(p, accepted);
    if (p->count > 0 || p->draft->is_head) return PJ_OK;
    begin_draft(g);
    status = pj_speculation_feed(p, &r->ids[first - 1], 1, g->request->cancel);
    end_draft(g);
    return status;
}

static bool any_live(const generation *g)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (!g->result->sequences[i].stop) return true;
    return false;
}

static pj_status generate_decode(generation *g)
{
    pj_status status = PJ_OK;
    if (!any_live(g)) return PJ_OK;
    int64_t cpu_begin = pj_clock_process_cpu_ns();
    begin_phase(g, PJ_PHASE_DECODE);
    for (uint32_t position = 1, live; !status && any_live(g);
         position += g->draft_tokens ? live : 1) {
        if (pj_is_cancelled(g->request->cancel)) {
            status = PJ_E_CANCELLED;
            break;
        }
        int64_t begin = pj_clock_ns();
        begin_token(g, position);
        status = g->draft_tokens ? speculative_step(g, &live) : decode_step(g, &live);
        generate_end_span(g);
        if (status) break;
        g->result->decode_ns += pj_clock_ns() - begin;
        g->result->decode_steps++;
        report_tokens(g);
    }
    generate_end_span(g);
    g->result->decode_cpu_ns = pj_clock_process_cpu_ns() - cpu_begin;
    return status;
}

/* ---- after inference ---------------------------------------------------------------------- */

/* Decodes the whole text: equal to the streamed text, except that runs of byte tokens are decoded
 * together. A text ended by a stop string stays as it was streamed. */
static pj_status final_text(generation *g, sequence_state *s)
{
    pj_sequence_result *r = s->result;
    size_t count = r->count - (r->stop == PJ_STOP_EOS);
    if (s->stream && r->stop != PJ_STOP_STRING) {
        pj_buffer_clear(&s->reply.text);
        pj_status status =
            pj_tokenizer_decode(g->engine->tokenizer, r->ids, count, true, &s->reply.text, g->err);
        if (status) return status;
    }
    r->text_bytes = s->reply.text.length;
    r->text = r->text_bytes ? pj_buffer_take(&s->reply.text) : pj_strdup("");
    return r->text ? PJ_OK : pj_fail_memory(g->err, "the generated text");
}

static void generate_release(generation *g)
{
    for (uint32_t i = 0; i < g->count && g->sequences; i++) {
        pj_sampler_fini(&g->sequences[i].sampler);
        pj_token_stream_free(g->sequences[i].stream);
        pj_reply_fini(&g->sequences[i].reply);
    }
    pj_compute_close(&g->compute);
    pj_speculation_close(&g->speculation);
    pj_free(g->sequences);
    pj_free(g->ids);
    pj_free(g->segments);
    pj_free(g->logit_rows);
    pj_free(g->row_sequence);
    pj_free(g->fresh);
}

static pj_status generate_finish(generation *g, pj_status status)
{
    pj_instrument *instrument = &g->engine->instrument;
    begin_phase(g, PJ_PHASE_POST_INFERENCE);
    pj_instrument_section(instrument, PJ_N_DETOKENIZATION);
    pj_status text = PJ_OK;
    for (uint32_t i = 0; i < g->count && g->sequences && g->sequences[i].result && !text; i++)
        text = final_text(g, &g->sequences[i]);
    generate_end_span(g);
    pj_instrument_section(instrument, PJ_N_CLEANUP);
    generate_release(g);
    generate_end_span(g);
    generate_end_span(g);
    return status ? status : text;
}

static pj_status check_request(const pj_engine *e, const pj_generate_request *q, pj_error *err)
{
    uint32_t sequences = q->sequences ? q->sequences : q->prompt_count;
    if (q->prompt_count == 0) return pj_fail(err, PJ_E_INVALID, "there is no prompt");
    if (sequences > MAX_SEQUENCES)
        return pj_fail(err, PJ_E_INVALID, "a batch of %u exceeds the maximum of %u", sequences,
                       MAX_SEQUENCES);
    if (e->draft && sequences > 1)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "a draft model proposes tokens for one sequence, not for a batch of %u",
                       sequences);
    return pj_sampling_check(&q->sampling, err);
}

pj_status pj_engine_generate(pj_engine *engine, const pj_generate_request *request,
                             pj_generate_result *result, pj_error *err)
{
    generation g = {.engine = engine, .request = request, .result = result, .err = err};
    *result = (pj_generate_result){0};
    if (engine->draft)
        g.draft_tokens = request->draft_tokens ? request->draft_tokens : PJ_DRAFT_USUAL;
    if (g.draft_tokens > PJ_DRAFT_TOKENS) g.draft_tokens = PJ_DRAFT_TOKENS;
    pj_status status = check_request(engine, request, err);
    if (!status)
        status = pj_instrument_init(&engine->instrument, request->run, request->statistics, err);
    if (status) goto end_pre_inference;
    if (!request->in_pre_inference) begin_phase(&g, PJ_PHASE_PRE_INFERENCE);
    uint32_t count = request->sequences ? request->sequences : request->prompt_count;
    result->sequences = pj_alloc(count, sizeof *result->sequences);
    if (result->sequences)
        g.count = result->count = count;
    else
        status = pj_fail_memory(err, "the batch");
    if (!status) status = encode_prompts(&g);
    if (!status) status = record_prompts(&g);
    if (!status) status = generate_prepare(&g);
    generate_end_span(&g);
    if (!status) {
        status = prefill(&g);
        if (!status) status = generate_decode(&g);
        for (uint32_t i = 0; i < g.count; i++)
            if (!result->sequences[i].stop && status == PJ_E_CANCELLED)
                result->sequences[i].stop = PJ_STOP_CANCELLED;
        if (status == PJ_E_CANCELLED) pj_fail(err, PJ_E_CANCELLED, "the generation was cancelled");
    }
    status = generate_finish(&g, status);
    if (request->run)
        pj_run_set_tokens(request->run, result->input_tokens,
                          result->output_tokens ? result->output_tokens : PJ_NO_TOKENS);
    return status;
end_pre_inference:
    if (request->run && request->in_pre_inference) pj_span_end(pj_run_lane(request->run), NULL);
    return status;
}

void pj_generate_result_fini(pj_generate_result *result)
{
    for (uint32_t i = 0; i < result->count; i++) {
        pj_free(result->sequences[i].prompt_ids);
        pj_free(result->sequences[i].ids);
        pj_free(result->sequences[i].text);
    }
    pj_free(result->sequences);
    *result = (pj_generate_result){0};
}

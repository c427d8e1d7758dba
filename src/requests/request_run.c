/* Spans, readings and facts of one request. */
#include "requests/request_run.h"

#include "attribution/build.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "record/environment.h"
#include "trace/private_text.h"
#include "trace/request.h"
#include "trace/run_json.h"
#include "trace/thinking.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_WINDOW_NS (5 * PJ_NS_PER_MS)
#define LEAST_TOKEN_NS  50000 /* no server decodes a sequence at more than 20,000 tokens/s */

/* ---- times of phases ----------------------------------------------------------------------- */

static int64_t ns_of(double ms)
{
    return ms > 0 && ms < 1e12 ? (int64_t)(ms * 1e6) : 0;
}

/* For an unstreamed response, the duration of decode is known only from the server's timings. */
static void split_whole(pj_request_times *t, const pj_answer_timings *timings)
{
    int64_t decode_ns = ns_of(timings->decode_ms), all_ns = t->end_ns - t->prefill_ns;
    t->last_ns = t->end_ns;
    t->is_whole = true;
    t->is_one = decode_ns <= 0 || decode_ns > all_ns;
    t->first_ns = t->is_one ? t->prefill_ns : t->end_ns - decode_ns;
}

/* Whether its tokens tell nothing of when they were generated: all arrived at once, none has text,
 * or nobody knows how many an answer that was not streamed has. */
static bool came_as_a_whole(const pj_exchange *x, const pj_request_times *t)
{
    pj_exchange_counts c = pj_exchange_count(x);
    if (!x->first_ns) return c.output > 0;
    if (x->events.mode == PJ_EVENTS_WHOLE && c.output == 0) return true;
    uint64_t each = c.output / (x->choices ? x->choices : 1);
    int64_t least_ns = ((int64_t)each - 1) * LEAST_TOKEN_NS;
    return c.output > 1 && (t->first_ns >= t->end_ns - 1 || t->last_ns - t->first_ns < least_ns);
}

/* The server says how long it worked on the prompt: what came before, a queue or loading the model,
 * is no prefill. */
static void place_prefill(pj_request_times *t, const pj_answer_timings *timings)
{
    int64_t prompt_ns = ns_of(timings->prompt_ms), load_ns = t->load_end_ns - t->load_ns;
    if (!t->has_prefill || !prompt_ns || t->first_ns - prompt_ns < t->prefill_ns) return;
    t->prefill_ns = t->first_ns - prompt_ns;
    t->load_end_ns = t->prefill_ns;
    t->load_ns = t->prefill_ns - load_ns;
}

pj_request_times pj_request_times_of(const pj_exchange *x)
{
    const pj_answer_timings *timings = &x->answer.timings;
    pj_request_times t = {.begin_ns = x->sent_ns,
                          .first_ns = x->first_ns,
                          .last_ns = x->last_ns,
                          .end_ns = x->end_ns};
    if (!t.end_ns) t.end_ns = t.last_ns ? t.last_ns : t.begin_ns + 1;
    if (t.end_ns <= t.begin_ns) t.end_ns = t.begin_ns + 1;
    t.load_ns = t.load_end_ns = t.prefill_ns = t.begin_ns;
    int64_t latest = t.first_ns && t.first_ns < t.end_ns ? t.first_ns : t.end_ns;
    int64_t load_ns = ns_of(timings->load_ms);
    if (load_ns && load_ns < latest - t.begin_ns) {
        t.has_load = true;
        t.load_end_ns = t.prefill_ns = t.begin_ns + load_ns;
    }
    if (!t.first_ns) t.first_ns = t.last_ns = t.end_ns; /* without a token everything is prefill */
    if (came_as_a_whole(x, &t)) split_whole(&t, timings);
    t.has_prefill = !t.is_one;
    place_prefill(&t, timings);
    return t;
}

/* ---- facts ---------------------------------------------------------------------------------- */

static void request_run_number(pj_json *json, const char *key, double value)
{
    if (!isnan(value) && value >= 0) pj_json_kv_double(json, key, value);
}

static void write_timings(pj_json *json, const pj_answer *a)
{
    request_run_number(json, "server_prompt_ms", a->timings.prompt_ms);
    request_run_number(json, "server_decode_ms", a->timings.decode_ms);
    request_run_number(json, "server_load_ms", a->timings.load_ms);
    request_run_number(json, "server_draft_tokens", (double)a->draft_tokens);
    request_run_number(json, "server_draft_accepted", (double)a->draft_accepted);
}

/* Parameters and outcome of the request, as the run's settings. */
static const char *request_run_write_settings(const pj_request_origin *origin, const pj_exchange *x,
                                              pj_arena *arena)
{
    const pj_answer *a = &x->answer;
    const pj_exchange_request *request = &x->asked;
    pj_exchange_counts counts = pj_exchange_count(x);
    pj_json json;
    pj_json_open(&json, 1 << 16);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "url", origin->url);
    pj_json_kv_bool(&json, "stream", request->wants_stream);
    request_run_number(&json, "max_tokens", (double)request->max_tokens);
    if (origin->concurrency) pj_json_kv_uint(&json, "concurrency", origin->concurrency);
    if (x->status) pj_json_kv_int(&json, "http_status", x->status);
    if (a->finish_reason[0]) pj_json_kv_string(&json, "finish_reason", a->finish_reason);
    if (request->session[0]) pj_json_kv_string(&json, "session", request->session);
    if (x->first_ns) request_run_number(&json, "ttft_ms", (double)(x->first_ns - x->sent_ns) / 1e6);
    write_timings(&json, a);
    request_run_number(&json, PJ_SETTING_REASONING, (double)pj_exchange_reasoning(x));
    if (request->offers_tools || a->tool_calls)
        pj_json_kv_int(&json, PJ_SETTING_TOOL_CALLS, a->tool_calls);
    pj_json_kv_bool(&json, "tokens_approximate", counts.approximate);
    pj_experiment_cell_write(origin->cell_id, &json);
    pj_json_object_end(&json);
    return pj_json_keep(&json, arena);
}

static const char *private_features(const char *text, size_t bytes, pj_arena *arena)
{
    pj_json json;
    pj_json_open(&json, 1 << 16);
    pj_private_text_write(&json, text, bytes);
    return pj_json_keep(&json, arena);
}

static const char *request_run_keep(pj_arena *arena, const char *text, bool *failed)
{
    const char *copy = text && *text ? pj_arena_strndup(arena, text, strlen(text)) : NULL;
    if (text && *text && !copy) *failed = true;
    return copy;
}

static const char *make_tag(pj_arena *arena, const char *begin, const char *name, bool *failed)
{
    size_t bytes = strlen(begin) + strlen(name) + 1;
    char *tag = pj_arena_alloc(arena, bytes, 1);
    if (tag)
        snprintf(tag, bytes, "%s%s", begin, name);
    else
        *failed = true;
    return tag;
}

/* Those of all requests, and what the request says of its session and its client. */
static void set_tags(const pj_request_origin *origin, const pj_exchange *x, pj_arena *arena,
                     pj_run_info *info, bool *failed)
{
    const char *session = x->asked.session, *client = x->asked.client, *task = NULL;
    info->tags = origin->tags;
    while (origin->tags && origin->tags[info->tag_count]) info->tag_count++;
    if (!session[0]) task = pj_environment_session(info->tags, info->tag_count);
    if (task) session = task;
    if (!session[0] && !x->asked.names_client) return;
    const char **tags = pj_arena_alloc(arena, (size_t)info->tag_count + 3, sizeof *tags);
    *failed |= !tags;
    if (!tags) return;
    for (uint32_t i = 0; i < info->tag_count; i++) tags[i] = origin->tags[i];
    info->tags = tags;
    if (session[0]) tags[info->tag_count] = make_tag(arena, PJ_TAG_SESSION, session, failed);
    if (session[0] && !*failed) info->tag_count++;
    if (x->asked.names_client)
        tags[info->tag_count] = make_tag(arena, PJ_TAG_CLIENT, client, failed);
    if (x->asked.names_client && !*failed) info->tag_count++;
}

static void set_texts(const pj_request_origin *origin, const pj_exchange *x, pj_arena *arena,
                      pj_run_info *info)
{
    const char *prompt = x->asked.prompt, *output = pj_exchange_text(x);
    if (!origin->is_private) {
        bool failed = false;
        info->prompt = request_run_keep(arena, prompt, &failed);
        return;
    }
    info->prompt_private =
        private_features(prompt ? prompt : "", prompt ? strlen(prompt) : 0, arena);
    if (x->end_ns) info->output_private = private_features(output, strlen(output), arena);
}

pj_status pj_request_info(const pj_request_origin *origin, const pj_exchange *x, const char *id,
                          int64_t wall_ns, const char *allocation, pj_arena *arena,
                          pj_run_info *info, pj_error *err)
{
    const pj_answer *a = &x->answer;
    const char *requested = x->asked.model;
    pj_exchange_counts counts = pj_exchange_count(x);
    bool failed = false;
    pj_run_info_init(info);
    info->batch_size = 1;
    info->created_wall_ns = wall_ns;
    info->monotonic_ms = (double)x->sent_ns / 1e6;
    snprintf(info->id, sizeof info->id, "%s", id);
    set_texts(origin, x, arena, info);
    info->model_name = request_run_keep(arena,
                                        a->model[0]    ? a->model
                                        : requested[0] ? requested
                                                       : origin->model_name,
                                        &failed);
    info->engine = origin->engine;
    info->scope = "request";
    info->level = "coarse";
    info->experiment_name = origin->experiment_name;
    set_tags(origin, x, arena, info, &failed);
    info->machine = origin->session->machine.name;
    info->machine_json = origin->session->machine.json;
    info->settings_json = request_run_write_settings(origin, x, arena);
    info->failure =
        x->outcome == PJ_EXCHANGE_FAILED ? request_run_keep(arena, x->failure, &failed) : NULL;
    info->input_tokens = counts.input > 0 ? (uint64_t)counts.input : 0;
    info->output_tokens = counts.output;
    info->cached_tokens = counts.cached >= 0 ? (double)counts.cached : NAN;
    info->allocation = allocation;
    info->quality = origin->quality;
    info->power_sources = origin->power_sources;
    info->partial_rails = origin->partial_rails;
    return failed ? pj_fail_memory(err, "a run") : PJ_OK;
}

/* ---- rails and readings: the share as a counter --------------------------------------------- */

/* The uncertainty is added later (widen_uncertainties). */
pj_rail pj_request_rail(const pj_request_origin *origin, uint32_t r, double sd_mj)
{
    pj_rail rail = origin->rails[r];
    rail.kind = PJ_RAIL_COUNTER;
    rail.period_ns = 20 * PJ_NS_PER_MS;
    rail.window_ns = rail.delay_ns = rail.lag_ns = 0;
    rail.grid_ns = rail.log_ns = 0;
    /* the difference of two values, each with an error of up to half a step */
    rail.resolution = sd_mj > 0 ? sd_mj * 1e3 * sqrt(6) : 0;
    rail.modulus_uj = 0;
    rail.gain = 1;
    return rail;
}

pj_reading pj_request_reading(const pj_ledger_series *s, size_t point, uint32_t rail,
                              bool after_gap, uint32_t sequence)
{
    return (pj_reading){.before_ns = s->t_ns[point],
                        .after_ns = s->t_ns[point],
                        .fresh_ns = s->t_ns[point],
                        .value = s->mj[point * s->rail_count + rail] * 1e3,
                        .rail = (uint16_t)rail,
                        .status = after_gap ? PJ_READING_RESET : PJ_READING_OK,
                        .sequence = sequence};
}

/* Very short windows cost more than they are worth: a point too close to the previous one is
 * dropped and its energy is part of the next. The first and last points stay. */
static bool is_written(const pj_ledger_series *s, size_t i, int64_t last_ns)
{
    if (i == 0 || i + 1 == s->count) return true;
    return s->t_ns[i] - last_ns >= LEAST_WINDOW_NS &&
           s->t_ns[s->count - 1] - s->t_ns[i] >= LEAST_WINDOW_NS;
}

static void put_readings(pj_spool_writer *w, const pj_ledger_series *s, uint32_t r)
{
    bool gap = false;
    int64_t last_ns = 0;
    for (size_t i = 0; i < s->count; i++) {
        double mj = s->mj[i * s->rail_count + r];
        gap |= isnan(mj);
        if (isnan(mj) || !is_written(s, i, last_ns)) continue;
        pj_reading reading = pj_request_reading(s, i, r, gap, (uint32_t)i);
        pj_spool_put_reading(w, &reading);
        gap = false;
        last_ns = s->t_ns[i];
    }
}

/* 1 sigma, without the gain, of the machine's energy over the request, scaled by the share. */
static double share_sd_mj(const pj_request_parts *p)
{
    double square = 0;
    for (uint32_t r = 0; r < p->origin->rail_count; r++)
        if (pj_rail_in_column(p->origin->rails, p->origin->rail_count, r, PJ_RAIL_TOTAL))
            square += p->sd_mj[r] * p->sd_mj[r];
    return sqrt(square);
}

/* Whether the sensors resolve a request this short. */
static bool is_resolved(const pj_request_parts *p)
{
    return !p->allocation || isnan(p->total_mj) || 1.96 * share_sd_mj(p) <= p->total_mj;
}

static void put_power(pj_spool_writer *w, const pj_request_parts *p, const pj_request_times *t)
{
    if (!p->allocation) return;
    double seconds = (double)(t->end_ns - t->begin_ns) * 1e-9;
    for (uint32_t r = 0; r < p->origin->rail_count; r++) {
        pj_rail rail = pj_request_rail(p->origin, r, 0);
        pj_spool_put_rail(w, r, &rail, p->idle_mj[r] / seconds, p->idle_sd_mj[r] / seconds);
    }
    for (uint32_t r = 0; r < p->series.rail_count && is_resolved(p); r++)
        put_readings(w, &p->series, r);
}

/* ---- spans ---------------------------------------------------------------------------------- */

typedef struct spans {
    pj_spool_writer *w;
    uint32_t serial;
} spans;

static void request_run_put_span(spans *s, uint32_t serial, pj_span_kind kind, uint32_t id,
                                 pj_phase phase, int64_t begin_ns, int64_t end_ns)
{
    pj_span span =
        pj_span_make(serial, kind, id, phase, begin_ns, end_ns > begin_ns ? end_ns : begin_ns + 1);
    pj_spool_put_span(s->w, &span);
}

static void put_phase(spans *s, uint32_t serial, pj_phase phase, int64_t begin_ns, int64_t end_ns)
{
    request_run_put_span(s, serial, PJ_SPAN_PHASE, (uint32_t)phase, phase, begin_ns, end_ns);
}

static void request_run_put_text(spans *s, uint32_t serial, const pj_exchange_token *token)
{
    struct {
        pj_token_text_record head;
        char text[256];
    } record = {.head = {.span_serial = serial, .token_id = token->id}};
    size_t n = pj_utf8_cut(token->text, token->bytes, sizeof record.text - 1);
    memcpy(record.text, token->text, n);
    pj_spool_put(s->w, PJ_RECORD_TOKEN_TEXT, &record, sizeof record.head + n);
}

/* Before the prompt: waiting, and loading the model. */
static void put_preparation(spans *s, const pj_request_times *t)
{
    if (t->prefill_ns <= t->begin_ns) return;
    uint32_t phase = s->serial++, section = s->serial++;
    if (t->has_load) {
        pj_spool_put_name(s->w, 1, "model_load");
        request_run_put_span(s, section, PJ_SPAN_SECTION, 1, PJ_PHASE_PRE_INFERENCE, t->load_ns,
                             t->load_end_ns);
    }
    put_phase(s, phase, PJ_PHASE_PRE_INFERENCE, t->begin_ns, t->prefill_ns);
}

/* Token times are strictly increasing, even if several arrive at once; the last ends decode. All
 * tokens of an answer that came as a whole share decode equally. */
static int64_t token_end(const pj_request_times *t, const pj_exchange_token *tokens, size_t count,
                         size_t index, int64_t begin_ns)
{
    size_t before = t->has_prefill ? 1 : 0; /* in prefill */
    double share = (double)(index + 1 - before) / (double)(count - before);
    int64_t end_ns = t->is_whole
                         ? t->first_ns + (int64_t)((double)(t->last_ns - t->first_ns) * share)
                         : tokens[index].at_ns;
    return end_ns > begin_ns ? end_ns : begin_ns + 1;
}

static void put_tokens(spans *s, const pj_request_times *t, const pj_exchange_token *tokens,
                       size_t count)
{
    uint32_t phase = s->serial++;
    size_t first = 0;
    if (t->has_prefill) {
        uint32_t serial = s->serial++;
        if (count) {
            request_run_put_text(s, serial, &tokens[0]);
            request_run_put_span(s, serial, PJ_SPAN_TOKEN, 0, PJ_PHASE_PREFILL, t->prefill_ns,
                                 t->first_ns);
        }
        put_phase(s, phase, PJ_PHASE_PREFILL, t->prefill_ns, t->first_ns);
        phase = s->serial++;
        first = 1;
    }
    if (t->is_one && !count) put_phase(s, phase, PJ_PHASE_DECODE, t->first_ns, t->end_ns);
    if (first >= count) return;
    int64_t at_ns = t->first_ns;
    for (size_t i = first; i < count; i++) {
        uint32_t serial = s->serial++;
        int64_t end_ns = token_end(t, tokens, count, i, at_ns);
        if (end_ns > t->end_ns) end_ns = t->end_ns; /* fewer nanoseconds than tokens */
        if (end_ns <= at_ns) break;
        request_run_put_text(s, serial, &tokens[i]);
        request_run_put_span(s, serial, PJ_SPAN_TOKEN, (uint32_t)i, PJ_PHASE_DECODE, at_ns, end_ns);
        at_ns = end_ns;
    }
    if (at_ns > t->first_ns) put_phase(s, phase, PJ_PHASE_DECODE, t->first_ns, at_ns);
    if (t->end_ns > at_ns + 1000)
        put_phase(s, s->serial++, PJ_PHASE_POST_INFERENCE, at_ns, t->end_ns);
}

static void put_spans(pj_spool_writer *w, const pj_request_parts *p, const pj_request_times *t)
{
    size_t count;
    spans s = {.w = w};
    pj_exchange_token *tokens = pj_exchange_tokens(p->exchange, &count);
    put_preparation(&s, t);
    put_tokens(&s, t, tokens, count);
    pj_free(tokens);
}

/* ---- warnings ------------------------------------------------------------------------------- */

static void put_uncounted(pj_spool_writer *w, const pj_exchange *x, const pj_exchange_counts *c,
                          int64_t at_ns)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %s",
             c->contradictory ? "the server's token count is implausible"
                              : "the server reported neither usage nor token ids",
             x->events.mode == PJ_EVENTS_WHOLE ? "the number of output tokens is unknown"
                                               : "its chunks were counted as tokens");
    pj_spool_put_warning(w, at_ns, "tokens_approximate", text);
}

static void put_warnings(pj_spool_writer *w, const pj_request_parts *p, const pj_request_times *t)
{
    pj_exchange_counts counts = pj_exchange_count(p->exchange);
    unsigned long long malformed = p->exchange->answer.malformed;
    char text[160];
    for (uint32_t i = 0; i < p->warning_count; i++)
        pj_spool_put_warning(w, p->warnings[i].t_ns, p->warnings[i].code, p->warnings[i].text);
    if (counts.approximate) put_uncounted(w, p->exchange, &counts, t->end_ns);
    if (counts.contradictory)
        pj_spool_put_warning(w, t->end_ns, "usage_contradicts",
                             "the server's usage figures contradict its answer or each "
                             "other: countable figures are shown");
    if (t->is_one)
        pj_spool_put_warning(
            w, t->end_ns, "phases_unknown",
            "the answer came as a whole and the server reported no times: prefill "
            "and decode cannot be separated; decode contains both, and its tokens have equal "
            "shares");
    if (malformed) {
        snprintf(text, sizeof text, "%llu events of the answer could not be read", malformed);
        pj_spool_put_warning(w, t->end_ns, "events_malformed", text);
    }
}

/* ---- exact energies ---------------------------------------------------------------------- */

/* Rows are differences of the cumulative share, which is known at every time: no fit is needed.
 * Rows add up to the nanojoule because neighbours share their boundary. */
typedef struct share_curve {
    const pj_request_parts *p;
    int64_t begin_ns;
    double idle_mw; /* of the total; NAN: unknown */
    bool in_total[PJ_MAX_RAILS];
} share_curve;

static double rail_at(const share_curve *c, uint32_t rail, int64_t t_ns)
{
    const pj_ledger_series *s = &c->p->series;
    size_t low = 0, high = s->count - 1;
    if (t_ns <= s->t_ns[0]) return 0;
    if (t_ns >= s->t_ns[high]) return s->mj[high * s->rail_count + rail];
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(s->t_ns[middle] <= t_ns ? &low : &high) = middle;
    }
    double before = s->mj[low * s->rail_count + rail], after = s->mj[high * s->rail_count + rail];
    return before + (after - before) * (double)(t_ns - s->t_ns[low]) /
                        (double)(s->t_ns[high] - s->t_ns[low]);
}

static double request_run_total_at(const share_curve *c, int64_t t_ns)
{
    double sum = 0;
    for (uint32_t r = 0; r < c->p->series.rail_count; r++)
        if (c->in_total[r]) sum += rail_at(c, r, t_ns);
    return sum;
}

static int64_t request_run_moment(const share_curve *c, double ms)
{
    return c->begin_ns + llround(ms * 1e6);
}

static void set_energy(const share_curve *c, double start_ms, double duration_ms, pj_energy *e)
{
    int64_t from = request_run_moment(c, start_ms),
            to = request_run_moment(c, start_ms + duration_ms);
    e->gross_nj =
        llround(request_run_total_at(c, to) * 1e6) - llround(request_run_total_at(c, from) * 1e6);
    e->self_nj = e->gross_nj;
    e->net_nj = isnan(c->idle_mw)
                    ? PJ_NJ_UNKNOWN
                    : e->gross_nj - llround(c->idle_mw * (double)(to - from) * 1e-9 * 1e6);
    e->method = c->p->is_shared ? PJ_METHOD_ALLOCATED : PJ_METHOD_INTEGRATE;
}

static void set_rows(const share_curve *c, pj_run_data *d)
{
    for (uint32_t i = 0; i < d->phase_count; i++)
        set_energy(c, d->phases[i].start_ms, d->phases[i].duration_ms, &d->phases[i].energy);
    for (uint32_t i = 0; i < d->section_count; i++) {
        pj_section_row *row = &d->sections[i];
        set_energy(c, row->start_ms, row->duration_ms, &row->energy);
        d->phases[row->phase].energy.self_nj -= row->energy.gross_nj;
    }
    for (uint32_t i = 0; i < d->token_count; i++) {
        pj_token_row *row = &d->tokens[i];
        set_energy(c, row->start_ms, row->duration_ms, &row->energy);
        d->phases[row->phase].energy.self_nj -= row->energy.gross_nj;
        row->power_mw = pj_mj_of_nj(row->energy.gross_nj) / row->duration_ms * 1e3;
    }
}

static void request_run_set_rails(const share_curve *c, pj_run_data *d)
{
    for (uint32_t i = 0; i < d->rail_energy_count; i++) {
        pj_rail_energy *row = &d->rail_energy[i];
        double mj = 0, ms = 0;
        for (uint32_t k = 0; k < d->phase_count; k++) {
            const pj_phase_row *phase = &d->phases[k];
            if (row->phase != PJ_PHASE_COUNT && row->phase != phase->phase) continue;
            mj +=
                rail_at(c, row->rail, request_run_moment(c, phase->start_ms + phase->duration_ms)) -
                rail_at(c, row->rail, request_run_moment(c, phase->start_ms));
            ms += phase->duration_ms;
        }
        row->gross_mj = mj;
        if (!isnan(row->net_mj)) row->idle_mj = d->baseline_mw[row->rail] * ms * 1e-3;
        row->net_mj = mj - row->idle_mj;
    }
}

static void request_run_set_figures(const share_curve *c, pj_run_data *d)
{
    pj_run_info *info = &d->info;
    int64_t gross = 0, idle = 0, load = 0;
    double idle_ms = 0;
    info->prefill_mj = info->decode_mj = info->prefill_net_mj = info->decode_net_mj = NAN;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        const pj_phase_row *row = &d->phases[i];
        double mj = pj_mj_of_nj(row->energy.gross_nj), net = pj_mj_of_nj(row->energy.net_nj);
        gross += row->energy.gross_nj;
        if (row->phase == PJ_PHASE_IDLE) idle += row->energy.gross_nj, idle_ms += row->duration_ms;
        if (row->phase == PJ_PHASE_PREFILL) info->prefill_mj = mj, info->prefill_net_mj = net;
        if (row->phase == PJ_PHASE_DECODE) info->decode_mj = mj, info->decode_net_mj = net;
    }
    for (uint32_t i = 0; i < d->section_count; i++) load += d->sections[i].energy.gross_nj;
    double load_ms = d->section_count ? d->sections[0].duration_ms : 0;
    info->total_mj = (double)gross / 1e6;
    info->idle_mj = c->idle_mw * info->total_ms * 1e-3;
    if (!c->p->is_shared) info->method = PJ_METHOD_INTEGRATE;
    info->net_mj = info->total_mj - info->idle_mj;
    info->model_load_mj = d->section_count ? (double)load / 1e6 : NAN;
    info->request_mj = (double)(gross - idle - load) / 1e6;
    info->request_net_mj =
        info->request_mj - c->idle_mw * (info->total_ms - idle_ms - load_ms) * 1e-3;
    pj_request_typical(d, NULL);
}

/* Replaces the fit's result, inaccurate with few windows, by the share itself; false: it has gaps.
 */
static bool set_exactly(pj_run_data *d, const pj_request_parts *p)
{
    const pj_ledger_series *s = &p->series;
    share_curve c = {.p = p, .begin_ns = p->exchange->sent_ns};
    if (!p->allocation || s->count < 2 || isnan(d->info.total_mj) || !d->phase_count) return false;
    for (uint32_t r = 0; r < s->rail_count; r++) {
        c.in_total[r] =
            pj_rail_in_column(p->origin->rails, p->origin->rail_count, r, PJ_RAIL_TOTAL);
        for (size_t i = 0; i < s->count; i++)
            if (isnan(s->mj[i * s->rail_count + r])) return false;
    }
    /* unknown, too, where less than idle power was drawn, which the fit has found */
    c.idle_mw = isnan(d->info.net_mj)
                    ? NAN
                    : pj_rail_column_sum(d->rails, d->rail_count, d->baseline_mw, PJ_RAIL_TOTAL);
    set_rows(&c, d);
    request_run_set_rails(&c, d);
    request_run_set_figures(&c, d);
    return true;
}

/* An answer that came as a whole, without its server's times, is one span, called decode: what of
 * it was the prompt's is not known, and nothing of either is a figure of the run. */
static void leave_undivided(pj_run_info *info)
{
    info->prefill_mj = info->decode_mj = info->prefill_net_mj = info->decode_net_mj = NAN;
}

/* ---- uncertainty ---------------------------------------------------------------------------- */

/* The uncertainty due to the unknown position of the sensor's windows is the same for intervals of
 * any length, but at most the interval's energy. What the fit was uncertain of, to which a share
 * that others make vary looks like noise, remains where its result does. */
static void widen_sd(double mj, double sd_mj, bool exact, pj_sd *sd, float *all)
{
    double own = sd->random_mj > 0 && !exact ? (double)sd->random_mj : 0;
    if (isnan(mj) || !(sd_mj > 0)) return;
    sd->random_mj = (float)hypot(own, fmin(sd_mj, fabs(mj)));
    *all = (float)pj_sd_total(sd);
}

static void widen_energy(pj_energy *e, double sd_mj, bool exact)
{
    double mj = pj_mj_of_nj(e->gross_nj);
    widen_sd(mj, sd_mj, exact, &e->sd, &e->sd_mj);
    widen_sd(mj, sd_mj, exact, &e->net_sd, &e->net_sd_mj);
}

static void widen_figure(double mj, double sd_mj, bool exact, pj_sd *sd, double *all)
{
    float single = (float)*all;
    widen_sd(mj, sd_mj, exact, sd, &single);
    *all = (double)single;
}

static void widen_run(pj_run_info *info, double sd_mj, bool exact)
{
    widen_figure(info->total_mj, sd_mj, exact, &info->total_sd, &info->total_sd_mj);
    widen_figure(info->total_mj, sd_mj, exact, &info->net_sd, &info->net_sd_mj);
    widen_figure(info->request_mj, sd_mj, exact, &info->request_sd, &info->request_sd_mj);
    widen_figure(info->request_mj, sd_mj, exact, &info->request_net_sd, &info->request_net_sd_mj);
}

static void request_run_withdraw(pj_run_data *d, const pj_request_parts *p)
{
    d->info.absence = PJ_ABSENT_BELOW_RESOLUTION;
    d->info.upper_mj = p->total_mj + 1.96 * share_sd_mj(p);
    for (uint32_t i = 0; i < d->phase_count; i++)
        d->phases[i].energy.absence = PJ_ABSENT_BELOW_RESOLUTION;
}

static void widen_uncertainties(pj_run_data *d, const pj_request_parts *p, bool exact)
{
    double sd_mj = share_sd_mj(p);
    if (!p->allocation) return;
    if (!is_resolved(p)) {
        request_run_withdraw(d, p);
        return;
    }
    for (uint32_t i = 0; i < d->phase_count; i++) widen_energy(&d->phases[i].energy, sd_mj, exact);
    for (uint32_t i = 0; i < d->section_count; i++)
        widen_energy(&d->sections[i].energy, sd_mj, exact);
    for (uint32_t i = 0; i < d->token_count; i++) widen_energy(&d->tokens[i].energy, sd_mj, exact);
    widen_run(&d->info, sd_mj, exact);
}

/* ---- the run -------------------------------------------------------------------------------- */

pj_status pj_request_build(const pj_request_parts *p, pj_run_data *data, pj_error *err)
{
    static const pj_run_status statuses[] = {PJ_RUN_INTERRUPTED, PJ_RUN_COMPLETED, PJ_RUN_FAILED,
                                             PJ_RUN_CANCELLED};
    pj_spool spool;
    pj_spool_writer w = {.spool = &spool, .err = err};
    pj_arena arena;
    pj_run_info info;
    pj_request_times t = pj_request_times_of(p->exchange);
    *data = (pj_run_data){0};
    pj_arena_init(&arena, 0);
    w.status = pj_spool_create(NULL, p->id, t.begin_ns, p->wall_ns, &spool, err);
    if (w.status == PJ_OK)
        w.status = pj_request_info(p->origin, p->exchange, p->id, p->wall_ns,
                                   p->is_shared ? p->allocation : NULL, &arena, &info, err);
    pj_spool_put_info(&w, &info, t.begin_ns);
    put_power(&w, p, &t);
    put_spans(&w, p, &t);
    put_warnings(&w, p, &t);
    pj_spool_put_end(&w, t.end_ns, statuses[p->exchange->outcome]);
    if (pj_build_written(&w, data) == PJ_OK) {
        widen_uncertainties(data, p, set_exactly(data, p));
        if (t.is_one) leave_undivided(&data->info);
        if (!data->info.absence) w.status = pj_thinking_find(data, err); /* of the exact tokens */
    }
    pj_arena_fini(&arena);
    return w.status;
}

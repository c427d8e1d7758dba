/* Turns records into events. Keeps names, open tokens and the parts of the token being shown;
 * everything is bounded, and what exceeds a bound is stored but not sent live. */
#include "record/live_feed.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "trace/recorder.h"

#include <math.h>
#include <string.h>

enum {
    MAX_PARTS = 4096,
    MAX_TEXTS = 256,
    MAX_SAMPLES = 256,
    MAX_CHANGES = 64,
    SHOW_EVERY_NS = 50 * 1000 * 1000
};

typedef struct token_text {
    uint32_t sequence;
    int32_t token_id;
    char text[264];
} token_text;

typedef struct utf8_rest { /* bytes of an incomplete UTF-8 character */
    char bytes[4];
    uint8_t count;
} utf8_rest;

typedef struct phase_change {
    int64_t at_ns;
    pj_phase phase;
} phase_change;

struct pj_live_feed {
    const pj_live_sink *sink;
    const char *run_id;
    int64_t start_ns;
    pj_meter *meter;
    const pj_rail *rails;
    uint32_t rail_count;
    pj_curve *curves[PJ_MAX_RAILS]; /* NULL for rails that are in no column */
    bool in_column[PJ_RAIL_TOTAL + 1][PJ_MAX_RAILS];
    double last_mw[PJ_MAX_RAILS];
    phase_change changes[MAX_CHANGES]; /* the latest ones, oldest first */
    uint32_t change_count;
    char **names;
    uint32_t name_count;
    bool shown;         /* the open token's stages and parts are sent */
    int64_t shown_ns;   /* begin of the last such token */
    int64_t context_ns; /* when the running layer was last reported */
    pj_context context; /* as last reported */
    int64_t load_ns;    /* when the progress of the load was last reported */
    uint32_t loaded;    /* layers, as last reported; UINT32_MAX: not yet */
    token_text texts[MAX_TEXTS];
    uint32_t text_count;
    utf8_rest rest[MAX_TEXTS]; /* by sequence */
    pj_live_part parts[MAX_PARTS];
    pj_stats part_stats[MAX_PARTS];
    uint32_t part_count;
    pj_live_power samples[MAX_SAMPLES];
    int64_t sample_ns[MAX_SAMPLES];
    int64_t logged_ns; /* up to which samples came from a log */
    uint32_t sample_count;
};

static double live_feed_ms_of(const pj_live_feed *feed, int64_t ns)
{
    return (double)(ns - feed->start_ns) / 1e6;
}

static const char *live_feed_name_of(const pj_live_feed *feed, uint32_t id)
{
    return id > 0 && id <= feed->name_count && feed->names[id] ? feed->names[id] : "";
}

pj_status pj_live_feed_open(const pj_live_sink *sink, const char *run_id, int64_t start_ns,
                            pj_meter *meter, pj_live_feed **out, pj_error *err)
{
    pj_live_feed *feed = pj_alloc(1, sizeof *feed);
    *out = NULL;
    if (!feed) return pj_fail_memory(err, "live events");
    feed->sink = sink;
    feed->run_id = run_id;
    feed->start_ns = start_ns;
    feed->meter = meter;
    feed->loaded = UINT32_MAX;
    feed->context = (pj_context){.token = -1, .layer = -1};
    if (meter) feed->rails = pj_meter_rails(meter, &feed->rail_count);
    for (uint32_t r = 0; r < feed->rail_count; r++) {
        bool used = false;
        for (int c = 0; c <= PJ_RAIL_TOTAL; c++)
            used |= feed->in_column[c][r] =
                pj_rail_in_column(feed->rails, feed->rail_count, r, (pj_rail_class)c);
        feed->last_mw[r] = NAN;
        if (!used && feed->rails[r].log_ns == 0) continue;
        feed->curves[r] = pj_curve_new(&feed->rails[r]);
        if (!feed->curves[r]) {
            pj_live_feed_close(feed);
            return pj_fail_memory(err, "live events");
        }
    }
    pj_curves_link(feed->curves, feed->rails, feed->rail_count);
    *out = feed;
    return PJ_OK;
}

void pj_live_feed_close(pj_live_feed *feed)
{
    if (!feed) return;
    for (uint32_t r = 0; r < feed->rail_count; r++) pj_curve_free(feed->curves[r]);
    for (uint32_t i = 1; i <= feed->name_count; i++) pj_free(feed->names[i]);
    pj_free(feed->names);
    pj_free(feed);
}

/* ---- power --------------------------------------------------------------------------------- */

/* The phase in which a reading was taken, as far as known from the records so far. */
static pj_phase live_feed_phase_at(const pj_live_feed *feed, int64_t at_ns)
{
    for (uint32_t i = feed->change_count; i > 0; i--)
        if (feed->changes[i - 1].at_ns <= at_ns) return feed->changes[i - 1].phase;
    return PJ_PHASE_IDLE;
}

/* Readings come before the records of a round; their phases are known only now. */
void pj_live_feed_flush(pj_live_feed *feed)
{
    for (uint32_t i = 0; i < feed->sample_count; i++)
        feed->samples[i].phase = live_feed_phase_at(feed, feed->sample_ns[i]);
    if (feed->sample_count && feed->sink->power)
        feed->sink->power(feed->sink->context, feed->run_id, feed->samples, feed->sample_count);
    feed->sample_count = 0;
}

/* Sum of a column's rails; NAN while any of them has no value. */
static double live_feed_column_mw(const pj_live_feed *feed, int column)
{
    double sum = NAN;
    for (uint32_t r = 0; r < feed->rail_count; r++) {
        if (!feed->in_column[column][r]) continue;
        if (isnan(feed->last_mw[r])) return NAN;
        sum = (isnan(sum) ? 0 : sum) + feed->last_mw[r];
    }
    return sum;
}

/* A run without a power source has no meter. */
static pj_source_quality quality_of(const pj_live_feed *feed)
{
    return feed->meter ? pj_meter_quality(feed->meter) : PJ_UNAVAILABLE;
}

/* A sample whenever the rail that leads a round has a new value: one row for all rails. */
static void add_sample(pj_live_feed *feed, int64_t at_ns)
{
    if (feed->sample_count == MAX_SAMPLES) pj_live_feed_flush(feed);
    feed->sample_ns[feed->sample_count] = at_ns;
    pj_live_power *s = &feed->samples[feed->sample_count++];
    *s = (pj_live_power){.t_ms = live_feed_ms_of(feed, at_ns)};
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++) s->mw[c] = live_feed_column_mw(feed, c);
    s->quality = quality_of(feed);
}

static bool leads_round(const pj_live_feed *feed, uint32_t rail)
{
    for (uint32_t r = 0; r < rail; r++)
        if (feed->curves[r]) return false;
    return feed->curves[rail] != NULL;
}

/* A counter with a log comes about once a second, with all that the log shows of that time. */
static void add_logged_samples(pj_live_feed *feed, uint32_t rail, int64_t end_ns)
{
    pj_curve_point points[MAX_SAMPLES];
    size_t count =
        pj_curve_points(feed->curves[rail], feed->logged_ns, end_ns + 1, points, MAX_SAMPLES);
    if (count > MAX_SAMPLES) count = MAX_SAMPLES;
    for (size_t i = 0; i < count; i++) {
        if (points[i].end_ns <= feed->logged_ns) continue;
        feed->logged_ns = points[i].end_ns;
        for (uint32_t r = 0; r < feed->rail_count; r++) {
            double mw =
                feed->curves[r] ? pj_curve_power_mw(feed->curves[r], points[i].end_ns - 1) : NAN;
            if (!isnan(mw)) feed->last_mw[r] = mw;
        }
        add_sample(feed, points[i].end_ns);
    }
}

void pj_live_feed_readings(pj_live_feed *feed, const pj_reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const pj_reading *reading = &readings[i];
        uint32_t r = reading->rail;
        if (r >= feed->rail_count || !feed->curves[r]) continue;
        pj_curve_add(feed->curves[r], reading, NULL);
        if (reading->status == PJ_READING_LOST) feed->last_mw[r] = NAN;
        int64_t begin, end;
        if (reading->status != PJ_READING_OK || !pj_curve_span(feed->curves[r], &begin, &end))
            continue;
        feed->last_mw[r] = pj_curve_power_mw(feed->curves[r], end - 1);
        if (pj_rail_log_of(feed->rails, feed->rail_count, r) >= 0)
            add_logged_samples(feed, r, end);
        else if (leads_round(feed, r))
            add_sample(feed, reading->before_ns);
    }
}

/* Provisional energy of an interval: NAN when a rail that counts has no value. The time after the
 * last reading is assumed to have that reading's power. */
static double provisional_mj(const pj_live_feed *feed, int64_t begin_ns, int64_t end_ns)
{
    double sum = NAN;
    for (uint32_t r = 0; r < feed->rail_count; r++) {
        int64_t first, last;
        if (!feed->in_column[PJ_RAIL_TOTAL][r]) continue;
        if (!feed->curves[r] || isnan(feed->last_mw[r]) ||
            !pj_curve_span(feed->curves[r], &first, &last))
            return NAN;
        double mj = 0;
        int64_t known = end_ns < last ? end_ns : last;
        if (begin_ns < known) mj = pj_curve_energy_mj(feed->curves[r], begin_ns, known);
        int64_t from = begin_ns > known ? begin_ns : known;
        if (isnan(mj)) return NAN;
        mj += feed->last_mw[r] * (double)(end_ns - from) / 1e9;
        sum = (isnan(sum) ? 0 : sum) + mj;
    }
    return sum;
}

/* ---- spans --------------------------------------------------------------------------------- */

static void live_feed_report_section(pj_live_feed *feed, const pj_span *span, bool ended)
{
    bool inside_token = span->token >= 0;
    if (inside_token && !feed->shown) return;
    void (*report)(void *, const char *, const pj_live_section *) =
        ended ? feed->sink->section_end : feed->sink->section_start;
    if (!report) return;
    pj_live_section section = {
        .t_ms = live_feed_ms_of(feed, ended ? span->end_ns : span->begin_ns),
        .phase = (pj_phase)span->phase,
        .name = live_feed_name_of(feed, span->id),
        .duration_ms = ended ? (double)(span->end_ns - span->begin_ns) / 1e6 : NAN,
        .energy_mj = ended ? provisional_mj(feed, span->begin_ns, span->end_ns) : NAN,
        .quality = quality_of(feed),
    };
    report(feed->sink->context, feed->run_id, &section);
}

static void keep_part(pj_live_feed *feed, const pj_span_view *view)
{
    const pj_span *span = view->span;
    if (!feed->shown || !feed->sink->parts || feed->part_count == MAX_PARTS) return;
    pj_live_part *part = &feed->parts[feed->part_count];
    const char *component = span->kind == PJ_SPAN_COMPONENT ? live_feed_name_of(feed, span->id)
                            : span->component ? live_feed_name_of(feed, span->component)
                                              : NULL;
    *part = (pj_live_part){
        .t_ms = live_feed_ms_of(feed, span->begin_ns),
        .duration_ms = (double)(span->end_ns - span->begin_ns) / 1e6,
        .position = span->token >= 0 ? (uint32_t)span->token : 0,
        .layer = span->kind == PJ_SPAN_LAYER ? (int32_t)span->id : span->layer,
        .component = span->kind == PJ_SPAN_LAYER ? NULL : component,
        .operation = span->kind == PJ_SPAN_OPERATION ? live_feed_name_of(feed, span->id) : NULL,
        .energy_mj = provisional_mj(feed, span->begin_ns, span->end_ns),
        .quality = quality_of(feed),
    };
    if (view->stats) {
        feed->part_stats[feed->part_count] = *view->stats;
        part->stats = &feed->part_stats[feed->part_count];
    }
    feed->part_count++;
}

/* Writes the complete characters of the sequence's pending bytes and `bytes` into `piece`. */
static void complete_text(utf8_rest *rest, const char *bytes, char *piece, size_t size)
{
    char all[300];
    size_t count = rest->count, length = strlen(bytes), used = 0, out = 0;
    memcpy(all, rest->bytes, count);
    if (length > sizeof all - count) length = sizeof all - count;
    memcpy(all + count, bytes, length);
    count += length;
    rest->count = 0;
    while (used < count && out + 4 < size) {
        uint32_t c;
        size_t n = pj_utf8_next(all + used, count - used, &c);
        if (n == 0 && count - used < 4 && (unsigned char)all[used] >= 0xc2) {
            rest->count = (uint8_t)(count - used); /* may still become a character */
            memcpy(rest->bytes, all + used, rest->count);
            break;
        }
        if (n == 0) {
            out += pj_utf8_put(0xfffd, piece + out);
            used++;
        } else {
            memcpy(piece + out, all + used, n);
            out += n;
            used += n;
        }
    }
    piece[out] = 0;
}

/* A private run reports only the sequence of a token. */
static bool is_unknown(const token_text *text)
{
    return text->token_id < 0 && !text->text[0];
}

static void live_feed_report_token(pj_live_feed *feed, const pj_span *span)
{
    double mj = provisional_mj(feed, span->begin_ns, span->end_ns);
    double seconds = (double)(span->end_ns - span->begin_ns) / 1e9;
    uint32_t count = feed->text_count ? feed->text_count : 1;
    for (uint32_t i = 0; i < count && feed->sink->token; i++) {
        const token_text *text = feed->text_count ? &feed->texts[i] : NULL;
        char piece[sizeof text->text * 3 + 8] = "";
        if (text && text->sequence < MAX_TEXTS)
            complete_text(&feed->rest[text->sequence], text->text, piece, sizeof piece);
        pj_live_token token = {
            .t_ms = live_feed_ms_of(feed, span->begin_ns),
            .duration_ms = seconds * 1e3,
            .position = span->id,
            .sequence = text ? text->sequence : 0,
            .token_id = text ? text->token_id : -1,
            .phase = (pj_phase)span->phase,
            .text = text && is_unknown(text) ? NULL : piece,
            .energy_mj = mj / count,
            .power_mw = seconds > 0 ? mj / seconds : NAN,
            .quality = quality_of(feed),
        };
        feed->sink->token(feed->sink->context, feed->run_id, &token);
    }
    feed->text_count = 0;
    if (feed->part_count && feed->sink->parts)
        feed->sink->parts(feed->sink->context, feed->run_id, feed->parts, feed->part_count);
    feed->part_count = 0;
    feed->shown = false;
}

static void token_begins(pj_live_feed *feed, const pj_span *span)
{
    feed->text_count = 0;
    feed->part_count = 0;
    feed->shown = span->begin_ns - feed->shown_ns >= SHOW_EVERY_NS;
    if (feed->shown) feed->shown_ns = span->begin_ns;
}

/* Approximately the simulated load, in mW above idle, that the stored run will have. */
static double simulated_load(pj_phase phase)
{
    if (phase == PJ_PHASE_PREFILL || phase == PJ_PHASE_DECODE) return 40000;
    return phase == PJ_PHASE_PRE_INFERENCE ? 28000 : 0; /* loading the weights */
}

static void phase_changes(pj_live_feed *feed, pj_phase phase, int64_t at_ns)
{
    if (feed->change_count == MAX_CHANGES) {
        feed->change_count--;
        memmove(feed->changes, feed->changes + 1, feed->change_count * sizeof *feed->changes);
    }
    feed->changes[feed->change_count++] = (phase_change){at_ns, phase};
    if (feed->meter) pj_meter_set_activity(feed->meter, simulated_load(phase));
}

void pj_live_feed_context(pj_live_feed *feed, const pj_context *context, int64_t now_ns)
{
    bool same = context->token == feed->context.token && context->layer == feed->context.layer;
    if (!feed->sink->layer_running || context->layer < 0 || same) return;
    if (feed->context_ns && now_ns - feed->context_ns < SHOW_EVERY_NS) return;
    feed->context_ns = now_ns;
    feed->context = *context;
    pj_live_layer layer = {.t_ms = live_feed_ms_of(feed, now_ns),
                           .phase = context->phase,
                           .position = context->token,
                           .layer = (uint32_t)context->layer};
    feed->sink->layer_running(feed->sink->context, feed->run_id, &layer);
}

void pj_live_feed_load(pj_live_feed *feed, const pj_progress *progress, int64_t now_ns)
{
    uint32_t total = atomic_load(&progress->total), done = atomic_load(&progress->done);
    if (!feed->sink->load_progress || !total || done == feed->loaded) return;
    if (feed->load_ns && now_ns - feed->load_ns < SHOW_EVERY_NS) return;
    feed->load_ns = now_ns;
    feed->loaded = done;
    pj_live_load load = {.t_ms = live_feed_ms_of(feed, now_ns), .done = done, .total = total};
    feed->sink->load_progress(feed->sink->context, feed->run_id, &load);
}

static void span_begins(pj_live_feed *feed, const pj_span *span)
{
    if (span->kind == PJ_SPAN_PHASE) phase_changes(feed, (pj_phase)span->id, span->begin_ns);
    if (span->kind == PJ_SPAN_SECTION) live_feed_report_section(feed, span, false);
    if (span->kind == PJ_SPAN_TOKEN) token_begins(feed, span);
}

static void span_ends(pj_live_feed *feed, const pj_span_view *view)
{
    switch (view->span->kind) {
    case PJ_SPAN_PHASE: phase_changes(feed, PJ_PHASE_IDLE, view->span->end_ns); break;
    case PJ_SPAN_SECTION: live_feed_report_section(feed, view->span, true); break;
    case PJ_SPAN_TOKEN: live_feed_report_token(feed, view->span); break;
    default: keep_part(feed, view); break;
    }
}

static void keep_text(pj_live_feed *feed, const pj_record *record)
{
    pj_token_text_record head;
    size_t bytes = pj_record_bytes(record) - sizeof head;
    if (feed->text_count == MAX_TEXTS) return;
    token_text *text = &feed->texts[feed->text_count++];
    memcpy(&head, record->payload, sizeof head);
    if (bytes > 255) bytes = 255;
    text->sequence = head.sequence;
    text->token_id = head.token_id;
    memcpy(text->text, record->payload + sizeof head, bytes);
    text->text[bytes] = 0;
}

static void live_feed_keep_name(pj_live_feed *feed, const pj_record *record)
{
    uint32_t id;
    memcpy(&id, record->payload, 4);
    if (id != feed->name_count + 1) return; /* names arrive in order */
    char **names = pj_resize(feed->names, id + 1, sizeof *names);
    if (!names) return;
    feed->names = names;
    names[id] = pj_strndup((const char *)record->payload + 4, pj_record_bytes(record) - 4);
    feed->name_count = id;
}

void pj_live_feed_record(pj_live_feed *feed, const pj_record *record)
{
    pj_span_view view;
    pj_record_type kind = pj_record_kind(record);
    if (kind == PJ_RECORD_SPAN && pj_span_view_get(record, &view)) span_ends(feed, &view);
    if (kind == PJ_RECORD_SPAN_BEGIN && pj_span_view_get(record, &view))
        span_begins(feed, view.span);
    if (kind == PJ_RECORD_TOKEN_TEXT) keep_text(feed, record);
    if (kind == PJ_RECORD_NAME) live_feed_keep_name(feed, record);
}

/* Reading the trace, training on the store, detecting, and writing the spool that a run is built
 * from. */
#include "import/trace_run.h"

#include "analysis/phases.h"
#include "attribution/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "power/trace_file.h"
#include "store/views.h"
#include "trace/run_json.h"
#include "trace/span.h"
#include "trace/spool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRAINING_RUNS = 60, LEAST_DECODE_SAMPLES = 10, LEAST_READINGS = 15 };

typedef struct detection {
    pj_trace trace;
    double *t_ms, *mw; /* [count] samples at which the total is known */
    size_t count;
    uint8_t *phase;
    double *confidence;
    size_t segments;
    pj_phase_model model;
} detection;

/* ---- the trace ------------------------------------------------------------------------------ */

/* The sum of the rails that count, NAN when one of them is missing. */
static double trace_run_total_at(const pj_trace *t, size_t row)
{
    double sum = 0;
    for (uint32_t r = 0; r < t->rail_count; r++)
        if (pj_rail_in_column(t->rails, t->rail_count, r, PJ_RAIL_TOTAL))
            sum += (double)t->mw[row * t->rail_count + r];
    return sum;
}

/* Names the columns of a trace of which none is known to count. */
static pj_status no_total(const pj_trace *t, const char *path, pj_error *err)
{
    char names[256];
    pj_rail_names(t->rails, t->rail_count, UINT64_MAX, names, sizeof names);
    return pj_fail(
        err, PJ_E_INVALID,
        "%s has no power of a CPU, a GPU or the whole machine: none of its columns (%s) is "
        "known to be one; name it cpu_mw, gpu_mw or total_mw",
        path, names);
}

static pj_status take_total(detection *d, const char *path, pj_error *err)
{
    const pj_trace *t = &d->trace;
    uint32_t counted = 0;
    for (uint32_t r = 0; r < t->rail_count; r++)
        counted += pj_rail_in_column(t->rails, t->rail_count, r, PJ_RAIL_TOTAL);
    if (!counted) return no_total(t, path, err);
    d->t_ms = pj_alloc(t->row_count + 1, sizeof *d->t_ms);
    d->mw = pj_alloc(t->row_count + 1, sizeof *d->mw);
    d->phase = pj_alloc(t->row_count + 1, sizeof *d->phase);
    d->confidence = pj_alloc(t->row_count + 1, sizeof *d->confidence);
    if (!d->t_ms || !d->mw || !d->phase || !d->confidence) return pj_fail_memory(err, "a trace");
    for (size_t i = 0; i < t->row_count; i++) {
        double mw = trace_run_total_at(t, i);
        /* Skips polls that repeat the sensor's last value. */
        bool repeats = t->polled && d->count && mw == d->mw[d->count - 1];
        if (!isfinite(mw) || repeats) continue;
        d->t_ms[d->count] = t->t_ms[i];
        d->mw[d->count++] = mw;
    }
    return PJ_OK;
}

/* ---- training ------------------------------------------------------------------------------- */

/* Detected phases are not training data. */
static bool is_detected(const pj_run_info *info)
{
    return info->engine && strcmp(info->engine, "trace") == 0;
}

static bool is_tagged(const pj_power_series *s)
{
    size_t decode = 0;
    for (uint32_t i = 0; i < s->count; i++) decode += s->phase[i] == PJ_PHASE_DECODE;
    return decode >= LEAST_DECODE_SAMPLES;
}

/* Runs rarely contain idle time, so idle power comes from the baseline. */
static double trace_run_idle_of(const pj_run_info *info)
{
    return isnan(info->baseline_cold_mw) ? info->baseline_resident_mw : info->baseline_cold_mw;
}

static bool trace_has_gpu(const pj_trace *t)
{
    for (size_t i = 0; i < t->row_count * t->rail_count; i++)
        if (t->rails[i % t->rail_count].rail_class == PJ_RAIL_GPU && isfinite(t->mw[i]))
            return true;
    return false;
}

static bool run_has_gpu(const pj_power_series *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (isfinite(s->columns[PJ_RAIL_GPU][i])) return true;
    return false;
}

static bool is_measured(const pj_trace *t)
{
    for (uint32_t r = 0; r < t->rail_count; r++)
        if (t->rails[r].quality != PJ_MEASURED) return false;
    return true;
}

/* What one kind of machine draws in its phases says little about another kind, and a model of power
 * nothing about a sensor's. */
static bool teaches(const pj_run_info *info, const pj_power_series *s, const pj_trace *t)
{
    return is_tagged(s) && run_has_gpu(s) == trace_has_gpu(t) &&
           (info->quality == PJ_MEASURED || !is_measured(t));
}

static pj_status train(pj_store *store, const pj_trace *trace, pj_phase_model *model, pj_error *err)
{
    pj_arena arena;
    pj_run_list list = {0};
    pj_phase_trace traces[TRAINING_RUNS];
    size_t count = 0;
    pj_arena_init(&arena, 0);
    pj_run_query query = {.status = "completed", .limit = TRAINING_RUNS};
    pj_status status = pj_store_list(store, &query, &list, err);
    for (uint32_t i = 0; i < list.count && status == PJ_OK; i++) {
        pj_power_series s;
        const pj_run_info *info = &list.runs[i];
        if (is_detected(info)) continue;
        status = pj_view_power_series(store, info->id, &arena, &s, err);
        if (status == PJ_OK && teaches(info, &s, trace))
            traces[count++] = (pj_phase_trace){s.t_ms, s.columns[PJ_RAIL_TOTAL], s.count,
                                               trace_run_idle_of(info), s.phase};
    }
    if (status == PJ_OK && !pj_phase_model_train(traces, count, model))
        status = pj_fail_memory(err, "the training of phases");
    if (status == PJ_OK && model->traces == 0) pj_phase_model_prior(model);
    pj_run_list_fini(&list);
    pj_arena_fini(&arena);
    return status;
}

/* ---- the run -------------------------------------------------------------------------------- */

static void write_segments(const detection *d, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_object_begin(json, "phase_detection");
    pj_json_kv_uint(json, "trained_on", d->model.traces);
    pj_json_kv_array_begin(json, "segments");
    double sum = 0;
    for (size_t i = 0, from = 0; i < d->count; i++) {
        sum += d->confidence[i];
        if (i + 1 < d->count && d->phase[i + 1] == d->phase[i]) continue;
        pj_json_object_begin(json);
        pj_json_kv_string(json, "phase", pj_phase_name((pj_phase)d->phase[i]));
        pj_json_kv_double(json, "from_ms", d->t_ms[from]);
        pj_json_kv_double(json, "to_ms", d->t_ms[i + 1 < d->count ? i + 1 : i]);
        pj_json_kv_double(json, "confidence", sum / (double)(i + 1 - from));
        pj_json_object_end(json);
        from = i + 1;
        sum = 0;
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
    pj_json_object_end(json);
}

typedef struct writing {
    const detection *d;
    pj_spool_writer w;
    int64_t begin_ns;
} writing;

static int64_t trace_run_moment(const writing *w, double t_ms)
{
    return w->begin_ns + (int64_t)(t_ms * 1e6);
}

static void put_facts(writing *w, const char *id, const char *path)
{
    pj_json settings;
    pj_run_info info;
    pj_json_open(&settings, 8 << 20);
    write_segments(w->d, &settings);
    pj_run_info_init(&info);
    info.depth = PJ_DEPTH_OFF;
    info.batch_size = 1;
    double unix_ms = w->d->trace.origin_unix_ms;
    info.created_wall_ns = unix_ms > 0 ? (int64_t)(unix_ms * 1e6) : pj_clock_wall_ns();
    info.model_name = pj_path_name(path);
    info.engine = "trace";
    info.scope = "machine";
    info.level = "coarse";
    info.settings_json = pj_json_whole(&settings);
    info.quality = pj_trace_quality(&w->d->trace);
    info.power_sources = "replay";
    snprintf(info.id, sizeof info.id, "%s", id);
    pj_spool_put_info(&w->w, &info, w->begin_ns);
    pj_json_close(&settings);
}

static void put_readings(writing *w)
{
    const pj_trace *t = &w->d->trace;
    for (size_t i = 0; i < t->row_count; i++)
        for (uint32_t r = 0; r < t->rail_count; r++) {
            double mw = (double)t->mw[i * t->rail_count + r];
            int64_t at = trace_run_moment(w, t->t_ms[i]);
            pj_reading reading = {.before_ns = at,
                                  .after_ns = at,
                                  .fresh_ns = at,
                                  .window_ns =
                                      t->window_ms ? (int64_t)((double)t->window_ms[i] * 1e6) : 0,
                                  .value = mw,
                                  .rail = (uint16_t)r,
                                  .status = isnan(mw) ? PJ_READING_GAP : PJ_READING_OK,
                                  .sequence = (uint32_t)i};
            pj_spool_put_reading(&w->w, &reading);
        }
}

/* One span per segment of a phase. */
static void put_phases(writing *w)
{
    const detection *d = w->d;
    uint32_t serial = 0;
    for (size_t i = 0, from = 0; i < d->count; i++) {
        if (i + 1 < d->count && d->phase[i + 1] == d->phase[i]) continue;
        int64_t begin_ns = trace_run_moment(w, d->t_ms[from]);
        int64_t end_ns = trace_run_moment(w, d->t_ms[i + 1 < d->count ? i + 1 : i]);
        pj_span span = pj_span_make(serial++, PJ_SPAN_PHASE, d->phase[i], (pj_phase)d->phase[i],
                                    begin_ns, end_ns);
        from = i + 1;
        /* Idle time is implicit: no phase covers it. */
        if (d->phase[i] != PJ_PHASE_IDLE && end_ns > begin_ns) pj_spool_put_span(&w->w, &span);
    }
}

static pj_status trace_run_build(const detection *d, const char *path, pj_run_data *data,
                                 pj_error *err)
{
    char id[PJ_UUID_BYTES];
    pj_spool spool;
    writing w = {.d = d, .begin_ns = pj_clock_ns(), .w = {.spool = &spool, .err = err}};
    pj_uuid7(id);
    pj_status status = pj_spool_create(NULL, id, w.begin_ns, pj_clock_wall_ns(), &spool, err);
    if (status != PJ_OK) return status;
    put_facts(&w, id, path);
    for (uint32_t r = 0; r < d->trace.rail_count; r++)
        pj_spool_put_rail(&w.w, r, &d->trace.rails[r], NAN, NAN);
    put_readings(&w);
    put_phases(&w);
    pj_spool_put_end(&w.w, trace_run_moment(&w, d->t_ms[d->count - 1]), PJ_RUN_COMPLETED);
    return pj_build_written(&w.w, data);
}

/* Each sample has the phase and the confidence of the reading that it ends with, or of the one
 * that it repeats: repetitions were left out of the detection. */
static void tag_samples(const detection *d, pj_sample_table *samples)
{
    for (size_t i = 0, at = 0; i < samples->count; i++) {
        while (at + 1 < d->count && d->t_ms[at + 1] <= samples->t_ms[i] + 1e-3) at++;
        samples->phase[i] = d->phase[at];
        samples->phase_confidence[i] = (float)d->confidence[at];
    }
}

static pj_status no_phases(const detection *d, const char *path, pj_error *err)
{
    if (d->count < LEAST_READINGS)
        return pj_fail(err, PJ_E_INVALID,
                       "%s cannot be divided into phases: it has %zu readings, and at least %d are "
                       "needed",
                       path, d->count, LEAST_READINGS);
    return pj_fail(
        err, PJ_E_INVALID,
        "%s cannot be divided into phases: it is flatter than its noise, or its levels "
        "differ by less than a tenth and no stored runs tell which phase has which power",
        path);
}

/* ---- borders -------------------------------------------------------------------------------- */

/* Mean and variance of the power of the samples [from, to). */
static double mean_of(const double *mw, size_t from, size_t to, double *variance)
{
    double sum = 0, squares = 0, n = (double)(to - from);
    for (size_t i = from; i < to; i++) sum += mw[i];
    for (size_t i = from; i < to; i++) squares += (mw[i] - sum / n) * (mw[i] - sum / n);
    *variance = n > 1 ? squares / (n - 1) : 0;
    return sum / n;
}

/* 1 sigma of the energy that belongs to the other side of the border before sample `at`: it lies
 * within a reading at best, and the further off the smaller the step is against the noise. */
static double border_mj(const detection *d, size_t at)
{
    enum { AROUND = 20 };
    double before_var, after_var;
    size_t from = at > AROUND ? at - AROUND : 0,
           to = at + AROUND < d->count ? at + AROUND : d->count;
    double before = mean_of(d->mw, from, at, &before_var);
    double after = mean_of(d->mw, at, to, &after_var), step = fabs(after - before);
    double noise = (before_var + after_var) / (2 * fmax(step * step, 1e-9));
    double readings = fmin(hypot(0.5, 2 * noise), AROUND);
    return step * readings * (d->t_ms[at] - d->t_ms[at - 1]) * 1e-3;
}

static void add_bias(pj_energy *e, double mj)
{
    if (e->gross_nj == PJ_NJ_UNKNOWN) return;
    e->sd.bias_mj = (float)hypot((double)e->sd.bias_mj, mj);
    e->net_sd.bias_mj = (float)hypot((double)e->net_sd.bias_mj, mj);
    e->sd_mj = (float)pj_sd_total(&e->sd);
    if (e->net_nj != PJ_NJ_UNKNOWN) e->net_sd_mj = (float)pj_sd_total(&e->net_sd);
}

/* 1 sigma of the energy of the samples [from, to) that is another phase's: what their confidences
 * leave to others. */
static double doubted_mj(const detection *d, size_t from, size_t to)
{
    double mj = 0;
    for (size_t i = from; i < to && i + 1 < d->count; i++)
        mj += (1 - d->confidence[i]) * d->mw[i] * (d->t_ms[i + 1] - d->t_ms[i]) * 1e-3;
    return mj;
}

/* That the samples [from, to) are a phase, and that it begins and ends there, is an estimate, whose
 * uncertainty its energy has. */
static void widen_phase(const detection *d, size_t from, size_t to, pj_energy *e)
{
    add_bias(e, doubted_mj(d, from, to));
    if (from > 0) add_bias(e, border_mj(d, from));
    if (to < d->count) add_bias(e, border_mj(d, to));
}

/* The first sample at or after a time. */
static size_t sample_at(const detection *d, double ms)
{
    size_t low = 0, high = d->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->t_ms[middle] < ms - 1e-3)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void widen_phases(const detection *d, pj_run_data *data)
{
    for (uint32_t p = 0; p < data->phase_count; p++) {
        pj_phase_row *row = &data->phases[p];
        size_t from = sample_at(d, row->start_ms);
        size_t to = sample_at(d, row->start_ms + row->duration_ms);
        if (to > from) widen_phase(d, from, to + 1 < d->count ? to : d->count, &row->energy);
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

pj_status pj_trace_run_make(pj_store *store, const char *path, pj_run_data *data, pj_error *err)
{
    pj_mapping file;
    detection d = {0};
    *data = (pj_run_data){0};
    pj_status status = pj_file_map(path, &file, err);
    if (status != PJ_OK) return status;
    status = pj_trace_read((const char *)file.data, file.size, path, &d.trace, err);
    pj_file_unmap(&file);
    if (status == PJ_OK) status = take_total(&d, path, err);
    if (status == PJ_OK) status = train(store, &d.trace, &d.model, err);
    if (status == PJ_OK) {
        pj_phase_trace trace = {d.t_ms, d.mw, d.count, NAN, NULL};
        d.segments = pj_phases_detect(&trace, &d.model, d.phase, d.confidence);
        if (!d.segments) status = no_phases(&d, path, err);
    }
    if (status == PJ_OK) status = trace_run_build(&d, path, data, err);
    if (status == PJ_OK) {
        tag_samples(&d, &data->samples);
        widen_phases(&d, data);
    }
    pj_trace_fini(&d.trace);
    pj_free(d.t_ms);
    pj_free(d.mw);
    pj_free(d.phase);
    pj_free(d.confidence);
    return status;
}

/* perjoule bench attribution: accuracy of attribution against a known truth. The real engine makes
 * one run; its spans are then reused for many simulated machines: for every seed, each class of
 * work gets its own power, a simulated sensor observes it, and the production estimator attributes
 * the energy from those readings. Printed for each kind of sensor: the 95th percentile of the
 * relative error of class powers (classes with at least 1 % of the energy), the coverage of the
 * nominal 95 % intervals (of these powers, and of the energy of every component of every token),
 * the error of the energy of single tokens with its coverage, and how exactly parts add up to the
 * whole. */
#include "cli/options.h"

#include "attribution/build.h"
#include "base/file.h"
#include "base/json.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/model_error.h"
#include "bench/prior.h"
#include "bench/sim_windows.h"
#include "generate/generate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sensor {
    const char *name, *spec;
    double calibration; /* relative 1 sigma of a calibrated power; 0: none */
    double limits[2];   /* published 95th percentile for tokens of 50 and of 10 ms; 0: none */
    bool on_device;     /* layers and components are the work of a GPU, for which the host waits */
} sensor;

/* Calibrations are what measuring a component alone for 2 s gives with that sensor, 0.1 % at
 * best. */
static const sensor sensors[] = {
    {"counter 1 ms, 61 uJ", "kind=counter,period_ms=1,resolution_mj=0.061", 0, {0.0013, 0.015}},
    {"the same, 1 % noise",
     "kind=counter,period_ms=1,resolution_mj=0.061,noise=0.01",
     0,
     {0.021, 0.128}},
    {"power 10 ms, 0.2 % noise", "kind=power,period_ms=10,noise=0.002", 0, {0.065, 0.25}},
    {"counter 100 ms, 61 uJ", "kind=counter,period_ms=100,resolution_mj=0.061", 0, {0.004, 0.033}},
    {"power 100 ms, 0.1 % noise", "kind=power,period_ms=100,noise=0.001", 0, {0.32, 0.44}},
    {"power 100 ms, 0.5 % noise", "kind=power,period_ms=100,noise=0.005", 0, {0.39, 0.55}},
    {"power 100 ms, 1 % noise", "kind=power,period_ms=100,noise=0.01", 0, {0.55, 0.56}},
    {"average of 1 s, 0.5 % noise",
     "kind=power,period_ms=100,window_ms=1000,noise=0.005",
     0,
     {0, 0}},
    {"sees 25 of 100 ms, 0.5 %", "kind=power,period_ms=100,window_ms=25,noise=0.005", 0, {0, 0}},
    {"Hopper, 25 of 100 ms, 0.5 %", "preset=nvml-hopper,noise=0.005", 0, {0, 0}},
    {"Hopper, average, 0.5 %", "preset=nvml-hopper-average,noise=0.005", 0, {0, 0}},
    {"NVML counter, 100 ms", "preset=nvml-counter", 0, {0, 0}},
    {"H200, counter and log, 0.5 %", "preset=nvml-h200,log_noise=0.005,log_gain=1.016", 0, {0, 0}},
    {"calibrated H200", "preset=nvml-h200,log_noise=0.005,log_gain=1.016", 0.001, {0, 0}},
    {"calibrated, 1 ms, 1 % noise", "kind=power,period_ms=1,noise=0.01", 0.001, {0.003, 0.004}},
    {"calibrated, 100 ms, 0.5 %", "kind=power,period_ms=100,noise=0.005", 0.0011, {0.004, 0.005}},
    {"calibrated, 100 ms, 1 %", "kind=power,period_ms=100,noise=0.01", 0.0022, {0.005, 0.006}},
    {"calibrated, sees 25 of 100",
     "kind=power,period_ms=100,window_ms=25,noise=0.005",
     0.0022,
     {0, 0}},
    {"GPU and host, counters 1 ms",
     "rails=cpu+gpu,kind=counter,period_ms=1,resolution_mj=0.061",
     0,
     {0, 0},
     true},
    {"GPU and host, H200, 0.5 %",
     "rails=cpu+gpu,preset=nvml-h200,log_noise=0.005,log_gain=1.016",
     0,
     {0, 0},
     true},
};

enum { SENSORS = sizeof sensors / sizeof *sensors, MAX_ERRORS = 1 << 20 };

/* Results of one class over the simulated machines of a row in which it had at least 1 % of the
 * energy. */
typedef struct class_score {
    char name[128];
    pj_phase phase;
    double squares, error, data_share; /* sums: ((power - truth) / sd)^2, |error|, share of data */
    unsigned scored, covered;
} class_score;

typedef struct bench {
    const pj_command *command;
    const char *model, *dtype, *keep, *spans, *only;
    int64_t runs, tokens, prompt, seed, threads;
    double idle_mw;
    bool json, model_error, windows;
    double seconds;
    /* of the current run */
    double *errors, *equal;
    size_t count;
    unsigned scored, covered, unknown;
    uint64_t parts, parts_covered; /* component rows */
    double *token_errors;
    size_t tokens_scored;
    uint64_t tokens_covered;
    class_score *classes; /* [class_count] for the current row */
    uint32_t class_count;
    double residual; /* largest relative error of a sum */
    double token_ms;
    char recorded[256]; /* the model that the spans are from */
    pj_json *out;
    int code;
} bench;

static double sum_error(const pj_run_data *d)
{
    int64_t parts = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        int64_t whole = d->phases[i].energy.gross_nj;
        if (whole == PJ_NJ_UNKNOWN) return NAN;
        parts += whole;
    }
    double total_nj = d->info.total_mj * 1e6;
    double error = 0;
    /* layers and sections make up a token's energy */
    for (uint32_t i = 0; i < d->token_count; i++) {
        int64_t token = d->tokens[i].energy.gross_nj;
        if (token == PJ_NJ_UNKNOWN) return NAN;
        int64_t sections = d->tokens[i].energy.self_nj;
        for (uint32_t k = 0; k < d->section_count; k++)
            if (d->sections[k].token == i) sections += d->sections[k].energy.gross_nj;
        error = fmax(error, fabs((double)(sections - token)) / fmax((double)token, 1));
    }
    /* energy outside phases is idle time of the run itself */
    return parts > 0 && (double)parts > total_nj * (1 + 1e-9) ? 1 : error;
}

static void score(bench *b, uint32_t c, const pj_class_row *row, double truth)
{
    if (c >= b->class_count) return;
    class_score *s = &b->classes[c];
    snprintf(s->name, sizeof s->name, "%s", row->name);
    s->phase = (pj_phase)row->phase;
    double off = fabs(row->power_mw - truth);
    s->scored++;
    s->covered += off <= 1.96 * row->power_sd_mw;
    s->error += off / truth;
    s->data_share += row->data_share;
    if (row->power_sd_mw > 0) s->squares += off * off / (row->power_sd_mw * row->power_sd_mw);
}

/* Scores single component rows, whose energies depend on how the windows around them were
 * divided. */
static void score_parts(bench *b, const pj_run_data *d)
{
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_energy *e = &d->components[i].energy;
        if (e->gross_nj == PJ_NJ_UNKNOWN || e->planted_nj <= 0) continue;
        double off_mj = fabs(pj_mj_of_nj(e->gross_nj) - pj_mj_of_nj(e->planted_nj));
        b->parts++;
        b->parts_covered += off_mj <= 1.96 * (double)e->sd_mj;
    }
}

/* Scores the energies of single tokens of decode. */
static void score_tokens(bench *b, const pj_run_data *d)
{
    for (uint32_t i = 0; i < d->token_count && b->tokens_scored < MAX_ERRORS; i++) {
        const pj_energy *e = &d->tokens[i].energy;
        if (d->phases[d->tokens[i].phase].phase != PJ_PHASE_DECODE ||
            e->gross_nj == PJ_NJ_UNKNOWN || e->planted_nj <= 0)
            continue;
        double truth_mj = pj_mj_of_nj(e->planted_nj),
               off = fabs(pj_mj_of_nj(e->gross_nj) - truth_mj);
        b->tokens_covered += off <= 1.96 * (double)e->sd_mj;
        b->token_errors[b->tokens_scored++] = off / truth_mj;
    }
}

/* Idle time, and that of a GPU between kernels, in which it draws nothing above its idle power. */
static bool is_idle(const pj_class_row *row)
{
    return row->phase == PJ_PHASE_IDLE || (row->device && strcmp(row->name, "(between)") == 0);
}

static void attribution_judge(bench *b, const pj_sim_spec *spec, const pj_run_data *d)
{
    double net = 0, time = 0;
    for (uint32_t c = 0; c < d->class_count; c++) {
        const pj_class_row *row = &d->classes[c];
        if (is_idle(row)) continue;
        net += pj_sim_class_mw(spec, row->name, (pj_phase)row->phase) * row->time_ms;
        time += row->time_ms;
    }
    for (uint32_t c = 0; c < d->class_count; c++) {
        const pj_class_row *row = &d->classes[c];
        double truth = pj_sim_class_mw(spec, row->name, (pj_phase)row->phase);
        if (is_idle(row) || truth * row->time_ms < 0.01 * net || b->count == MAX_ERRORS) continue;
        if (isnan(row->power_mw)) { /* the sensor did not resolve even the total */
            b->unknown++;
            continue;
        }
        double off = fabs(row->power_mw - truth);
        b->equal[b->count] = fabs(net / time - truth) / truth;
        b->errors[b->count++] = off / truth;
        b->scored++;
        b->covered += off <= 1.96 * row->power_sd_mw;
        score(b, c, row, truth);
    }
}

static pj_status attribution_simulate(bench *b, pj_tree *tree, const sensor *s, uint64_t seed,
                                      pj_error *err)
{
    char text[256];
    pj_sim_spec spec;
    pj_run_data d = {0};
    pj_readings none = {0};
    pj_energies *joules = NULL;
    snprintf(text, sizeof text, "%s,seed=%llu,idle_mw=%g", s->spec, (unsigned long long)seed,
             b->idle_mw);
    pj_status status = pj_sim_parse(text, &spec, err);
    if (status != PJ_OK) return status;
    pj_bench_prior prior = {&spec, s->calibration, seed};
    pj_build_options options = {
        .sim = &spec, .prior = s->calibration > 0 ? pj_bench_prior_of : NULL, .context = &prior};
    status = pj_build_facts(tree, &d, err);
    if (status == PJ_OK) {
        d.rail_count = pj_sim_rails(&spec, d.rails, PJ_MAX_RAILS);
        for (uint32_t r = 0; r < d.rail_count; r++) {
            snprintf(d.rails[r].source, sizeof d.rails[r].source, "sim");
            d.baseline_mw[r] = spec.idle_mw * spec.rails[r].share;
            d.baseline_sd_mw[r] = 0.001 * d.baseline_mw[r];
        }
        status = pj_build_rows(tree, &d, err);
    }
    if (status == PJ_OK) status = pj_energy_new(tree, &none, &options, &d, &joules, err);
    if (status == PJ_OK) status = pj_energy_fill(joules, err);
    pj_energy_free(joules);
    if (status == PJ_OK) {
        attribution_judge(b, &spec, &d);
        score_parts(b, &d);
        score_tokens(b, &d);
        b->residual = fmax(b->residual, sum_error(&d));
    }
    pj_run_data_fini(&d);
    return status;
}

static double p95(double *errors, size_t count)
{
    if (count == 0) return NAN;
    pj_sort_doubles(errors, count);
    return errors[(size_t)((double)(count - 1) * 0.95)];
}

static void print_classes(bench *b)
{
    pj_json_key(b->out, "classes");
    pj_json_array_begin(b->out);
    for (uint32_t c = 0; c < b->class_count; c++) {
        const class_score *s = &b->classes[c];
        if (!s->scored) continue;
        pj_json_object_begin(b->out);
        pj_json_kv_string(b->out, "name", s->name);
        pj_json_kv_string(b->out, "phase", pj_phase_name(s->phase));
        pj_json_kv_uint(b->out, "judged", s->scored);
        pj_json_kv_double(b->out, "error_mean", s->error / s->scored);
        pj_json_kv_double(b->out, "coverage", (double)s->covered / s->scored);
        pj_json_kv_double(b->out, "z_rms", sqrt(s->squares / s->scored));
        pj_json_kv_double(b->out, "data_share", s->data_share / s->scored);
        pj_json_object_end(b->out);
    }
    pj_json_array_end(b->out);
}

static void attribution_print_row(bench *b, const sensor *s)
{
    double equal = p95(b->equal, b->count), error = p95(b->errors, b->count);
    double coverage = (double)b->covered / b->scored;
    double parts = (double)b->parts_covered / (double)b->parts;
    double token = p95(b->token_errors, b->tokens_scored);
    double tokens = (double)b->tokens_covered / (double)b->tokens_scored;
    double published = s->limits[b->token_ms < sqrt(50 * 10)];
    if (!b->json) {
        char limit[16] = "";
        if (published > 0) snprintf(limit, sizeof limit, "%.2f %%", 100 * published);
        printf("%-28s  %9.2f %%  %10s  %9.1f %%  %9.1f %%  %8.1f %%  %9.2f %%  %7.1f %%  %8.0e",
               s->name, 100 * error, limit, 100 * equal, 100 * coverage, 100 * parts, 100 * token,
               100 * tokens, b->residual);
        if (b->unknown) printf("  (%u of %u unknown)", b->unknown, b->unknown + b->scored);
        printf("\n");
        fflush(stdout);
        return;
    }
    pj_json_object_begin(b->out);
    pj_json_kv_string(b->out, "sensor", s->name);
    pj_json_kv_string(b->out, "sim", s->spec);
    pj_json_kv_double(b->out, "error_p95", error);
    pj_json_kv_double(b->out, "published_p95", published > 0 ? published : NAN);
    pj_json_kv_double(b->out, "equal_power_p95", equal);
    pj_json_kv_double(b->out, "coverage", coverage);
    pj_json_kv_double(b->out, "parts_coverage", parts);
    pj_json_kv_double(b->out, "token_error_p95", token);
    pj_json_kv_double(b->out, "token_coverage", tokens);
    pj_json_kv_uint(b->out, "classes_judged", b->scored);
    pj_json_kv_uint(b->out, "classes_unknown", b->unknown);
    pj_json_kv_double(b->out, "sum_error", b->residual);
    print_classes(b);
    pj_json_object_end(b->out);
}

static double decode_token_ms(const pj_tree *tree)
{
    double ms = 0;
    unsigned tokens = 0;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const pj_node *node = &tree->nodes[i];
        if (node->kind != PJ_SPAN_TOKEN || node->phase != PJ_PHASE_DECODE) continue;
        ms += (double)(node->end_ns - node->begin_ns) * 1e-6;
        tokens++;
    }
    return ms / tokens;
}

static pj_status make_tree(pj_tree *tree, pj_run_data *facts, pj_spool_reader *reader,
                           bool on_device, pj_error *err)
{
    pj_status status = pj_tree_init(tree, reader, &facts->arena, err);
    if (status == PJ_OK && on_device) pj_tree_move_to_device(tree);
    if (status == PJ_OK) status = pj_build_facts(tree, facts, err);
    if (status == PJ_OK) status = pj_tree_cut(tree, err);
    return status;
}

/* Called with the run's spans: evaluates every sensor and seed. */
static void attribution_run_all(void *context, pj_spool_reader *reader)
{
    bench *b = context;
    pj_run_data facts = {0}, device_facts = {0};
    pj_tree tree = {0}, device_tree = {0};
    pj_error err = {0};
    pj_status status = PJ_OK;
    if (b->model_error) {
        const pj_model_error_options options = {b->runs, b->seed, b->only, b->seconds,
                                                b->json ? b->out : NULL};
        if (b->keep)
            status = pj_file_write(b->keep, reader->mapping.data, reader->mapping.size, &err);
        if (status == PJ_OK) status = pj_bench_model_error(reader, &options, &err);
        if (status != PJ_OK) b->code = pj_command_failed(b->command, &err);
        return;
    }
    if (b->keep) status = pj_file_write(b->keep, reader->mapping.data, reader->mapping.size, &err);
    if (status == PJ_OK) status = make_tree(&tree, &facts, reader, false, &err);
    if (status == PJ_OK) status = make_tree(&device_tree, &device_facts, reader, true, &err);
    b->errors = pj_alloc(MAX_ERRORS, sizeof(double));
    b->equal = pj_alloc(MAX_ERRORS, sizeof(double));
    b->token_errors = pj_alloc(MAX_ERRORS, sizeof(double));
    b->class_count =
        tree.class_count > device_tree.class_count ? tree.class_count : device_tree.class_count;
    b->classes = pj_alloc(b->class_count, sizeof *b->classes);
    if (status == PJ_OK && (!b->errors || !b->equal || !b->token_errors || !b->classes))
        status = pj_fail_memory(&err, "the errors of a bench");
    if (status == PJ_OK && !b->json)
        printf("%-28s  %11s  %10s  %11s  %11s  %10s  %11s  %9s  %8s\n", "sensor", "error, p95",
               "published", "equal power", "coverage", "parts", "tokens, p95", "coverage", "sums");
    b->token_ms = decode_token_ms(&tree);
    snprintf(b->recorded, sizeof b->recorded, "%s",
             facts.info.model_name ? facts.info.model_name : "");
    for (int i = 0; i < SENSORS && status == PJ_OK; i++) {
        if (b->only && !strstr(sensors[i].name, b->only)) continue;
        b->count = b->scored = b->covered = b->unknown = 0;
        b->parts = b->parts_covered = b->tokens_scored = b->tokens_covered = 0;
        b->residual = 0;
        memset(b->classes, 0, b->class_count * sizeof *b->classes);
        for (int64_t k = 0; k < b->runs && status == PJ_OK; k++)
            status = attribution_simulate(b, sensors[i].on_device ? &device_tree : &tree,
                                          &sensors[i], (uint64_t)(b->seed + k), &err);
        if (status == PJ_OK) attribution_print_row(b, &sensors[i]);
    }
    if (status != PJ_OK) b->code = pj_command_failed(b->command, &err);
    pj_free(b->errors);
    pj_free(b->equal);
    pj_free(b->token_errors);
    pj_free(b->classes);
    pj_tree_fini(&tree);
    pj_tree_fini(&device_tree);
    pj_run_data_fini(&facts);
    pj_run_data_fini(&device_facts);
}

static pj_status reuse(bench *b, pj_error *err)
{
    pj_spool_reader reader;
    pj_status status = pj_spool_reader_open(b->spans, &reader, err);
    if (status != PJ_OK) return status;
    attribution_run_all(b, &reader);
    pj_spool_reader_close(&reader);
    return PJ_OK;
}

static pj_status attribution_record(bench *b, pj_error *err)
{
    pj_session *session = NULL;
    pj_model_slot slot = {0};
    pj_profile_result result = {0};
    int32_t *ids = pj_alloc((size_t)b->prompt, sizeof *ids);
    if (!ids) return pj_fail_memory(err, "a prompt");
    for (int64_t i = 0; i < b->prompt; i++) ids[i] = (int32_t)(i % 500) + 1;
    pj_prompt prompt = {.ids = ids, .id_count = (uint32_t)b->prompt};
    pj_profile_options options = {.engine = {.model = b->model,
                                             .dtype = b->dtype,
                                             .threads = (uint32_t)b->threads,
                                             .no_tokenizer = true},
                                  .request.prompts = &prompt,
                                  .request.prompt_count = 1,
                                  .request.max_tokens = (uint32_t)b->tokens,
                                  .request.ignore_eos = true,
                                  .request.sampling = PJ_SAMPLING_GREEDY,
                                  .depth = PJ_DEPTH_MODULE};
    pj_session_options session_options = {
        .power = "sim", .database = "none", .baseline_seconds = -1};
    pj_status status = pj_model_slot_open(&slot, &options.engine, err);
    if (status == PJ_OK) status = pj_session_open(&session_options, &session, err);
    if (status == PJ_OK) {
        session->inspect = attribution_run_all;
        session->inspect_context = b;
        status = pj_profile_generate(session, &slot, &options, &result, err);
        pj_profile_result_fini(&result);
    }
    pj_session_close(session);
    pj_model_slot_close(&slot);
    pj_free(ids);
    return status;
}

static int attribution_run_bench(const pj_command *command, int argc, char **argv)
{
    bench b = {.command = command,
               .model = "synthetic:llama-3.2-1b,bf16",
               .runs = 40,
               .tokens = 200,
               .prompt = 32,
               .seed = 1,
               .idle_mw = 0};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &b.model, "MODEL",
         "model whose spans are used (synthetic:llama-3.2-1b,bf16)", 0, 0},
        {"dtype", 0, PJ_OPTION_TEXT, &b.dtype, "TYPE", "convert the weights", 0, 0},
        {"threads", 't', PJ_OPTION_INT, &b.threads, "N", "threads (one per core)", 1, 256},
        {"runs", 0, PJ_OPTION_INT, &b.runs, "N", "simulated runs per sensor (40)", 1, 10000},
        {"tokens", 'n', PJ_OPTION_INT, &b.tokens, "N", "tokens of the run (200)", 2, 100000},
        {"prompt", 0, PJ_OPTION_INT, &b.prompt, "N", "tokens of its prompt (32)", 1, 100000},
        {"keep", 0, PJ_OPTION_TEXT, &b.keep, "FILE", "write the run's events to FILE",
         .rule = pj_rule_new_file},
        {"spans", 0, PJ_OPTION_TEXT, &b.spans, "FILE",
         "reuse events written by --keep instead of making a run", .rule = pj_rule_file},
        {"sensor", 0, PJ_OPTION_TEXT, &b.only, "NAME", "only sensors with NAME in their name", 0,
         0},
        {"seed", 0, PJ_OPTION_INT, &b.seed, "N", "seed of the first simulated machine (1)", 0,
         9e15},
        {"idle", 0, PJ_OPTION_DOUBLE, &b.idle_mw, "MW",
         "idle power (0: noise is relative to net power, as published)", 0, 1e6},
        {"model-error", 0, PJ_OPTION_FLAG, &b.model_error, NULL,
         "coverage and width of intervals when sensor or load differ from what is declared", 0, 0},
        {"seconds", 0, PJ_OPTION_DOUBLE, &b.seconds, "S",
         "with --model-error: only this run length (0.005, 0.05, 0.5 and 5)", 0, 100,
         .needs = "model-error"},
        {"windows", 0, PJ_OPTION_FLAG, &b.windows, NULL,
         "errors and intervals of windows of 30 ms to 10 s over simulated loads", 0, 0},
        {"json", 0, PJ_OPTION_FLAG, &b.json, NULL, "print one JSON object", 0, 0},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_buffer buffer;
    pj_json json;
    pj_error err = {0};
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    b.out = &json;
    pj_json_object_begin(&json);
    pj_json_kv_int(&json, "runs", b.runs);
    pj_json_key(&json, "rows");
    pj_json_array_begin(&json);
    if (b.model_error && b.tokens == 200) b.tokens = 40;
    pj_status status = b.windows
                           ? pj_bench_windows(b.runs, b.seed, b.only, b.json ? &json : NULL, &err)
                       : b.spans ? reuse(&b, &err)
                                 : attribution_record(&b, &err);
    pj_json_array_end(&json);
    pj_json_kv_string(&json, "model", b.recorded);
    pj_json_kv_double(&json, "token_ms", b.token_ms);
    pj_json_object_end(&json);
    if (status != PJ_OK)
        b.code = pj_command_failed(command, &err);
    else if (b.json)
        printf("%s\n", pj_buffer_get(&buffer));
    else if (!b.model_error && !b.windows)
        printf("\n%s: tokens of %.1f ms, %lld simulated machines per row\n", b.recorded, b.token_ms,
               (long long)b.runs);
    pj_buffer_fini(&buffer);
    return b.code;
}

const pj_command pj_bench_attribution = {
    .name = "bench attribution",
    .summary = "attribution against simulated sensors with a known truth",
    .run = attribution_run_bench,
    .usage = "[options]",
    .text =
        "Takes the spans of one real run and lets simulated sensors observe machines in\n"
        "which every class of work has a power of its own (20 to 60 W, drawn from the seed). The\n"
        "column `published` is what the method promises (docs/measurement.md), for tokens of 50 "
        "or\n"
        "of 10 ms, whichever is nearer.",
    .examples = "perjoule bench attribution\n"
                "perjoule bench attribution -m synthetic:llama-3.2-1b,q4_0,layers=8 --runs 200\n",
};

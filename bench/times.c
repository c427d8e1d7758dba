/* The time of each analysis over a large database: an experiment of 72 cells, whose figures are
 * drawn from a plausible machine, so that predictions and laws have something to fit. */
#include "analysis/plan.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "bench/folder.h"
#include "bench/store_run.h"
#include "bench/truth.h"
#include "experiment/experiment.h"
#include "generate/predict.h"
#include "import/trace_run.h"
#include "insight/advice.h"
#include "insight/insight.h"
#include "insight/laws.h"
#include "record/experiment_cell.h"
#include "record/machine.h"
#include "report/report.h"
#include "store/experiments.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char plan_text[] =
    "{\"name\":\"times\",\"models\":[\"synthetic:smollm2-135m\",\"synthetic:qwen3-0.6b\","
    "\"synthetic:llama-3.2-1b\"],\"dtypes\":[\"bf16\",\"q8_0\"],\"batches\":[1,2,4,8],"
    "\"inputs\":[32,128,512],\"outputs\":[64],\"threads\":[2],\"repeat\":10000}";

typedef struct database {
    pj_arena arena;
    pj_plan plan;
    pj_store *store;
    const char *machine;
    char first[PJ_UUID_BYTES], second[PJ_UUID_BYTES]; /* runs */
    char trace[300];
} database;

/* ---- the runs ---- */

static const char model_format[] =
    "{\"parameters\":%.0f,\"active_parameters\":%.0f,\"layers\":%d,\"heads\":16,\"head_dim\":64,"
    "\"decode_weight_bytes\":%.0f,\"flops_per_token\":%.0f,\"kv_bytes_per_token\":24576,"
    "\"vocab_size\":49152,\"context\":8192,\"attention\":\"gqa\"}";

/* Energy and time of a request by its work, with 2 % of noise. */
static void times_set_figures(pj_run_info *i, const pj_cell *cell, double parameters, double bytes,
                              pj_random *random)
{
    double tokens = (double)cell->batch * cell->output;
    double decode = cell->output * (bytes / 2e10 + cell->batch * 2 * parameters / 2e11);
    double prefill = cell->batch * cell->input * 2 * parameters / 4e11;
    double noise = exp(0.02 * pj_random_normal(random));
    i->input_tokens = (uint64_t)cell->batch * cell->input;
    i->output_tokens = (uint64_t)tokens;
    i->prefill_ms = 1e3 * prefill;
    i->decode_ms = 1e3 * decode;
    i->total_ms = i->request_ms = i->prefill_ms + i->decode_ms;
    i->prefill_mj = 25e3 * prefill * noise;
    i->decode_mj = 20e3 * decode * noise;
    i->total_mj = i->request_mj = i->prefill_mj + i->decode_mj;
    i->request_sd_mj = 0.01 * i->request_mj;
}

static pj_status save_run(database *d, uint32_t index, pj_random *random, pj_error *err)
{
    pj_run_data run;
    char model[512], settings[256];
    static const double sizes[] = {0.135e9, 0.6e9, 1.24e9};
    pj_cell cell;
    pj_experiment_cell cell_id = {index % pj_plan_cells(&d->plan), index / pj_plan_cells(&d->plan),
                                  0};
    pj_plan_cell(&d->plan, cell_id.cell, &cell);
    int size = 0;
    while (strcmp(d->plan.models[size], cell.model) != 0) size++;
    double bytes = sizes[size] * (strcmp(cell.dtype, "bf16") == 0 ? 2 : 1.0625);
    if (!pj_bench_make_run(&run, index + 2, 16, 0, 20)) return pj_fail_memory(err, "a run");
    snprintf(model, sizeof model, model_format, sizes[size], sizes[size], 8 << size, bytes,
             2 * sizes[size]);
    snprintf(settings, sizeof settings,
             "{\"experiment_cell\":%u,\"experiment_block\":%u,\"experiment_round\":0}",
             cell_id.cell, cell_id.block);
    pj_run_info *i = &run.info;
    i->engine = "perjoule";
    i->machine = d->machine;
    i->model_name = i->model_path = cell.model;
    i->dtype = cell.dtype;
    i->batch_size = cell.batch;
    i->threads = cell.threads;
    i->parameters = sizes[size];
    i->model_json = model;
    i->settings_json = settings;
    i->experiment_name = d->plan.name;
    i->total_rails = "cpu";
    i->disturbed_share = 0;
    times_set_figures(i, &cell, sizes[size], bytes, random);
    pj_status status = pj_store_save(d->store, &run, err);
    if (index == 0) memcpy(d->first, i->id, sizeof d->first);
    memcpy(d->second, i->id, sizeof d->second);
    pj_run_data_fini(&run);
    return status;
}

static pj_status times_fill(database *d, uint32_t runs, pj_error *err)
{
    pj_random random = {11};
    pj_machine machine;
    pj_status status = pj_plan_parse(plan_text, &d->arena, &d->plan, err);
    if (status == PJ_OK) status = pj_machine_read("", NULL, 0, &d->arena, &machine, err);
    if (status == PJ_OK) status = pj_experiment_store(d->store, &d->plan, err);
    if (status != PJ_OK) return status;
    d->machine = machine.name;
    for (uint32_t i = 0; i < runs && status == PJ_OK; i++) status = save_run(d, i, &random, err);
    return status;
}

/* ---- the analyses ---- */

typedef pj_status analysis(database *d, pj_json *json, pj_error *err);

static pj_status times_group(database *d, const char *by, pj_json *json, pj_error *err)
{
    return pj_insight_groups(d->store, &(pj_group_query){.by = by}, json, err);
}

static pj_status by_dtype(database *d, pj_json *json, pj_error *err)
{
    return times_group(d, "dtype", json, err);
}

static pj_status by_cell(database *d, pj_json *json, pj_error *err)
{
    return times_group(d, "settings.experiment_cell", json, err);
}

static pj_status times_compare(database *d, pj_json *json, pj_error *err)
{
    const char *ids[] = {d->first, d->second};
    return pj_insight_compare(d->store, ids, 2, NULL, json, err);
}

static pj_status experiment(database *d, pj_json *json, pj_error *err)
{
    return pj_view_experiment(d->store, d->plan.name, NULL, json, err);
}

static pj_status summary(database *d, pj_json *json, pj_error *err)
{
    return pj_insight_summary(d->store, d->first, NULL, json, err);
}

static pj_status advice(database *d, pj_json *json, pj_error *err)
{
    return pj_insight_advice(d->store, d->second, NULL, json, err);
}

static pj_status predict(database *d, bool map, pj_json *json, pj_error *err)
{
    pj_predict_query request = {.model = "synthetic:qwen3-0.6b",
                                .dtype = "bf16",
                                .input = 100,
                                .output = 64,
                                .batch = 2,
                                .map = map};
    return pj_insight_predict(d->store, &request, json, err);
}

static pj_status times_predict_one(database *d, pj_json *json, pj_error *err)
{
    return predict(d, false, json, err);
}

static pj_status predict_map(database *d, pj_json *json, pj_error *err)
{
    return predict(d, true, json, err);
}

static pj_status laws(database *d, pj_json *json, pj_error *err)
{
    return pj_insight_laws(d->store, d->machine, json, err);
}

static pj_status times_report(database *d, const pj_report_request *request, pj_json *json,
                              pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, 64 << 20);
    pj_status status = pj_report_make(d->store, request, &out, err);
    pj_buffer_fini(&out);
    pj_json_null(json);
    return status;
}

static pj_status report_run(database *d, pj_json *json, pj_error *err)
{
    const char *ids[] = {d->second};
    return times_report(d, &(pj_report_request){.ids = ids, .count = 1, .html = true}, json, err);
}

static pj_status report_experiment(database *d, pj_json *json, pj_error *err)
{
    return times_report(d, &(pj_report_request){.experiment = d->plan.name, .html = true}, json,
                        err);
}

static pj_status detect_phases(database *d, pj_json *json, pj_error *err)
{
    pj_run_data run;
    pj_status status = pj_trace_run_make(d->store, d->trace, &run, err);
    if (status == PJ_OK) pj_run_data_fini(&run);
    pj_json_null(json);
    return status;
}

/* An hour of readings every half second, a request a minute. */
static pj_status write_trace(database *d, pj_error *err)
{
    pj_buffer out;
    pj_random random = {5};
    pj_buffer_init(&out, 1 << 20);
    pj_buffer_text(&out, "timestamp_ms,cpu_mw\n");
    for (int i = 0; i < 7200; i++) {
        int at = i % 120;
        double mw = at < 30 ? 10e3 : at < 45 ? 38e3 : 28e3;
        pj_buffer_printf(&out, "%d,%.0f\n", 500 * i, mw * exp(0.02 * pj_random_normal(&random)));
    }
    pj_status status = pj_file_write(d->trace, pj_buffer_get(&out), out.length, err);
    pj_buffer_fini(&out);
    return status;
}

static pj_status time_all(pj_bench_truth *b, database *d, pj_error *err)
{
    static const struct {
        const char *key, *note;
        analysis *run;
    } all[] = {{"compare_by_dtype_seconds", "all runs in two groups", by_dtype},
               {"compare_by_cell_seconds", "all runs in 72 groups, the 32 largest", by_cell},
               {"compare_seconds", "two runs", times_compare},
               {"experiment_seconds", "all runs in 72 cells", experiment},
               {"summary_seconds", "of a run, with its anomalies", summary},
               {"advice_seconds", "about a run", advice},
               {"predict_seconds", "a request", times_predict_one},
               {"predict_map_seconds", "with the map over lengths", predict_map},
               {"laws_seconds", "of energy over size, shape and lengths", laws},
               {"report_seconds", "of a run", report_run},
               {"report_experiment_seconds", "of all runs", report_experiment},
               {"detect_phases_seconds", "of 7,200 readings, trained on runs", detect_phases}};
    pj_status status = PJ_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && status == PJ_OK; i++) {
        pj_buffer out;
        pj_json json;
        pj_buffer_init(&out, 1u << 28);
        pj_json_init(&json, &out);
        int64_t begin_ns = pj_clock_ns();
        status = all[i].run(d, &json, err);
        double seconds = (double)(pj_clock_ns() - begin_ns) / 1e9;
        pj_buffer_fini(&out);
        if (status == PJ_OK) pj_bench_truth_say(b, all[i].key, seconds, "s", all[i].note);
    }
    return status;
}

pj_status pj_bench_truth_times(pj_bench_truth *b, uint32_t runs, pj_error *err)
{
    char path[300];
    database *d = pj_alloc(1, sizeof *d);
    if (!d) return pj_fail_memory(err, "the benchmark");
    pj_arena_init(&d->arena, 0);
    pj_bench_folder_database("times.db", path, sizeof path);
    pj_bench_folder_database("trace.csv", d->trace, sizeof d->trace);
    pj_status status = pj_store_open(&(pj_store_options){.path = path}, &d->store, err);
    if (status == PJ_OK) status = times_fill(d, runs, err);
    if (status == PJ_OK) status = write_trace(d, err);
    if (status == PJ_OK) pj_bench_truth_say(b, "runs", runs, "", "in a database, and over them:");
    if (status == PJ_OK) status = time_all(b, d, err);
    pj_store_close(d->store);
    pj_arena_fini(&d->arena);
    pj_free(d);
    return status;
}

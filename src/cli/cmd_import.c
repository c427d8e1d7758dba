/* perjoule import: imports exported runs, spools and power traces into the database, and traces of
 * PyTorch's profiler with power recorded at the same time. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "import/torch_run.h"
#include "import/trace_run.h"
#include "record/recover.h"
#include "record/session.h"
#include "store/export.h"

#include "base/file.h"
#include "base/memory.h"
#include "http/gzip.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUNZIPPED_MAX_BYTES = 2000 << 20 };

static bool looks_like_json(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && strchr(" \t\r\n", text[i]) && text[i]) i++;
    return i < bytes && text[i] == '{';
}

static pj_status import_save(pj_store *store, pj_status status, pj_run_data *data, pj_error *err)
{
    if (status == PJ_OK) status = pj_store_save(store, data, err);
    if (status == PJ_OK) pj_print(stdout, "%s\n", data->info.id);
    pj_run_data_fini(data);
    return status;
}

static pj_status import_read_run(const char *path, pj_run_data *data, pj_error *err)
{
    pj_mapping file;
    pj_status status = pj_file_map(path, &file, err);
    if (status != PJ_OK) return status;
    const char *text = (const char *)file.data;
    size_t bytes = file.size;
    char *unpacked = NULL;
    if (pj_is_gzip(text, bytes)) {
        status = pj_gunzip(text, bytes, GUNZIPPED_MAX_BYTES, &unpacked, &bytes, err);
        text = unpacked;
    }
    bool json = status == PJ_OK && (unpacked || looks_like_json(text, bytes));
    if (json) status = pj_import_json(text, bytes, data, err);
    if (status != PJ_OK) pj_error_prefix(err, "%s", path);
    pj_free(unpacked);
    pj_file_unmap(&file);
    return json || status != PJ_OK ? status : pj_run_data_of_spool(path, data, err);
}

static pj_status import_file(pj_store *store, const char *path, bool replace, pj_error *err)
{
    pj_run_data data = {0};
    pj_run_list present = {0};
    pj_error absent;
    pj_status status = import_read_run(path, &data, err);
    if (status == PJ_OK && !replace &&
        pj_store_info(store, data.info.id, &present, &absent) == PJ_OK)
        status = pj_fail(err, PJ_E_INVALID,
                         "run %s is already in the database: give --replace to "
                         "replace it by the one of %s",
                         data.info.id, path);
    pj_run_list_fini(&present);
    return import_save(store, status, &data, err);
}

static pj_status import_trace(pj_store *store, const char *path, pj_error *err)
{
    pj_run_data data = {0};
    return import_save(store, pj_trace_run_make(store, path, &data, err), &data, err);
}

/* ---- traces of PyTorch ---- */

static pj_status import_read_power(const pj_mapping *file, const char *path, pj_trace *power,
                                   pj_error *err)
{
    pj_status status = pj_trace_read((const char *)file->data, file->size, path, power, err);
    if (status == PJ_OK && isnan(power->origin_unix_ms))
        status = pj_fail(err, PJ_E_INVALID,
                         "%s has no recording time: it needs a column unix_ms, as "
                         "perjoule top --record writes it",
                         path);
    return status;
}

static pj_status import_torch(pj_store *store, const char *trace_path, const char *power_path,
                              pj_error *err)
{
    pj_mapping trace_file = {0}, power_file = {0};
    pj_kineto trace = {0};
    pj_trace power = {0};
    pj_run_data data = {0};
    pj_status status = pj_file_map(trace_path, &trace_file, err);
    if (status == PJ_OK) {
        status = pj_kineto_read((const char *)trace_file.data, trace_file.size, &trace, err);
        if (status != PJ_OK) pj_error_prefix(err, "%s", trace_path);
    }
    if (status == PJ_OK) status = pj_file_map(power_path, &power_file, err);
    if (status == PJ_OK) status = import_read_power(&power_file, power_path, &power, err);
    if (status == PJ_OK) status = pj_torch_run(&trace, &power, &data, err);
    pj_trace_fini(&power);
    pj_kineto_fini(&trace);
    pj_file_unmap(&trace_file);
    pj_file_unmap(&power_file);
    return import_save(store, status, &data, err);
}

static int run_import(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL, *torch = NULL, *power = NULL;
    bool replace = false, detect = false;
    const pj_option options[] = {
        {"torch-trace", 0, PJ_OPTION_TEXT, &torch, "FILE.json",
         "a trace of PyTorch's profiler, to be joined with --power", .rule = pj_rule_file,
         .needs = "power"},
        {"power", 0, PJ_OPTION_TEXT, &power, "FILE.csv",
         "the power recorded at the same time: by perjoule top --record, or an nvidia-smi log",
         .rule = pj_rule_file, .needs = "torch-trace"},
        {"replace", 0, PJ_OPTION_FLAG, &replace, NULL, "replace a run of the same id"},
        {"detect-phases", 0, PJ_OPTION_FLAG, &detect, NULL,
         "the files are power traces without phases: find them"},
        PJ_OPTION_DB(&db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional < 1 && !torch) return pj_command_usage(command, "give at least one file");
    pj_store *store = NULL;
    pj_error err = {0};
    pj_status status =
        pj_store_open(&(pj_store_options){.path = db, .may_be_away = true}, &store, &err);
    if (torch && status == PJ_OK) status = import_torch(store, torch, power, &err);
    for (int i = 1; i <= positional && status == PJ_OK; i++) {
        status = detect ? import_trace(store, argv[i], &err)
                        : import_file(store, argv[i], replace, &err);
        if (status == PJ_OK) pj_recovery_imported(pj_store_path(store), argv[i]);
    }
    pj_store_close(store);
    pj_say_waiting(db);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_import = {
    .name = "import",
    .summary = "read exported runs or spools into the database",
    .run = run_import,
    .usage = "[options] FILE...",
    .text =
        "Reads JSON written by perjoule export, and spools left by a process that died. Prints "
        "the id of each run. With --detect-phases the files are power traces: those of perjoule top "
        "--record, exported power_samples.csv, logs of nvidia-smi, Zeus and powermetrics. Change points and a model trained on the runs in the database "
        "find the phases, and the run's settings name each segment with its confidence.\n\n"
        "With --torch-trace, a trace that PyTorch's profiler wrote (export_chrome_trace) becomes "
        "a run: the joules of its kernels and ranges, from the power recorded while it ran. "
        "Both say when they were made by the wall clock.",
    .examples = "perjoule import run.json\nperjoule import --replace run.json --db other.db\n"
                "perjoule import --detect-phases trace.csv\n"
                "perjoule import --torch-trace trace.json --power power.csv\n",
};

/* perjoule run: one profiled inference, or a series of them, from the command line. */
#include "base/memory.h"
#include "cli/inputs.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/patience.h"
#include "cli/run_answer.h"
#include "cli/run_live.h"
#include "cli/run_report.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "generate/find_model.h"
#include "generate/generate.h"
#include "generate/preflight.h"
#include "insight/advice.h"
#include "store/run_summary.h"

#include <string.h>

/* READ_BYTES: bytes of weights read to measure memory bandwidth, some tens of milliseconds. */
enum { MAX_PROMPTS = 4096, READ_BYTES = 256 << 20 };

typedef struct run_args {
    pj_generation_request request;
    const char *file, *prompts_file, *messages, *ids;
    pj_session_options session;
    int64_t threads, repeat, warmup;
    double baseline_s; /* NAN: the default */
    pj_text_list chat_settings;
    bool is_private, no_store, json, quiet, verbose;
} run_args;

typedef struct run_state {
    const run_args *args;
    pj_profile_options options;
    pj_session *session;
    pj_model_slot slot;
    pj_run_live live;
    pj_series series;
    char *chat_variables;
    char model_path[4096], draft_path[4096];
    char *texts; /* prompt texts, needed until the end */
    int32_t *ids;
    pj_prompt *prompts; /* prompt_count of them, processed in batches */
    uint32_t prompt_count;
    char first_id[PJ_UUID_BYTES];
    int64_t began_ns, first_token_ns;
    uint32_t streamed;
    bool is_last; /* of a series */
} run_state;

/* ---- prompts ---- */

static pj_status run_get_prompts(run_state *s, const char *positional, pj_error *err)
{
    const run_args *a = s->args;
    size_t bytes = 0;
    pj_status status = PJ_OK;
    if (a->prompts_file)
        return pj_input_prompts(a->prompts_file, MAX_PROMPTS, &s->texts, &s->prompts,
                                &s->prompt_count, err);
    s->prompts = pj_alloc(1, sizeof *s->prompts);
    if (!s->prompts) return pj_fail_memory(err, "the prompt");
    s->prompt_count = 1;
    if (a->messages) {
        status = pj_input_read(a->messages, PJ_INPUT_PROMPT_BYTES, &s->texts, &bytes, err);
        *s->prompts = (pj_prompt){.text = s->texts, .bytes = bytes, .messages = true};
        return status;
    }
    if (a->ids) {
        status = pj_ids_parse(a->ids, &s->ids, &s->prompts->id_count, err);
        s->prompts->ids = s->ids;
        s->options.engine.any_tokenizer = true;
        return status;
    }
    const char *text = a->request.prompt ? a->request.prompt : positional;
    if (a->file || (text && strcmp(text, "-") == 0)) {
        status =
            pj_input_read(a->file ? a->file : "-", PJ_INPUT_PROMPT_BYTES, &s->texts, &bytes, err);
        text = s->texts;
    } else if (text) {
        bytes = strlen(text);
    }
    s->prompts->text = text;
    s->prompts->bytes = bytes;
    return status;
}

/* ---- options ---- */

/* Repetitions have the same text, which is printed once. */
static bool prints_text(const run_state *s)
{
    return !s->args->json && s->options.repeat_index == 0;
}

static void on_token(void *context, const pj_generated *token)
{
    run_state *s = context;
    if (token->position == 0 && token->sequence == 0) s->first_token_ns = pj_clock_ns();
    s->streamed++;
    if (token->sequence == 0 && token->bytes && prints_text(s)) {
        pj_write_output(stdout, token->text, token->bytes);
        fflush(stdout);
    }
    double seconds = (double)(pj_clock_ns() - s->first_token_ns) * 1e-9;
    pj_run_live_draw(&s->live, s->streamed, seconds > 0 ? (s->streamed - 1) / seconds : 0);
}

static void run_set_options(run_state *s)
{
    const run_args *a = s->args;
    pj_profile_options *o = &s->options;
    pj_profile_options_set(o, &a->request);
    o->engine.model = s->model_path;
    if (s->args->request.draft) o->engine.draft = s->draft_path;
    o->engine.threads = (uint32_t)a->threads;
    o->warmup = (uint32_t)a->warmup;
    o->request.chat |= a->messages || a->chat_settings.count;
    o->request.chat_variables = s->chat_variables;
    o->request.is_private = a->is_private;
    o->request.on_token = on_token;
    o->request.context = s;
    o->request.cancel = &pj_interrupted;
}

/* ---- the runs ---- */

/* Breakdown of the time to the first token; false when the model was open before, or no token
 * came. */
static bool get_start(const run_state *s, const pj_profile_result *result, pj_run_start *start)
{
    if (s->args->repeat > 1 || s->args->warmup > 0 || !s->first_token_ns || !s->slot.engine)
        return false;
    const pj_engine_facts *facts = pj_engine_get_facts(s->slot.engine);
    *start = (pj_run_start){.began_ns = s->began_ns,
                            .first_token_ns = s->first_token_ns,
                            .model_ns = facts->model_ns,
                            .tokenizer_ns = facts->tokenizer_ns,
                            .prefill_ns = result->generated.prefill_ns};
    return true;
}

/* The run's advice; null if the run was not stored or the store fails. */
static void write_advice(const run_state *s, const pj_profile_result *result, pj_json *json)
{
    pj_buffer advice;
    pj_json inner;
    pj_store *store = s->session->store;
    pj_buffer_init(&advice, 1 << 20);
    pj_json_init(&inner, &advice);
    bool made = store && result->stored &&
                pj_insight_advice(store, result->run_id, NULL, &inner, NULL) == PJ_OK;
    pj_json_key(json, "advice");
    if (made && pj_json_finish(&inner))
        pj_json_raw(json, advice.data, advice.length);
    else
        pj_json_null(json);
    pj_buffer_fini(&advice);
}

static pj_status run_print_json(const run_state *s, const pj_profile_result *result, pj_error *err)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_process_memory memory;
    pj_run_start start;
    bool started = get_start(s, result, &start);
    pj_process_memory_get(&memory);
    pj_json_object_begin(json);
    pj_summary_write_members(json, &result->data.info, NULL);
    pj_run_report_write_text(json, &result->generated);
    pj_run_report_write_draft(json, &result->data);
    pj_run_report_write_start(json, started ? &start : NULL);
    pj_run_report_write_resident(json, &memory);
    pj_json_kv_array_begin(json, "warnings");
    for (uint32_t i = 0; i < result->data.warning_count; i++)
        pj_json_string(json, result->data.warnings[i].text);
    pj_json_array_end(json);
    write_advice(s, result, json);
    if (s->series.runs > 1) {
        pj_json_kv_uint(json, "repeats", s->series.runs);
        pj_json_key(json, "statistics");
        pj_series_write(json, &s->series);
    }
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

/* Of runs without recording, which measure speed. */
static void run_print_speed(const run_state *s, const pj_profile_result *result)
{
    const pj_engine_facts *facts = pj_engine_get_facts(s->slot.engine);
    pj_process_memory memory;
    pj_run_start start;
    pj_process_memory_get(&memory);
    /* after the text, so that it delays no output */
    pj_run_report_speed(stderr, &result->generated, facts,
                        pj_engine_read_speed(s->slot.engine, READ_BYTES));
    if (get_start(s, result, &start)) pj_run_report_start(stderr, &start);
    pj_run_report_resident(stderr, &memory, facts->weight_bytes);
}

static void print_batch(const pj_generate_result *g)
{
    for (uint32_t i = 1; i < g->count; i++)
        pj_print(stdout, "\n[%u] %.*s\n", i, (int)g->sequences[i].text_bytes,
                 g->sequences[i].text ? g->sequences[i].text : "");
}

static void run_print_series(run_state *s, const pj_run_data *data)
{
    pj_series_finish(&s->series);
    if (s->args->verbose) {
        pj_run_report_print(stderr, data);
        pj_series_print(stderr, &s->series);
    } else {
        pj_series_answer_print(stderr, &s->series, data);
    }
}

/* The text goes to standard output, what is said about it to standard error. */
static void run_print_result(run_state *s, const pj_profile_result *result, bool last)
{
    const pj_generate_result *g = &result->generated;
    const pj_run_data *data = &result->data;
    if (prints_text(s)) {
        if (g->count && g->sequences[0].text_bytes) putchar('\n');
        print_batch(g);
        fflush(stdout);
    }
    if (s->args->quiet) return;
    bool is_series = s->series.runs > 1;
    if (last && is_series)
        run_print_series(s, data);
    else if (last && s->args->verbose)
        pj_run_report_print(stderr, data);
    else if (last)
        pj_run_answer_print(stderr, data);
    if (last && s->options.depth == PJ_DEPTH_OFF && s->slot.engine) run_print_speed(s, result);
    fflush(stderr);
}

/* The report is printed before the run is stored, which may take seconds. */
static void on_result(void *context, const pj_profile_result *result)
{
    run_state *s = context;
    bool last = s->is_last || result->run_status != PJ_RUN_COMPLETED;
    pj_run_live_end(&s->live);
    if (result->run_status == PJ_RUN_COMPLETED) pj_series_add(&s->series, &result->data);
    if (!s->args->json && result->run_status != PJ_RUN_FAILED) run_print_result(s, result, last);
}

/* Selects the batch that begins with prompt `first`: each prompt of a file is used once. */
static void choose_batch(run_state *s, uint32_t first)
{
    pj_profile_options *o = &s->options;
    uint32_t left = s->prompt_count - first, wanted = (uint32_t)s->args->request.batch;
    o->request.prompts = s->prompts + first;
    o->request.prompt_count = wanted && wanted < left ? wanted : left;
    o->request.sequences = s->prompt_count > 1 ? o->request.prompt_count : wanted;
    o->request.first_stream = first;
    s->first_id[0] = 0;
    s->series = (pj_series){0};
}

/* `last` of a series also prints its statistics. */
static pj_status run_once(run_state *s, uint32_t index, bool last, pj_error *err)
{
    pj_profile_result result;
    s->streamed = 0;
    s->is_last = last;
    s->options.on_result = on_result;
    s->options.repeat_index = index;
    s->options.repeat_group = s->args->repeat == 1 ? NULL : s->first_id;
    if (!s->args->quiet) pj_run_live_begin(&s->live, index + 1, (uint32_t)s->args->repeat);
    pj_live_sink sink = pj_run_live_sink(&s->live);
    pj_live_sinks_clear(&s->session->sinks);
    if (s->live.rows) pj_session_add_sink(s->session, &sink, NULL);
    pj_status status = pj_profile_generate(s->session, &s->slot, &s->options, &result, err);
    pj_run_live_end(&s->live);
    if (index == 0) memcpy(s->first_id, result.run_id, sizeof s->first_id);
    if (s->args->json && (last || status != PJ_OK) && result.data.info.id[0] &&
        result.run_status != PJ_RUN_FAILED) {
        pj_series_finish(&s->series); /* JSON has advice, which needs the stored run */
        pj_error printing;
        if (run_print_json(s, &result, &printing) != PJ_OK && status == PJ_OK)
            status = pj_fail(err, printing.status, "%s", printing.text);
    }
    pj_profile_result_fini(&result);
    return status;
}

static pj_status warm_up(run_state *s, pj_error *err)
{
    pj_profile_options silent = s->options;
    pj_status status = PJ_OK;
    silent.request.on_token = NULL;
    for (int64_t i = 0; i < s->args->warmup && status == PJ_OK; i++) {
        pj_generate_result result;
        status = pj_profile_bare(&s->slot, &silent, &result, err);
        pj_generate_result_fini(&result);
    }
    /* With the model in memory and nothing running, measure the resident baseline. */
    if (status == PJ_OK && s->args->warmup > 0)
        status = pj_session_baseline(s->session, PJ_BASELINE_RESIDENT, err);
    return status;
}

static pj_status run_all(const pj_command *command, run_state *s, pj_error *err)
{
    const run_args *a = s->args;
    pj_status status = pj_stored_session(command, &a->session, &s->session, err);
    if (status != PJ_OK) return status;
    choose_batch(s, 0);
    s->slot.is_series = a->repeat > 1;
    status = warm_up(s, err);
    for (uint32_t first = 0; first < s->prompt_count && status == PJ_OK;
         first += s->options.request.prompt_count) {
        choose_batch(s, first);
        for (int64_t i = 0; i < a->repeat && status == PJ_OK; i++)
            status = run_once(s, (uint32_t)i, i + 1 == a->repeat, err);
    }
    return status;
}

static void run_release(run_state *s)
{
    /* the whole report has it among the run's warnings */
    const char *declined =
        s->slot.engine && !s->args->verbose ? pj_engine_get_facts(s->slot.engine)->declined : NULL;
    if (declined) pj_say("perjoule run: the CPU computed: %s", declined);
    pj_stored_session_close(s->session);
    pj_model_slot_close(&s->slot);
    pj_free(s->texts);
    pj_free(s->chat_variables);
    pj_free(s->ids);
    pj_free(s->prompts);
    pj_free(s);
}

/* ---- the command ---- */

/* Reports a name found in two places. */
static pj_status run_find_model(const pj_command *command, run_state *s, pj_error *err)
{
    char note[1024];
    pj_status status = pj_model_find_noting(s->args->request.model, NULL, s->model_path,
                                            sizeof s->model_path, note, sizeof note, err);
    if (status == PJ_OK && note[0]) pj_say("perjoule %s: %s", command->name, note);
    if (status == PJ_OK && s->args->request.draft)
        status =
            pj_draft_find(s->args->request.draft, NULL, s->draft_path, sizeof s->draft_path, err);
    return status;
}

/* Checks every prompt before the first batch is run. */
static pj_status check_all(const run_state *s, pj_error *err)
{
    pj_profile_options all = s->options;
    all.request.prompts = s->prompts;
    all.request.prompt_count = s->prompt_count;
    return pj_profile_preflight(&all, err);
}

static int run_execute(const pj_command *command, const run_args *a, const char *positional)
{
    int64_t began_ns = pj_clock_ns();
    pj_error err = {0};
    int sources = !!a->request.prompt + !!positional + !!a->file + !!a->prompts_file +
                  !!a->messages + !!a->ids;
    for (int i = 0; i < a->request.tags.count; i++)
        if (!*a->request.tags.items[i]) return pj_command_usage(command, "a tag must not be empty");
    if (sources != 1)
        return pj_command_usage(command,
                                "give one prompt: TEXT, -f, --prompts, --messages or --ids");
    run_state *s = pj_alloc(1, sizeof *s);
    if (!s) {
        pj_fail_memory(&err, "a run");
        return pj_command_failed(command, &err);
    }
    s->args = a;
    s->began_ns = began_ns;
    setvbuf(stderr, NULL, _IOLBF, 0); /* a report is many small writes */
    pj_status status = run_find_model(command, s, &err);
    if (status == PJ_OK) status = run_get_prompts(s, positional, &err);
    if (status == PJ_OK) status = pj_chat_variables(&a->chat_settings, &s->chat_variables, &err);
    run_set_options(s);
    pj_patience_for("loading the model", &s->live.loading);
    if (status == PJ_OK) status = pj_sampling_check(&s->options.request.sampling, &err);
    if (status == PJ_OK) status = check_all(s, &err);
    if (status == PJ_OK) {
        pj_interrupt_catch();
        status = run_all(command, s, &err);
    }
    pj_patience_for(NULL, NULL);
    run_release(s);
    if (status == PJ_E_CANCELLED) return PJ_EXIT_INTERRUPTED;
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

static int run_run(const pj_command *command, int argc, char **argv)
{
    run_args a = {.repeat = 1, .baseline_s = NAN};
    const char *session_id = NULL;
    pj_generation_request *request = &a.request;
    pj_generation_request_init(request);
    const pj_option options[] = {
        PJ_OPTION_HEADING("What to run"),
        PJ_OPTION_MODEL(&request->model),
        {"prompt", 'p', PJ_OPTION_ANY_TEXT, &request->prompt, "TEXT",
         "the prompt; - is standard input"},
        {"file", 'f', PJ_OPTION_TEXT, &a.file, "FILE", "read the prompt from a file",
         .rule = pj_rule_file_or_input},
        {"prompts", 0, PJ_OPTION_TEXT, &a.prompts_file, "FILE",
         "a file of prompts, one per line, run in batches (--batch; default: all at once)",
         .rule = pj_rule_file_or_input},
        {"ids", 0, PJ_OPTION_TEXT, &a.ids, "1,2,3", "token ids instead of a text",
         .rule = pj_rule_ids},
        pj_request_option(request, "max_length"),
        pj_request_option(request, "ignore_eos"),
        pj_request_option(request, "stop"),
        {"repeat", 0, PJ_OPTION_INT, &a.repeat, "N", "run N times and print statistics", 1,
         PJ_SERIES_MAX},
        {"warmup", 0, PJ_OPTION_INT, &a.warmup, "N", "unrecorded warm-up runs before", 0, 1000},
        PJ_OPTION_HEADING("What to measure"),
        pj_request_option(request, "profiling_depth"),
        pj_request_option(request, "statistics"),
        PJ_OPTION_POWER(&a.session.power),
        PJ_OPTION_INTERVAL(&a.session.interval_ns, 0, "sampling interval, e.g. 10ms"),
        PJ_OPTION_BASELINE(&a.baseline_s, 0),
        PJ_OPTION_HEADING("How to compute"),
        pj_request_option(request, "device"),
        {"threads", 't', PJ_OPTION_INT, &a.threads, "N", "threads (one per core)", 1, 256},
        PJ_OPTION_DTYPE(&request->dtype),
        PJ_OPTION_KV(&request->kv),
        pj_request_option(request, "no_mmap"),
        pj_request_option(request, "batch_size"),
        pj_request_option(request, "batch_rule"),
        pj_request_option(request, "draft_model"),
        pj_request_option(request, "draft_tokens"),
        PJ_OPTION_HEADING("Sampling"),
        pj_request_option(request, "temperature"),
        pj_request_option(request, "top_k"),
        pj_request_option(request, "top_p"),
        pj_request_option(request, "min_p"),
        pj_request_option(request, "typical_p"),
        pj_request_option(request, "repetition_penalty"),
        pj_request_option(request, "frequency_penalty"),
        pj_request_option(request, "presence_penalty"),
        pj_request_option(request, "logit_bias"),
        pj_request_option(request, "seed"),
        PJ_OPTION_HEADING("Chat"),
        pj_request_option(request, "chat"),
        pj_request_option(request, "system"),
        {"messages", 0, PJ_OPTION_TEXT, &a.messages, "FILE",
         "a conversation as JSON, an array of {role, content}; implies --chat",
         .rule = pj_rule_file_or_input},
        {"chat-set", 0, PJ_OPTION_LIST, &a.chat_settings, "NAME=VALUE",
         "a variable of the template, e.g. enable_thinking=false; may be repeated",
         .rule = pj_rule_assignment},
        PJ_OPTION_HEADING("What to keep"),
        pj_request_option(request, "tags"),
        PJ_OPTION_SESSION(&session_id),
        pj_request_option(request, "experiment_name"),
        {"db", 0, PJ_OPTION_TEXT, &a.session.database, "FILE", "database of runs",
         .rule = pj_rule_database, .excludes = "no-store"},
        {"private", 0, PJ_OPTION_FLAG, &a.is_private, NULL,
         "store a hash, length and simple features of prompt and output, not the texts"},
        {"no-store", 0, PJ_OPTION_FLAG, &a.no_store, NULL, "keep nothing"},
        PJ_OPTION_HEADING("What to print"),
        {"quiet", 'q', PJ_OPTION_FLAG, &a.quiet, NULL, "the generated text alone",
         .excludes = "verbose json"},
        {"verbose", 'v', PJ_OPTION_FLAG, &a.verbose, NULL,
         "every phase, interval and condition below the answer", .excludes = "json"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print one JSON object per batch"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1)
        return pj_command_usage(command, "put the prompt in quotes: it was split into %d arguments",
                                positional);
    a.session.baseline_seconds = pj_baseline_seconds(a.baseline_s);
    pj_session_option(session_id);
    if (a.no_store) a.session.database = "none";
    return run_execute(command, &a, positional ? argv[1] : NULL);
}

const pj_command pj_command_run = {
    .name = "run",
    .summary = "run a model and show where the energy went",
    .run = run_run,
    .usage = "[-m MODEL] [options] PROMPT",
    .text =
        "Runs an inference, records it and stores the run. The text goes to standard output as it "
        "is generated. What it cost follows on standard error: joules per token, tokens per "
        "second, the parts and what is to be known about them (-v: everything). Energy needs a "
        "power sensor (perjoule sensors); without one the timing and the statistics are complete "
        "and energy is unavailable.\n\n"
        "With --prompts each prompt runs exactly once, in batches of --batch prompts; every batch "
        "is a run of its own. Each sequence of a batch samples from its own stream of the seed.\n\n"
        "Text is chosen greedily unless --temp, --top-k, --top-p, --min-p or --typical-p is given. "
        "Ctrl-C ends a run and stores it.",
    .examples =
        "perjoule run \"Once upon a time\"                  # the demonstration model\n"
        "perjoule run -m models/llama -n 200 --depth deep \"Why is the sky blue?\"\n"
        "perjoule run -m synthetic:llama-3.2-1b --ids 1,2,3 --power sim --repeat 5 --warmup 1\n"
        "perjoule run --prompts questions.txt --batch 8 --dtype q8_0 --tag nightly\n",
};

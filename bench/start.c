/* perjoule bench start: time from process start to the first token. It repeatedly starts this
 * program as `run --depth off`, as a user would, and takes the parts from that run's own report;
 * both use the same monotonic clock. One extra start comes first and is not counted: it brings the
 * weights into the page cache. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/memory.h"
#include "base/process.h"
#include "bench/ratio.h"
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_OUTPUT_BYTES = 16 << 20, MAX_WORDS = 24 };

typedef struct settings {
    const char *model, *ids;
    const char *prompt;
    int64_t repeat, threads;
    bool json;
} settings;

/* The parts in order; "other" is the remaining time. */
enum { PART_BEGIN, PART_MODEL, PART_TOKENIZER, PART_PREFILL, PART_OTHER, PART_TOTAL, PARTS };
static const struct {
    const char *name, *key;
} parts[PARTS] = {{"process", "process_ms"},     {"model mapped", "model_ms"},
                  {"tokenizer", "tokenizer_ms"}, {"prefill", "prefill_ms"},
                  {"other", "other_ms"},         {"first token", "first_token_ms"}};

typedef struct measured {
    double ms[PARTS][PJ_BENCH_ROUNDS_MAX];
    double resident, file, anonymous; /* bytes, of the last start; NAN: unknown */
} measured;

/* ---- one start ---- */

static pj_status start_spawn(const settings *s, char *path, pid_t *pid, int *output, pj_error *err)
{
    char threads[24];
    const char *words[MAX_WORDS] = {path,     "run",        "-m",      s->model, "--depth",  "off",
                                    "--json", "--no-store", "--power", "none",   "--tokens", "1"};
    int count = 12, ends[2];
    snprintf(threads, sizeof threads, "%lld", (long long)s->threads);
    if (s->threads) {
        words[count++] = "--threads";
        words[count++] = threads;
    }
    words[count++] = s->ids ? "--ids" : "--prompt";
    words[count++] = s->ids ? s->ids : s->prompt;
    if (pipe(ends) != 0) return pj_fail_errno(err, errno, "cannot create a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int failure = posix_spawn(pid, path, &actions, NULL, (char **)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *output = ends[0];
    if (!failure) return PJ_OK;
    close(ends[0]);
    return pj_fail_errno(err, failure, "cannot start %s", path);
}

/* Reads the named members of the object at the cursor; missing ones keep their value. */
static void start_read_members(pj_json_scan *scan, const char *const names[],
                               double *const values[])
{
    pj_json_text key;
    if (pj_json_scan_peek(scan) != '{') {
        pj_json_scan_skip(scan, NULL);
        return;
    }
    pj_json_scan_enter(scan, '{');
    while (pj_json_scan_member(scan, &key)) {
        int i = 0;
        while (names[i] && !pj_json_text_is(key, names[i])) i++;
        if (names[i])
            pj_json_scan_number(scan, values[i]);
        else
            pj_json_scan_skip(scan, NULL);
    }
}

static pj_status read_report(const char *text, size_t bytes, int64_t spawned_ns, int64_t index,
                             measured *m, pj_error *err)
{
    static const char *const start_names[] = {"began_ns",   "model_ms",       "tokenizer_ms",
                                              "prefill_ms", "first_token_ms", NULL};
    static const char *const resident_names[] = {"bytes", "file_bytes", "anonymous_bytes", NULL};
    double began = NAN, ms[PARTS], first = NAN;
    double *const start[] = {&began, &ms[PART_MODEL], &ms[PART_TOKENIZER], &ms[PART_PREFILL],
                             &first};
    double *const resident[] = {&m->resident, &m->file, &m->anonymous};
    pj_json_scan scan;
    pj_json_text key;
    for (int p = 0; p < PARTS; p++) ms[p] = NAN;
    m->resident = m->file = m->anonymous = NAN;
    pj_json_scan_init(&scan, text, bytes);
    pj_json_scan_enter(&scan, '{');
    while (pj_json_scan_member(&scan, &key)) {
        if (pj_json_text_is(key, "start"))
            start_read_members(&scan, start_names, start);
        else if (pj_json_text_is(key, "resident"))
            start_read_members(&scan, resident_names, resident);
        else
            pj_json_scan_skip(&scan, NULL);
    }
    pj_json_scan_fini(&scan);
    ms[PART_BEGIN] = (began - (double)spawned_ns) / PJ_NS_PER_MS;
    ms[PART_TOTAL] = ms[PART_BEGIN] + first;
    ms[PART_OTHER] = first - ms[PART_MODEL] - ms[PART_TOKENIZER] - ms[PART_PREFILL];
    if (isnan(ms[PART_TOTAL] + ms[PART_OTHER]))
        return pj_fail(err, PJ_E_STATE, "the child run printed no start times");
    for (int p = 0; p < PARTS; p++) m->ms[p][index] = ms[p];
    return PJ_OK;
}

/* The child has printed its error; the exit code is passed on. */
static pj_status status_of_child(int code)
{
    int exit_code = WIFEXITED(code) ? WEXITSTATUS(code) : PJ_EXIT_FAILED;
    return exit_code == PJ_EXIT_USAGE         ? PJ_E_INVALID
           : exit_code == PJ_EXIT_UNAVAILABLE ? PJ_E_UNAVAILABLE
                                              : PJ_E_LOST;
}

static pj_status start_once(const settings *s, char *path, int64_t index, measured *m,
                            pj_error *err)
{
    pid_t pid;
    int output = -1, code = 0;
    char *text = NULL;
    size_t bytes = 0;
    int64_t spawned_ns = pj_clock_ns();
    pj_status status = start_spawn(s, path, &pid, &output, err);
    if (status != PJ_OK) return status;
    status = pj_file_read_fd(output, "the run's output", MAX_OUTPUT_BYTES, &text, &bytes, err);
    close(output);
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) continue;
    if (status == PJ_OK && code != 0)
        status = pj_fail(err, status_of_child(code), "the child run failed");
    if (status == PJ_OK) status = read_report(text, bytes, spawned_ns, index, m, err);
    pj_free(text);
    return status;
}

/* ---- what is printed ---- */

static double start_least(const double *values, int64_t count)
{
    double found = values[0];
    for (int64_t i = 1; i < count; i++) found = fmin(found, values[i]);
    return found;
}

static double most(const double *values, int64_t count)
{
    double found = values[0];
    for (int64_t i = 1; i < count; i++) found = fmax(found, values[i]);
    return found;
}

static void start_print_table(const settings *s, const measured *m)
{
    printf("%s: %lld starts, in ms\n\n%-14s %8s %8s %8s\n", s->model, (long long)s->repeat, "",
           "median", "least", "most");
    for (int p = 0; p < PARTS; p++)
        printf("%-14s %8.1f %8.1f %8.1f\n", parts[p].name, pj_bench_median(m->ms[p], s->repeat),
               start_least(m->ms[p], s->repeat), most(m->ms[p], s->repeat));
    if (isnan(m->resident)) return;
    printf("\nresident %.1f MB: %.1f MB of mapped files, %.1f MB own\n", m->resident * 1e-6,
           m->file * 1e-6, m->anonymous * 1e-6);
}

static void start_write_json(const settings *s, const measured *m, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", s->model);
    pj_json_kv_int(json, "repeat", s->repeat);
    for (int p = 0; p < PARTS; p++) {
        pj_json_key(json, parts[p].key);
        pj_json_object_begin(json);
        pj_json_kv_double(json, "median", pj_bench_median(m->ms[p], s->repeat));
        pj_json_kv_double(json, "least", start_least(m->ms[p], s->repeat));
        pj_json_kv_double(json, "most", most(m->ms[p], s->repeat));
        pj_json_object_end(json);
    }
    pj_json_kv_double(json, "resident_bytes", m->resident);
    pj_json_kv_double(json, "resident_file_bytes", m->file);
    pj_json_kv_double(json, "resident_anonymous_bytes", m->anonymous);
    pj_json_object_end(json);
}

static void start_print_json(const settings *s, const measured *m)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    start_write_json(s, m, &json);
    if (pj_json_finish(&json)) puts(pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

/* ---- the command ---- */

static int run_bench_start(const pj_command *command, int argc, char **argv)
{
    settings s = {.prompt = "The capital of France is", .repeat = 10};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &s.model, "MODEL",
         "folder, name under ./models, or synthetic:SHAPE (demo)"},
        {"prompt", 'p', PJ_OPTION_TEXT, &s.prompt, "TEXT", "the prompt (a few words)"},
        {"ids", 0, PJ_OPTION_TEXT, &s.ids, "1,2,3", "token ids instead of a text",
         .rule = pj_rule_ids},
        {"threads", 't', PJ_OPTION_INT, &s.threads, "N", "threads (one per core)", 1, 256},
        {"repeat", 0, PJ_OPTION_INT, &s.repeat, "N", "number of measured starts (10)", 1,
         PJ_BENCH_ROUNDS_MAX, .old_letter = 'r'},
        {"json", 0, PJ_OPTION_FLAG, &s.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    char path[4096];
    pj_error err = {0};
    if (!s.model) s.model = "demo";
    measured *m = pj_alloc(1, sizeof *m);
    pj_status status = m ? pj_process_sibling("perjoule", path, sizeof path, &err)
                         : pj_fail_memory(&err, "starts");
    for (int64_t i = -1; i < s.repeat && status == PJ_OK; i++)
        status = start_once(&s, path, i < 0 ? 0 : i, m, &err);
    if (status == PJ_OK && s.json) start_print_json(&s, m);
    if (status == PJ_OK && !s.json) start_print_table(&s, m);
    pj_free(m);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_bench_start = {
    .name = "bench start",
    .summary = "from the start of a process to its first token",
    .run = run_bench_start,
    .usage = "[-m MODEL] [options]",
    .text = "Starts this program as `run --depth off -n 1` repeatedly, with one uncounted start "
            "before to "
            "bring the weights into the page cache, and prints the time from the start of the "
            "process to its first token with its parts: the process until the program runs, the "
            "model checked and mapped, the tokenizer read (other threads have weights mapped "
            "meanwhile), the pass over the prompt. Then what the process keeps in memory.",
    .examples = "perjoule bench start -m models/llama\nperjoule bench start --repeat 30 --json\n",
};

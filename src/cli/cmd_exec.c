/* perjoule exec: the energy of any program and its children. The meter measures the whole machine
 * before, during and after the program; idle power measured before is subtracted for the net
 * figure. The program keeps its terminal, signals and exit code: Ctrl-C reaches it, not perjoule,
 * whose report goes to standard error (or, with --json, to standard output). */
#include "cli/options.h"
#include "cli/terminal.h"

#include "base/clock.h"
#include "base/json.h"
#include "power/checks.h"
#include "power/meter.h"
#include "trace/summary.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NOT_FOUND = 127, EXIT_NOT_RUNNABLE = 126, EXIT_SIGNAL = 128 };

typedef struct figure {
    double gross_mj, idle_mj, net_mj;
    double sd_mj, net_sd_mj;         /* 1 sigma */
    double own_sd_mj, net_own_sd_mj; /* part of it: noise and bias */
    double gain_mj, net_gain_mj;     /* part of it: gain of the device */
} figure;

typedef struct execution {
    const pj_command *command;
    char **words;
    pj_meter *meter;
    const pj_rail *rails;
    uint32_t rail_count;
    pj_curve *curves[PJ_MAX_RAILS];
    pj_baseline baseline;
    figure figures[PJ_MAX_RAILS], total;
    char holds[256], lacks[256]; /* names of rails in the total, and of rails missing from it */
    pj_finding findings[PJ_FINDINGS_MAX];
    uint32_t finding_count;
    int64_t begin_ns, end_ns;
    double cpu_s; /* CPU time of the program and its children */
    int exit_code;
    pid_t child;
} execution;

static volatile sig_atomic_t child_pid; /* for the signal handler */

static void forward(int signal_number)
{
    if (child_pid > 0) kill((pid_t)child_pid, signal_number);
}

/* ---- the program
 * ----------------------------------------------------------------------------------- */

/* In the child: default signals, then exec; on failure errno is sent through the pipe. */
static void become(char **words, int failure_pipe)
{
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    execvp(words[0], words);
    int why = errno;
    if (write(failure_pipe, &why, sizeof why) < 0) _exit(EXIT_NOT_FOUND);
    _exit(why == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE);
}

static void take_signals(void)
{
    signal(SIGINT, SIG_IGN); /* the terminal sends these to the program as well */
    signal(SIGQUIT, SIG_IGN);
    struct sigaction action = {.sa_handler = forward, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

static pj_status start_program(execution *e, pj_error *err)
{
    int ends[2], why = 0;
    if (pipe(ends) != 0) return pj_fail_errno(err, errno, "cannot start %s", e->words[0]);
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    take_signals();
    e->begin_ns = pj_clock_ns();
    e->child = fork();
    if (e->child == 0) become(e->words, ends[1]);
    child_pid = e->child;
    close(ends[1]);
    ssize_t got = e->child > 0 ? read(ends[0], &why, sizeof why) : 0;
    close(ends[0]);
    if (e->child < 0) return pj_fail_errno(err, errno, "cannot start %s", e->words[0]);
    if (got != (ssize_t)sizeof why) return PJ_OK;
    waitpid(e->child, NULL, 0);
    e->exit_code = why == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
    return pj_fail(err, PJ_E_NOT_FOUND, "cannot run %s: %s", e->words[0], strerror(why));
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* ---- the meter
 * --------------------------------------------------------------------------------------- */

static pj_status drain(execution *e, pj_error *err)
{
    pj_reading readings[256];
    size_t count;
    while ((count = pj_meter_read(e->meter, readings, 256)) > 0)
        for (size_t i = 0; i < count; i++) {
            pj_status status = pj_curve_add(e->curves[readings[i].rail], &readings[i], err);
            if (status != PJ_OK) return status;
        }
    return PJ_OK;
}

/* Waits for the program, draining the rings meanwhile. */
static pj_status wait_for_program(execution *e, pj_error *err)
{
    struct rusage usage;
    int status = 0;
    pj_status drained = PJ_OK;
    for (pid_t done = 0; done == 0;) {
        done = wait4(e->child, &status, WNOHANG, &usage);
        e->end_ns = pj_clock_ns();
        if (done < 0 && errno == EINTR) done = 0;
        if (done != 0) break;
        if (drained == PJ_OK) drained = drain(e, err);
        for (uint32_t i = 0; i < e->rail_count; i++) /* so that hours at 1 kHz fit into memory */
            pj_curve_thin(e->curves[i], e->begin_ns + PJ_NS_PER_S, e->end_ns - PJ_NS_PER_S);
        pj_clock_sleep_until(e->end_ns + 2 * PJ_NS_PER_MS);
    }
    child_pid = 0;
    e->cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    e->exit_code = WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
    return drained;
}

static pj_status settle(execution *e, pj_error *err)
{
    int64_t until = e->end_ns + pj_meter_settle_ns(e->meter);
    pj_status status = PJ_OK;
    for (int64_t now; status == PJ_OK && (now = pj_clock_ns()) < until;) {
        pj_clock_sleep_until(until - now > 20 * PJ_NS_PER_MS ? now + 20 * PJ_NS_PER_MS : until);
        status = drain(e, err);
    }
    pj_meter_stop(e->meter);
    if (status == PJ_OK) status = drain(e, err);
    for (uint32_t i = 0; i < e->rail_count && status == PJ_OK; i++)
        status = pj_curve_finish(e->curves[i], err);
    return status;
}

/* A rail's figure: a gain error applies to gross and idle alike, so the net figure has the gain
 * uncertainty of the net energy only. */
static figure rail_figure(const execution *e, uint32_t rail, double run_s)
{
    pj_curve_energy energy;
    pj_curve_query(e->curves[rail], e->begin_ns, e->end_ns, &energy);
    bool quiet = e->baseline.rail_count == 0 || e->baseline.rail_quiet[rail];
    double gain = energy.energy_mj > 0 ? energy.gain_sd_mj / energy.energy_mj : 0;
    figure f = {.gross_mj = energy.energy_mj,
                .sd_mj = energy.sd_mj,
                .own_sd_mj = hypot(energy.random_sd_mj, energy.bias_sd_mj),
                .gain_mj = energy.gain_sd_mj,
                .idle_mj = quiet ? e->baseline.mw[rail] * run_s : NAN};
    f.net_mj = f.gross_mj - f.idle_mj;
    f.net_own_sd_mj = hypot(f.own_sd_mj, e->baseline.sd_mw[rail] * run_s);
    f.net_gain_mj = gain * fabs(f.net_mj);
    f.net_sd_mj = hypot(f.net_own_sd_mj, f.net_gain_mj);
    return f;
}

/* Sockets of one model share their gain error: those terms add linearly, others in quadrature. */
static void add_to_total(figure *total, const figure *f)
{
    total->gross_mj += f->gross_mj;
    total->idle_mj += f->idle_mj;
    total->net_mj += f->net_mj;
    total->own_sd_mj = hypot(total->own_sd_mj, f->own_sd_mj);
    total->net_own_sd_mj = hypot(total->net_own_sd_mj, f->net_own_sd_mj);
    total->gain_mj += f->gain_mj;
    total->net_gain_mj += f->net_gain_mj;
}

/* The total includes the rails that cover the whole time; the missing ones are named. */
static void compute_total(execution *e)
{
    uint64_t used = 0, missing = 0;
    e->total = (figure){0};
    for (uint32_t i = 0; i < e->rail_count; i++) {
        if (!pj_rail_in_column(e->rails, e->rail_count, i, PJ_RAIL_TOTAL)) continue;
        bool known = !isnan(e->figures[i].gross_mj);
        *(known ? &used : &missing) |= 1ull << i;
        if (known) add_to_total(&e->total, &e->figures[i]);
    }
    e->total.sd_mj = hypot(e->total.own_sd_mj, e->total.gain_mj);
    e->total.net_sd_mj = hypot(e->total.net_own_sd_mj, e->total.net_gain_mj);
    if (!used) e->total = (figure){NAN, NAN, NAN, NAN, NAN};
    const char *unread = used ? pj_meter_unread(e->meter) : "";
    size_t length = (size_t)snprintf(e->lacks, sizeof e->lacks, "%s%s", unread,
                                     *unread && missing ? "," : "");
    pj_rail_names(e->rails, e->rail_count, used, e->holds, sizeof e->holds);
    pj_rail_names(e->rails, e->rail_count, missing, e->lacks + length, sizeof e->lacks - length);
}

static void compute(execution *e)
{
    double run_s = (double)(e->end_ns - e->begin_ns) * 1e-9;
    e->finding_count = pj_rails_check(e->rails, e->rail_count, (const pj_curve *const *)e->curves,
                                      e->begin_ns, e->end_ns, e->findings);
    for (uint32_t i = 0; i < e->finding_count; i++)
        pj_curve_doubt_gain(e->curves[e->findings[i].rail], e->findings[i].excess);
    for (uint32_t i = 0; i < e->rail_count; i++) e->figures[i] = rail_figure(e, i, run_s);
    compute_total(e);
}

/* Quality of the total: measured, modelled, or unavailable without one. */
static pj_source_quality quality(const execution *e)
{
    return isnan(e->total.gross_mj) ? PJ_UNAVAILABLE : pj_meter_quality(e->meter);
}

/* ---- the report
 * --------------------------------------------------------------------------------------- */

static void print_figure(const char *name, const figure *f, double run_s)
{
    char gross[32], sd[32], net[32], net_sd[32], power[32];
    pj_format_energy(f->gross_mj, gross, sizeof gross);
    pj_format_energy(1.96 * f->sd_mj, sd, sizeof sd);
    pj_format_energy(f->net_mj, net, sizeof net);
    pj_format_energy(1.96 * f->net_sd_mj, net_sd, sizeof net_sd);
    pj_format_power(f->gross_mj / run_s, power, sizeof power);
    fprintf(stderr, "  %-20s %12s", name, gross);
    if (isnan(f->gross_mj)) {
        fputc('\n', stderr);
        return;
    }
    fprintf(stderr, " ± %-10s", sd);
    if (isnan(f->net_mj))
        fprintf(stderr, " %12s   %-10s", "", "");
    else
        fprintf(stderr, " %12s ± %-10s", net, net_sd);
    fprintf(stderr, " %10s\n", power);
}

static bool has_total_rail(const execution *e)
{
    for (uint32_t i = 0; i < e->rail_count; i++)
        if (e->rails[i].rail_class == PJ_RAIL_TOTAL) return true;
    return false;
}

static void print_table(const execution *e)
{
    char time[32], cpu[32];
    double run_s = (double)(e->end_ns - e->begin_ns) * 1e-9;
    pj_format_time(run_s * 1e3, time, sizeof time);
    pj_format_time(e->cpu_s * 1e3, cpu, sizeof cpu);
    fprintf(stderr, "\nperjoule exec: %s took %s (CPU time %s), exit code %d\n", e->words[0], time,
            cpu, e->exit_code);
    if (e->rail_count == 0) {
        fprintf(stderr, "  energy: unavailable. %s\n", pj_meter_remedy(e->meter));
        return;
    }
    fprintf(stderr, "  %-20s %12s   %-10s %12s   %-10s %10s\n", "rail", "gross", "(95 %)", "net",
            "(95 %)", "mean");
    for (uint32_t i = 0; i < e->rail_count; i++)
        print_figure(e->rails[i].name, &e->figures[i], run_s);
    if (!has_total_rail(e) && (e->rail_count > 1 || e->lacks[0]))
        print_figure("total", &e->total, run_s);
    if (e->lacks[0]) {
        char text[600];
        pj_partial_text(e->holds, e->lacks, text, sizeof text);
        fprintf(stderr, isnan(e->total.gross_mj) ? "  no total: %s\n" : "  partial: %s\n", text);
    }
    if (pj_meter_quality(e->meter) == PJ_MODELLED)
        fprintf(stderr, "  These figures are modelled, not measured.\n");
}

static void figure_json(pj_json *json, const figure *f, double run_s)
{
    pj_json_kv_double(json, "gross_mj", f->gross_mj);
    pj_json_kv_double(json, "sd_mj", f->sd_mj);
    pj_json_kv_double(json, "idle_mj", f->idle_mj);
    pj_json_kv_double(json, "net_mj", f->net_mj);
    pj_json_kv_double(json, "net_sd_mj", f->net_sd_mj);
    pj_json_kv_double(json, "mean_mw", f->gross_mj / run_s);
}

static void rails_json(const execution *e, pj_json *json, double run_s)
{
    pj_json_key(json, "rails");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < e->rail_count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", e->rails[i].name);
        pj_json_kv_string(json, "source", e->rails[i].source);
        pj_json_kv_string(json, "class", pj_rail_class_name(e->rails[i].rail_class));
        pj_json_kv_string(json, "quality", pj_quality_name(e->rails[i].quality));
        figure_json(json, &e->figures[i], run_s);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* Calls `say` once per warning: from the meter, the baseline and the checks. */
static void each_warning(const execution *e, void (*say)(void *, const char *), void *context)
{
    pj_meter_event event;
    char text[1024];
    if (e->baseline.rail_count > 0 && pj_baseline_text(&e->baseline, text, sizeof text))
        say(context, text);
    bool disagreed = false;
    while (pj_meter_next_event(e->meter, &event)) {
        disagreed |= event.kind == PJ_METER_DISAGREES;
        pj_meter_event_text(e->meter, &event, text, sizeof text);
        say(context, text);
    }
    for (uint32_t i = 0; i < e->finding_count; i++)
        if (!disagreed || strcmp(e->findings[i].code, "sensors_disagree") != 0)
            say(context, e->findings[i].text);
}

static void say_in_json(void *context, const char *text)
{
    pj_json_string(context, text);
}

static void say_to_terminal(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "  %s\n", text);
}

static void warnings_json(const execution *e, pj_json *json)
{
    pj_json_key(json, "warnings");
    pj_json_array_begin(json);
    if (e->rail_count == 0) pj_json_string(json, pj_meter_remedy(e->meter));
    each_warning(e, say_in_json, json);
    pj_json_array_end(json);
}

static void print_json(const execution *e)
{
    pj_buffer text;
    pj_json json;
    double run_s = (double)(e->end_ns - e->begin_ns) * 1e-9;
    pj_buffer_init(&text, 4 << 20);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    pj_json_key(&json, "command");
    pj_json_array_begin(&json);
    for (char **w = e->words; *w; w++) pj_json_string(&json, *w);
    pj_json_array_end(&json);
    pj_json_kv_int(&json, "exit_code", e->exit_code);
    pj_json_kv_double(&json, "duration_ms", run_s * 1e3);
    pj_json_kv_double(&json, "cpu_time_ms", e->cpu_s * 1e3);
    pj_json_kv_string(&json, "energy_source", pj_quality_name(quality(e)));
    pj_json_kv_double(&json, "total_energy_mj", e->total.gross_mj);
    pj_json_kv_double(&json, "idle_energy_mj", e->total.idle_mj);
    pj_json_kv_names(&json, "total_rails", e->holds);
    pj_json_kv_names(&json, "partial_rails", isnan(e->total.gross_mj) ? "" : e->lacks);
    pj_json_key(&json, "total");
    pj_json_object_begin(&json);
    figure_json(&json, &e->total, run_s);
    pj_json_object_end(&json);
    rails_json(e, &json, run_s);
    if (e->baseline.rail_count > 0) pj_json_kv_bool(&json, "baseline_quiet", e->baseline.quiet);
    warnings_json(e, &json);
    pj_json_object_end(&json);
    if (pj_json_finish(&json)) puts(pj_buffer_get(&text));
    pj_buffer_fini(&text);
}

/* ---- the command */

static pj_status prepare(execution *e, const char *power, int64_t interval_ns, double baseline_s,
                         pj_error *err)
{
    pj_meter_options options = {.sources = power, .interval_ns = interval_ns};
    pj_status status = pj_meter_open(&options, &e->meter, err);
    if (status != PJ_OK) return status;
    e->rails = pj_meter_rails(e->meter, &e->rail_count);
    for (uint32_t i = 0; i < PJ_MAX_RAILS; i++) e->baseline.mw[i] = e->baseline.sd_mw[i] = NAN;
    for (uint32_t i = 0; i < e->rail_count; i++)
        if (!(e->curves[i] = pj_curve_new(&e->rails[i]))) return pj_fail_memory(err, "exec");
    status = pj_meter_start(e->meter, err);
    if (status == PJ_OK && baseline_s > 0 && e->rail_count > 0)
        status = pj_meter_baseline(e->meter, PJ_BASELINE_COLD, (int64_t)(baseline_s * 1e9),
                                   &e->baseline, err);
    /* Readings of the baseline are not in the curves: the window before the program must be
     * complete. */
    if (status == PJ_OK && e->rail_count > 0)
        pj_clock_sleep_until(pj_clock_ns() + pj_meter_settle_ns(e->meter));
    return status;
}

static pj_status measure(execution *e, pj_error *err)
{
    pj_status status = start_program(e, err);
    if (status != PJ_OK) return status;
    status = wait_for_program(e, err);
    if (status == PJ_OK) status = settle(e, err);
    if (status == PJ_OK) compute(e);
    return status;
}

static int run_exec(const pj_command *command, int argc, char **argv)
{
    const char *power = pj_power_default();
    int64_t interval_ns = 0;
    double baseline_s = 1;
    bool json = false;
    const pj_option options[] = {
        PJ_OPTION_POWER(&power),
        {"interval", 'i', PJ_OPTION_DURATION, &interval_ns, "TIME",
         "sampling interval (each source's own)", 0, 0},
        {"baseline", 'b', PJ_OPTION_DOUBLE, &baseline_s, "S",
         "seconds of idle power measured before (1); 0: none, then there is no net figure", 0, 600},
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "one JSON object on standard output, at the end",
         0, 0},
        {0}};
    int separator = 1, positional;
    while (separator < argc && strcmp(argv[separator], "--") != 0) separator++;
    int code = pj_options_parse(command, options, separator, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional)
        return pj_command_usage(command, "put -- before the program: perjoule exec -- %s",
                                argv[1]);
    if (separator + 1 >= argc) return pj_command_usage(command, "give the program to run after --");
    execution e = {.command = command, .words = argv + separator + 1};
    pj_error err = {0};
    pj_status status = prepare(&e, power, interval_ns, baseline_s, &err);
    if (status == PJ_OK) status = measure(&e, &err);
    code = status == PJ_OK || e.exit_code ? e.exit_code : pj_exit_code(status);
    if (status != PJ_OK)
        pj_command_failed(command, &err);
    else if (json)
        print_json(&e);
    else {
        print_table(&e);
        each_warning(&e, say_to_terminal, NULL);
    }
    for (uint32_t i = 0; i < e.rail_count; i++) pj_curve_free(e.curves[i]);
    pj_meter_close(e.meter);
    return code;
}

const pj_command pj_command_exec = {
    .name = "exec",
    .summary = "energy of any program and what it starts",
    .run = run_exec,
    .usage = "[options] -- PROGRAM [ARGUMENTS]",
    .text =
        "Measures idle power for a second, runs the program, and prints the energy of every rail "
        "while it ran: gross, and net of idle, each with its 95 % interval. Power sensors see the "
        "whole machine or a whole device, so everything else that runs meanwhile counts too. The "
        "program keeps its terminal and its signals, and its exit code becomes perjoule's (128 + "
        "signal when it was killed, 127 when there is no such program, 126 when it cannot be run). "
        "Without sensors the program runs all the same and the energy is unavailable. The table "
        "goes to standard error; --json prints an object to standard output.",
    .examples =
        "perjoule exec -- make -j8\nperjoule exec --json -- python3 train.py > energy.json\n"
        "perjoule exec --power estimate --baseline 0 -- gzip -k big.tar\n",
};

/* perjoule top: live power of all rails. A terminal gets a table with bars and the last minute as a
 * sparkline, updated in place; a pipe gets one line per second; --json prints one object per row;
 * --record writes a CSV for `--power replay:FILE`. A row is the mean power of the interval that
 * ends at its time, and is written once the slowest sensor has covered that interval. */
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/terminal.h"

#include "base/clock.h"
#include "power/survey.h"
#include "trace/summary.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

enum { HISTORY = 60 };
/* Late readings are awaited by counting polls, not by a clock: after the whole process was stopped,
 * the sampler still gets its turn. */
static const int64_t LOOK_NS = 2 * PJ_NS_PER_MS;
enum { LOOKS = 500 };

typedef struct top {
    pj_meter *meter;
    const pj_rail *rails;
    uint32_t rail_count;
    pj_curve *curves[PJ_MAX_RAILS];
    double mw[PJ_MAX_RAILS];              /* of the current row */
    bool silent[PJ_MAX_RAILS];            /* not waited for: it has kept a row waiting in vain */
    double peak[PJ_MAX_RAILS];            /* scale of the bars */
    double sum[PJ_MAX_RAILS];             /* mJ since the start, skipping NANs */
    float history[PJ_MAX_RAILS][HISTORY]; /* ring, by row_index */
    uint64_t row_index;
    FILE *record;
    bool json, live;
    int lines_drawn;
    int64_t begin_ns, row_ns, last_print_ns, print_every_ns;
} top;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- rows ---- */

static double top_total_mw(const top *t)
{
    return pj_rail_column_sum(t->rails, t->rail_count, t->mw, PJ_RAIL_TOTAL);
}

static bool top_has_total_rail(const top *t)
{
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (t->rails[i].rail_class == PJ_RAIL_TOTAL) return true;
    return false;
}

static bool any_modelled(const top *t)
{
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (t->rails[i].quality == PJ_MODELLED) return true;
    return false;
}

static void write_record_header(const top *t)
{
    pj_print(t->record, "timestamp_ms");
    for (uint32_t i = 0; i < t->rail_count; i++) pj_print(t->record, ",%s_mw", t->rails[i].name);
    /* modelled figures must stay labelled when replayed */
    pj_print(t->record, any_modelled(t) ? ",phase,quality" : ",phase");
    pj_print(t->record, ",unix_ms,monotonic_ms\n"); /* to join it with what others recorded */
}

static void write_record_row(const top *t, double t_ms)
{
    pj_print(t->record, "%.3f", t_ms);
    for (uint32_t i = 0; i < t->rail_count; i++) {
        if (isnan(t->mw[i]))
            pj_print(t->record, ",");
        else
            pj_print(t->record, ",%.6g", t->mw[i]);
    }
    pj_print(t->record, any_modelled(t) ? ",idle,modelled" : ",idle");
    double monotonic_ms = (double)t->begin_ns * 1e-6 + t_ms;
    double ago_ms = (double)pj_clock_ns() * 1e-6 - monotonic_ms;
    pj_print(t->record, ",%.3f,%.3f\n", (double)pj_clock_wall_ns() * 1e-6 - ago_ms, monotonic_ms);
}

static void print_json_row(const top *t, double t_ms)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_double(json, "t_ms", t_ms);
    pj_json_kv_string(json, "energy_source", pj_quality_name(pj_meter_quality(t->meter)));
    pj_json_kv_object_begin(json, "rails");
    for (uint32_t i = 0; i < t->rail_count; i++) {
        char key[PJ_RAIL_NAME_BYTES + 4];
        snprintf(key, sizeof key, "%s_mw", t->rails[i].name);
        pj_json_kv_double(json, key, t->mw[i]);
    }
    pj_json_object_end(json);
    pj_json_kv_double(json, "total_mw", top_total_mw(t));
    pj_json_object_end(json);
    pj_json_out_end(&out, PJ_OK, NULL);
}

/* ---- the terminal ---- */

static pj_style colour_of(pj_rail_class c)
{
    switch (c) {
    case PJ_RAIL_CPU: return PJ_STYLE_BLUE;
    case PJ_RAIL_GPU: return PJ_STYLE_GREEN;
    case PJ_RAIL_ANE: return PJ_STYLE_YELLOW;
    case PJ_RAIL_DRAM: return PJ_STYLE_PURPLE;
    case PJ_RAIL_TOTAL: return PJ_STYLE_RED;
    default: return PJ_STYLE_DIM;
    }
}

static void draw_bar(double share, int width)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int filled = (int)lround(fmin(fmax(share, 0), 1) * width * 8);
    for (int i = 0; i < width; i++) {
        int left = filled - i * 8;
        fputs(left >= 8 ? "█" : left > 0 ? eighths[left] : " ", stdout);
    }
}

static void draw_spark(const top *t, uint32_t rail, int width)
{
    double values[HISTORY];
    char text[4 * HISTORY + 1];
    for (int i = 0; i < width; i++) {
        uint64_t ago = (uint64_t)(width - i);
        values[i] =
            ago > t->row_index ? NAN : (double)t->history[rail][(t->row_index - ago) % HISTORY];
    }
    pj_sparkline(values, (size_t)width, width, t->peak[rail], text, sizeof text);
    fputs(text, stdout);
}

static void draw_rail(const top *t, uint32_t i, int width)
{
    int free_columns = width - 16 - 12 - 12 - 4;
    int bar = free_columns > 60 ? 30 : free_columns / 2;
    int spark = free_columns - bar > HISTORY ? HISTORY : free_columns - bar - 2;
    fputs("\033[K", stdout);
    pj_print(stdout, "%s%-16.16s%s %s", pj_style_on(stdout, colour_of(t->rails[i].rail_class)),
             pj_safe(t->rails[i].name).s, pj_style_off(stdout),
             pj_padded(11, pj_power_text(t->mw[i])).s);
    if (free_columns >= 0) pj_print(stdout, " %s  ", pj_padded(11, pj_energy_text(t->sum[i])).s);
    if (bar > 0) draw_bar(t->mw[i] / t->peak[i], bar);
    if (spark > 0) {
        fputs("  ", stdout);
        draw_spark(t, i, spark);
    }
    putchar('\n');
}

static void top_draw(top *t, double t_ms)
{
    int width = pj_terminal_width(stdout);
    if (t->lines_drawn) pj_cursor_up(stdout, t->lines_drawn);
    char heading[256];
    snprintf(heading, sizeof heading, "  %s  total %s  (%s; Ctrl-C ends)  %s", pj_time_text(t_ms).s,
             pj_power_text(top_total_mw(t)).s, pj_quality_name(pj_meter_quality(t->meter)),
             pj_meter_sources(t->meter));
    fputs("\033[K", stdout);
    pj_print(stdout, "%sperjoule top%s%.*s\n", pj_style_on(stdout, PJ_STYLE_BOLD),
             pj_style_off(stdout), width > 14 ? width - 13 : 1, heading);
    for (uint32_t i = 0; i < t->rail_count; i++) draw_rail(t, i, width);
    t->lines_drawn = (int)t->rail_count + 1;
    fflush(stdout);
}

static void print_plain(const top *t, double t_ms)
{
    pj_print(stdout, "%9.2f s", t_ms * 1e-3);
    for (uint32_t i = 0; i < t->rail_count; i++)
        pj_print(stdout, "  %s %s", pj_safe(t->rails[i].name).s, pj_power_text(t->mw[i]).s);
    if (!top_has_total_rail(t) && t->rail_count > 1)
        pj_print(stdout, "  total %s", pj_power_text(top_total_mw(t)).s);
    putchar('\n');
    fflush(stdout);
}

/* ---- running ---- */

static void print_events(const top *t)
{
    pj_meter_event event;
    char text[1024];
    while (!t->live && pj_meter_next_event(t->meter, &event)) {
        pj_meter_event_text(t->meter, &event, text, sizeof text);
        pj_say("perjoule top: %s", text);
    }
}

static void top_take_row(top *t, int64_t end_ns)
{
    for (uint32_t i = 0; i < t->rail_count; i++) {
        double mj = pj_curve_energy_mj(t->curves[i], end_ns - t->row_ns, end_ns);
        t->mw[i] = mj / ((double)t->row_ns * 1e-9);
        t->history[i][t->row_index % HISTORY] = (float)t->mw[i];
        if (!isnan(mj)) t->sum[i] += mj;
        if (t->mw[i] > t->peak[i]) t->peak[i] = t->mw[i];
        pj_curve_forget(t->curves[i], end_ns - t->row_ns);
    }
    t->row_index++;
}

static void show_row(top *t, int64_t end_ns)
{
    double t_ms = (double)(end_ns - t->begin_ns) * 1e-6;
    top_take_row(t, end_ns);
    if (t->record) write_record_row(t, t_ms);
    if (t->json) print_json_row(t, t_ms);
    if (t->json || end_ns - t->last_print_ns < t->print_every_ns) return;
    t->last_print_ns = end_ns;
    if (t->live)
        top_draw(t, t_ms);
    else if (!t->record)
        print_plain(t, t_ms);
}

static pj_status top_drain(top *t, pj_error *err)
{
    pj_reading readings[256];
    size_t count;
    while ((count = pj_meter_read(t->meter, readings, 256)) > 0)
        for (size_t i = 0; i < count; i++) {
            pj_status status = pj_curve_add(t->curves[readings[i].rail], &readings[i], err);
            if (status != PJ_OK) return status;
        }
    return PJ_OK;
}

/* Whether all rails are known until then, but for silent ones. */
static bool top_is_covered(top *t, int64_t until_ns, bool give_up)
{
    bool all = true;
    int64_t begin, end;
    for (uint32_t i = 0; i < t->rail_count; i++) {
        bool known = pj_curve_span(t->curves[i], &begin, &end) && end >= until_ns;
        if (known || give_up) t->silent[i] = !known;
        all = all && (known || t->silent[i]);
    }
    return all;
}

static void top_sleep_until(int64_t until_ns)
{
    for (int64_t now; (now = pj_clock_ns()) < until_ns && !interrupted;)
        pj_clock_sleep_until(until_ns - now > 50 * PJ_NS_PER_MS ? now + 50 * PJ_NS_PER_MS
                                                                : until_ns);
}

/* Rails that are still unknown after so many polls are silent. */
static pj_status await_known(top *t, int64_t until_ns, int64_t looks, pj_error *err)
{
    for (;; looks--) {
        pj_status status = top_drain(t, err);
        if (status != PJ_OK || top_is_covered(t, until_ns, looks <= 0 || interrupted))
            return status;
        top_sleep_until(pj_clock_ns() + LOOK_NS);
    }
}

/* Rows begin when every rail is known, so that the first one is complete; a silent rail is not
 * waited for long. */
static pj_status await_first(top *t, int64_t settle, pj_error *err)
{
    int64_t looks = (2 * settle + 300 * PJ_NS_PER_MS) / LOOK_NS, begin, end;
    pj_status status = await_known(t, INT64_MIN, looks, err);
    if (status != PJ_OK) return status;
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (pj_curve_span(t->curves[i], &begin, &end) && begin > t->begin_ns) t->begin_ns = begin;
    if (t->begin_ns == 0) t->begin_ns = pj_clock_ns();
    t->last_print_ns = t->begin_ns;
    return PJ_OK;
}

/* Sensors cover a row when they have settled; on a busy machine their readings come later. */
static pj_status await_row(top *t, int64_t due_ns, int64_t settle_ns, pj_error *err)
{
    top_sleep_until(due_ns);
    pj_meter_want(t->meter, due_ns);
    top_sleep_until(due_ns + settle_ns);
    return await_known(t, due_ns, LOOKS, err);
}

static pj_status top_watch(top *t, int64_t duration_ns, pj_error *err)
{
    int64_t settle = pj_meter_settle_ns(t->meter);
    pj_status status = pj_meter_start(t->meter, err);
    if (status != PJ_OK) return status;
    status = await_first(t, settle, err);
    if (status != PJ_OK) {
        pj_meter_stop(t->meter);
        return status;
    }
    int64_t end_ns = duration_ns > 0 ? t->begin_ns + duration_ns : INT64_MAX;
    for (int64_t due = t->begin_ns + t->row_ns; due <= end_ns && !interrupted; due += t->row_ns) {
        status = await_row(t, due, settle, err);
        if (status != PJ_OK) break;
        print_events(t);
        show_row(t, due);
    }
    pj_meter_stop(t->meter);
    return status;
}

static pj_status make_curves(top *t, pj_error *err)
{
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (!(t->curves[i] = pj_curve_new(&t->rails[i])))
            return pj_fail_memory(err, "watching the rails");
    pj_curves_link(t->curves, t->rails, t->rail_count);
    return PJ_OK;
}

static pj_status open_record(top *t, const char *path, pj_error *err)
{
    if (!path) return PJ_OK;
    t->record = fopen(path, "w");
    if (!t->record) return pj_fail(err, PJ_E_IO, "cannot write %s", path);
    write_record_header(t);
    return PJ_OK;
}

static pj_status close_record(top *t, const char *path, pj_error *err)
{
    if (!t->record) return PJ_OK;
    bool failed = ferror(t->record) != 0;
    if (fclose(t->record) != 0 || failed)
        return pj_fail(err, PJ_E_IO, "cannot write all of %s", path);
    return PJ_OK;
}

static int run_top(const pj_command *command, int argc, char **argv)
{
    static top t; /* histories are large for a stack */
    const char *power = pj_power_default(), *record = NULL;
    int64_t interval_ns = 100 * PJ_NS_PER_MS;
    int64_t duration_ns = 0;
    bool json = false;
    const pj_option options[] = {
        PJ_OPTION_POWER(&power),
        {"interval", 'i', PJ_OPTION_DURATION, &interval_ns, "TIME",
         "time from row to row (100ms); sensors are read at their own rate", 1e6, 60e9},
        {"duration", 0, PJ_OPTION_SECONDS, &duration_ns, "S", "stop after S seconds", 1e6, 1e17,
         .old_letter = 'd'},
        {"record", 0, PJ_OPTION_TEXT, &record, "FILE.csv", "write every row to a file",
         .old_letter = 'r', .rule = pj_rule_new_file},
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "one JSON object per row"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_error err = {0};
    t = (top){.json = json, .row_ns = interval_ns};
    t.live = !json && pj_terminal_is(stdout);
    t.print_every_ns = t.live ? 250 * PJ_NS_PER_MS : PJ_NS_PER_S;
    pj_status status = pj_meter_open(&(pj_meter_options){.sources = power}, &t.meter, &err);
    if (status == PJ_OK) {
        t.rails = pj_meter_rails(t.meter, &t.rail_count);
        if (t.rail_count == 0)
            status = pj_fail(&err, PJ_E_UNAVAILABLE, "%s", pj_meter_remedy(t.meter));
    }
    if (status == PJ_OK) status = make_curves(&t, &err);
    if (status == PJ_OK) {
        signal(SIGINT, on_interrupt);
        signal(SIGTERM, on_interrupt);
        status = open_record(&t, record, &err);
    }
    if (status == PJ_OK) status = top_watch(&t, duration_ns, &err);
    pj_error closing;
    if (close_record(&t, record, &closing) != PJ_OK && status == PJ_OK) {
        err = closing;
        status = closing.status;
    }
    for (uint32_t i = 0; i < t.rail_count; i++) pj_curve_free(t.curves[i]);
    pj_meter_close(t.meter);
    if (status != PJ_OK) return pj_command_failed(command, &err);
    return interrupted ? PJ_EXIT_INTERRUPTED : PJ_EXIT_OK;
}

const pj_command pj_command_top = {
    .name = "top",
    .summary = "show power rails live, or record them",
    .run = run_top,
    .shows_progress = true,
    .usage = "[options]",
    .text =
        "Shows every rail of the power sources as it changes: present power, energy since the "
        "start, a bar against the peak so far and the last rows. In a pipe: one line per second; "
        "with --json one object per row. --record writes a CSV (timestamp_ms, NAME_mw for each "
        "rail, phase, wall and monotonic time) that --power replay:FILE.csv plays back and "
        "import --torch-trace joins; with sources that model power instead of measuring it, a "
        "column says so. Ctrl-C ends it and keeps the file.",
    .examples = "perjoule top\nperjoule top --record trace.csv --duration 60\n"
                "perjoule top --power estimate --json | head\n"
                "perjoule run -m MODEL --power replay:trace.csv \"a prompt\"\n",
};

#include "cli/runs_list.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/terminal.h"
#include "trace/summary.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { CELL_BYTES = 256, MOST_COLUMNS = 24, SHORT_ID = 13, LONG_ID = 18, LEAST_PROMPT = 12 };

typedef struct row {
    const pj_run_info *run;
    pj_run_ratios ratios;
} row;

typedef void cell_writer(const row *row, char *cell, size_t bytes);

/* ---- figures ---- */

/* Marks energies that need an explanation, which follows below the list. */
static const char *mark_of(const pj_run_info *run)
{
    if (isnan(run->total_mj)) return " ";
    return run->partial_rails ? "!" : run->quality == PJ_MODELLED ? "~" : " ";
}

/* Of one energy, without what all energies of the list share. */
static pj_text listed_energy(const pj_run_info *run, double mj, double sd_mj)
{
    double own = pj_sd_without_gain(mj, sd_mj, pj_run_gain_sd(run));
    return pj_or_dash(mj, pj_supported_text(mj, own));
}

static void write_energy(const row *r, char *cell, size_t bytes)
{
    snprintf(cell, bytes, "%s%s", listed_energy(r->run, r->run->total_mj, r->run->total_sd_mj).s,
             mark_of(r->run));
}

static void write_net(const row *r, char *cell, size_t bytes)
{
    snprintf(cell, bytes, "%s%s", listed_energy(r->run, r->run->net_mj, r->run->net_sd_mj).s,
             isnan(r->run->net_mj) ? " " : mark_of(r->run));
}

static bool has_mean_alone(const row *r)
{
    return isnan(r->ratios.joules_per_token_typical) && !isnan(r->ratios.joules_per_token);
}

/* The typical token; for runs without one the mean, marked. */
static void write_per_token(const row *r, char *cell, size_t bytes)
{
    const pj_run_ratios *f = &r->ratios;
    bool mean = has_mean_alone(r);
    double mj = 1e3 * (mean ? f->joules_per_token : f->joules_per_token_typical);
    double sd_mj = 1e3 * (mean ? f->joules_per_token_sd : f->joules_per_token_typical_sd);
    snprintf(cell, bytes, "%s%s%s", listed_energy(r->run, mj, sd_mj).s, mean ? "*" : "",
             isnan(mj) ? " " : mark_of(r->run));
}

/* Of the energy of the request, as the page's history has it. */
static void write_disturbed(const row *r, char *cell, size_t bytes)
{
    snprintf(cell, bytes, "%s", pj_number_text("%.0f %%", 100 * r->run->disturbed_share).s);
}

/* Tokens of reasoning and their energy. */
static void write_thinking(const row *r, char *cell, size_t bytes)
{
    const pj_run_info *run = r->run;
    if (isnan(run->thinking_tokens))
        snprintf(cell, bytes, "- ");
    else if (isnan(run->thinking_mj))
        snprintf(cell, bytes, "%.0f ", run->thinking_tokens);
    else
        snprintf(cell, bytes, "%.0f, %s%s", run->thinking_tokens,
                 listed_energy(run, run->thinking_mj, run->thinking_sd_mj).s, mark_of(run));
}

static void write_speed(const row *r, char *cell, size_t bytes)
{
    double speed = r->ratios.tokens_per_second;
    snprintf(cell, bytes, "%s", pj_number_text(speed < 1000 ? "%.4g" : "%.0f", speed).s);
}

static void write_prefill_speed(const row *r, char *cell, size_t bytes)
{
    double speed = r->ratios.prefill_tokens_per_second;
    snprintf(cell, bytes, "%s", pj_number_text(speed < 1000 ? "%.4g" : "%.0f", speed).s);
}

static void write_duration(const row *r, char *cell, size_t bytes)
{
    snprintf(cell, bytes, "%s", pj_time_text(r->run->total_ms).s);
}

static void write_count(char *cell, size_t bytes, uint64_t count)
{
    snprintf(cell, bytes, count ? "%llu" : "-", (unsigned long long)count);
}

static void write_input(const row *r, char *cell, size_t bytes)
{
    write_count(cell, bytes, r->run->input_tokens);
}

static void write_output(const row *r, char *cell, size_t bytes)
{
    write_count(cell, bytes, r->run->output_tokens);
}

static void write_batch(const row *r, char *cell, size_t bytes)
{
    write_count(cell, bytes, r->run->batch_size);
}

static void write_threads(const row *r, char *cell, size_t bytes)
{
    write_count(cell, bytes, r->run->threads);
}

/* ---- texts ---- */

static void write_text(char *cell, size_t bytes, const char *text)
{
    snprintf(cell, bytes, "%s", text ? pj_safe(text).s : "");
}

static void write_id(const row *r, char *cell, size_t bytes)
{
    snprintf(cell, bytes, "%.*s", LONG_ID, r->run->id);
}

static void write_created(const row *r, char *cell, size_t bytes)
{
    char created[32];
    pj_clock_format_iso(r->run->created_wall_ns, created);
    created[10] = ' ';
    snprintf(cell, bytes, "%.16s", created);
}

static void write_status(const row *r, char *cell, size_t bytes)
{
    write_text(cell, bytes, pj_run_status_name(r->run->status));
}

static void write_power(const row *r, char *cell, size_t bytes)
{
    write_text(cell, bytes, r->run->power_sources ? r->run->power_sources : "-");
}

static void write_prompt(const row *r, char *cell, size_t bytes)
{
    write_text(cell, bytes, r->run->prompt_private ? "(private)" : r->run->prompt);
}

static void write_tags(const row *r, char *cell, size_t bytes)
{
    size_t used = 0;
    cell[0] = 0;
    for (uint32_t i = 0; i < r->run->tag_count && used < bytes; i++)
        used += (size_t)snprintf(cell + used, bytes - used, "%s%.60s", i ? "," : "",
                                 pj_safe(r->run->tags[i]).s);
}

/* ---- columns ---- */

typedef enum need {
    ALWAYS,     /* if there is room */
    IF_VARIED,  /* where it tells runs apart */
    IF_PROBLEM, /* where a run is not completed */
    ON_REQUEST
} need;

/* In the order in which they are printed and, without a choice, get room. */
static const struct column {
    const char *name, *heading;
    cell_writer *write; /* NULL: a text of the run */
    int most;           /* columns on the screen; 0: what is left; negative: aligned to the right */
    need need;
    size_t member; /* of pj_run_info */
} all_columns[] = {
    {"run", "run", write_id, LONG_ID, ALWAYS},
    {"per-token", "per token ", write_per_token, -20, ALWAYS},
    {"energy", "energy ", write_energy, -20, ALWAYS},
    {"net", "net", write_net, -20, ON_REQUEST},
    {"speed", "tok/s", write_speed, -12, ALWAYS},
    {"status", "status", write_status, 11, IF_PROBLEM},
    {"name", "name", NULL, 24, IF_VARIED, offsetof(pj_run_info, name)},
    {"model", "model", NULL, 20, ALWAYS, offsetof(pj_run_info, model_name)},
    {"dtype", "dtype", NULL, 10, IF_VARIED, offsetof(pj_run_info, dtype)},
    {"batch", "batch", write_batch, -6, IF_VARIED},
    {"input", "in", write_input, -8, IF_VARIED},
    {"output", "out", write_output, -8, IF_VARIED},
    {"threads", "threads", write_threads, -7, IF_VARIED},
    {"tags", "tags", write_tags, 20, IF_VARIED},
    {"created", "created (UTC)", write_created, 16, ALWAYS},
    {"duration", "duration", write_duration, -11, ALWAYS},
    {"prefill-speed", "prefill/s", write_prefill_speed, -12, ON_REQUEST},
    {"disturbed", "disturbed", write_disturbed, -9, ON_REQUEST},
    {"thinking", "thinking ", write_thinking, -26, ON_REQUEST},
    {"experiment", "experiment", NULL, 20, ON_REQUEST, offsetof(pj_run_info, experiment_name)},
    {"engine", "engine", NULL, 16, ON_REQUEST, offsetof(pj_run_info, engine)},
    {"power", "power", write_power, 16, ON_REQUEST},
    {"note", "note", NULL, 32, ON_REQUEST, offsetof(pj_run_info, note)},
    {"machine", "machine", NULL, 32, ON_REQUEST, offsetof(pj_run_info, machine)},
    {"prompt", "prompt", write_prompt, 0, ALWAYS},
};

enum { COLUMNS = sizeof all_columns / sizeof *all_columns, GAP = 2 };

const char *const pj_runs_list_columns =
    "run per-token energy net speed status name model dtype batch input output threads tags "
    "created duration prefill-speed disturbed thinking experiment engine power note machine prompt";

typedef struct shown {
    const struct column *columns[MOST_COLUMNS];
    int widths[MOST_COLUMNS], count;
} shown;

typedef struct run_rows {
    row *items;
    uint32_t count;
    bool short_ids; /* they suffice to tell the listed runs apart */
} run_rows;

static int columns_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void write_cell(const struct column *c, const run_rows *rows, uint32_t i, char *cell)
{
    const row *r = &rows->items[i];
    if (c->write)
        c->write(r, cell, CELL_BYTES);
    else
        write_text(cell, CELL_BYTES, *(char *const *)((const char *)r->run + c->member));
    if (c->write == write_id && rows->short_ids) cell[SHORT_ID] = 0;
}

static int width_of(const struct column *c, const run_rows *rows)
{
    char cell[CELL_BYTES];
    int width = columns_of(c->heading), most = c->most < 0 ? -c->most : c->most;
    for (uint32_t i = 0; i < rows->count; i++) {
        write_cell(c, rows, i, cell);
        int columns = columns_of(cell);
        width = columns > width ? columns : width;
    }
    return most && width > most ? most : width;
}

static bool is_needed(const struct column *c, const run_rows *rows)
{
    char first[CELL_BYTES], cell[CELL_BYTES];
    if (c->need == IF_VARIED && rows->count) write_cell(c, rows, 0, first);
    for (uint32_t i = 0; i < rows->count; i++) {
        if (c->need == IF_PROBLEM && rows->items[i].run->status != PJ_RUN_COMPLETED) return true;
        if (c->need != IF_VARIED) continue;
        write_cell(c, rows, i, cell);
        if (strcmp(first, cell) != 0) return true;
    }
    return c->need == ALWAYS;
}

static void choose_fitting(const run_rows *rows, int width, shown *s)
{
    int used = 0;
    for (int i = 0; i < COLUMNS; i++) {
        const struct column *c = &all_columns[i];
        if (!is_needed(c, rows)) continue;
        int gap = s->count ? GAP : 0, most = c->most ? width_of(c, rows) : width - used - gap;
        if (used + gap + (c->most ? most : LEAST_PROMPT) > width) continue;
        s->columns[s->count] = c;
        s->widths[s->count++] = most;
        used += gap + most;
    }
}

static pj_status choose_named(const char *names, const run_rows *rows, int width, shown *s,
                              pj_error *err)
{
    int used = 0;
    while (*names) {
        size_t length = strcspn(names, ",");
        int i = 0;
        while (i < COLUMNS && (strlen(all_columns[i].name) != length ||
                               strncmp(all_columns[i].name, names, length) != 0))
            i++;
        if (i == COLUMNS)
            return pj_fail(err, PJ_E_INVALID, "there is no column %.*s", (int)length, names);
        if (s->count == MOST_COLUMNS)
            return pj_fail(err, PJ_E_INVALID, "at most %d columns are listed", MOST_COLUMNS);
        int most = width_of(&all_columns[i], rows), left = width - used - GAP;
        if (!all_columns[i].most && most > left) most = left > LEAST_PROMPT ? left : LEAST_PROMPT;
        s->columns[s->count] = &all_columns[i];
        s->widths[s->count++] = most;
        used += GAP + most;
        names += length + (names[length] == ',');
    }
    return PJ_OK;
}

/* Cut off between characters, aligned, without blanks at the end of a line. */
static void print_cell(const char *cell, const struct column *c, int width, bool last)
{
    int columns = columns_of(cell), kept = columns > width ? width - 1 : columns;
    size_t bytes = 0;
    for (int n = 0; cell[bytes]; bytes++)
        if (((unsigned char)cell[bytes] & 0xc0) != 0x80 && n++ == kept) break;
    int blanks = width - (columns > width ? width : columns);
    pj_print(stdout, "%*s%.*s%s%*s", c->most < 0 ? blanks : 0, "", (int)bytes, cell,
             columns > width ? "…" : "", c->most >= 0 && !last ? blanks : 0, "");
}

static void print_rows(const run_rows *rows, const shown *s)
{
    char cell[CELL_BYTES];
    pj_print(stdout, "%s", pj_style_on(stdout, PJ_STYLE_BOLD));
    for (int k = 0; k < s->count; k++) {
        pj_print(stdout, "%*s", k ? GAP : 0, "");
        print_cell(s->columns[k]->heading, s->columns[k], s->widths[k], k + 1 == s->count);
    }
    pj_print(stdout, "%s\n", pj_style_off(stdout));
    for (uint32_t i = 0; i < rows->count; i++) {
        for (int k = 0; k < s->count; k++) {
            pj_print(stdout, "%*s", k ? GAP : 0, "");
            write_cell(s->columns[k], rows, i, cell);
            print_cell(cell, s->columns[k], s->widths[k], k + 1 == s->count);
        }
        putchar('\n');
    }
}

/* ---- what the marks mean ---- */

/* Lists the rails that the shown totals lack, each once. */
static void explain_partial(const run_rows *rows)
{
    char text[256], last[256] = "";
    for (uint32_t i = 0; i < rows->count; i++) {
        const pj_run_info *run = rows->items[i].run;
        if (*mark_of(run) != '!') continue;
        pj_partial_text(run->total_rails, run->partial_rails, text, sizeof text);
        if (strcmp(text, last) != 0)
            pj_print(stdout, "! partial: %s (%.18s)\n", pj_safe(text).s, run->id);
        memcpy(last, text, sizeof last);
    }
}

static void explain(const run_rows *rows)
{
    bool modelled = false, mean = false;
    double gain = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        modelled |= *mark_of(rows->items[i].run) == '~';
        mean |= has_mean_alone(&rows->items[i]);
        gain = fmax(gain, pj_run_gain_sd(rows->items[i].run));
    }
    explain_partial(rows);
    if (modelled) pj_print(stdout, "~ modelled, not measured\n");
    pj_gain_of_rows_print(stdout, "", gain);
    if (mean)
        pj_print(stdout,
                 "* mean of the request; the others are typical tokens, medians of decode\n");
}

/* Whether the listed runs differ in the beginnings of their ids. Runs of one moment are neighbours.
 */
static bool are_ids_short(const run_rows *rows)
{
    for (uint32_t i = 0; i + 1 < rows->count; i++)
        if (strncmp(rows->items[i].run->id, rows->items[i + 1].run->id, SHORT_ID) == 0)
            return false;
    return true;
}

pj_status pj_runs_list_print(const pj_run_list *list, const pj_run_info *const *first,
                             uint32_t count, const char *names, pj_error *err)
{
    run_rows rows = {.items = pj_alloc(list->count + count + 1, sizeof *rows.items)};
    shown s = {0};
    int width = pj_terminal_width(stdout);
    if (!rows.items) return pj_fail_memory(err, "a list of runs");
    for (uint32_t i = 0; i < count; i++) rows.items[rows.count++].run = first[i];
    for (uint32_t i = 0; i < list->count; i++) rows.items[rows.count++].run = &list->runs[i];
    for (uint32_t i = 0; i < rows.count; i++)
        pj_run_ratios_get(rows.items[i].run, &rows.items[i].ratios);
    rows.short_ids = are_ids_short(&rows);
    pj_status status = PJ_OK;
    if (names) status = choose_named(names, &rows, width, &s, err);
    if (status == PJ_OK && !names) choose_fitting(&rows, width, &s);
    if (status == PJ_OK && rows.count == 0) pj_print(stdout, "no runs\n");
    if (status == PJ_OK && rows.count) {
        print_rows(&rows, &s);
        if (list->total > list->count)
            pj_print(stdout, "%u of %llu runs; more with --limit and --offset\n", list->count,
                     (unsigned long long)list->total);
        explain(&rows);
    }
    pj_free(rows.items);
    return status;
}

/* Runs grouped by what a benchmark's table tells apart, and the figures of each group. */
#include "insight/run_table.h"

#include "insight/sides.h"
#include "trace/device.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void copy(char *to, size_t bytes, const char *text)
{
    snprintf(to, bytes, "%s", text ? text : "");
}

/* What computed: the devices besides the host, or "cpu" if it was our engine. Of a server nothing
 * is known. */
static void name_device(const pj_run_info *run, char *text, size_t bytes)
{
    pj_arena arena;
    pj_device_row devices[PJ_MAX_DEVICES];
    size_t used = 0;
    pj_arena_init(&arena, 0);
    uint32_t count = pj_devices_read(run->devices_json, &arena, devices);
    for (uint32_t i = 0; i < count && used < bytes; i++)
        if (devices[i].number && devices[i].name)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " + " : "",
                                     devices[i].name);
    bool ours = run->engine && strcmp(run->engine, "perjoule") == 0;
    if (!used) copy(text, bytes, ours ? "cpu" : "");
    pj_arena_fini(&arena);
}

static double run_number(const pj_run_info *run, const char *field)
{
    char text[40];
    return pj_run_field(run, field, text, sizeof text) ? strtod(text, NULL) : NAN;
}

static pj_table_row describe(const pj_run_info *run, bool is_prompt)
{
    pj_table_row row = {.is_prompt = is_prompt, .threads = run->threads, .quality = run->quality};
    row.batch = run->batch_size ? run->batch_size : 1;
    row.tokens = (is_prompt ? run->input_tokens : run->output_tokens) / row.batch;
    copy(row.model, sizeof row.model, run->model_name);
    copy(row.dtype, sizeof row.dtype, run->dtype);
    copy(row.engine, sizeof row.engine, run->engine);
    copy(row.machine, sizeof row.machine, run->machine);
    copy(row.power, sizeof row.power, run->power_sources);
    name_device(run, row.device, sizeof row.device);
    snprintf(row.test, sizeof row.test, "%s%llu", is_prompt ? "pp" : "tg",
             (unsigned long long)row.tokens);
    row.bytes = run_number(run, "model.weight_bytes");
    row.parameters = run->parameters;
    double at_once = run_number(run, "settings.concurrency");
    if (at_once >= 1 && at_once <= UINT32_MAX) row.concurrency = (uint32_t)at_once;
    return row;
}

/* Settings that a row has no member for, and without which runs of unlike cost would be pooled. */
static const struct {
    const char *field, *title;
} other_settings[] = {{"isa", NULL}, /* the value says what it is */
                      {"depth", NULL},         {"settings.statistics", "statistics"},
                      {"model.kv_type", "kv"}, {"settings.no_mmap", "no_mmap"},
                      {"draft", "draft"},      {"settings.draft_tokens", "draft_tokens"}};
enum { OTHERS = sizeof other_settings / sizeof *other_settings };

typedef struct table_others {
    const char *values[OTHERS]; /* "": unknown, or as usual */
} table_others;

static bool others_of(const pj_run_info *run, pj_arena *arena, table_others *others)
{
    char text[1024];
    for (int i = 0; i < OTHERS; i++) {
        bool known = pj_run_field(run, other_settings[i].field, text, sizeof text);
        others->values[i] = known ? pj_arena_strndup(arena, text, strlen(text)) : "";
        if (!others->values[i]) return false;
    }
    return true;
}

/* A run in one of its tests. */
typedef struct table_entry {
    pj_table_row row;
    table_others others;
    const pj_run_info *run;
} table_entry;

#define ORDER(a, b) ((a) < (b) ? -1 : (a) > (b))

/* 0: of one row. */
static int compare_tests(const pj_table_row *a, const pj_table_row *b)
{
    const int orders[] = {
        strcmp(a->model, b->model),        strcmp(a->dtype, b->dtype),
        strcmp(a->engine, b->engine),      strcmp(a->machine, b->machine),
        strcmp(a->device, b->device),      ORDER(a->batch, b->batch),
        ORDER(a->threads, b->threads),     ORDER(a->quality, b->quality),
        strcmp(a->power, b->power),        ORDER(a->concurrency, b->concurrency),
        ORDER(b->is_prompt, a->is_prompt), ORDER(a->tokens, b->tokens),
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i]) return orders[i];
    return 0;
}

static int compare_groups(const table_entry *a, const table_entry *b)
{
    int order = compare_tests(&a->row, &b->row);
    for (int i = 0; i < OTHERS && !order; i++)
        order = strcmp(a->others.values[i], b->others.values[i]);
    return order;
}

/* Runs are an array, so their addresses are their order in the list. */
static int compare_entries(const void *left, const void *right)
{
    const table_entry *a = left, *b = right;
    int order = compare_groups(a, b);
    return order ? order : ORDER(a->run, b->run);
}

static int compare_firsts(const void *left, const void *right)
{
    const table_entry *a = left, *b = right;
    int order = ORDER(a->run, b->run);
    return order ? order : ORDER(b->row.is_prompt, a->row.is_prompt);
}

static double thinking_share_of(const pj_side *side)
{
    double thinking = 0, output = 0;
    for (uint32_t i = 0; i < side->run_count; i++) {
        const pj_run_info *run = side->runs[i];
        if (isnan(run->thinking_tokens)) continue;
        thinking += run->thinking_tokens;
        output += (double)run->output_tokens;
    }
    return output > 0 ? thinking / output : NAN;
}

/* The prompt's energy per token has no typical one; decoding's is the median token, unless a run of
 * the group has none. */
static void fill_figures(pj_table_row *row, const pj_side *side)
{
    bool typical = true;
    row->runs = side->run_count;
    row->thinking_share = row->is_prompt ? NAN : thinking_share_of(side);
    for (uint32_t i = 0; i < side->run_count; i++) {
        pj_note_typical(&typical, side->runs[i]);
        row->gain_sd = fmax(row->gain_sd, pj_run_gain_sd(side->runs[i]));
    }
    row->figure = row->is_prompt ? "joules_per_input_token"
                  : typical      ? "joules_per_token_typical"
                                 : "joules_per_output_token";
    row->joules = pj_side_mean_of(side, pj_figure_find(row->figure));
    row->speed = pj_side_mean_of(
        side, pj_figure_find(row->is_prompt ? "prefill_tokens_per_second" : "tokens_per_second"));
}

static bool belongs(const pj_run_info *run)
{
    return run->status == PJ_RUN_COMPLETED && run->output_tokens && !pj_run_is_ablated(run);
}

static bool list_tests(pj_run_table *t, const pj_run_info *runs, uint32_t count,
                       table_entry *entries, uint32_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!belongs(&runs[i])) {
            t->left_out++;
            continue;
        }
        table_others others;
        if (!others_of(&runs[i], &t->arena, &others)) return false;
        for (int is_prompt = runs[i].input_tokens > 0; is_prompt >= 0; is_prompt--)
            entries[(*n)++] = (table_entry){describe(&runs[i], is_prompt), others, &runs[i]};
    }
    return true;
}

/* Merges equal tests, which are adjacent, into their first entry; returns how many remain. */
static uint32_t merge_tests(table_entry *entries, uint32_t n, const pj_run_info **runs)
{
    uint32_t rows = 0;
    for (uint32_t from = 0, to; from < n; from = to) {
        pj_side side = {.runs = runs};
        for (to = from; to < n && compare_groups(&entries[from], &entries[to]) == 0; to++)
            runs[side.run_count++] = entries[to].run;
        fill_figures(&entries[from].row, &side);
        entries[rows++] = entries[from];
    }
    return rows;
}

/* Which of the other settings tell rows of one test apart; what differs only where an earlier one
 * does is implied by that. Entries are sorted, so the first difference of neighbours is enough. */
static void find_telling(const table_entry *entries, uint32_t count, bool telling[OTHERS])
{
    memset(telling, 0, OTHERS * sizeof *telling);
    for (uint32_t i = 1; i < count; i++) {
        const table_entry *a = &entries[i - 1], *b = &entries[i];
        int k = 0;
        if (compare_tests(&a->row, &b->row) != 0) continue;
        while (k < OTHERS && strcmp(a->others.values[k], b->others.values[k]) == 0) k++;
        if (k < OTHERS) telling[k] = true;
    }
}

/* NULL: out of memory. */
static const char *name_settings(const table_others *others, const bool telling[OTHERS],
                                 pj_arena *arena)
{
    char text[2048] = "";
    for (int k = 0; k < OTHERS; k++) {
        size_t used = strlen(text);
        const char *value = others->values[k], *title = other_settings[k].title;
        bool is_set = strcmp(value, "true") == 0; /* its title suffices */
        if (telling[k] && *value)
            snprintf(text + used, sizeof text - used, "%s%s%s%s", used ? ", " : "",
                     title ? title : "", title && !is_set ? " " : "", is_set ? "" : value);
    }
    return pj_arena_strndup(arena, text, strlen(text));
}

pj_status pj_run_table_make(const pj_run_info *runs, uint32_t count, pj_run_table *t, pj_error *err)
{
    size_t room = 2 * (size_t)count + 1;
    *t = (pj_run_table){0};
    pj_arena_init(&t->arena, 0);
    t->rows = pj_arena_alloc(&t->arena, room, sizeof *t->rows);
    table_entry *entries = pj_arena_alloc(&t->arena, room, sizeof *entries);
    const pj_run_info **of_row = pj_arena_alloc(&t->arena, room, sizeof(void *));
    if (!t->rows || !entries || !of_row) return pj_fail_memory(err, "a table");
    uint32_t n;
    bool telling[OTHERS];
    if (!list_tests(t, runs, count, entries, &n)) return pj_fail_memory(err, "a table");
    qsort(entries, n, sizeof *entries, compare_entries);
    t->count = merge_tests(entries, n, of_row);
    find_telling(entries, t->count, telling);
    qsort(entries, t->count, sizeof *entries, compare_firsts);
    for (uint32_t i = 0; i < t->count; i++) {
        t->rows[i] = entries[i].row;
        t->rows[i].settings = name_settings(&entries[i].others, telling, &t->arena);
        if (!t->rows[i].settings) return pj_fail_memory(err, "a table");
    }
    return PJ_OK;
}

void pj_run_table_fini(pj_run_table *table)
{
    pj_arena_fini(&table->arena);
}

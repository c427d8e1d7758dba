/* The table of tests as Markdown with aligned columns, as CSV and as JSON. */
#include "cli/runs_table.h"

#include "base/csv.h"
#include "base/decimal.h"
#include "cli/terminal.h"
#include "trace/summary.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Markdown ------------------------------------------------------------------------------- */

/* What a table leaves out to fit a terminal: nothing, optional columns, then intervals and what is
 * equal in all rows. What is still too wide then is cut. */
typedef enum table_room { TABLE_WHOLE = 0, TABLE_NARROW, TABLE_NARROWEST } table_room;

static pj_text plain(const char *text)
{
    pj_text out;
    snprintf(out.s, sizeof out.s, "%s", *text ? pj_safe(text).s : "-");
    for (char *c = out.s; *c; c++)
        if (*c == '|') *c = '/'; /* the column separator */
    return out;
}

static int columns_of(const char *text)
{
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

static pj_text cut_to(int most, pj_text text)
{
    if (columns_of(text.s) <= most) return text;
    char *end = text.s;
    for (int columns = 0; columns < most - 1; end++)
        columns += ((unsigned char)end[1] & 0xc0) != 0x80;
    strcpy(end, "…");
    return text;
}

static pj_text cell_model(const pj_table_row *r, table_room room)
{
    return plain(r->model);
}

static pj_text cell_dtype(const pj_table_row *r, table_room room)
{
    return plain(r->dtype);
}
static pj_text cell_device(const pj_table_row *r, table_room room)
{
    return plain(r->device);
}
static pj_text cell_engine(const pj_table_row *r, table_room room)
{
    return plain(r->engine);
}
static pj_text cell_machine(const pj_table_row *r, table_room room)
{
    return plain(r->machine);
}
/* Joules of different sensors are different figures, so these never share a row. */
static pj_text cell_power(const pj_table_row *r, table_room room)
{
    return plain(r->power);
}
static pj_text cell_settings(const pj_table_row *r, table_room room)
{
    return plain(r->settings);
}
static pj_text cell_test(const pj_table_row *r, table_room room)
{
    return plain(r->test);
}

static pj_text cell_size(const pj_table_row *r, table_room room)
{
    double mib = r->bytes / 1048576;
    return mib >= 1024 ? pj_number_text("%.2f GiB", mib / 1024) : pj_number_text("%.1f MiB", mib);
}

static pj_text cell_parameters(const pj_table_row *r, table_room room)
{
    double millions = r->parameters / 1e6;
    return millions >= 1000 ? pj_number_text("%.2f B", millions / 1000)
                            : pj_number_text("%.1f M", millions);
}

static pj_text cell_batch(const pj_table_row *r, table_room room)
{
    return pj_number_text("%.0f", r->batch);
}

static pj_text cell_threads(const pj_table_row *r, table_room room)
{
    return pj_number_text("%.0f", r->threads ? r->threads : NAN);
}

static pj_text cell_at_once(const pj_table_row *r, table_room room)
{
    return pj_number_text("%.0f", r->concurrency ? r->concurrency : NAN);
}

static pj_text cell_runs(const pj_table_row *r, table_room room)
{
    return pj_number_text("%.0f", r->runs);
}

static pj_text cell_speed(const pj_table_row *r, table_room room)
{
    pj_text text = {"-"};
    if (isfinite(r->speed.value))
        (room == TABLE_NARROWEST ? pj_value_write : pj_estimate_write)(
            r->speed.value, (pj_bounds){r->speed.lo, r->speed.hi}, text.s, sizeof text.s);
    return text;
}

static pj_text cell_thinking(const pj_table_row *r, table_room room)
{
    return pj_number_text("%.0f", 100 * r->thinking_share);
}

static bool is_mean(const pj_table_row *r)
{
    return isfinite(r->joules.value) && strcmp(r->figure, "joules_per_output_token") == 0;
}

static bool is_modelled(const pj_table_row *r)
{
    return isfinite(r->joules.value) && r->quality == PJ_MODELLED;
}

static pj_text cell_joules(const pj_table_row *r, table_room room)
{
    pj_mean j = r->joules;
    pj_text text = {"-"};
    if (!isfinite(j.value)) return text;
    pj_bounds bounds = {1e3 * j.lo, 1e3 * j.hi};
    text = room == TABLE_NARROWEST ? pj_bounds_value_text(1e3 * j.value, bounds)
                                   : pj_bounds_text(1e3 * j.value, bounds);
    if (is_modelled(r)) strcat(text.s, " ~");
    if (is_mean(r)) strcat(text.s, " *");
    return text;
}

typedef struct table_column {
    const char *title;
    pj_text (*cell)(const pj_table_row *row, table_room room);
    bool right;          /* aligned right: numbers */
    table_room optional; /* left out from this one on; 0: never */
    table_room equal;    /* the same, if all rows are equal in it */
    bool always_equal;   /* left out in all of them, if all rows are equal in it */
    bool if_known;       /* left out if no row has a value */
} table_column;

static const table_column table_columns[] = {
    {"model", cell_model},
    {"size", cell_size, .right = true, .optional = TABLE_NARROW},
    {"params", cell_parameters, .right = true, .optional = TABLE_NARROW},
    {"dtype", cell_dtype},
    {"engine", cell_engine, .always_equal = true},
    {"machine", cell_machine, .always_equal = true},
    {"device", cell_device, .equal = TABLE_NARROWEST},
    {"batch", cell_batch, .right = true, .equal = TABLE_NARROWEST},
    {"threads", cell_threads, .right = true, .equal = TABLE_NARROWEST},
    {"power", cell_power, .always_equal = true},
    {"at once", cell_at_once, .right = true, .always_equal = true},
    {"settings", cell_settings, .always_equal = true},
    {"test", cell_test, .right = true},
    {"t/s", cell_speed, .right = true},
    {"J/token", cell_joules, .right = true},
    {"think %", cell_thinking, .right = true, .optional = TABLE_NARROW, .if_known = true},
    {"runs", cell_runs, .right = true, .optional = TABLE_NARROW},
};
enum { TABLE_COLUMNS = sizeof table_columns / sizeof *table_columns };

/* Widths of the columns, 0 for those left out. Returns the width of the table. */
static int measure(const pj_run_table *t, table_room room, int *widths)
{
    int all = 1;
    for (int k = 0; k < TABLE_COLUMNS; k++) {
        const table_column *c = &table_columns[k];
        bool varies = false, known = false;
        widths[k] = columns_of(c->title);
        for (uint32_t i = 0; i < t->count; i++) {
            pj_text text = c->cell(&t->rows[i], room);
            int width = columns_of(text.s);
            if (width > widths[k]) widths[k] = width;
            known |= strcmp(text.s, "-") != 0;
            varies |= strcmp(text.s, c->cell(&t->rows[0], room).s) != 0;
        }
        bool is_out = (!known && c->if_known) || (c->optional && room >= c->optional) ||
                      (!varies && c->always_equal) || (!varies && c->equal && room >= c->equal);
        if (is_out) widths[k] = 0;
        if (widths[k]) all += widths[k] + 3;
    }
    return all;
}

static void print_row(const pj_table_row *row, table_room room, const int *widths)
{
    for (int k = 0; k < TABLE_COLUMNS; k++) {
        const table_column *c = &table_columns[k];
        pj_text text;
        if (!widths[k]) continue;
        if (row)
            text = cut_to(widths[k], c->cell(row, room));
        else
            snprintf(text.s, sizeof text.s, "%s", c->title);
        pj_print(stdout, "| %s ", pj_padded(c->right ? widths[k] : -widths[k], text).s);
    }
    pj_print(stdout, "|\n");
}

static void print_rule(const int *widths)
{
    static const char dashes[] = "----------------------------------------------------------------"
                                 "----------------------------------------------------------------";
    for (int k = 0; k < TABLE_COLUMNS; k++)
        if (widths[k])
            pj_print(stdout, "| %.*s%s ", widths[k] - table_columns[k].right, dashes,
                     table_columns[k].right ? ":" : "");
    pj_print(stdout, "|\n");
}

static void explain(const pj_run_table *t, table_room room)
{
    bool modelled = false, mean = false, thinking = false;
    double gain = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        gain = fmax(gain, t->rows[i].gain_sd);
        modelled |= is_modelled(&t->rows[i]);
        mean |= is_mean(&t->rows[i]);
        thinking |= isfinite(t->rows[i].thinking_share);
    }
    pj_print(stdout, "\npp512: a prompt of 512 tokens, energy per token of it\n"
                     "tg128: decoding of 128 tokens, energy of the typical one\n");
    if (thinking && room == TABLE_WHOLE)
        pj_print(stdout, "think %%: of the output tokens, those of reasoning\n");
    pj_gain_of_rows_print(stdout, "", gain);
    if (modelled) pj_print(stdout, "~ modelled, not measured\n");
    if (mean) pj_print(stdout, "* mean of the tokens: no typical one is known\n");
    if (t->left_out)
        pj_print(stdout, "%u run%s left out: not completed, or without a part of the model\n",
                 t->left_out, t->left_out == 1 ? " is" : "s are");
}

/* Cuts long names no more than necessary, so that rows can still be told apart. */
static void cut_columns(int *widths, int excess)
{
    static const struct {
        const char *title;
        int least;
    } cuts[] = {{"model", 24}, {"settings", 12}, {"model", 10}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (int k = 0; k < TABLE_COLUMNS && excess > 0; k++) {
            int spare = widths[k] - cuts[i].least;
            if (spare <= 0 || strcmp(table_columns[k].title, cuts[i].title) != 0) continue;
            int cut = spare < excess ? spare : excess;
            widths[k] -= cut;
            excess -= cut;
        }
}

void pj_runs_table_print(const pj_run_table *t)
{
    int widths[TABLE_COLUMNS], most = pj_terminal_is(stdout) ? pj_terminal_width(stdout) : INT_MAX;
    table_room room = TABLE_WHOLE;
    if (!t->count) {
        pj_print(stdout, "no runs\n");
        return;
    }
    int width = measure(t, room, widths);
    for (; width > most && room < TABLE_NARROWEST; width = measure(t, room, widths)) room++;
    cut_columns(widths, width - most);
    print_row(NULL, room, widths);
    print_rule(widths);
    for (uint32_t i = 0; i < t->count; i++) print_row(&t->rows[i], room, widths);
    explain(t, room);
}

/* ---- JSON and CSV --------------------------------------------------------------------------- */

typedef struct table_value {
    const char *name, *text; /* text NULL: a number; "": unknown */
    double number;           /* NAN: unknown */
} table_value;

enum { TABLE_VALUES = 23 };

static void list_values(const pj_table_row *r, table_value values[TABLE_VALUES])
{
    const table_value all[TABLE_VALUES] = {
        {"model", r->model},
        {"weight_bytes", .number = r->bytes},
        {"parameters", .number = r->parameters},
        {"dtype", r->dtype},
        {"engine", r->engine},
        {"machine", r->machine},
        {"device", r->device},
        {"batch", .number = r->batch},
        {"threads", .number = r->threads ? r->threads : NAN},
        {"concurrency", .number = r->concurrency ? r->concurrency : NAN},
        {"settings", r->settings},
        {"test", r->test},
        {"runs", .number = r->runs},
        {"tokens_per_second", .number = r->speed.value},
        {"tokens_per_second_lo", .number = r->speed.lo},
        {"tokens_per_second_hi", .number = r->speed.hi},
        {"figure", r->figure},
        {"joules_per_token", .number = r->joules.value},
        {"joules_per_token_lo", .number = r->joules.lo},
        {"joules_per_token_hi", .number = r->joules.hi},
        {"energy_source", pj_quality_name(r->quality)},
        {"power_sources", r->power},
        {"thinking_share", .number = r->thinking_share},
    };
    memcpy(values, all, sizeof all);
}

void pj_runs_table_write(const pj_run_table *t, pj_json *json)
{
    table_value values[TABLE_VALUES];
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < t->count; i++) {
        list_values(&t->rows[i], values);
        pj_json_object_begin(json);
        for (int k = 0; k < TABLE_VALUES; k++) {
            const table_value *v = &values[k];
            if (v->text)
                pj_json_kv_string(json, v->name, *v->text ? v->text : NULL);
            else
                pj_json_kv_double(json, v->name, v->number);
        }
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void put_value(pj_buffer *line, const table_value *v)
{
    char text[PJ_DECIMAL_BYTES];
    if (v->text)
        pj_csv_put_text(line, v->text, strlen(v->text));
    else if (isfinite(v->number))
        pj_buffer_append(line, text, pj_decimal_double(v->number, text));
}

pj_status pj_runs_table_csv(const pj_run_table *t, pj_error *err)
{
    table_value values[TABLE_VALUES];
    pj_buffer out;
    pj_buffer_init(&out, SIZE_MAX);
    list_values(&(pj_table_row){.figure = "", .settings = ""}, values);
    for (int k = 0; k < TABLE_VALUES; k++)
        pj_buffer_printf(&out, "%s%s", k ? "," : "", values[k].name);
    pj_buffer_char(&out, '\n');
    for (uint32_t i = 0; i < t->count; i++) {
        list_values(&t->rows[i], values);
        for (int k = 0; k < TABLE_VALUES; k++) {
            if (k) pj_buffer_char(&out, ',');
            put_value(&out, &values[k]);
        }
        pj_buffer_char(&out, '\n');
    }
    pj_status status = pj_buffer_status(&out, "a table", err);
    if (status == PJ_OK) pj_write_output(stdout, out.data, out.length);
    pj_buffer_fini(&out);
    return status;
}

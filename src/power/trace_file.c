/* CSV traces, parsed line by line. */
#include "power/trace_file.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_COLUMNS = 256, DEVICE_BYTES = 64 };

typedef enum column_kind {
    COLUMN_OTHER = 0,
    COLUMN_TIME,
    COLUMN_POWER,
    COLUMN_QUALITY,
    COLUMN_WALL,  /* milliseconds since 1970 */
    COLUMN_DEVICE /* which GPU the row belongs to */
} column_kind;

typedef struct column {
    column_kind kind;
    int rail;     /* of power columns */
    double scale; /* cell x scale = mW or ms; 0: by the cell's unit */
} column;

typedef struct reader {
    pj_trace *trace;
    column columns[MAX_COLUMNS];
    size_t column_count, time_column, device_column, capacity;
    bool dates;                /* times are dates, not milliseconds */
    char device[DEVICE_BYTES]; /* of the first row */
    bool many;                 /* a later row belongs to another device */
    double first_ms;
    pj_buffer line;
} reader;

void pj_trace_fini(pj_trace *trace)
{
    pj_free(trace->t_ms);
    pj_free(trace->window_ms);
    pj_free(trace->mw);
    pj_free(trace->gap);
    *trace = (pj_trace){0};
}

/* ---- cells ---- */

static char *trim(char *cell)
{
    static const char around[] = " \t\r\"";
    cell += strspn(cell, around);
    for (size_t end = strlen(cell); end > 0 && strchr(around, cell[end - 1]);) cell[--end] = 0;
    return cell;
}

/* Splits a line at commas; returns how many cells there are (more than MAX_COLUMNS are not
 * stored). */
static size_t trace_file_split(char *line, char **cells)
{
    size_t count = 0;
    for (char *cell; (cell = strsep(&line, ",")) != NULL; count++)
        if (count < MAX_COLUMNS) cells[count] = trim(cell);
    return count;
}

/* A finite number, optionally followed by a unit W or mW (which then sets the scale). */
static bool cell_number(const char *cell, double scale, double *value)
{
    char *end;
    if (strpbrk(cell, "xXnNiI")) return false; /* no hexadecimal, inf, nan */
    *value = strtod(cell, &end);
    if (end == cell || !isfinite(*value)) return false;
    while (*end == ' ') end++;
    if (strcmp(end, "W") == 0)
        scale = 1000;
    else if (strcmp(end, "mW") == 0)
        scale = 1;
    else if (*end)
        return false;
    *value *= scale;
    return true;
}

/* "2023/07/08 19:28:27.236" as nvidia-smi writes it; milliseconds since 1970. */
static bool cell_date(char *cell, double *ms)
{
    int64_t ns;
    if (strlen(cell) < 19) return false;
    for (int i = 0; i < 10; i++)
        if (cell[i] == '/') cell[i] = '-';
    if (!pj_clock_parse_iso(cell, &ns)) return false;
    *ms = (double)ns * 1e-6;
    return true;
}

/* ---- header ---- */

/* Power limit of a recorded column: one without a number may be the sum of several devices. */
static double trace_file_most_mw(const pj_rail *rail)
{
    enum { SOCKETS = 4, BOARDS = 8 };
    bool numbered = rail->name[0] && strchr("0123456789", rail->name[strlen(rail->name) - 1]);
    double each = pj_rail_class_most_mw(rail->rail_class);
    if (numbered || rail->rail_class >= PJ_RAIL_TOTAL) return each;
    return each * (rail->rail_class == PJ_RAIL_GPU ? BOARDS : SOCKETS);
}

/* Adds a rail; its name is truncated and reduced to plain characters. */
static int trace_file_add_rail(pj_trace *t, const char *name, size_t length, const char *field)
{
    if (t->rail_count == PJ_MAX_RAILS || length == 0) return -1;
    pj_rail *r = &t->rails[t->rail_count];
    *r = (pj_rail){
        .kind = PJ_RAIL_INSTANT, .scope = PJ_SCOPE_DOMAIN, .quality = PJ_MEASURED, .parent = -1};
    for (size_t i = 0; i < length && i < sizeof r->name - 1; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '.';
        r->name[i] = plain ? c : '_';
    }
    snprintf(r->source, sizeof r->source, "replay");
    memcpy(r->device, r->name, sizeof r->name);
    snprintf(r->field, sizeof r->field, "%s", field);
    r->rail_class = pj_rail_class_of_name(r->name);
    r->max_mw = trace_file_most_mw(r);
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (strcmp(t->rails[i].name, r->name) == 0) return -1; /* a column named twice */
    return (int)t->rail_count++;
}

static column nvidia_column(reader *r, const char *cell)
{
    bool average = strstr(cell, "average"), instant = strstr(cell, "instant");
    const char *name = average ? "gpu0-average" : instant ? "gpu0-instant" : "gpu0";
    int rail = trace_file_add_rail(r->trace, name, strlen(name), "power.draw");
    if (rail < 0) return (column){0};
    pj_rail *made = &r->trace->rails[rail];
    if (average) {
        made->kind = PJ_RAIL_AVERAGE;
        made->window_ns = PJ_NS_PER_S;
    }
    made->scope = PJ_SCOPE_BOARD;
    snprintf(made->device, sizeof made->device, "gpu0");
    r->trace->polled = true;
    return (column){COLUMN_POWER, rail, 1000};
}

static column read_column(reader *r, const char *cell)
{
    static const struct {
        const char *name;
        column_kind kind;
    } named[] = {
        {"timestamp_ms", COLUMN_TIME}, {"timestamp", COLUMN_TIME},   {"unix_ms", COLUMN_WALL},
        {"quality", COLUMN_QUALITY},   {"index", COLUMN_DEVICE},     {"uuid", COLUMN_DEVICE},
        {"gpu_uuid", COLUMN_DEVICE},   {"serial", COLUMN_DEVICE},    {"gpu_serial", COLUMN_DEVICE},
        {"pci.bus_id", COLUMN_DEVICE}, {"gpu_bus_id", COLUMN_DEVICE}};
    size_t length = strlen(cell);
    r->dates |= strcmp(cell, "timestamp") == 0;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(cell, named[i].name) == 0) return (column){named[i].kind, -1, 1};
    if (length >= 3 && strcmp(cell + length - 3, "_mw") == 0)
        return (column){COLUMN_POWER, trace_file_add_rail(r->trace, cell, length - 3, "recorded"),
                        1};
    if (strncmp(cell, "power.draw", 10) == 0 && strchr(cell, 'W')) return nvidia_column(r, cell);
    return (column){0};
}

static pj_status trace_file_read_header(reader *r, const char *name, pj_error *err)
{
    char *cells[MAX_COLUMNS], *line = r->line.data;
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0) line += 3;
    r->column_count = trace_file_split(line, cells);
    if (r->column_count > MAX_COLUMNS)
        return pj_fail(err, PJ_E_INVALID, "%s: more than %d columns", name, MAX_COLUMNS);
    r->time_column = r->device_column = MAX_COLUMNS;
    for (size_t i = 0; i < r->column_count; i++) {
        r->columns[i] = read_column(r, cells[i]);
        if (r->columns[i].kind == COLUMN_TIME && r->time_column == MAX_COLUMNS) r->time_column = i;
        if (r->columns[i].kind == COLUMN_DEVICE && r->device_column == MAX_COLUMNS)
            r->device_column = i;
        if (r->columns[i].kind == COLUMN_POWER && r->columns[i].rail < 0)
            r->columns[i].kind = COLUMN_OTHER;
    }
    if (r->time_column == MAX_COLUMNS || r->trace->rail_count == 0)
        return pj_fail(
            err, PJ_E_INVALID,
            "%s is not a power trace: its first line needs a column timestamp_ms and one "
            "column NAME_mw for each rail",
            name);
    return PJ_OK;
}

/* ---- rows ---- */

static pj_status trace_file_make_room(reader *r, pj_error *err)
{
    pj_trace *t = r->trace;
    if (t->row_count < r->capacity) return PJ_OK;
    size_t wanted = r->capacity ? r->capacity * 2 : 1024, cells;
    if (pj_mul_overflows(wanted, t->rail_count, &cells)) return pj_fail_memory(err, "a trace");
    double *t_ms = pj_resize(t->t_ms, wanted, sizeof *t_ms);
    if (t_ms) t->t_ms = t_ms;
    float *mw = pj_resize(t->mw, cells, sizeof *mw);
    if (mw) t->mw = mw;
    bool *gap = pj_resize(t->gap, cells, sizeof *gap);
    if (gap) t->gap = gap;
    if (!t_ms || !mw || !gap) return pj_fail_memory(err, "a trace");
    r->capacity = wanted;
    return PJ_OK;
}

static bool row_time(const reader *r, char *const *cells, double *ms)
{
    char *cell = cells[r->time_column];
    return ((r->dates && cell_date(cell, ms)) || cell_number(cell, 1, ms)) && fabs(*ms) < 1e14;
}

/* Rows of several GPUs in one log would pass for readings of one GPU. */
static void watch_device(reader *r, const char *device)
{
    if (r->trace->row_count == 0) snprintf(r->device, sizeof r->device, "%s", device);
    r->many |= strncmp(device, r->device, sizeof r->device - 1) != 0;
}

/* nvidia-smi writes the local time, without saying so. */
static double local_to_unix_ms(double ms)
{
    struct tm parts;
    time_t seconds = (time_t)(ms * 1e-3);
    if (!gmtime_r(&seconds, &parts)) return NAN;
    parts.tm_isdst = -1;
    time_t unix_seconds = mktime(&parts);
    return unix_seconds == (time_t)-1 ? NAN : ms + ((double)unix_seconds - (double)seconds) * 1e3;
}

/* Parses a line as a row; false when it is truncated, ragged, or goes back in time. */
static bool trace_file_read_row(reader *r)
{
    pj_trace *t = r->trace;
    char *cells[MAX_COLUMNS];
    double ms;
    if (trace_file_split(r->line.data, cells) != r->column_count) return false;
    if (!row_time(r, cells, &ms)) return false;
    if (r->device_column < r->column_count) watch_device(r, cells[r->device_column]);
    if (t->row_count == 0) {
        r->first_ms = ms;
        t->origin_unix_ms = r->dates ? local_to_unix_ms(ms) : NAN;
    }
    ms -= r->first_ms;
    if (t->row_count > 0 && !(ms > t->t_ms[t->row_count - 1])) return false;
    size_t at = t->row_count * t->rail_count;
    for (size_t i = 0; i < r->column_count; i++) {
        const column *c = &r->columns[i];
        double value;
        if (c->kind == COLUMN_QUALITY && strcmp(cells[i], "modelled") == 0)
            for (uint32_t k = 0; k < t->rail_count; k++) t->rails[k].quality = PJ_MODELLED;
        if (c->kind == COLUMN_WALL && t->row_count == 0 && cell_number(cells[i], 1, &value) &&
            value > 0 && value < 4e15)
            t->origin_unix_ms = value;
        if (c->kind != COLUMN_POWER) continue;
        bool number = cell_number(cells[i], c->scale, &value) && fabs(value) < 1e12;
        t->mw[at + (size_t)c->rail] = number ? (float)value : NAN;
        t->gap[at + (size_t)c->rail] = !number && cells[i][0];
    }
    t->t_ms[t->row_count++] = ms;
    return true;
}

/* Sets the update period of rails whose every row is an update: the usual time between rows. */
static void set_periods(pj_trace *t)
{
    enum { SAMPLE = 512 };
    double gaps[SAMPLE];
    size_t count = 0;
    for (size_t i = 1; i < t->row_count && count < SAMPLE; i++)
        gaps[count++] = t->t_ms[i] - t->t_ms[i - 1];
    if (count == 0 || t->polled) return;
    pj_sort_doubles(gaps, count);
    double median = gaps[count / 2];
    for (uint32_t i = 0; i < t->rail_count; i++)
        t->rails[i].period_ns = median < 1e7 ? (int64_t)(median * 1e6) : 0;
}

static int find_rail(const pj_trace *t, const char *name)
{
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (strcmp(t->rails[i].name, name) == 0) return (int)i;
    return -1;
}

/* The column that contains this one, by name: "gpu" is the sum of "gpu0" and "gpu1"; cores are in
 * their package, a GPU's memory on its board; a total contains all that count; -1: none. */
static int parent_by_name(const pj_trace *t, const pj_rail *rail)
{
    const char *class_name = pj_rail_class_name(rail->rail_class), *name = rail->name;
    char whole[PJ_RAIL_NAME_BYTES];
    int found = -1;
    if (rail->rail_class < PJ_RAIL_TOTAL && strcmp(name, class_name) != 0)
        found = find_rail(t, class_name);
    if (found < 0 && rail->rail_class < PJ_RAIL_TOTAL) found = find_rail(t, "total");
    if (rail->rail_class != PJ_RAIL_PLATFORM) return found;
    if (strncmp(name, "core", 4) == 0 || strncmp(name, "uncore", 6) == 0) {
        snprintf(whole, sizeof whole, "cpu%s", name + (name[0] == 'u' ? 6 : 4));
        found = find_rail(t, whole);
        return found >= 0 ? found : find_rail(t, "cpu");
    }
    const char *memory = strstr(name, "-memory");
    if (memory) {
        snprintf(whole, sizeof whole, "%.*s", (int)(memory - name), name);
        return find_rail(t, whole);
    }
    return -1;
}

static void set_parents(pj_trace *t)
{
    for (uint32_t i = 0; i < t->rail_count; i++)
        t->rails[i].parent = parent_by_name(t, &t->rails[i]);
}

pj_status pj_trace_read_csv(const char *text, size_t bytes, const char *name, pj_trace *trace,
                            pj_error *err)
{
    *trace = (pj_trace){.origin_unix_ms = NAN};
    reader r = {.trace = trace};
    pj_status status = PJ_OK;
    pj_buffer_init(&r.line, PJ_TRACE_MAX_BYTES + 1);
    for (size_t at = 0; at < bytes && status == PJ_OK;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        pj_buffer_clear(&r.line);
        if (!pj_buffer_append(&r.line, text + at, length) || !pj_buffer_char(&r.line, 0))
            status = pj_fail_memory(err, "a trace");
        else if (at == 0)
            status = trace_file_read_header(&r, name, err);
        else if ((status = trace_file_make_room(&r, err)) == PJ_OK && !trace_file_read_row(&r))
            trace->skipped += length > 0;
        at += length + 1;
    }
    pj_buffer_fini(&r.line);
    if (status == PJ_OK && r.many)
        status = pj_fail(
            err, PJ_E_UNSUPPORTED,
            "%s contains rows of several GPUs; replay a log of one of them (nvidia-smi -i)", name);
    if (status == PJ_OK && trace->row_count == 0)
        status = pj_fail(err, PJ_E_INVALID, "%s contains no row of a power trace", name);
    if (status != PJ_OK) {
        pj_trace_fini(trace);
        return status;
    }
    set_periods(trace);
    set_parents(trace);
    return PJ_OK;
}

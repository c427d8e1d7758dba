/* CSV traces, parsed line by line. Columns are in trace_columns.c. */
#include "power/trace_file.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "power/trace_columns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_COLUMNS = 256, DEVICE_BYTES = 64 };

typedef struct reader {
    pj_trace *trace;
    pj_trace_column columns[MAX_COLUMNS];
    size_t column_count, capacity;
    /* MAX_COLUMNS: there is none */
    size_t time_column, day_column, elapsed_column, device_column;
    bool spaces;               /* separate the cells */
    char device[DEVICE_BYTES]; /* of the first row */
    bool many;                 /* a later row belongs to another device */
    double first_ms, until_ms; /* end of the last row, which no later one overlaps */
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

/* Splits a line into cells; returns how many there are (more than MAX_COLUMNS are not stored). */
static size_t trace_file_split(const reader *r, char *line, char **cells)
{
    size_t count = 0;
    for (char *cell; (cell = strsep(&line, r->spaces ? " \t\r" : ",")) != NULL;) {
        if (r->spaces && !*cell) continue;
        if (count < MAX_COLUMNS) cells[count] = trim(cell);
        count++;
    }
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

/* Times of unknown unit, since 1970 or since a start: no log of milliseconds begins in 1970. */
static double time_scale(double value)
{
    if (value < 1e9) return 1;
    return value < 1e11 ? 1e3 : value < 1e14 ? 1 : value < 1e17 ? 1e-3 : 1e-6;
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

/* Says which column is missing, and which there are. */
static pj_status trace_file_lacks(const char *what, const char *file, char *const *cells,
                                  size_t count, pj_error *err)
{
    char found[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used + 1 < sizeof found; i++)
        used +=
            (size_t)snprintf(found + used, sizeof found - used, "%s%.40s", i ? ", " : "", cells[i]);
    return pj_fail(err, PJ_E_INVALID, "%s is not a power trace: it has no column of %s; it has %s",
                   file, what, found[0] ? found : "none");
}

static void note_column(reader *r, size_t i)
{
    const struct {
        pj_trace_column_kind kind;
        size_t *at;
    } single[] = {{PJ_TRACE_COLUMN_TIME, &r->time_column},
                  {PJ_TRACE_COLUMN_DAY, &r->day_column},
                  {PJ_TRACE_COLUMN_ELAPSED, &r->elapsed_column},
                  {PJ_TRACE_COLUMN_DEVICE, &r->device_column}};
    for (size_t k = 0; k < sizeof single / sizeof *single; k++)
        if (r->columns[i].kind == single[k].kind && *single[k].at == MAX_COLUMNS) *single[k].at = i;
}

/* Where rows have a wall time only, it is the time. */
static void use_wall_time(reader *r)
{
    for (size_t i = 0; i < r->column_count && r->time_column == MAX_COLUMNS; i++)
        if (r->columns[i].kind == PJ_TRACE_COLUMN_WALL) r->time_column = i;
}

static pj_status trace_file_read_header(reader *r, const char *name, pj_error *err)
{
    char *cells[MAX_COLUMNS], *line = r->line.data;
    bool has_energy = false;
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0) line += 3;
    r->spaces = *line == '#';
    r->column_count = trace_file_split(r, line + r->spaces, cells);
    if (r->column_count > MAX_COLUMNS)
        return pj_fail(err, PJ_E_INVALID, "%s: more than %d columns", name, MAX_COLUMNS);
    r->time_column = r->day_column = r->elapsed_column = r->device_column = MAX_COLUMNS;
    for (size_t i = 0; i < r->column_count; i++) {
        r->columns[i] = r->spaces ? pj_trace_column_of_dmon(r->trace, cells[i])
                                  : pj_trace_column_of(r->trace, cells[i]);
        note_column(r, i);
        has_energy |= r->columns[i].kind == PJ_TRACE_COLUMN_ENERGY;
    }
    use_wall_time(r);
    if (r->spaces && r->day_column == MAX_COLUMNS)
        return trace_file_lacks("dates and times (nvidia-smi dmon -o DT)", name, cells,
                                r->column_count, err);
    if (r->time_column == MAX_COLUMNS)
        return trace_file_lacks("times (timestamp_ms, timestamp, time or start_time)", name, cells,
                                r->column_count, err);
    if (r->trace->rail_count == 0)
        return trace_file_lacks("power (NAME_mw or NAME_w for each rail, or power.draw [W])", name,
                                cells, r->column_count, err);
    if (has_energy && r->elapsed_column == MAX_COLUMNS)
        return trace_file_lacks("durations (elapsed_time) beside its energies", name, cells,
                                r->column_count, err);
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
    if (r->elapsed_column != MAX_COLUMNS) {
        float *window_ms = pj_resize(t->window_ms, wanted, sizeof *window_ms);
        if (!window_ms) return pj_fail_memory(err, "a trace");
        t->window_ms = window_ms;
    }
    if (!t_ms || !mw || !gap) return pj_fail_memory(err, "a trace");
    r->capacity = wanted;
    return PJ_OK;
}

/* `is_date`: the local time, without saying where. */
static bool row_time(const reader *r, char *const *cells, double *ms, bool *is_date)
{
    const pj_trace_column *c = &r->columns[r->time_column];
    char *cell = cells[r->time_column], date[40];
    if (r->day_column != MAX_COLUMNS && strlen(cells[r->day_column]) == 8) {
        const char *day = cells[r->day_column];
        snprintf(date, sizeof date, "%.4s-%.2s-%.2s %.20s", day, day + 4, day + 6, cell);
        cell = date;
    }
    *is_date = c->dates && cell_date(cell, ms);
    if (*is_date) return fabs(*ms) < 1e14;
    if (!cell_number(cell, 1, ms)) return false;
    *ms *= c->scale > 0 ? c->scale : time_scale(*ms);
    return fabs(*ms) < 1e14;
}

/* Of rows that take time, the time is that of their end, and their energies are powers. False: the
 * row overlaps the one before it. */
static bool row_window(reader *r, char *const *cells, double *ms, double *window_ms)
{
    *window_ms = 0;
    if (r->elapsed_column == MAX_COLUMNS) return true;
    if (!cell_number(cells[r->elapsed_column], r->columns[r->elapsed_column].scale, window_ms) ||
        !(*window_ms > 0 && *window_ms < 1e12))
        return false;
    if (r->trace->row_count > 0 && *ms < r->until_ms - 1e-3 * *window_ms) return false;
    *ms += *window_ms;
    r->until_ms = *ms;
    return true;
}

/* Rows of several GPUs in one log would pass for readings of one GPU. */
static void watch_device(reader *r, const char *device)
{
    if (r->trace->row_count == 0) snprintf(r->device, sizeof r->device, "%s", device);
    r->many |= strncmp(device, r->device, sizeof r->device - 1) != 0;
}

/* nvidia-smi and others write the local time. */
static double local_to_unix_ms(double ms)
{
    struct tm parts;
    time_t seconds = (time_t)(ms * 1e-3);
    if (!gmtime_r(&seconds, &parts)) return NAN;
    parts.tm_isdst = -1;
    time_t unix_seconds = mktime(&parts);
    return unix_seconds == (time_t)-1 ? NAN : ms + ((double)unix_seconds - (double)seconds) * 1e3;
}

static void begin_trace(reader *r, double ms, bool is_date)
{
    const pj_trace_column *time = &r->columns[r->time_column];
    bool unix_time = time->kind == PJ_TRACE_COLUMN_WALL || (ms > 1e12 && !is_date);
    r->first_ms = ms;
    r->trace->origin_unix_ms = is_date ? local_to_unix_ms(ms) : unix_time ? ms : NAN;
}

static void set_modelled(pj_trace *t)
{
    for (uint32_t k = 0; k < t->rail_count; k++) t->rails[k].quality = PJ_MODELLED;
}

/* A cell that is no power or energy. */
static void take_other(reader *r, const pj_trace_column *c, const char *cell)
{
    pj_trace *t = r->trace;
    double value;
    if (c->kind == PJ_TRACE_COLUMN_QUALITY && strcmp(cell, "modelled") == 0) set_modelled(t);
    if (c->kind == PJ_TRACE_COLUMN_WALL && t->row_count == 0 && cell_number(cell, 1, &value) &&
        value > 0 && value < 4e15)
        t->origin_unix_ms = value;
}

/* Parses a line as a row; false when it is truncated, ragged, or goes back in time. */
static bool trace_file_read_row(reader *r)
{
    pj_trace *t = r->trace;
    char *cells[MAX_COLUMNS];
    double ms, window_ms;
    bool is_date;
    if (trace_file_split(r, r->line.data, cells) != r->column_count) return false;
    if (!row_time(r, cells, &ms, &is_date) || !row_window(r, cells, &ms, &window_ms)) return false;
    if (r->device_column < r->column_count) watch_device(r, cells[r->device_column]);
    if (t->row_count == 0) begin_trace(r, ms, is_date);
    ms -= r->first_ms;
    if (t->row_count > 0 && !(ms > t->t_ms[t->row_count - 1])) return false;
    size_t at = t->row_count * t->rail_count;
    for (size_t i = 0; i < r->column_count; i++) {
        const pj_trace_column *c = &r->columns[i];
        double value;
        take_other(r, c, cells[i]);
        if (c->kind != PJ_TRACE_COLUMN_POWER && c->kind != PJ_TRACE_COLUMN_ENERGY) continue;
        bool number = cell_number(cells[i], c->scale, &value) && fabs(value) < 1e12;
        if (c->kind == PJ_TRACE_COLUMN_ENERGY) value /= window_ms * 1e-3;
        t->mw[at + (size_t)c->rail] = number ? (float)value : NAN;
        t->gap[at + (size_t)c->rail] = !number && cells[i][0];
    }
    if (t->window_ms) t->window_ms[t->row_count] = (float)window_ms;
    t->t_ms[t->row_count++] = ms;
    return true;
}

/* A column that never says anything is no rail: an export has one for every class. */
static void drop_empty_columns(pj_trace *t)
{
    uint32_t from[PJ_MAX_RAILS], kept = 0, was = t->rail_count;
    for (uint32_t r = 0; r < was; r++) {
        bool says = false;
        for (size_t at = r; at < t->row_count * was && !says; at += was)
            says = !isnan(t->mw[at]) || t->gap[at];
        if (says) from[kept++] = r;
    }
    if (kept == 0 || kept == was) return;
    for (size_t i = 0; i < t->row_count; i++)
        for (uint32_t k = 0; k < kept; k++) {
            t->mw[i * kept + k] = t->mw[i * was + from[k]];
            t->gap[i * kept + k] = t->gap[i * was + from[k]];
        }
    for (uint32_t k = 0; k < kept; k++) t->rails[k] = t->rails[from[k]];
    t->rail_count = kept;
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
            trace->skipped += length > 0 && text[at] != '#';
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
    for (size_t i = 0; i < r.column_count; i++) /* whether these were measured is not said */
        if (r.columns[i].kind == PJ_TRACE_COLUMN_RUN) set_modelled(trace);
    drop_empty_columns(trace);
    set_periods(trace);
    set_parents(trace);
    return PJ_OK;
}

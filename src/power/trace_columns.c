/* Names of columns, and the rails that they describe. */
#include "power/trace_columns.h"

#include "base/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 128 };

/* ---- rails ---- */

/* Power limit of a recorded column: one without a number may be the sum of several devices. */
static double columns_most_mw(const pj_rail *rail)
{
    enum { SOCKETS = 4, BOARDS = 8 };
    bool numbered = rail->name[0] && strchr("0123456789", rail->name[strlen(rail->name) - 1]);
    double each = pj_rail_class_most_mw(rail->rail_class);
    if (numbered || rail->rail_class >= PJ_RAIL_TOTAL) return each;
    return each * (rail->rail_class == PJ_RAIL_GPU ? BOARDS : SOCKETS);
}

/* Adds a rail; its name is truncated and reduced to plain characters. */
static int columns_add_rail(pj_trace *t, const char *name, size_t length, const char *field)
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
    r->max_mw = columns_most_mw(r);
    for (uint32_t i = 0; i < t->rail_count; i++)
        if (strcmp(t->rails[i].name, r->name) == 0) return -1; /* a column named twice */
    return (int)t->rail_count++;
}

static pj_trace_column columns_power(pj_trace *t, const char *name, size_t length,
                                     const char *field, double scale)
{
    int rail = columns_add_rail(t, name, length, field);
    if (rail < 0) return (pj_trace_column){0};
    return (pj_trace_column){.kind = PJ_TRACE_COLUMN_POWER, .rail = rail, .scale = scale};
}

/* ---- nvidia-smi ---- */

static pj_trace_column nvidia_column(pj_trace *t, const char *cell)
{
    bool average = strstr(cell, "average"), instant = strstr(cell, "instant");
    const char *name = average ? "gpu0-average" : instant ? "gpu0-instant" : "gpu0";
    pj_trace_column c = columns_power(t, name, strlen(name), "power.draw", 1000);
    if (c.kind != PJ_TRACE_COLUMN_POWER) return c;
    pj_rail *made = &t->rails[c.rail];
    if (average) {
        made->kind = PJ_RAIL_AVERAGE;
        made->window_ns = PJ_NS_PER_S;
    }
    made->scope = PJ_SCOPE_BOARD;
    snprintf(made->device, sizeof made->device, "gpu0");
    t->polled = true;
    return c;
}

pj_trace_column pj_trace_column_of_dmon(pj_trace *t, const char *name)
{
    if (strcmp(name, "Date") == 0) return (pj_trace_column){.kind = PJ_TRACE_COLUMN_DAY};
    if (strcmp(name, "Time") == 0)
        return (pj_trace_column){.kind = PJ_TRACE_COLUMN_TIME, .dates = true};
    if (strcmp(name, "gpu") == 0) return (pj_trace_column){.kind = PJ_TRACE_COLUMN_DEVICE};
    return strcmp(name, "pwr") == 0 ? nvidia_column(t, name) : (pj_trace_column){0};
}

/* ---- names ---- */

static bool columns_ends_with(const char *text, size_t length, const char *end)
{
    size_t n = strlen(end);
    return length >= n && strncmp(text + length - n, end, n) == 0;
}

/* "NAME_mw", "NAME_w", "NAME [W]", "NAME (mW)": the length of NAME, and the unit in mW; 0: none of
 * these. */
static size_t columns_unit(const char *name, double *scale)
{
    static const struct {
        const char *end;
        double mw;
    } units[] = {{"_mw", 1},     {"_w", 1000}, {"_watts", 1000}, {" [mw]", 1},
                 {" [w]", 1000}, {" (mw)", 1}, {" (w)", 1000}};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (columns_ends_with(name, length, units[i].end)) {
            *scale = units[i].mw;
            return length - strlen(units[i].end);
        }
    return 0;
}

/* "cpu_power" is the rail "cpu", as in our exports. */
static size_t columns_rail_name(const char *name, size_t length)
{
    return columns_ends_with(name, length, "_power") && length > 6 ? length - 6 : length;
}

/* Zeus: "power" and "power0" in watts, "gpu0_power", "gpu0_energy" in joules. */
static pj_trace_column zeus_column(pj_trace *t, const char *name)
{
    char rail[24];
    int index = 0, used = 0;
    size_t length = strlen(name);
    if (strcmp(name, "power") == 0) return columns_power(t, "gpu0", 4, name, 1000);
    if (sscanf(name, "power%3d%n", &index, &used) == 1 && (size_t)used == length && index >= 0) {
        snprintf(rail, sizeof rail, "gpu%d", index);
        return columns_power(t, rail, strlen(rail), name, 1000);
    }
    if (strncmp(name, "gpu", 3) != 0 && strncmp(name, "cpu", 3) != 0) return (pj_trace_column){0};
    if (columns_ends_with(name, length, "_power"))
        return columns_power(t, name, length - 6, name, 1000);
    if (!columns_ends_with(name, length, "_energy")) return (pj_trace_column){0};
    pj_trace_column c = columns_power(t, name, length - 7, name, 1000);
    if (c.kind == PJ_TRACE_COLUMN_POWER) c.kind = PJ_TRACE_COLUMN_ENERGY;
    return c;
}

pj_trace_column pj_trace_column_of(pj_trace *t, const char *cell)
{
    static const struct {
        const char *name;
        pj_trace_column_kind kind;
        double scale;
        bool dates;
    } named[] = {
        {"timestamp_ms", PJ_TRACE_COLUMN_TIME, 1, false},
        {"time_ms", PJ_TRACE_COLUMN_TIME, 1, false},
        {"t_ms", PJ_TRACE_COLUMN_TIME, 1, false},
        {"timestamp_s", PJ_TRACE_COLUMN_TIME, 1e3, false},
        {"time_s", PJ_TRACE_COLUMN_TIME, 1e3, false},
        {"time (s)", PJ_TRACE_COLUMN_TIME, 1e3, false},
        {"unix_us", PJ_TRACE_COLUMN_TIME, 1e-3, false},
        {"unix_ns", PJ_TRACE_COLUMN_TIME, 1e-6, false},
        {"start_time", PJ_TRACE_COLUMN_TIME, 1e3, true},
        {"timestamp", PJ_TRACE_COLUMN_TIME, 0, true},
        {"time", PJ_TRACE_COLUMN_TIME, 0, true},
        {"elapsed_time", PJ_TRACE_COLUMN_ELAPSED, 1e3, false},
        {"unix_ms", PJ_TRACE_COLUMN_WALL, 1, false},
        {"quality", PJ_TRACE_COLUMN_QUALITY, 1, false},
        {"run_id", PJ_TRACE_COLUMN_RUN, 1, false},
        {"index", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"uuid", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"gpu_uuid", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"serial", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"gpu_serial", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"pci.bus_id", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"gpu_bus_id", PJ_TRACE_COLUMN_DEVICE, 1, false},
        {"gpu_index", PJ_TRACE_COLUMN_DEVICE, 1, false},
    };
    char name[NAME_BYTES];
    double scale = 1;
    size_t length = 0;
    for (; cell[length] && length < sizeof name - 1; length++)
        name[length] = (char)tolower((unsigned char)cell[length]);
    name[length] = 0;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(name, named[i].name) == 0)
            return (pj_trace_column){named[i].kind, -1, named[i].scale, named[i].dates};
    if (strncmp(name, "power.draw", 10) == 0 && strchr(cell, 'W')) return nvidia_column(t, cell);
    length = columns_unit(name, &scale);
    if (length || strcmp(name, "_mw") == 0)
        return columns_power(t, cell, columns_rail_name(name, length), "recorded", scale);
    return zeus_column(t, name);
}

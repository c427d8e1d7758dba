/* Names of rails and the rules that depend on their class, in one table: name, sample column,
 * and whether the class counts towards the total. */
#include "trace/rail.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *column;
    bool counts;    /* part of the machine's total, unless a wider rail contains it */
    double most_mw; /* plausibility limit of one rail: twice the largest device on sale */
} classes[PJ_RAIL_CLASS_COUNT] = {
    [PJ_RAIL_CPU] = {"cpu", "cpu_power_mw", true, 1e6},
    [PJ_RAIL_GPU] = {"gpu", "gpu_power_mw", true, 2.5e6},
    [PJ_RAIL_ANE] = {"ane", "ane_power_mw", true, 1e5},
    [PJ_RAIL_DRAM] = {"dram", "dram_power_mw", true, 5e5},
    [PJ_RAIL_TOTAL] = {"total", "total_power_mw", true, 2e7},
    [PJ_RAIL_PLATFORM] = {"platform", NULL, false, 2e7},
};

const char *pj_rail_class_name(pj_rail_class c)
{
    return (unsigned)c < PJ_RAIL_CLASS_COUNT ? classes[c].name : "unknown";
}

const char *pj_rail_class_column(pj_rail_class c)
{
    return (unsigned)c <= PJ_RAIL_TOTAL ? classes[c].column : NULL;
}

bool pj_rail_sees_part(const pj_rail *rail)
{
    return rail->window_ns > 0 && rail->window_ns * 10 < rail->period_ns * 9;
}

bool pj_rail_steps_are_power(const pj_rail *rail)
{
    return rail->kind == PJ_RAIL_COUNTER && rail->period_ns > 0 &&
           (rail->window_ns == PJ_WINDOW_UNKNOWN || pj_rail_sees_part(rail));
}

double pj_rail_offset_sd_mw(const pj_rail *rail)
{
    static const double board_sd_mw = 3000;
    bool board = strcmp(rail->source, "nvml") == 0;
    /* a simulated sensor is what it declares, or as unknown as a board */
    bool unknown = strcmp(rail->source, "sim") == 0 && !(rail->gain_sd > 0);
    return board || unknown ? board_sd_mw : 0;
}

bool pj_rail_covers_cpu(const pj_rail *rail)
{
    if (strcmp(rail->source, "sim") == 0)
        return true; /* simulated rails divide all that computes */
    return rail->rail_class == PJ_RAIL_CPU || rail->rail_class == PJ_RAIL_TOTAL ||
           (rail->rail_class == PJ_RAIL_GPU && rail->scope == PJ_SCOPE_MODULE);
}

int pj_rail_log_of(const pj_rail *rails, uint32_t count, uint32_t counter)
{
    const pj_rail *c = &rails[counter];
    for (uint32_t i = 0; i < count && c->kind == PJ_RAIL_COUNTER; i++) {
        const pj_rail *log = &rails[i];
        if (log->log_ns > 0 && log->scope == c->scope && strcmp(log->device, c->device) == 0 &&
            strcmp(log->source, c->source) == 0 && log->parent == (int)counter)
            return (int)i;
    }
    return -1;
}

double pj_rail_class_most_mw(pj_rail_class c)
{
    return (unsigned)c < PJ_RAIL_CLASS_COUNT ? classes[c].most_mw
                                             : classes[PJ_RAIL_PLATFORM].most_mw;
}

int pj_rail_class_parse(const char *name)
{
    for (int c = 0; name && c < PJ_RAIL_CLASS_COUNT; c++)
        if (strcmp(classes[c].name, name) == 0) return c;
    return -1;
}

pj_rail_class pj_rail_class_of_name(const char *name)
{
    for (int c = 0; c < PJ_RAIL_PLATFORM; c++) {
        size_t length = strlen(classes[c].name);
        if (strncmp(name, classes[c].name, length) == 0 &&
            strspn(name + length, "0123456789") == strlen(name + length))
            return (pj_rail_class)c;
    }
    return PJ_RAIL_PLATFORM;
}

const char *pj_rail_kind_name(pj_rail_kind kind)
{
    static const char *const names[] = {"counter", "instant", "average"};
    return (unsigned)kind <= PJ_RAIL_AVERAGE ? names[kind] : "unknown";
}

const char *pj_rail_scope_name(pj_rail_scope scope)
{
    static const char *const names[] = {"domain", "package", "board", "module", "machine"};
    return (unsigned)scope <= PJ_SCOPE_MACHINE ? names[scope] : "unknown";
}

/* ---- what counts --------------------------------------------------------------------------- */

/* A GPU sensor that also covers the processor (an APU's package, a Grace Hopper module): it counts
 * towards the total, but is not the power of a GPU. */
static bool holds_processor(const pj_rail *rail)
{
    return rail->rail_class == PJ_RAIL_GPU && rail->scope == PJ_SCOPE_MODULE;
}

/* Whether the rail may count for the column, ignoring containment. */
static bool is_candidate(const pj_rail *rail, pj_rail_class column, bool has_total)
{
    if (column != PJ_RAIL_TOTAL) return rail->rail_class == column && !holds_processor(rail);
    if (!classes[rail->rail_class].counts) return false;
    /* Only boards outside a reported total are added to it. */
    return !has_total || rail->rail_class == PJ_RAIL_TOTAL ||
           (rail->rail_class == PJ_RAIL_GPU && rail->scope == PJ_SCOPE_BOARD);
}

bool pj_rail_is_gpu(const pj_rail *rail, const char *device)
{
    size_t length = strlen(device);
    return rail->rail_class == PJ_RAIL_GPU && strncmp(rail->name, device, length) == 0 &&
           (rail->name[length] == 0 || rail->name[length] == '-');
}

bool pj_rail_in_column(const pj_rail *rails, uint32_t count, uint32_t rail, pj_rail_class column)
{
    bool has_total = false;
    int hops = 0;
    for (uint32_t i = 0; i < count; i++) has_total |= rails[i].rail_class == PJ_RAIL_TOTAL;
    if (!is_candidate(&rails[rail], column, has_total)) return false;
    for (int up = rails[rail].parent; up >= 0 && up < (int)count && hops++ < PJ_MAX_RAILS;
         up = rails[up].parent)
        if (is_candidate(&rails[up], column, has_total)) return false;
    return true;
}

double pj_rail_column_sum(const pj_rail *rails, uint32_t count, const double *values,
                          pj_rail_class column)
{
    double sum = NAN;
    for (uint32_t r = 0; r < count; r++) {
        if (!pj_rail_in_column(rails, count, r, column)) continue;
        if (isnan(values[r])) return NAN;
        sum = isnan(sum) ? values[r] : sum + values[r];
    }
    return sum;
}

void pj_rail_names(const pj_rail *rails, uint32_t count, uint64_t which, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t r = 0; r < count && used < bytes; r++)
        if (which >> r & 1)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "", rails[r].name);
}

/* Appends a list of names; class names in capitals ("CPU"). */
static size_t rail_put_names(char *text, size_t bytes, size_t used, const char *names)
{
    text[used] = 0;
    for (const char *at = names; at && *at && used < bytes;) {
        char name[PJ_RAIL_NAME_BYTES];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (pj_rail_class_of_name(name) < PJ_RAIL_TOTAL)
            for (char *c = name; *c; c++) *c = (char)toupper((unsigned char)*c);
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", at == names ? "" : " and ", name);
        at += length + (at[length] == ',');
    }
    return used < bytes ? used : bytes - 1;
}

void pj_partial_text(const char *total_rails, const char *partial_rails, char *text, size_t bytes)
{
    size_t used = rail_put_names(text, bytes, 0, total_rails);
    if (used > 0) used += (size_t)snprintf(text + used, bytes - used, " only, ");
    if (used < bytes) used = rail_put_names(text, bytes, used, partial_rails);
    if (used < bytes) snprintf(text + used, bytes - used, " missing");
}

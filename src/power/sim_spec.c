/* Parses "key=value,..." into a simulated sensor, and holds the presets: the measured behaviour of
 * cards and counters (update period, averaging window, coverage, lag, resolution). */
#include "power/sim.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/nearest.h"
#include "base/random.h"
#include "power/gain.h"
#include "trace/run_data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct preset {
    const char *name;
    pj_rail_kind kind;
    double period_ms, window_ms, delay_ms, lag_ms;
    double resolution; /* mJ or mW */
    double modulus_mj;
    double jitter;
    bool has_log; /* as that of an H200: below */
    bool reports_window;
} preset;

enum { LOG_VALUES = 119 }; /* that a device keeps */

static const preset presets[] = {
    {"counter", PJ_RAIL_COUNTER, 10, 0, 0, 0, 0.061, 0},
    {"rapl", PJ_RAIL_COUNTER, 1, 0, 0, 0, 0.06103515625, 262143328.911},
    {"nvml-fermi", PJ_RAIL_INSTANT, 15, 0, 0, 100, 10, 0},
    {"nvml-kepler", PJ_RAIL_INSTANT, 15, 0, 0, 100, 10, 0},
    {"nvml-kepler2", PJ_RAIL_INSTANT, 100, 0, 0, 600, 10, 0},
    {"nvml-maxwell", PJ_RAIL_INSTANT, 100, 0, 0, 600, 10, 0},
    {"nvml-pascal", PJ_RAIL_INSTANT, 20, 10, 0, 0, 10, 0},
    {"nvml-volta", PJ_RAIL_INSTANT, 20, 10, 0, 0, 10, 0},
    {"nvml-turing", PJ_RAIL_INSTANT, 100, 100, 0, 0, 10, 0},
    {"nvml-ampere", PJ_RAIL_INSTANT, 100, 100, 0, 0, 10, 0},
    {"nvml-ampere-average", PJ_RAIL_AVERAGE, 100, 1000, 10, 0, 10, 0},
    {"nvml-a100", PJ_RAIL_INSTANT, 100, 25, 0, 0, 10, 0},
    {"nvml-ada", PJ_RAIL_INSTANT, 100, 100, 0, 0, 10, 0},
    {"nvml-ada-average", PJ_RAIL_AVERAGE, 100, 1000, 10, 0, 10, 0},
    {"nvml-hopper", PJ_RAIL_INSTANT, 100, 25, 0, 0, 1, 0},
    {"nvml-hopper-average", PJ_RAIL_AVERAGE, 100, 1000, 10, 0, 1, 0},
    {"nvml-counter", PJ_RAIL_COUNTER, 100, 0, 0, 0, 1, 0},
    {"nvml-h200", PJ_RAIL_COUNTER, 100, 0, 6, 0, 1, 0, .has_log = true},
    {"nvml-h200-instant", PJ_RAIL_INSTANT, 100, 25, 10, 0, 1, 0, .jitter = 0.1},
    {"nvml-h200-average", PJ_RAIL_AVERAGE, 100, 1000, 15, 0, 1, 0, .jitter = 0.1},
    {"apple", PJ_RAIL_INSTANT, 100, 100, 0, 0, 10, 0, .reports_window = true},
    {"xe", PJ_RAIL_COUNTER, 1, 0, 0, 0, 0.06103515625, 262143328.911},
};

/* ---- single values ---- */

static bool sim_spec_parse_number(const char *text, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && *end == 0 && errno != ERANGE && isfinite(*value);
}

/* A specification and the settings that change it once all are known. */
typedef struct draft {
    pj_sim_spec spec;
    const char *share;
    double coverage, total, core, grid, resolution_mj;
} draft;

typedef enum unit { UNIT_PLAIN, UNIT_MS } unit;

typedef struct key {
    const char *name;
    size_t offset; /* in the draft */
    unit unit;     /* UNIT_PLAIN: a double; else milliseconds into int64 ns */
    double min, max;
} key;

#define FIELD(name) offsetof(draft, spec.name)
static const key keys[] = {
    {"period_ms", FIELD(period_ns), UNIT_MS, 0.05, 60000},
    {"phase_ms", FIELD(phase_ns), UNIT_MS, 0, 60000},
    {"window_ms", FIELD(window_ns), UNIT_MS, 0, 60000},
    {"delay_ms", FIELD(delay_ns), UNIT_MS, 0, 60000},
    {"lag_ms", FIELD(lag_ns), UNIT_MS, 0, 60000},
    {"reset_ms", FIELD(reset_ns), UNIT_MS, 0, 1e9},
    {"jump_ms", FIELD(jump_ns), UNIT_MS, 0, 1e9},
    {"jitter", FIELD(jitter), UNIT_PLAIN, 0, 0.4},
    {"gain", FIELD(gain), UNIT_PLAIN, 0.01, 100},
    {"offset_mw", FIELD(offset_mw), UNIT_PLAIN, -1e6, 1e6},
    {"noise", FIELD(noise), UNIT_PLAIN, 0, 1},
    {"resolution_mw", FIELD(resolution), UNIT_PLAIN, 0, 1e6},
    {"modulus_mj", FIELD(modulus_mj), UNIT_PLAIN, 0, 1e15},
    {"start_mj", FIELD(start_mj), UNIT_PLAIN, 0, 1e15},
    {"jump_mw", FIELD(jump_mw), UNIT_PLAIN, -1e12, 1e12},
    {"dropout", FIELD(dropout), UNIT_PLAIN, 0, 1},
    {"duplicate", FIELD(duplicate), UNIT_PLAIN, 0, 1},
    {"idle_mw", FIELD(idle_mw), UNIT_PLAIN, 0, 1e7},
    {"low_mw", FIELD(low_mw), UNIT_PLAIN, 0, 1e7},
    {"high_mw", FIELD(high_mw), UNIT_PLAIN, 0, 1e7},
    {"log_ms", FIELD(log_ns), UNIT_MS, 0, 60000},
    {"log_window_ms", FIELD(log_window_ns), UNIT_MS, 0, 60000},
    {"log_delay_ms", FIELD(log_delay_ns), UNIT_MS, 0, 60000},
    {"log_jitter", FIELD(log_jitter), UNIT_PLAIN, 0, 0.4},
    {"log_noise", FIELD(log_noise), UNIT_PLAIN, 0, 1},
    {"log_gain", FIELD(log_gain), UNIT_PLAIN, 0.01, 100},
    {"drift", FIELD(drift), UNIT_PLAIN, -0.9, 10},
    {"class_jitter", FIELD(class_jitter), UNIT_PLAIN, 0, 1},
    {"declare_delay_ms", FIELD(declared_delay_ns), UNIT_MS, 0, 60000},
    {"declare_window_ms", FIELD(declared_window_ns), UNIT_MS, 0, 60000},
    {"declare_lag_ms", FIELD(declared_lag_ns), UNIT_MS, 0, 60000},
    {"coverage", offsetof(draft, coverage), UNIT_PLAIN, 0, 1},
    {"total", offsetof(draft, total), UNIT_PLAIN, 0, 1},
    {"core", offsetof(draft, core), UNIT_PLAIN, 0, 1},
    {"grid", offsetof(draft, grid), UNIT_PLAIN, 0, 1},
    {"resolution_mj", offsetof(draft, resolution_mj), UNIT_PLAIN, 0, 1e15},
};

static pj_status bad_value(const char *name, const char *value, const char *what, pj_error *err)
{
    return pj_fail(err, PJ_E_INVALID, "sim: %s=%s is not %s", name, value, what);
}

/* *second: whether the second of two choices is named. */
static pj_status choose(const char *name, const char *value, const char *one, const char *other,
                        bool *second, pj_error *err)
{
    char choices[32], hint[80];
    *second = strcmp(value, other) == 0;
    if (*second || strcmp(value, one) == 0) return PJ_OK;
    snprintf(choices, sizeof choices, "%s %s", one, other);
    pj_nearest_hint(value, choices, hint, sizeof hint);
    return pj_fail(err, PJ_E_INVALID, "sim: %s=%s is not %s or %s%s", name, value, one, other,
                   hint);
}

/* Times that are declared may be "unknown", which is 0. */
static pj_status sim_spec_set_number(draft *d, const key *k, const char *text, pj_error *err)
{
    double value;
    if (strncmp(k->name, "declare_", 8) == 0 && strcmp(text, "unknown") == 0) text = "0";
    if (!sim_spec_parse_number(text, &value) || value < k->min || value > k->max) {
        char range[64];
        snprintf(range, sizeof range, "a number from %.16g to %.16g", k->min, k->max);
        return bad_value(k->name, text, range, err);
    }
    char *field = (char *)d + k->offset;
    if (k->unit == UNIT_MS) {
        int64_t ns = (int64_t)llround(value * 1e6);
        memcpy(field, &ns, sizeof ns);
    } else {
        memcpy(field, &value, sizeof value);
    }
    return PJ_OK;
}

/* As measured on an H200: a value every 10 to 33 ms, each the mean of 25 ms. */
static void set_log_of_h200(draft *d)
{
    d->grid = 1;
    d->spec.log_ns = 20 * PJ_NS_PER_MS;
    d->spec.log_window_ns = 25 * PJ_NS_PER_MS;
    d->spec.log_delay_ns = 25 * PJ_NS_PER_MS / 10;
    d->spec.log_jitter = 0.3;
}

static const preset *preset_named(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

static pj_status set_preset(draft *d, const char *name, pj_error *err)
{
    pj_sim_spec *spec = &d->spec;
    const preset *p = preset_named(name);
    if (!p)
        return bad_value("preset", name, "a known preset (see the documentation of power sources)",
                         err);
    spec->kind = p->kind;
    spec->period_ns = (int64_t)(p->period_ms * 1e6);
    spec->window_ns = (int64_t)(p->window_ms * 1e6);
    spec->reports_window = p->reports_window;
    spec->delay_ns = (int64_t)(p->delay_ms * 1e6);
    spec->lag_ns = (int64_t)(p->lag_ms * 1e6);
    spec->resolution = p->resolution;
    spec->modulus_mj = p->modulus_mj;
    spec->jitter = p->jitter;
    if (p->has_log) set_log_of_h200(d);
    return PJ_OK;
}

/* ---- lists ---- */

static pj_status sim_spec_set_rails(draft *d, const char *text, pj_error *err)
{
    pj_sim_spec *spec = &d->spec;
    spec->rail_count = 0;
    for (const char *p = text;;) {
        size_t length = strcspn(p, "+");
        if (length == 0 || length >= PJ_RAIL_NAME_BYTES || spec->rail_count == PJ_SIM_MAX_NAMED)
            return bad_value("rails", text, "a list such as cpu+gpu+dram (at most 8)", err);
        pj_sim_rail *rail = &spec->rails[spec->rail_count++];
        *rail = (pj_sim_rail){.parent = -1};
        memcpy(rail->name, p, length);
        if (!p[length]) return PJ_OK;
        p += length + 1;
    }
}

static pj_status sim_spec_set_shares(pj_sim_spec *spec, const char *text, pj_error *err)
{
    const char *p = text;
    for (uint32_t i = 0; i < spec->rail_count; i++) {
        char *end;
        spec->rails[i].share = strtod(p, &end);
        bool last = i + 1 == spec->rail_count;
        if (end == p || !(spec->rails[i].share >= 0) || spec->rails[i].share > 1 ||
            *end != (last ? 0 : '+'))
            return bad_value("share", text, "one share from 0 to 1 for each rail, as 0.7+0.3", err);
        p = end + 1;
    }
    return PJ_OK;
}

static pj_status set_freeze(draft *d, const char *text, pj_error *err)
{
    double from, to;
    int used = 0;
    if (sscanf(text, "%lf-%lf%n", &from, &to, &used) != 2 || text[used] || !(from >= 0) ||
        !(to >= from) || to > 1e9)
        return bad_value("freeze_ms", text, "two times such as 200-500", err);
    d->spec.freeze_begin_ns = (int64_t)(from * 1e6);
    d->spec.freeze_end_ns = (int64_t)(to * 1e6);
    return PJ_OK;
}

/* Names of the engine's work. Anything else is more likely a misspelt setting, which must not pass
 * as a class that never occurs. */
static bool is_class_name(const char *name)
{
    static const char known[] =
        " lm_head embedding position_embedding layers sampling model_load matmul rope qk_matmul "
        "scale mask_apply softmax activation attn_dropout value_matmul gate_mul norm residual_add "
        "bias_add dequantise tokenization kv_append cleanup pack final_norm detokenization "
        "kv_cache_store kv_cache_init kv_cache_append tensor_transfer tensor_transfer_to_cpu "
        "(between) ";
    char word[66];
    snprintf(word, sizeof word, " %s ", name);
    return strchr(name, '/') || pj_component_part(name) != PJ_PART_OTHER ||
           (!strchr(name, ' ') && strstr(known, word));
}

/* ---- the whole specification ---- */

static pj_status sim_spec_set_kind(draft *d, const char *value, pj_error *err)
{
    bool power;
    pj_status status = choose("kind", value, "counter", "power", &power, err);
    d->spec.kind = power ? PJ_RAIL_INSTANT : PJ_RAIL_COUNTER;
    return status;
}

static pj_status set_sees(draft *d, const char *value, pj_error *err)
{
    return choose("sees", value, "all", "window", &d->spec.counter_sees_window, err);
}

static pj_status set_seed(draft *d, const char *value, pj_error *err)
{
    char *end;
    errno = 0;
    d->spec.seed = strtoull(value, &end, 10);
    if (end == value || *end || errno || value[0] == '-')
        return bad_value("seed", value, "an integer", err);
    return PJ_OK;
}

static pj_status set_declared_gain(draft *d, const char *value, pj_error *err)
{
    d->spec.declared_gain = 1;
    d->spec.declared_gain_sd = 0;
    if (strcmp(value, "unknown") == 0) return PJ_OK;
    return pj_gain_parse(value, &d->spec.declared_gain, &d->spec.declared_gain_sd, err);
}

static pj_status set_share(draft *d, const char *value, pj_error *err)
{
    d->share = value;
    return PJ_OK;
}

static pj_status skip_preset(draft *d, const char *value, pj_error *err)
{
    return PJ_OK; /* applied first */
}

static const struct {
    const char *name;
    pj_status (*set)(draft *d, const char *value, pj_error *err);
} text_keys[] = {{"preset", skip_preset},       {"seed", set_seed},
                 {"kind", sim_spec_set_kind},   {"sees", set_sees},
                 {"rails", sim_spec_set_rails}, {"freeze_ms", set_freeze},
                 {"share", set_share},          {"declare_gain", set_declared_gain}};
enum { KEYS = sizeof keys / sizeof *keys, TEXT_KEYS = sizeof text_keys / sizeof *text_keys };

static pj_status unknown_key(const char *name, pj_error *err)
{
    pj_nearest nearest;
    char hint[80];
    pj_nearest_begin(&nearest, name);
    for (size_t i = 0; i < TEXT_KEYS; i++)
        pj_nearest_offer(&nearest, text_keys[i].name, strlen(text_keys[i].name));
    for (size_t i = 0; i < KEYS; i++)
        pj_nearest_offer(&nearest, keys[i].name, strlen(keys[i].name));
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    return pj_fail(err, PJ_E_INVALID,
                   "sim: unknown setting %.40s, and the engine has no work of that name "
                   "(write class/%.40s=mW for another program's)%s",
                   name, name, hint);
}

static pj_status sim_spec_add_class(pj_sim_spec *spec, const char *name, const char *text,
                                    pj_error *err)
{
    double mw;
    if (!is_class_name(name)) return unknown_key(name, err);
    if (strncmp(name, "class/", 6) == 0) name += 6;
    if (!sim_spec_parse_number(text, &mw) || mw < 0 || mw > 1e7)
        return bad_value(name, text, "a power in mW (0 to 1e7), and it is not a key of sim", err);
    if (spec->class_count == PJ_SIM_MAX_CLASSES || strlen(name) >= sizeof spec->classes[0].name)
        return pj_fail(err, PJ_E_INVALID, "sim: too many classes, or the name %.40s is too long",
                       name);
    pj_sim_class *c = &spec->classes[spec->class_count++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->mw = mw;
    return PJ_OK;
}

static pj_status set_key(draft *d, const char *name, const char *value, pj_error *err)
{
    for (size_t i = 0; i < TEXT_KEYS; i++)
        if (strcmp(text_keys[i].name, name) == 0) return text_keys[i].set(d, value, err);
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].name, name) == 0) return sim_spec_set_number(d, &keys[i], value, err);
    return sim_spec_add_class(&d->spec, name, value, err);
}

static void sim_spec_add_rail(pj_sim_spec *spec, const char *name, double share, int parent)
{
    pj_sim_rail *rail = &spec->rails[spec->rail_count++];
    *rail = (pj_sim_rail){.share = share, .parent = parent};
    snprintf(rail->name, sizeof rail->name, "%s", name);
}

static pj_status sim_spec_settle_log(draft *d, pj_error *err)
{
    pj_sim_spec *spec = &d->spec;
    spec->on_grid = d->grid > 0;
    if (spec->on_grid && spec->kind != PJ_RAIL_COUNTER)
        return pj_fail(err, PJ_E_INVALID, "sim: grid=1 needs kind=counter");
    if (spec->on_grid && spec->jitter > 0)
        return pj_fail(err, PJ_E_INVALID, "sim: with grid=1 the ticks have no jitter");
    if (spec->log_ns == 0) return PJ_OK;
    if (spec->kind != PJ_RAIL_COUNTER)
        return pj_fail(err, PJ_E_INVALID, "sim: log_ms needs kind=counter");
    uint32_t counters = spec->rail_count;
    for (uint32_t i = 0; i < counters; i++) {
        char name[PJ_RAIL_NAME_BYTES];
        snprintf(name, sizeof name, "%.27s-log", spec->rails[i].name);
        sim_spec_add_rail(spec, name, spec->rails[i].share, (int)i);
        spec->rails[spec->rail_count - 1].is_log = true;
    }
    return PJ_OK;
}

/* Devices do not tick together; a package and its cores are one. */
static void sim_spec_settle_phases(draft *d)
{
    pj_sim_spec *spec = &d->spec;
    pj_random random = {spec->seed ^ 0x706861736521};
    for (uint32_t i = 0; i < spec->rail_count; i++) {
        double part = pj_random_unit(&random);
        spec->rails[i].phase_ns =
            spec->phase_ns < 0 ? (int64_t)(part * (double)spec->period_ns) : spec->phase_ns;
    }
    if (d->core > 0) spec->rails[spec->rail_count - 1].phase_ns = spec->rails[0].phase_ns;
}

static pj_status sim_spec_settle(draft *d, pj_error *err)
{
    pj_sim_spec *spec = &d->spec;
    pj_status status = PJ_OK;
    double sum = 0;
    uint32_t given = spec->rail_count;
    for (uint32_t i = 0; i < given; i++) spec->rails[i].share = 1.0 / given;
    if (d->share) status = sim_spec_set_shares(spec, d->share, err);
    if (status != PJ_OK) return status;
    for (uint32_t i = 0; i < given; i++) sum += spec->rails[i].share;
    if (d->total > 0) {
        for (uint32_t i = 0; i < given; i++) spec->rails[i].parent = (int)given;
        sim_spec_add_rail(spec, "total", sum, -1);
    }
    if (d->core > 0) sim_spec_add_rail(spec, "core", spec->rails[0].share * d->core, 0);
    if (d->coverage > 0) spec->window_ns = (int64_t)(d->coverage * (double)spec->period_ns);
    if (spec->kind != PJ_RAIL_COUNTER)
        spec->kind = spec->window_ns > spec->period_ns ? PJ_RAIL_AVERAGE : PJ_RAIL_INSTANT;
    if (!isnan(d->resolution_mj)) /* power reading: that energy in one period */
        spec->resolution = spec->kind == PJ_RAIL_COUNTER
                               ? d->resolution_mj
                               : d->resolution_mj * 1e9 / (double)spec->period_ns;
    if (spec->high_mw < spec->low_mw)
        return pj_fail(err, PJ_E_INVALID, "sim: high_mw is below low_mw");
    sim_spec_settle_phases(d);
    return sim_spec_settle_log(d, err);
}

pj_status pj_sim_parse(const char *text, pj_sim_spec *spec, pj_error *err)
{
    char copy[2048];
    draft d = {.resolution_mj = NAN};
    d.spec = (pj_sim_spec){.seed = 1,
                           .phase_ns = -1,
                           .gain = 1,
                           .reset_ns = -1,
                           .jump_ns = -1,
                           .freeze_begin_ns = -1,
                           .freeze_end_ns = -1,
                           .idle_mw = 10000,
                           .low_mw = 20000,
                           .high_mw = 60000,
                           .log_gain = 1,
                           .declared_delay_ns = -1,
                           .declared_window_ns = -1,
                           .declared_lag_ns = -1,
                           .declared_gain = NAN,
                           .declared_gain_sd = NAN,
                           .rail_count = 1,
                           .rails = {{.name = "cpu", .parent = -1}}};
    if (strlen(text) >= sizeof copy)
        return pj_fail(err, PJ_E_INVALID, "sim: more than %zu characters", sizeof copy - 1);
    pj_status status = set_preset(&d, "counter", err);
    const char *named = strstr(text, "preset=");
    if (named && (named == text || named[-1] == ',')) {
        snprintf(copy, sizeof copy, "%.*s", (int)strcspn(named + 7, ","), named + 7);
        status = set_preset(&d, copy, err);
    }
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = copy, *piece;
    while (status == PJ_OK && (piece = strsep(&rest, ",")) != NULL) {
        if (!*piece) continue;
        char *equals = strchr(piece, '=');
        if (preset_named(piece))
            return pj_fail(err, PJ_E_INVALID, "sim: %.60s is a preset: write preset=%.60s", piece,
                           piece);
        if (!equals || equals == piece)
            return pj_fail(err, PJ_E_INVALID, "sim: %.60s must have the form key=value", piece);
        *equals = 0;
        status = set_key(&d, piece, equals + 1, err);
    }
    if (status == PJ_OK) status = sim_spec_settle(&d, err);
    *spec = d.spec;
    return status;
}

/* ---- derived ---- */

static pj_rail_class sim_spec_class_of(const char *name)
{
    pj_rail_class c = PJ_RAIL_CPU;
    while (c < PJ_RAIL_PLATFORM &&
           strncmp(pj_rail_class_name(c), name, strlen(pj_rail_class_name(c))) != 0)
        c++;
    return c;
}

/* A log follows its counter in the list. */
static void sim_spec_make_log(const pj_sim_spec *spec, const pj_rail *counter, pj_rail *log)
{
    log->rail_class = PJ_RAIL_PLATFORM;
    log->kind = PJ_RAIL_INSTANT;
    log->scope = counter->scope;
    log->period_ns = spec->log_ns;
    log->window_ns = spec->log_window_ns > 0 ? spec->log_window_ns : spec->log_ns;
    log->delay_ns = spec->log_delay_ns;
    log->lag_ns = log->grid_ns = 0;
    log->log_ns = LOG_VALUES * spec->log_ns;
    log->resolution = 1;
    log->modulus_uj = 0;
    memcpy(log->device, counter->device, sizeof log->device);
    snprintf(log->field, sizeof log->field, "simulated log of power");
}

uint32_t pj_sim_rails(const pj_sim_spec *spec, pj_rail *rails, uint32_t max)
{
    uint32_t count = spec->rail_count < max ? spec->rail_count : max;
    bool counter = spec->kind == PJ_RAIL_COUNTER;
    bool declared_gain = !isnan(spec->declared_gain);
    bool whole_period = spec->window_ns == 0 && spec->lag_ns == 0;
    int64_t window_ns = whole_period ? spec->period_ns : spec->window_ns;
    if (spec->declared_window_ns >= 0) window_ns = spec->declared_window_ns;
    if (counter && spec->declared_window_ns == 0) window_ns = PJ_WINDOW_UNKNOWN;
    pj_rail_kind kind = spec->kind;
    if (!counter) kind = window_ns > spec->period_ns ? PJ_RAIL_AVERAGE : PJ_RAIL_INSTANT;
    for (uint32_t i = 0; i < count; i++) {
        pj_rail *r = &rails[i];
        *r = (pj_rail){.rail_class = sim_spec_class_of(spec->rails[i].name),
                       .kind = kind,
                       /* without idle power zero is a normal value, as for a part switched off */
                       .scope = spec->idle_mw > 0 ? PJ_SCOPE_PACKAGE : PJ_SCOPE_DOMAIN,
                       .quality = PJ_MODELLED,
                       .parent = spec->rails[i].parent,
                       .period_ns = spec->period_ns,
                       .window_ns = window_ns,
                       .delay_ns =
                           spec->declared_delay_ns < 0 ? spec->delay_ns : spec->declared_delay_ns,
                       .lag_ns = spec->declared_lag_ns < 0 ? spec->lag_ns : spec->declared_lag_ns,
                       .resolution = spec->resolution * (counter ? 1e3 : 1),
                       .modulus_uj = counter ? spec->modulus_mj * 1e3 : 0,
                       .gain = declared_gain ? spec->declared_gain : spec->gain,
                       .gain_sd = declared_gain ? spec->declared_gain_sd : 1e-4};
        snprintf(r->name, sizeof r->name, "%s", spec->rails[i].name);
        snprintf(r->source, sizeof r->source, "sim");
        snprintf(r->device, sizeof r->device, "sim-%s", spec->rails[i].name);
        snprintf(r->field, sizeof r->field, "simulated %s", counter ? "counter" : "power");
        if (spec->on_grid) r->grid_ns = spec->period_ns;
        if (spec->rails[i].is_log) sim_spec_make_log(spec, &rails[spec->rails[i].parent], r);
    }
    return count;
}

double pj_sim_leaf_mw(const pj_sim_spec *spec, double class_mw, uint32_t index, double part)
{
    double mw = class_mw * (1 + spec->drift * part);
    if (!(spec->class_jitter > 0)) return mw;
    pj_random random = {(spec->seed + 1) * 0x9e3779b97f4a7c15u ^ index * 0xd1b54a32d192ed03u};
    pj_random_u64(&random);
    return mw * (1 + spec->class_jitter * (2 * pj_random_unit(&random) - 1));
}

double pj_sim_class_mw(const pj_sim_spec *spec, const char *class_name, pj_phase phase)
{
    char full[96];
    snprintf(full, sizeof full, "%s/%s", pj_phase_name(phase), class_name);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < spec->class_count; i++)
            if (strcmp(spec->classes[i].name, pass ? class_name : full) == 0)
                return spec->classes[i].mw;
    pj_random random = {pj_hash64(0, class_name, strlen(class_name)) ^
                        spec->seed * 0x9e3779b97f4a7c15u};
    pj_random_u64(&random);
    return spec->low_mw + (spec->high_mw - spec->low_mw) * pj_random_unit(&random);
}

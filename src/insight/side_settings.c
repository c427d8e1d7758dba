/* Settings and conditions that differ between the sides of a comparison. */
#include "insight/sides.h"

#include "trace/device_conditions.h"
#include "trace/request.h"
#include "trace/summary.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BYTES = 160,
    MOST_SAMPLED = 64
}; /* maximum number of runs per side whose settings are read */

/* ---- settings ------------------------------------------------------------------------------- */

/* Settings that change energy by themselves come first. */
static const char *const compared[] = {
    "model",
    "dtype",
    "engine",
    "scope",
    "level",
    "batch",
    "threads",
    "device",
    "isa",
    "depth",
    "input_tokens",
    "output_tokens",
    "prompt",
    "machine",
    "power",
    "energy_source",
    "settings.concurrency",
    "settings.kv",
    "model.kv_type",
    "settings.no_mmap",
    "settings.chat",
    "draft",
    "settings.draft_tokens",
    "settings.temperature",
    "settings.top_k",
    "settings.top_p",
    "settings.min_p",
    "settings.typical_p",
    "settings.repetition_penalty",
    "settings.frequency_penalty",
    "settings.presence_penalty",
    "settings.logit_bias",
    "settings.statistics",
    "settings.max_tokens",
    "settings.ablate",
};
enum { COMPARED = sizeof compared / sizeof *compared };

/* Settings that a run of perjoule's own engine stores only if they were given. */
static bool side_settings_is_without(const pj_run_info *run, const char *field)
{
    static const char *const given[] = {"draft", "settings.logit_bias", "settings.ablate",
                                        "settings.no_mmap"};
    char draft[TEXT_BYTES];
    if (!run->settings_json || (run->engine && strcmp(run->engine, "perjoule") != 0)) return false;
    if (strcmp(field, "settings.draft_tokens") == 0) /* with a draft: chosen by the engine */
        return !pj_run_field(run, "draft", draft, sizeof draft);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (strcmp(field, given[i]) == 0) return true;
    return false;
}

typedef struct side_value {
    char text[TEXT_BYTES];
    uint32_t runs;
} side_value;

typedef struct side_values {
    side_value of[MOST_SAMPLED]; /* the most frequent first */
    uint32_t count, sampled;
} side_values;

static side_value *find_value(side_values *values, const char *text)
{
    for (uint32_t i = 0; i < values->count; i++)
        if (strcmp(values->of[i].text, text) == 0) return &values->of[i];
    return NULL;
}

static int by_runs(const void *x, const void *y)
{
    const side_value *a = x, *b = y;
    if (a->runs != b->runs) return a->runs < b->runs ? 1 : -1;
    return strcmp(a->text, b->text);
}

static void read_values(const pj_side *side, const char *field, side_values *values)
{
    char text[TEXT_BYTES];
    values->count = 0;
    values->sampled = side->run_count < MOST_SAMPLED ? side->run_count : MOST_SAMPLED;
    for (uint32_t i = 0; i < values->sampled; i++) {
        if (!pj_run_field(side->runs[i], field, text, sizeof text))
            snprintf(text, sizeof text, "%s",
                     side_settings_is_without(side->runs[i], field) ? "none" : "");
        side_value *known = find_value(values, text);
        if (!known) {
            known = &values->of[values->count++];
            memcpy(known->text, text, sizeof text);
            known->runs = 0;
        }
        known->runs++;
    }
    qsort(values->of, values->count, sizeof *values->of, by_runs);
}

/* A single value as it is, several as "most frequent, next, …". */
static void write_values(const side_values *values, char *text)
{
    const side_value *of = values->of;
    if (values->count > 1)
        snprintf(text, TEXT_BYTES, "%.60s, %.60s%s", of[0].text[0] ? of[0].text : "unknown",
                 of[1].text[0] ? of[1].text : "unknown", values->count > 2 ? ", …" : "");
    else
        snprintf(text, TEXT_BYTES, "%s", values->count ? of[0].text : "");
}

/* Whether each value has the same share of the runs on both sides, as in the blocks of an
 * experiment. */
static bool have_same_shares(const side_values *a, side_values *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; same && i < a->count; i++) {
        const side_value *other = find_value(b, a->of[i].text);
        same = other && a->of[i].runs * b->sampled == other->runs * a->sampled;
    }
    return same;
}

static bool differs(const pj_sides *s, const char *field, char (*texts)[TEXT_BYTES])
{
    side_values first, now;
    bool different = false, any = false;
    for (uint32_t i = 0; i < s->count; i++) {
        side_values *values = any ? &now : &first;
        read_values(&s->sides[i], field, values);
        write_values(values, texts[i]);
        /* only attached engines have a level, so only they can differ in it */
        if (!texts[i][0] && strcmp(field, "level") == 0) continue;
        different |= any && !have_same_shares(&first, values);
        any = true;
    }
    return different;
}

/* ---- caveats -------------------------------------------------------------------------------- */

enum { MOST_CAVEATS = 16 + 6 * PJ_SIDES_MAX };

__attribute__((format(printf, 3, 4))) static void add_caveat(pj_sides *s, const char *code,
                                                             const char *format, ...)
{
    char text[720];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *copy = pj_arena_strndup(&s->arena, text, strlen(text));
    if (copy && s->caveat_count < MOST_CAVEATS)
        s->caveats[s->caveat_count++] = (pj_side_caveat){code, copy};
}

static const struct {
    const char *field, *code, *text;
} of_fields[] = {
    {"prompt", "prompt_differs",
     "The prompts differ: another text has other tokens and ends elsewhere."},
    {"input_tokens", "tokens_differ",
     "The number of prompt tokens differs: energy per output token contains a different share of "
     "prefill."},
    {"output_tokens", "tokens_differ",
     "The number of generated tokens differs: prefill is spread over more of them on one side."},
    {"machine", "machine_differs",
     "The machines differ: the calibration of both sensors is part of the interval."},
    {"depth", "depth_differs", "The recording depths differ, and so does the overhead."},
    {"power", "scope_differs", "The power sources differ: they may not see the same devices."},
    {"scope", "scope_differs",
     "The scopes differ: the energy of a machine, a process and a request are not the same "
     "quantity."},
    {"level", "level_differs",
     "The levels differ: fine recording slows an engine down, so only shares are comparable, not totals."},
};

/* Whether a side of perjoule's own engine is compared with an attached engine at level "fine". */
static bool is_own_beside_fine(const pj_sides *s)
{
    bool own = false, fine = false;
    for (uint32_t i = 0; i < s->count; i++) {
        const char *level = s->sides[i].runs[0]->level;
        own |= !level;
        fine |= level && strcmp(level, "fine") == 0;
    }
    return own && fine;
}

/* Whether a run loaded its model: by the energy of that section or, if unavailable, by its time. */
static bool has_loaded(const pj_sides *s, const pj_run_info *run)
{
    pj_class_sum *sums = NULL;
    uint32_t count = 0;
    pj_arena arena;
    pj_error ignored = {0};
    const char *id = run->id;
    bool loaded = run->model_load_mj > 0;
    if (loaded || run->quality != PJ_UNAVAILABLE) return loaded;
    pj_arena_init(&arena, 0);
    if (pj_store_class_sums(s->store, &id, 1, &arena, &sums, &count, &ignored) == PJ_OK)
        for (uint32_t i = 0; i < count; i++)
            loaded |= strcmp(sums[i].name, PJ_SECTION_MODEL_LOAD) == 0 && sums[i].time_ms > 0;
    pj_arena_fini(&arena);
    return loaded;
}

/* Runs of programs that reported no tokens; their command stands where a prompt would. */
static bool are_programs(const pj_sides *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_run_info *run = s->sides[i].runs[0];
        if (!run->engine || strcmp(run->engine, "exec") != 0 || run->output_tokens) return false;
    }
    return true;
}

/* The share of runs that loaded the model and so had cold caches; of up to MOST_SAMPLED. */
static double cold_share(const pj_sides *s, const pj_side *side)
{
    uint32_t cold = 0, sampled = side->run_count < MOST_SAMPLED ? side->run_count : MOST_SAMPLED;
    for (uint32_t i = 0; i < sampled; i++) cold += has_loaded(s, side->runs[i]);
    return (double)cold / sampled;
}

typedef struct side_conditions {
    double temperature_c, clock_mhz; /* NAN: not reported */
} side_conditions;

/* Means over the devices that report them and up to MOST_SAMPLED runs. */
static side_conditions conditions_of(const pj_side *side)
{
    pj_device_conditions devices[PJ_DEVICES_MAX];
    side_conditions sum = {0, 0};
    uint32_t warm = 0, clocked = 0;
    for (uint32_t i = 0; i < side->run_count && i < MOST_SAMPLED; i++) {
        uint32_t count = pj_device_conditions_read(side->runs[i]->conditions_json, devices);
        for (uint32_t k = 0; k < count; k++) {
            const pj_device_conditions *d = &devices[k];
            warm += !isnan(d->temperature_c);
            clocked += !isnan(d->clock_mhz);
            sum.temperature_c += isnan(d->temperature_c) ? 0 : d->temperature_c;
            sum.clock_mhz += isnan(d->clock_mhz) ? 0 : d->clock_mhz;
        }
    }
    return (side_conditions){warm ? sum.temperature_c / warm : NAN,
                             clocked ? sum.clock_mhz / clocked : NAN};
}

static void add_condition_caveats(pj_sides *s)
{
    const char *first_name = s->sides[0].name;
    side_conditions first = conditions_of(&s->sides[0]);
    for (uint32_t i = 1; i < s->count; i++) {
        side_conditions other = conditions_of(&s->sides[i]);
        if (fabs(other.temperature_c - first.temperature_c) > 8)
            add_caveat(s, "conditions_differ",
                       "%s ran at %.0f °C, %s at %.0f °C: hot silicon leaks more.", first_name,
                       first.temperature_c, s->sides[i].name, other.temperature_c);
        if (fabs(other.clock_mhz - first.clock_mhz) > 0.05 * first.clock_mhz)
            add_caveat(s, "conditions_differ", "The clocks differ: %s %.0f MHz, %s %.0f MHz.",
                       first_name, first.clock_mhz, s->sides[i].name, other.clock_mhz);
    }
}

/* One sentence for all sides that kept disturbed runs. */
static void add_kept_disturbed(pj_sides *s)
{
    char names[512] = "";
    uint32_t left = 0, all;
    bool several = false; /* a single run is what it is */
    for (uint32_t i = 0; i < s->count; i++)
        several |= s->sides[i].kept_disturbed && s->sides[i].run_count > 1;
    for (uint32_t i = 0; i < s->count; i++)
        left += s->sides[i].kept_disturbed && !s->sides[i].left_out;
    all = left;
    for (uint32_t i = 0; i < s->count; i++) {
        if (!s->sides[i].kept_disturbed || s->sides[i].left_out) continue;
        size_t used = strlen(names);
        const char *before = left == all ? "" : left == 1 ? " and " : ", ";
        snprintf(names + used, sizeof names - used, "%s%s", before, s->sides[i].name);
        left--;
    }
    if (all)
        add_caveat(s, "disturbed_kept",
                   "The machine was busy during %s of %s%s: measure again on an idle machine.",
                   several   ? "runs"
                   : all > 1 ? "the runs"
                             : "the run",
                   names, several ? ", and too few others remain to leave them out" : "");
}

static void add_disturbed_caveats(pj_sides *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_side *side = &s->sides[i];
        if (side->left_out)
            add_caveat(s, "disturbed_left_out",
                       "%u disturbed or throttled run%s of %s %s left out; %u remain%s.",
                       side->left_out, side->left_out == 1 ? "" : "s", side->name,
                       side->left_out == 1 ? "is" : "are", side->run_count,
                       side->run_count == 1 ? "s" : "");
    }
    add_kept_disturbed(s);
}

/* What a run did until it was interrupted is another share of its work. */
static void add_status_caveats(pj_sides *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_side *side = &s->sides[i];
        const pj_run_info *first = NULL;
        uint32_t count = 0;
        for (uint32_t k = 0; k < side->run_count; k++) {
            if (side->runs[k]->status == PJ_RUN_COMPLETED) continue;
            if (!count++) first = side->runs[k];
        }
        if (first && side->run_count == 1)
            add_caveat(s, "not_completed", "The run of %s was %s after %llu tokens.", side->name,
                       pj_run_status_name(first->status), (unsigned long long)first->output_tokens);
        else if (first)
            add_caveat(s, "not_completed", "%u of the %u runs of %s did not complete.", count,
                       side->run_count, side->name);
    }
}

uint32_t pj_run_at_a_time(const pj_run_info *run)
{
    char text[16];
    if (!run->allocation) return 1;
    bool known = pj_run_field(run, "settings.concurrency", text, sizeof text);
    return known ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

/* Requests of a server have all of its machine's energy: alone, or their shares together. */
static bool same_scope(const pj_run_info *a, const pj_run_info *b)
{
    bool requests = a->scope && b->scope && strcmp(a->scope, "request") == 0 &&
                    strcmp(b->scope, "request") == 0;
    return requests || strcmp(pj_run_scope(a), pj_run_scope(b)) == 0;
}

static bool are_alike_in_scope(const pj_sides *s)
{
    bool alike = true;
    for (uint32_t i = 1; i < s->count; i++)
        alike &= same_scope(s->sides[i].runs[0], s->sides[0].runs[0]);
    return alike;
}

static const char *text_of_field(const pj_sides *s, size_t i)
{
    if (i == 0 && are_programs(s)) return "The programs differ, and so does their work.";
    if (strcmp(of_fields[i].field, "scope") == 0 && are_alike_in_scope(s))
        return "Requests shared their machine on one side: its energy is divided among them by a "
               "rule.";
    return of_fields[i].text;
}

static void add_caveats(pj_sides *s)
{
    char texts[PJ_SIDES_MAX][TEXT_BYTES];
    for (size_t i = 0; i < sizeof of_fields / sizeof *of_fields; i++)
        if (differs(s, of_fields[i].field, texts))
            add_caveat(s, of_fields[i].code, "%s", text_of_field(s, i));
    if (is_own_beside_fine(s))
        add_caveat(s, "level_differs",
                   "One side is an attached engine whose modules were timed one by one, which "
                   "slows it down: shares compare better than totals.");
    for (uint32_t i = 1; i < s->count; i++) {
        const char *refusal = pj_sides_refusal(&s->sides[0], &s->sides[i]);
        if (refusal)
            add_caveat(s, "not_comparable", "The energies of %s and %s are not comparable: %s",
                       s->sides[0].name, s->sides[i].name, refusal);
        if (fabs(cold_share(s, &s->sides[i]) - cold_share(s, &s->sides[0])) > 0.25)
            add_caveat(s, "warmth_differs",
                       "Runs of one side loaded the model more often: their first tokens read "
                       "weights that were not cached yet.");
    }
    add_status_caveats(s);
    add_condition_caveats(s);
    add_disturbed_caveats(s);
}

static void add_difference(pj_sides *s, const char *setting, char (*texts)[TEXT_BYTES])
{
    pj_side_difference *d = &s->differences[s->difference_count++];
    d->setting = setting;
    for (uint32_t i = 0; i < s->count; i++)
        d->values[i] = texts[i][0] ? pj_arena_strndup(&s->arena, texts[i], strlen(texts[i])) : NULL;
}

pj_status pj_sides_settings(pj_sides *s, pj_error *err)
{
    char texts[PJ_SIDES_MAX][TEXT_BYTES];
    s->differences = pj_arena_alloc(&s->arena, COMPARED, sizeof *s->differences);
    s->caveats = pj_arena_alloc(&s->arena, MOST_CAVEATS, sizeof *s->caveats);
    if (!s->differences || !s->caveats) return pj_fail_memory(err, "a comparison");
    for (int f = 0; f < COMPARED; f++)
        if (differs(s, compared[f], texts)) add_difference(s, compared[f], texts);
    add_caveats(s);
    return PJ_OK;
}

/* ---- comparability -------------------------------------------------------------------- */

/* Device classes of a list of rails: "cpu,gpu0,gpu1" and "cpu,gpu" have the same. */
static uint64_t devices_of(const char *rails)
{
    uint64_t devices = 0;
    for (const char *at = rails ? rails : ""; *at;) {
        size_t length = strcspn(at, ","), letters = 0;
        uint64_t hash = 5381;
        while (letters < length && !isdigit((unsigned char)at[letters]) && at[letters] != '-')
            hash = hash * 33 + (unsigned char)at[letters++];
        devices |= 1ull << (hash % 64);
        at += length + (at[length] == ',');
    }
    return devices;
}

void pj_likeness_add(pj_likeness *l, const pj_run_info *run)
{
    if (run->quality == PJ_UNAVAILABLE) return;
    if (!l->first) l->first = run;
    l->source |= run->quality != l->first->quality;
    l->model |= run->quality == PJ_MODELLED && l->first->quality == PJ_MODELLED &&
                run->power_sources && l->first->power_sources &&
                strcmp(run->power_sources, l->first->power_sources) != 0;
    l->scope |= !same_scope(run, l->first);
    l->devices |= devices_of(run->total_rails) != devices_of(l->first->total_rails) ||
                  devices_of(run->partial_rails) != devices_of(l->first->partial_rails);
}

const char *pj_likeness_refusal(const pj_likeness *l)
{
    if (l->source) return "one is measured and the other modelled.";
    if (l->model) return "they are modelled by different power sources.";
    if (l->scope) return "their scopes differ (machine, process or request).";
    if (l->devices) return "their totals are sums over different devices.";
    return NULL;
}

const char *pj_sides_refusal(const pj_side *a, const pj_side *b)
{
    pj_likeness l = {0};
    for (uint32_t i = 0; i < a->run_count; i++) pj_likeness_add(&l, a->runs[i]);
    for (uint32_t i = 0; i < b->run_count; i++) pj_likeness_add(&l, b->runs[i]);
    return pj_likeness_refusal(&l);
}

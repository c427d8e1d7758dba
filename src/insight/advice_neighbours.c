/* Facts for advice from other runs in the store. */
#include "insight/advice.h"

#include "analysis/ratio.h"
#include "insight/sides.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 1000, GROUP_MAX = 64 };
static const int64_t hour_ns = 3600 * INT64_C(1000000000);

static bool advice_neighbours_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* ---- runs that differ in one setting --------------------------------------------------------- */

static uint32_t batch_of(const pj_run_info *info)
{
    return info->batch_size ? info->batch_size : 1;
}

static bool is_near(double x, double y)
{
    return fabs(x - y) <= 0.1 * fmax(x, y);
}

static bool advice_neighbours_is_alike(const pj_run_info *a, const pj_run_info *b)
{
    uint32_t batch_a = batch_of(a), batch_b = batch_of(b);
    pj_likeness l = {0};
    pj_likeness_add(&l, a);
    pj_likeness_add(&l, b);
    return advice_neighbours_same_text(a->model_name, b->model_name) &&
           advice_neighbours_same_text(a->machine, b->machine) &&
           advice_neighbours_same_text(a->engine, b->engine) && !pj_likeness_refusal(&l) &&
           is_near((double)a->input_tokens / batch_a, (double)b->input_tokens / batch_b) &&
           is_near((double)a->output_tokens / batch_a, (double)b->output_tokens / batch_b) &&
           !pj_run_is_disturbed(b) && !pj_run_is_ablated(b) && b->request_mj > 0;
}

static int settings_that_differ(const pj_run_info *a, const pj_run_info *b)
{
    return (a->threads != b->threads) + (batch_of(a) != batch_of(b)) +
           !advice_neighbours_same_text(a->dtype, b->dtype);
}

typedef struct values {
    double joules[GROUP_MAX], speed, power; /* the last two: sums */
    uint32_t n;
} values;

static void add_values(values *v, const pj_run_info *info)
{
    pj_run_ratios r;
    if (v->n == GROUP_MAX) return;
    pj_run_ratios_get(info, &r);
    /* What is said of the saving is of the request, not of its decode alone. */
    v->joules[v->n++] = pj_typical_request_mj(info) / 1e3 / (double)info->output_tokens;
    v->speed += r.tokens_per_second;
    v->power += info->decode_mj / info->decode_ms;
}

/* Of runs like this one with the settings of `of`. */
static values values_of(const pj_run_list *list, const pj_run_info *info, const pj_run_info *of)
{
    values v = {0};
    for (uint32_t i = 0; i < list->count; i++)
        if (advice_neighbours_is_alike(info, &list->runs[i]) &&
            settings_that_differ(of, &list->runs[i]) == 0)
            add_values(&v, &list->runs[i]);
    return v;
}

/* Compares runs with other settings to runs with those of this run. */
static void add_neighbour(pj_advice_facts *f, const pj_run_info *of, const values *theirs,
                          const values *own)
{
    pj_ratio ratio;
    pj_ratio_compare(own->joules, own->n, theirs->joules, theirs->n, 0, &ratio);
    if (isnan(ratio.lo)) return; /* fewer than two per side */
    pj_advice_neighbour *n = &f->neighbours[f->neighbour_count++];
    *n = (pj_advice_neighbour){.threads = of->threads,
                               .batch = batch_of(of),
                               .n = theirs->n,
                               .ratio = ratio.ratio,
                               .lo = ratio.lo,
                               .hi = ratio.hi,
                               .speed = theirs->speed / theirs->n / (own->speed / own->n),
                               .power = theirs->power / theirs->n / (own->power / own->n)};
    snprintf(n->dtype, sizeof n->dtype, "%s", of->dtype ? of->dtype : "");
}

static bool advice_neighbours_is_known(const pj_advice_facts *f, const pj_run_info *of)
{
    for (uint32_t i = 0; i < f->neighbour_count; i++) {
        const pj_advice_neighbour *n = &f->neighbours[i];
        if (n->threads == of->threads && n->batch == batch_of(of) &&
            strcmp(n->dtype, of->dtype ? of->dtype : "") == 0)
            return true;
    }
    return false;
}

static void compare_neighbours(pj_advice_facts *f, const pj_run_list *list, const pj_run_info *info)
{
    values own = values_of(list, info, info);
    for (uint32_t i = 0; i < list->count && f->neighbour_count < PJ_ADVICE_NEIGHBOURS; i++) {
        const pj_run_info *other = &list->runs[i];
        if (!advice_neighbours_is_alike(info, other) || settings_that_differ(info, other) != 1 ||
            advice_neighbours_is_known(f, other))
            continue;
        values theirs = values_of(list, info, other);
        add_neighbour(f, other, &theirs, &own);
    }
}

/* ---- the hour before, prompts, smaller models ------------------------------------------------ */

static void measure_last_hour(pj_advice_facts *f, const pj_run_list *list, const pj_run_info *info)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    const char *prompt = NULL;
    double known_ms = 0; /* of the runs whose energy is known */
    for (uint32_t i = 0; i < list->count; i++) {
        const pj_run_info *other = &list->runs[i];
        int64_t before = info->created_wall_ns - other->created_wall_ns;
        if (before < 0 || before > hour_ns ||
            !advice_neighbours_same_text(other->machine, info->machine))
            continue;
        int64_t end = other->created_wall_ns +
                      (int64_t)(1e6 * (isnan(other->total_ms) ? 0 : other->total_ms));
        if (other->created_wall_ns < first) first = other->created_wall_ns;
        if (end > last) last = end;
        f->window_busy_ms += isnan(other->total_ms) ? 0 : other->total_ms;
        if (isfinite(other->total_mj) && !isnan(other->total_ms)) {
            f->window_mj += other->total_mj;
            known_ms += other->total_ms;
        }
        f->window_runs++;
        f->window_prompts += other->prompt && !advice_neighbours_same_text(other->prompt, prompt);
        prompt = other->prompt;
        if (strcmp(other->id, info->id) == 0 ||
            !advice_neighbours_same_text(other->model_name, info->model_name) ||
            !advice_neighbours_same_text(other->dtype, info->dtype))
            continue;
        f->same_model_last_hour++;
    }
    if (f->window_runs) f->window_ms = (double)(last - first) / 1e6;
    /* Runs of unknown energy are assumed to draw the others' mean power. */
    if (known_ms > 0) f->window_mj *= f->window_busy_ms / known_ms;
}

static size_t common_prefix(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* Equal prompts indicate repeated measurements rather than traffic. */
static void measure_prefixes(pj_advice_facts *f, const pj_run_list *list, const pj_run_info *info)
{
    size_t length = info->prompt ? strlen(info->prompt) : 0, longest = 0;
    for (uint32_t i = 0; i < list->count && length; i++) {
        const char *other = list->runs[i].prompt;
        if (!other || strcmp(other, info->prompt) == 0) continue;
        size_t n = common_prefix(info->prompt, other);
        if (n > longest) longest = n;
    }
    for (uint32_t i = 0; i < list->count && longest; i++) {
        const char *other = list->runs[i].prompt;
        if (other && strcmp(other, info->prompt) != 0)
            f->prefix_runs += common_prefix(info->prompt, other) * 10 >= longest * 8;
    }
    f->prefix_share = length ? (double)longest / (double)length : NAN;
}

static double vocabulary_of(const pj_run_info *info)
{
    char text[32];
    return pj_run_field(info, "model.vocab_size", text, sizeof text) ? strtod(text, NULL) : NAN;
}

static void find_draft_model(pj_advice_facts *f, const pj_run_list *list, const pj_run_info *info,
                             pj_arena *arena)
{
    double own = vocabulary_of(info);
    if (isnan(own) || !(info->parameters > 0)) return;
    for (uint32_t i = 0; i < list->count; i++) {
        const pj_run_info *other = &list->runs[i];
        if (!(other->parameters < 0.25 * info->parameters) || !other->model_name) continue;
        if (f->smaller_model && other->parameters >= f->smaller_parameters) continue;
        if (vocabulary_of(other) != own) continue;
        f->smaller_model = pj_arena_strndup(arena, other->model_name, strlen(other->model_name));
        f->smaller_parameters = other->parameters;
    }
}

pj_status pj_advice_facts_neighbours(pj_store *store, const pj_run_info *info, pj_arena *arena,
                                     pj_advice_facts *f, pj_error *err)
{
    pj_run_list list = {0};
    pj_run_query query = {.status = "completed", .whole_prompts = true, .limit = MOST_RUNS};
    pj_status status = pj_store_list(store, &query, &list, err);
    if (status == PJ_OK) {
        compare_neighbours(f, &list, info);
        measure_last_hour(f, &list, info);
        measure_prefixes(f, &list, info);
        find_draft_model(f, &list, info, arena);
    }
    pj_run_list_fini(&list);
    return status;
}

/* The difference of energy per token between sides, by phase and component. */
#include "insight/sides.h"

#include "trace/request.h"

#include <math.h>
#include <string.h>

enum { MAX_PARTS = 256, KEEP_TERMS = 24, MOST_RUNS = 2000 };

typedef struct parts {
    pj_side_part rows[MAX_PARTS];
    uint32_t count, runs; /* number of runs that have parts */
    double mj;            /* mean energy per token of those runs' requests, mJ */
} parts;

static pj_side_part *side_parts_part_of(parts *p, uint8_t phase, const char *name)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->rows[i].phase == phase && strcmp(p->rows[i].name, name) == 0) return &p->rows[i];
    if (p->count == MAX_PARTS) return NULL;
    p->rows[p->count] = (pj_side_part){.phase = phase, .name = name};
    return &p->rows[p->count++];
}

/* Excluded from the request: loading the model and idle gaps. */
static bool is_of_request(const pj_class_sum *c)
{
    return c->phase != PJ_PHASE_IDLE && strcmp(c->name, PJ_SECTION_MODEL_LOAD) != 0;
}

/* With the propagated variance of each run; the spread between runs is part of the verdict. */
static void side_parts_add_class(parts *p, const pj_class_sum *c, double tokens)
{
    if (!is_of_request(c) || isnan(c->energy_mj)) return;
    pj_side_part *part = side_parts_part_of(p, c->phase, c->name);
    if (!part) return;
    double sd = isnan(c->energy_sd_mj) ? 0 : c->energy_sd_mj / tokens;
    part->ms += isnan(c->time_ms) ? 0 : c->time_ms / tokens;
    part->mj += c->energy_mj / tokens;
    part->variance += sd * sd;
}

/* For runs without rows of classes, their phases are the parts. */
static void add_phases(parts *p, const pj_run_info *run, double tokens)
{
    const struct {
        uint8_t phase;
        double ms, mj;
    } phases[] = {{PJ_PHASE_PREFILL, run->prefill_ms, run->prefill_mj},
                  {PJ_PHASE_DECODE, run->decode_ms, run->decode_mj}};
    for (int i = 0; i < 2; i++)
        side_parts_add_class(p,
                             &(pj_class_sum){.phase = phases[i].phase,
                                             .name = "",
                                             .time_ms = phases[i].ms,
                                             .energy_mj = phases[i].mj,
                                             .energy_sd_mj = NAN},
                             tokens);
}

static bool has_energy(const pj_run_info *run)
{
    return run->output_tokens > 0 && isfinite(run->request_mj);
}

static void mean_parts(parts *p)
{
    double n = p->runs;
    if (!p->runs) return;
    p->mj /= n;
    for (uint32_t i = 0; i < p->count; i++) {
        p->rows[i].ms /= n;
        p->rows[i].mj /= n;
        p->rows[i].variance /= n * n;
    }
}

/* Classes are without disturbances, which are a part of each phase. */
static void add_disturbed(parts *p, uint32_t run, uint8_t phase, const pj_disturbed_sum *sum,
                          double tokens)
{
    const pj_class_sum part = {.run = run,
                               .phase = phase,
                               .name = "disturbed",
                               .time_ms = sum->ms,
                               .energy_mj = sum->mj,
                               .energy_sd_mj = 0,
                               .flops = NAN,
                               .bytes = NAN};
    if (sum->mj > 0) side_parts_add_class(p, &part, tokens);
}

static pj_status load_parts(pj_sides *s, const pj_side *side, parts *p, pj_error *err)
{
    pj_arena *arena = &s->arena;
    const char **ids = pj_arena_alloc(arena, side->run_count, sizeof *ids);
    pj_class_sum *sums = NULL;
    uint32_t sum_count = 0, at = 0;
    bool phases_only = side->run_count > MOST_RUNS;
    if (!ids) return pj_fail_memory(err, "a comparison");
    for (uint32_t i = 0; i < side->run_count; i++) ids[i] = side->runs[i]->id;
    pj_status status = phases_only ? PJ_OK
                                   : pj_store_class_sums(s->store, ids, side->run_count, arena,
                                                         &sums, &sum_count, err);
    for (uint32_t i = 0; i < side->run_count && status == PJ_OK; i++) {
        const pj_run_info *run = side->runs[i];
        double tokens = (double)run->output_tokens;
        bool any = false;
        for (; at < sum_count && sums[at].run == i; at++) {
            if (has_energy(run)) side_parts_add_class(p, &sums[at], tokens);
            any = true;
        }
        if (!has_energy(run)) continue;
        if (!any) add_phases(p, run, tokens);
        if (any) {
            add_disturbed(p, i, PJ_PHASE_PREFILL, &run->prefill_disturbed, tokens);
            add_disturbed(p, i, PJ_PHASE_DECODE, &run->decode_disturbed, tokens);
        }
        p->runs++;
        p->mj += run->request_mj / tokens;
    }
    mean_parts(p);
    return status;
}

/* Terms for all parts that occur on either side. */
static size_t side_parts_join(const parts *a, const parts *b, pj_term *terms)
{
    size_t n = 0;
    for (int k = 0; k < 2; k++) {
        const parts *from = k ? b : a;
        for (uint32_t i = 0; i < from->count; i++) {
            const pj_side_part *part = &from->rows[i];
            pj_term *t = NULL;
            const char *phase = pj_phase_name((pj_phase)part->phase);
            for (size_t j = 0; j < n && !t; j++)
                if (terms[j].phase == phase && strcmp(terms[j].name, part->name) == 0)
                    t = &terms[j];
            if (!t) {
                t = &terms[n++];
                *t = (pj_term){.phase = phase, .name = part->name};
            }
            *(k ? &t->ms_b : &t->ms_a) = part->ms;
            *(k ? &t->mj_b : &t->mj_a) = part->mj;
            t->sd_mj = sqrt(t->sd_mj * t->sd_mj + part->variance);
        }
    }
    return n;
}

static pj_status decompose(pj_sides *s, uint32_t side, const parts *a, const parts *b,
                           pj_term *work, pj_error *err)
{
    size_t n = pj_decompose(work, side_parts_join(a, b, work), b->mj - a->mj, KEEP_TERMS);
    pj_side_terms *out = &s->terms[s->term_count];
    *out = (pj_side_terms){side, (uint32_t)n, a->mj, b->mj,
                           pj_arena_alloc(&s->arena, n + 1, sizeof *out->terms)};
    if (!out->terms) return pj_fail_memory(err, "a comparison");
    memcpy(out->terms, work, n * sizeof *work);
    s->term_count++;
    return PJ_OK;
}

pj_status pj_sides_terms(pj_sides *s, pj_error *err)
{
    parts *all = pj_arena_alloc(&s->arena, 2, sizeof *all);
    pj_term *work = pj_arena_alloc(&s->arena, 2 * MAX_PARTS + 1, sizeof *work);
    if (!all || !work) return pj_fail_memory(err, "a comparison");
    pj_status status = load_parts(s, &s->sides[0], &all[0], err);
    for (uint32_t i = 1; i < s->count && status == PJ_OK; i++) {
        memset(&all[1], 0, sizeof all[1]);
        status = load_parts(s, &s->sides[i], &all[1], err);
        if (status == PJ_OK && all[0].runs && all[1].runs)
            status = decompose(s, i, &all[0], &all[1], work, err);
    }
    return status;
}

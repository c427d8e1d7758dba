/* From matched parts to rows, and from rows to findings. */
#include "analysis/why.h"

#include "analysis/why_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without repeats: relative standard deviation of a part's time from run to run, of the time
 * between parts, which depends on the system more, and of starting and ending, which happen once.
 */
static const double assumed_spread = 0.02, assumed_gap_spread = 0.1, assumed_once_spread = 0.3;
/* Weight of the spread of all parts in that of one, in runs. */
static const double prior_runs = 4;

/* ---- amounts -------------------------------------------------------------------------------- */

/* Pooled over the parts that take at least a hundredth of the time. */
static double spread_of(const pj_why_side *s)
{
    double all = 0, squares = 0, n = 0;
    if (s->runs < 2) return assumed_spread;
    for (uint32_t i = 0; i < s->count; i++) all += s->parts[i].ms.mean;
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_moments *m = &s->parts[i].ms;
        if (m->mean < 0.01 * all || !*s->parts[i].component) continue;
        squares += m->squares / (m->mean * m->mean);
        n += m->n - 1;
    }
    return n > 0 ? sqrt(squares / n) : assumed_spread;
}

static double usual_spread(const pj_why_part *p)
{
    bool in_steps = p->phase == PJ_PHASE_PREFILL || p->phase == PJ_PHASE_DECODE;
    if (*p->component) return assumed_spread;
    return in_steps ? assumed_gap_spread : assumed_once_spread;
}

static double time_variance(const pj_why_side *s, const pj_why_part *p, double spread)
{
    double n = s->runs, ms = p->ms.mean;
    if (s->runs == 1) {
        double usual = usual_spread(p) * ms;
        return p->token_variance / (s->output_tokens * s->output_tokens) + usual * usual;
    }
    double prior = prior_runs * spread * ms * spread * ms;
    return (prior + p->ms.squares) / (prior_runs + n - 1) / n;
}

/* Of a single run. What happens only once may have been held up as long as decode steps were. */
static void add_calm(const pj_why_side *s, const pj_why_part *p, pj_why_amount *a)
{
    double usual =
        hypot(hypot(usual_spread(p), s->pace_sd), pj_why_slowed_sd(s, s->phase_ms[p->phase]));
    double tokens = s->output_tokens, longest = s->longest_stall_ms;
    bool once = isnan(p->calm_ms);
    double random =
        once ? longest * longest + s->stalls_ms * p->ms.mean * tokens : p->calm_variance;
    a->once |= once;
    a->calm_ms += once ? p->ms.mean : p->calm_ms / tokens;
    a->calm_variance += random / (tokens * tokens) + pow(usual * p->ms.mean, 2);
}

static double energy_variance(const pj_why_side *s, const pj_why_part *p)
{
    double n = s->runs, between = n > 1 ? p->mj.squares / (n - 1) / n : 0;
    return p->random / (n * n) + p->bias / n * (p->bias / n) + between;
}

/* `calls`: whether those of the parts are of one thing. */
static pj_why_amount amount_of(const pj_why_side *s, const pj_why_part *const *parts,
                               uint32_t count, double spread, bool calls)
{
    pj_why_amount a = {.calls = calls ? 0 : NAN, .flops = NAN, .bytes = NAN};
    if (!count) a.flops = a.bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const pj_why_part *p = parts[i];
        a.ms += p->ms.mean;
        a.mj += p->mj.mean;
        a.flops = pj_add_known(a.flops, p->flops / s->runs);
        a.bytes = pj_add_known(a.bytes, p->bytes / s->runs);
        a.ms_variance += time_variance(s, p, spread);
        a.mj_variance += energy_variance(s, p);
        if (s->runs == 1) add_calm(s, p, &a);
        if (count == 1 || !p->operation) a.calls += (double)p->calls / s->output_tokens;
    }
    if (s->runs > 1) a.calm_ms = a.ms;
    if (s->runs > 1) a.calm_variance = a.ms_variance;
    return a;
}

/* ---- names and values ----------------------------------------------------------------------- */

static uint32_t components_in(const pj_why_part *const *parts, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < i; k++)
            seen |= strcmp(parts[k]->component, parts[i]->component) == 0;
        n += !seen;
    }
    return n;
}

static bool has_gap(const pj_why_part *const *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!*parts[i]->component) return true;
    return false;
}

/* "q_proj", "attention/softmax", "q_proj+k_proj+v_proj". */
static const char *name_of(const pj_why_part *const *parts, uint32_t count, pj_arena *arena)
{
    char text[160];
    size_t n = 0;
    if (!count) return NULL;
    if (components_in(parts, count) > 1 && has_gap(parts, count)) return "layers";
    if (!*parts[0]->component) return parts[0]->on_device ? "device without work" : "between parts";
    for (uint32_t i = 0; i < count && n < sizeof text; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < i; k++)
            seen |= strcmp(parts[k]->component, parts[i]->component) == 0;
        if (!seen)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "+" : "",
                                  parts[i]->component);
    }
    if (count == 1 && parts[0]->operation && n < sizeof text)
        snprintf(text + n, sizeof text - n, "/%s", parts[0]->operation);
    return pj_arena_strndup(arena, text, strlen(text));
}

/* The part whose outputs stand for a row's. */
static const pj_why_part *output_of(const pj_why_part *const *parts, uint32_t count)
{
    if (!count || components_in(parts, count) != 1) return NULL;
    for (uint32_t i = 0; i < count; i++)
        if (!parts[i]->operation || count == 1) return parts[i];
    return NULL;
}

static int values_of(const pj_why_pair *pair)
{
    const pj_why_part *a = output_of(pair->parts[0], pair->count[0]);
    const pj_why_part *b = output_of(pair->parts[1], pair->count[1]);
    pj_why_likeness l = a && b ? pj_why_parts_compare(a, b) : (pj_why_likeness){0};
    return l.compared < 2 ? -1 : pj_why_likeness_same(&l);
}

/* The part of the same side that computed the same values as one that the other side lacks. */
static void find_equal(const pj_why_side *s, const pj_why_pair *pair, int side, pj_why_row *row,
                       pj_arena *arena)
{
    const pj_why_part *of = output_of(pair->parts[side], pair->count[side]), *best = NULL;
    pj_why_likeness most = {0};
    for (uint32_t i = 0; of && i < s->count; i++) {
        const pj_why_part *p = &s->parts[i];
        if (p == of || p->phase != of->phase) continue;
        pj_why_likeness l = pj_why_parts_compare(of, p);
        if (!pj_why_likeness_same(&l) || l.exact < most.exact || l.compared <= most.compared)
            continue;
        most = l;
        best = p;
    }
    if (!best) return;
    row->equals = name_of(&best, 1, arena);
    row->equals_exactly = 10 * most.exact >= 9 * most.compared;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static bool is_gap(const pj_why_context *c, const pj_why_pair *pair)
{
    const pj_why_part *p = pair->count[0] ? pair->parts[0][0] : pair->parts[1][0];
    if (pair->whole) return false;
    for (int side = 0; side < 2; side++) /* layers that the other side does not divide */
        if (components_in(pair->parts[side], pair->count[side]) > 1) return false;
    /* Where devices compute, the host waits. */
    return !*p->component && p->on_device == (c->a->has_devices || c->b->has_devices);
}

/* Of what is compared as a whole, the one that the rest precedes or follows. */
static uint8_t phase_of(const pj_why_pair *pair)
{
    for (int side = 0; side < 2 && pair->whole; side++)
        for (uint32_t i = 0; i < pair->count[side]; i++) {
            uint8_t phase = pair->parts[side][i]->phase;
            if (phase == PJ_PHASE_PREFILL || phase == PJ_PHASE_DECODE) return phase;
        }
    return pair->parts[!pair->count[0]][0]->phase;
}

static double repeats_of(const pj_why_side *s, const pj_why_part *const *parts, uint32_t count)
{
    const pj_why_part *p = output_of(parts, count);
    return p ? (double)p->repeated / s->output_tokens : 0;
}

static void make_row(const pj_why_context *c, const pj_why_pair *pair, pj_arena *arena,
                     pj_why_row *row)
{
    const pj_why_part *const *a = pair->parts[0], *const *b = pair->parts[1];
    uint32_t n_a = pair->count[0], n_b = pair->count[1];
    bool one_to_one = !pair->whole && components_in(a, n_a) <= 1 && components_in(b, n_b) <= 1;
    const char *name_a = pair->whole ? pair->whole : name_of(a, n_a, arena);
    const char *name_b = pair->whole ? pair->whole : name_of(b, n_b, arena);
    *row = (pj_why_row){.phase = phase_of(pair),
                        .is_gap = is_gap(c, pair),
                        .per_run = c->a->per_run,
                        .whole = pair->whole != NULL,
                        .name = name_a ? name_a : name_b,
                        .other = name_a && name_b && strcmp(name_a, name_b) != 0 ? name_b : NULL,
                        .match = pair->match,
                        .a = amount_of(c->a, a, n_a, c->spread_a, one_to_one),
                        .b = amount_of(c->b, b, n_b, c->spread_b, one_to_one),
                        .repeated_a = repeats_of(c->a, a, n_a),
                        .repeated_b = repeats_of(c->b, b, n_b),
                        .same_values = values_of(pair)};
    if (!n_a && n_b) find_equal(c->b, pair, 1, row, arena);
    if (n_a && !n_b) find_equal(c->a, pair, 0, row, arena);
    row->from = row->a;
    row->difference_mj = row->b.mj - row->a.mj;
}

static pj_status make_rows(pj_why *why, const pj_why_context *c, bool same_model, pj_error *err)
{
    pj_arena work;
    pj_why_pair *pairs = NULL;
    uint32_t count = 0;
    pj_arena_init(&work, 0);
    pj_status status = pj_why_pairs(c->a, c->b, same_model, &work, &pairs, &count, err);
    if (status == PJ_OK) {
        why->rows = pj_arena_alloc(&why->arena, count + 1, sizeof *why->rows);
        if (!why->rows) status = pj_fail_memory(err, "an explanation");
    }
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        if (!pairs[i].count[0] && !pairs[i].count[1]) continue;
        pj_why_row *row = &why->rows[why->row_count];
        make_row(c, &pairs[i], &why->arena, row);
        if (!row->name) status = pj_fail_memory(err, "an explanation");
        why->row_count += row->a.ms > 0 || row->b.ms > 0;
    }
    pj_arena_fini(&work);
    return status;
}

/* Relative variance of a side's mean: what the sensor makes of it, and the spread of its runs. */
static double request_variance(const pj_why_side *s)
{
    double n = s->runs, mj = s->request.mean;
    double between = n > 1 ? s->request.squares / (n - 1) / n : 0;
    return (s->request_variance / (n * n) + between) / (mj * mj);
}

static pj_bounds around(double middle, double variance)
{
    double factor = exp(PJ_Z95 * sqrt(variance)); /* NAN, INFINITY: no interval */
    return isfinite(factor) ? (pj_bounds){middle / factor, middle * factor} : (pj_bounds){NAN, NAN};
}

static void find_requests(pj_why *why, const pj_why_side *a, const pj_why_side *b)
{
    double of_a = request_variance(a), of_b = request_variance(b);
    why->request_a_mj = a->request.mean;
    why->request_b_mj = b->request.mean;
    why->request_a = around(a->request.mean, of_a);
    why->request_b = around(b->request.mean, of_b);
    why->ratio = around(b->request.mean / a->request.mean, of_a + of_b);
}

static int by_explained(const void *x, const void *y)
{
    const pj_why_row *a = x, *b = y;
    if (!a->kind != !b->kind) return a->kind ? -1 : 1;
    double of_a = fabs(a->kind ? a->explained_mj : a->left_mj);
    double of_b = fabs(b->kind ? b->explained_mj : b->left_mj);
    return (of_a < of_b) - (of_a > of_b);
}

static void sum_up(pj_why *why)
{
    qsort(why->rows, why->row_count, sizeof *why->rows, by_explained);
    for (uint32_t i = 0; i < why->row_count && why->rows[i].kind; i++) {
        why->explained_mj += why->rows[i].explained_mj;
        why->named_count++;
    }
    for (uint32_t i = 0; i < why->common_count; i++)
        why->explained_mj += why->commons[i].explained_mj;
}

pj_status pj_why_find(const pj_why_side *a, const pj_why_side *b, bool same_model, pj_why *why,
                      pj_error *err)
{
    *why = (pj_why){.runs_a = a->runs, .runs_b = b->runs, .per_run = a->per_run};
    pj_arena_init(&why->arena, 0);
    if (!a->runs || !b->runs)
        return pj_fail(err, PJ_E_UNAVAILABLE, "no run of %s has an energy", a->runs ? "B" : "A");
    if (!pj_why_sides_alike(a, b))
        return pj_fail(err, PJ_E_UNAVAILABLE, "the runs of %s count no output tokens",
                       a->per_run ? "A" : "B");
    pj_why_context c = {.a = a, .b = b, .spread_a = spread_of(a), .spread_b = spread_of(b)};
    /* An assumed spread counts as well known. */
    c.freedom = a->runs == 1 || b->runs == 1 ? 60 : a->runs + b->runs - 2 + 2 * prior_runs;
    find_requests(why, a, b);
    why->disturbed_a_mj = a->disturbed_mj / a->runs;
    why->disturbed_b_mj = b->disturbed_mj / b->runs;
    pj_status status = make_rows(why, &c, same_model, err);
    if (status != PJ_OK) return status;
    pj_why_find_common(why, &c);
    pj_why_judge(why, &c);
    pj_why_find_hotter(why, &c);
    sum_up(why);
    return PJ_OK;
}

void pj_why_fini(pj_why *why)
{
    pj_arena_fini(&why->arena);
}

/* Divides intervals of time between entries, and estimates time that no reading covers yet. */
#include "attribution/ledger.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum {
    CELL_NS = 20 * PJ_NS_PER_MS,
    ESTIMATE_CELLS = 64, /* at most, of an estimate before its last second */
    POINTS_MAX = 1 << 16 /* maximum points of one entry; when exceeded, its resolution is halved */
};
#define LONGEST_CELL_NS  (5 * PJ_NS_PER_S)   /* with declared weights */
#define KEEP_NS          (120 * PJ_NS_PER_S) /* curves kept before the settled time */
#define KEEP_DECLARED_NS (3 * PJ_NS_PER_S)
#define RATE_NS          (PJ_NS_PER_S)
#define USUAL_PREFILL    1000.0 /* assumed tokens per second until some have been observed */
#define RATE_UNCERTAINTY 0.3    /* relative 1 sigma of extrapolated power */

/* Cumulative work in tokens, linear between steps; or a declared weight from this time on. */
typedef struct work_step {
    int64_t t_ns;
    double work;
} work_step;

struct pj_ledger_entry {
    pj_ledger_entry *next;
    int64_t begin_ns, first_ns, end_ns; /* 0: not yet */
    double prompt_work, cached, output;
    work_step *steps; /* the first one is the begin */
    size_t step_count, step_capacity;
    int64_t *t_ns;
    double *mj; /* [point][rail] */
    size_t point_count, point_capacity, thinning;
    double taken_mj[PJ_MAX_RAILS], idle_mj[PJ_MAX_RAILS];
    double input_mj; /* of the total, settled; of that, before the first token */
    double soft_mj, soft_input_mj, recent_mj; /* estimated beyond; of the last second */
    int64_t recent_ns;
    double weight, context_weight; /* scratch of a cell */
    bool unknown, shared, settled;
    pj_ledger_figure figure;
};

struct pj_ledger {
    pj_ledger_options o; /* with the rule that is applied; `rails` and `idle_mw` are copied: */
    pj_rail rails[PJ_MAX_RAILS];
    double idle_mw[PJ_MAX_RAILS];
    bool in_total[PJ_MAX_RAILS];
    pj_curve *curves[PJ_MAX_RAILS];
    pj_ledger_entry *entries;
    int64_t settled_ns; /* everything before it is divided */
    double divided_mj;
    int64_t unknown_ns;  /* time with entries during which some rail is unknown */
    double prefill_rate; /* observed tokens per nanosecond */
};

/* ---- making ---- */

pj_ledger *pj_ledger_new(const pj_ledger_options *o)
{
    pj_ledger *l = pj_alloc(1, sizeof *l);
    if (!l) return NULL;
    l->o = *o;
    l->o.rails = l->rails;
    l->o.idle_mw = l->idle_mw;
    l->settled_ns = INT64_MIN;
    l->prefill_rate = USUAL_PREFILL / 1e9;
    if (o->rule == PJ_BATCH_BYTES && !(o->weight_bytes > 0 && o->context_bytes > 0))
        l->o.rule = PJ_BATCH_TOKENS;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        l->rails[r] = o->rails[r];
        l->idle_mw[r] = o->idle_mw ? o->idle_mw[r] : NAN;
        l->in_total[r] = pj_rail_in_column(o->rails, o->rail_count, r, PJ_RAIL_TOTAL);
        l->curves[r] = pj_curve_new(&o->rails[r]);
        if (!l->curves[r]) {
            pj_ledger_free(l);
            return NULL;
        }
    }
    pj_curves_link(l->curves, o->rails, o->rail_count);
    return l;
}

static void free_entry(pj_ledger_entry *e)
{
    pj_free(e->steps);
    pj_free(e->t_ns);
    pj_free(e->mj);
    pj_free(e);
}

void pj_ledger_free(pj_ledger *l)
{
    if (!l) return;
    for (pj_ledger_entry *e = l->entries, *next; e; e = next) {
        next = e->next;
        free_entry(e);
    }
    for (uint32_t r = 0; r < l->o.rail_count; r++) pj_curve_free(l->curves[r]);
    pj_free(l);
}

pj_batch_rule pj_ledger_rule(const pj_ledger *l)
{
    return l->o.rule;
}

pj_status pj_ledger_read(pj_ledger *l, const pj_reading *reading, pj_error *err)
{
    if (reading->rail >= l->o.rail_count) return PJ_OK;
    return pj_curve_add(l->curves[reading->rail], reading, err);
}

/* Until when the rails are known that are in both sets; NULL: all. */
static int64_t ledger_known_until(const pj_ledger *l, const bool *rails, const bool *also)
{
    int64_t known = INT64_MAX;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        int64_t begin_ns, end_ns;
        if ((rails && !rails[r]) || (also && !also[r])) continue;
        if (!pj_curve_span(l->curves[r], &begin_ns, &end_ns)) return INT64_MIN;
        if (end_ns < known) known = end_ns;
    }
    return known == INT64_MAX ? INT64_MIN : known;
}

int64_t pj_ledger_known_ns(const pj_ledger *l, const bool *rails)
{
    return ledger_known_until(l, l->in_total, rails);
}

void pj_ledger_rail(const pj_ledger *l, uint32_t rail, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy)
{
    pj_curve_query(l->curves[rail], begin_ns, end_ns, energy);
}

void pj_ledger_machine(const pj_ledger *l, int64_t begin_ns, int64_t end_ns, pj_curve_energy *sum)
{
    bool any = false;
    double gain = 0;
    *sum = (pj_curve_energy){.known_share = 1};
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        pj_curve_energy one;
        if (!l->in_total[r]) continue;
        pj_curve_query(l->curves[r], begin_ns, end_ns, &one);
        any = true;
        sum->energy_mj += one.energy_mj;
        sum->random_sd_mj = hypot(sum->random_sd_mj, one.random_sd_mj);
        sum->bias_sd_mj = hypot(sum->bias_sd_mj, one.bias_sd_mj);
        gain += one.gain_sd_mj;
        sum->known_share = fmin(sum->known_share, one.known_share);
    }
    sum->gain_sd_mj = gain;
    sum->sd_mj = sqrt(sum->random_sd_mj * sum->random_sd_mj + sum->bias_sd_mj * sum->bias_sd_mj +
                      gain * gain);
    if (!any) *sum = (pj_curve_energy){NAN, NAN, NAN, NAN, NAN, 0};
}

/* ---- work ---- */

static bool ledger_add_step(pj_ledger_entry *e, int64_t t_ns, double work)
{
    work_step *last = e->step_count ? &e->steps[e->step_count - 1] : NULL;
    if (last && t_ns <= last->t_ns) { /* several tokens at one time, or a clock that went back */
        last->work = work;
        return true;
    }
    if (e->step_count == e->step_capacity) {
        size_t wanted = e->step_capacity ? e->step_capacity * 2 : 32;
        work_step *bigger = pj_resize(e->steps, wanted, sizeof *bigger);
        if (!bigger) {
            if (last) last->work = work;
            return last != NULL;
        }
        e->steps = bigger;
        e->step_capacity = wanted;
    }
    e->steps[e->step_count++] = (work_step){t_ns, work};
    return true;
}

/* Mean power of the machine over the last known second. */
static double recent_mw(const pj_ledger *l, int64_t known_ns)
{
    pj_curve_energy energy;
    for (int64_t ns = RATE_NS; ns >= PJ_NS_PER_MS; ns /= 4) {
        pj_ledger_machine(l, known_ns - ns, known_ns, &energy);
        if (!isnan(energy.energy_mj)) return energy.energy_mj / ((double)ns * 1e-9);
    }
    return NAN;
}

/* For a request whose energy is still unknown: its share of the machine's last known power. How
 * that divides into input and output is unknown. */
static pj_ledger_figure first_figure(const pj_ledger *l, int64_t begin_ns)
{
    uint32_t live = 1;
    int64_t known_ns = pj_ledger_known_ns(l, NULL);
    for (const pj_ledger_entry *e = l->entries; e; e = e->next) live += !e->end_ns;
    bool is_known = known_ns != INT64_MIN && known_ns > begin_ns - PJ_NS_PER_S;
    double machine_mw = is_known ? recent_mw(l, known_ns) : NAN;
    return (pj_ledger_figure){.input_mj = NAN,
                              .output_mj = NAN,
                              .total_mj = isnan(machine_mw) ? NAN : 0,
                              .sd_mj = isnan(machine_mw) ? NAN : 0,
                              .rate_mw = machine_mw / live,
                              .at_ns = begin_ns,
                              .provisional = true,
                              .shared = live > 1};
}

pj_ledger_entry *pj_ledger_enter(pj_ledger *l, int64_t begin_ns, double prompt_guess)
{
    pj_ledger_entry *e = pj_alloc(1, sizeof *e);
    if (!e || !ledger_add_step(e, begin_ns, 0)) {
        pj_free(e);
        return NULL;
    }
    e->begin_ns = begin_ns > l->settled_ns ? begin_ns : l->settled_ns;
    e->steps[0].t_ns = e->begin_ns;
    e->prompt_work = prompt_guess >= 1 ? prompt_guess : 1;
    e->thinning = 1;
    e->figure = first_figure(l, e->begin_ns);
    /* Time before the first request is not attributed. */
    if (l->settled_ns == INT64_MIN || (!l->entries && !l->o.take)) l->settled_ns = e->begin_ns;
    e->next = l->entries;
    l->entries = e;
    return e;
}

void pj_ledger_prompt(pj_ledger_entry *e, double worked_on, double cached)
{
    if (worked_on >= 0 && !e->first_ns) e->prompt_work = worked_on >= 1 ? worked_on : 1;
    if (cached >= 0) e->cached = cached;
}

void pj_ledger_tokens(pj_ledger_entry *e, int64_t at_ns, double tokens)
{
    if (e->end_ns || !(tokens > 0)) return;
    if (at_ns <= e->begin_ns) at_ns = e->begin_ns + 1;
    if (!e->first_ns) e->first_ns = at_ns;
    e->output += tokens;
    ledger_add_step(e, at_ns, e->prompt_work + e->output);
}

void pj_ledger_leave(pj_ledger_entry *e, int64_t end_ns)
{
    if (e->end_ns) return;
    int64_t last = e->steps[e->step_count - 1].t_ns;
    e->end_ns = end_ns > e->begin_ns ? end_ns : e->begin_ns + 1;
    if (e->end_ns < last) e->end_ns = last;
    if (!e->first_ns)
        ledger_add_step(e, e->end_ns, e->prompt_work); /* it ended before its first token */
}

void pj_ledger_weigh(pj_ledger_entry *e, int64_t at_ns, double weight)
{
    ledger_add_step(e, at_ns, weight);
}

void pj_ledger_drop(pj_ledger *l, pj_ledger_entry *entry)
{
    for (pj_ledger_entry **at = &l->entries; *at; at = &(*at)->next)
        if (*at == entry) {
            *at = entry->next;
            free_entry(entry);
            return;
        }
}

/* Beyond its last step an open request goes on at its own rate, its prefill at that of others. */
static double work_beyond(const pj_ledger *l, const pj_ledger_entry *e, int64_t t_ns)
{
    const work_step *last = &e->steps[e->step_count - 1];
    double ns = (double)(t_ns - last->t_ns);
    if (e->end_ns) return last->work;
    if (!e->first_ns) return fmin(e->prompt_work, ns * l->prefill_rate);
    double decoding = (double)(last->t_ns - e->first_ns), made = last->work - e->prompt_work - 1;
    double rate = decoding > 0 && made > 0 ? made / decoding : l->prefill_rate / 10;
    return last->work + fmin(1, ns * rate); /* at most one token is in progress */
}

/* The last step at or before a time, which lies between the first and the last step. */
static size_t step_before(const pj_ledger_entry *e, int64_t t_ns)
{
    const work_step *s = e->steps;
    size_t low = 0, high = e->step_count - 1; /* s[low] <= t < s[high] */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s[middle].t_ns <= t_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double work_at(const pj_ledger *l, const pj_ledger_entry *e, int64_t t_ns)
{
    const work_step *s = e->steps;
    if (t_ns <= s[0].t_ns) return 0;
    if (t_ns >= s[e->step_count - 1].t_ns) return work_beyond(l, e, t_ns);
    size_t i = step_before(e, t_ns);
    double part = (double)(t_ns - s[i].t_ns) / (double)(s[i + 1].t_ns - s[i].t_ns);
    return s[i].work + part * (s[i + 1].work - s[i].work);
}

/* ---- dividing a cell ---- */

typedef pj_ledger_cell cell;

static bool ledger_is_live(const pj_ledger_entry *e, const cell *c)
{
    return e->begin_ns <= c->begin_ns && (!e->end_ns || e->end_ns >= c->end_ns) && !e->settled;
}

static bool is_decoding(const pj_ledger_entry *e, const cell *c)
{
    return e->first_ns && e->first_ns <= c->begin_ns;
}

/* The last edge of the time grid at or before a time. */
static int64_t grid_before(int64_t t_ns, int64_t width_ns)
{
    return t_ns - (t_ns % width_ns + width_ns) % width_ns;
}

/* Where a declared weight next changes. */
static int64_t ledger_next_weighing(const pj_ledger_entry *e, int64_t from_ns)
{
    const work_step *s = e->steps;
    if (from_ns < s[0].t_ns) return s[0].t_ns;
    return from_ns < s[e->step_count - 1].t_ns ? s[step_before(e, from_ns) + 1].t_ns : INT64_MAX;
}

static double ledger_declared_weight(const pj_ledger_entry *e, int64_t at_ns)
{
    const work_step *last = &e->steps[e->step_count - 1];
    return at_ns < last->t_ns ? e->steps[step_before(e, at_ns)].work : last->work;
}

/* The end of a cell of at most the given width. */
static int64_t next_edge(const pj_ledger *l, int64_t from_ns, int64_t until_ns, int64_t width_ns)
{
    int64_t edge = grid_before(from_ns, width_ns) + width_ns;
    if (edge > until_ns) edge = until_ns;
    for (const pj_ledger_entry *e = l->entries; e; e = e->next) {
        if (e->begin_ns > from_ns && e->begin_ns < edge) edge = e->begin_ns;
        if (e->first_ns > from_ns && e->first_ns < edge) edge = e->first_ns;
        if (e->end_ns > from_ns && e->end_ns < edge) edge = e->end_ns;
        if (l->o.take && ledger_next_weighing(e, from_ns) < edge)
            edge = ledger_next_weighing(e, from_ns);
    }
    return edge;
}

/* The fraction of the bytes read by decode in this cell that are contexts: a shared step reads the
 * weights once; each token reads its own context. */
static void weigh_contexts(const pj_ledger *l, cell *c)
{
    double steps = 0;
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        if (!ledger_is_live(e, c) || !is_decoding(e, c)) continue;
        double made = work_at(l, e, c->begin_ns) - e->prompt_work;
        e->context_weight = e->weight * (e->cached + e->prompt_work + fmax(0, made));
        c->context_weights += e->context_weight;
        if (e->weight > steps) steps = e->weight;
    }
    double contexts = c->context_weights * l->o.context_bytes;
    if (contexts > 0) c->context_part = contexts / (contexts + steps * l->o.weight_bytes);
}

static double ledger_weight_of(const pj_ledger *l, const pj_ledger_entry *e, const cell *c)
{
    if (l->o.take) return ledger_declared_weight(e, c->begin_ns);
    double after = work_at(l, e, c->end_ns), before = work_at(l, e, c->begin_ns);
    return fmax(0, after - before);
}

static void ledger_weigh(const pj_ledger *l, cell *c)
{
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        e->weight = e->context_weight = 0;
        if (!ledger_is_live(e, c)) continue;
        e->weight = ledger_weight_of(l, e, c);
        c->live++;
        c->weights += e->weight;
        if (is_decoding(e, c)) c->decoding += e->weight;
    }
    if (l->o.rule == PJ_BATCH_BYTES && c->decoding > 0) weigh_contexts(l, c);
}

/* An entry's fraction of the energy above idle. */
static double ledger_part_of(const pj_ledger *l, const pj_ledger_entry *e, const cell *c)
{
    if (l->o.rule == PJ_BATCH_EQUAL || !(c->weights > 0)) return 1.0 / c->live;
    if (!is_decoding(e, c) || !(c->context_part > 0)) return e->weight / c->weights;
    double of_decode = (1 - c->context_part) * e->weight / c->decoding +
                       c->context_part * e->context_weight / c->context_weights;
    return c->decoding / c->weights * of_decode;
}

double pj_ledger_part(const pj_ledger *l, const pj_ledger_entry *e, const pj_ledger_cell *c)
{
    return ledger_is_live(e, c) ? ledger_part_of(l, e, c) : NAN;
}

/* Idle energy of a cell, at most what was drawn; 0 where no baseline is known. */
static double ledger_idle_of(const pj_ledger *l, uint32_t rail, double energy_mj, const cell *c)
{
    double idle = l->idle_mw[rail] * (double)(c->end_ns - c->begin_ns) * 1e-9;
    return isnan(idle) ? 0 : fmin(idle, energy_mj);
}

static double rail_part(const pj_ledger *l, const pj_ledger_entry *e, const cell *c, uint32_t rail,
                        double energy_mj, double *idle_mj)
{
    double part = ledger_part_of(l, e, c), idle = ledger_idle_of(l, rail, energy_mj, c);
    bool equally = l->o.rule == PJ_BATCH_BYTES;
    *idle_mj = idle * (equally ? 1.0 / c->live : part);
    return equally ? (energy_mj - idle) * part + *idle_mj : energy_mj * part;
}

/* ---- settling ---- */

/* Halves the resolution: drops every other point, never the first. */
static void thin(pj_ledger_entry *e, uint32_t rails)
{
    size_t kept = 1;
    for (size_t i = 2; i < e->point_count; i += 2, kept++) {
        for (uint32_t r = 0; r < rails; r++) {
            double between =
                e->mj[(i - 1) * rails + r]; /* unknown before it: unknown across both */
            e->mj[kept * rails + r] = isnan(between) ? NAN : e->mj[i * rails + r];
        }
        e->t_ns[kept] = e->t_ns[i];
    }
    e->point_count = kept;
    e->thinning *= 2;
}

static bool add_point(pj_ledger_entry *e, uint32_t rails, int64_t t_ns, const double *mj)
{
    if (e->point_count == POINTS_MAX) thin(e, rails);
    if (e->point_count == e->point_capacity) {
        size_t wanted = e->point_capacity ? e->point_capacity * 2 : 32;
        int64_t *times = pj_resize(e->t_ns, wanted, sizeof *times);
        if (times) e->t_ns = times;
        double *values =
            times ? pj_resize(e->mj, wanted, sizeof *values * (rails ? rails : 1)) : NULL;
        if (!values) return false;
        e->mj = values;
        e->point_capacity = wanted;
    }
    e->t_ns[e->point_count] = t_ns;
    if (rails) memcpy(e->mj + e->point_count * rails, mj, rails * sizeof *mj);
    e->point_count++;
    return true;
}

static bool settle_entry(pj_ledger *l, pj_ledger_entry *e, const cell *c, const double *energy_mj)
{
    static const double zero[PJ_MAX_RAILS];
    double values[PJ_MAX_RAILS], total = 0;
    if (e->point_count == 0 && !add_point(e, l->o.rail_count, c->begin_ns, zero)) return false;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        double idle, mj = rail_part(l, e, c, r, energy_mj[r], &idle);
        values[r] = NAN;
        if (l->in_total[r]) total += mj;
        if (isnan(energy_mj[r])) {
            e->unknown |= l->in_total[r];
            continue;
        }
        e->taken_mj[r] += mj;
        e->idle_mj[r] += idle;
        values[r] = e->taken_mj[r];
    }
    e->shared |= c->live > 1;
    if (!is_decoding(e, c)) e->input_mj += total;
    return add_point(e, l->o.rail_count, c->end_ns, values);
}

static bool settle_cell(pj_ledger *l, cell *c)
{
    double energy_mj[PJ_MAX_RAILS], total = 0;
    ledger_weigh(l, c);
    if (l->o.take) l->o.take(l->o.context, c);
    if (l->o.take || !c->live) return true;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        energy_mj[r] = pj_curve_energy_mj(l->curves[r], c->begin_ns, c->end_ns);
        if (l->in_total[r]) total += energy_mj[r];
    }
    if (isnan(total))
        l->unknown_ns += c->end_ns - c->begin_ns;
    else
        l->divided_mj += total;
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (ledger_is_live(e, c) && !settle_entry(l, e, c, energy_mj)) return false;
    return true;
}

/* Curves are kept as far back as a request reaches, and some time before. */
static void forget_old(pj_ledger *l)
{
    int64_t oldest = l->settled_ns, keep_ns = l->o.take ? KEEP_DECLARED_NS : KEEP_NS;
    if (l->o.keeps_all) return;
    for (const pj_ledger_entry *e = l->entries; e && !l->o.take; e = e->next)
        if (e->begin_ns < oldest) oldest = e->begin_ns;
    for (uint32_t r = 0; r < l->o.rail_count; r++)
        pj_curve_forget(l->curves[r], oldest - keep_ns - 2 * l->rails[r].window_ns);
}

void pj_ledger_start(pj_ledger *l, int64_t at_ns)
{
    l->settled_ns = at_ns;
    forget_old(l);
}

static void learn_prefill(pj_ledger *l, const pj_ledger_entry *e)
{
    double ns = (double)(e->first_ns - e->begin_ns);
    if (e->first_ns && ns > 0) l->prefill_rate += (e->prompt_work / ns - l->prefill_rate) / 4;
}

int64_t pj_ledger_certain_ns(const pj_ledger *l)
{
    int64_t certain_ns = l->entries ? ledger_known_until(l, NULL, NULL) : INT64_MIN;
    for (const pj_ledger_entry *e = l->entries; e; e = e->next) {
        int64_t last_ns = e->steps[e->step_count - 1].t_ns;
        if (!e->end_ns && last_ns < certain_ns) certain_ns = last_ns;
    }
    return certain_ns == INT64_MIN ? INT64_MIN : grid_before(certain_ns, CELL_NS);
}

pj_status pj_ledger_settle(pj_ledger *l, int64_t until_ns, pj_error *err)
{
    int64_t width_ns = l->o.take ? LONGEST_CELL_NS : CELL_NS;
    int64_t last_edge_ns = l->o.take ? INT64_MAX : until_ns;
    bool ok = true;
    if (l->settled_ns == INT64_MIN || until_ns <= l->settled_ns) return PJ_OK;
    while (ok && l->settled_ns < until_ns) {
        cell c = {.begin_ns = l->settled_ns,
                  .end_ns = next_edge(l, l->settled_ns, last_edge_ns, width_ns)};
        if (c.end_ns > until_ns) break;
        ok = settle_cell(l, &c);
        l->settled_ns = c.end_ns;
    }
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (e->end_ns && e->end_ns <= l->settled_ns && !e->settled) {
            e->settled = true;
            learn_prefill(l, e);
        }
    forget_old(l);
    return ok ? PJ_OK : pj_fail_memory(err, "the shares of requests");
}

/* ---- figures ---- */

static double taken(const pj_ledger *l, const pj_ledger_entry *e)
{
    double sum = 0;
    bool any = false;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        if (!l->in_total[r]) continue;
        sum += e->taken_mj[r];
        any = true;
    }
    return any && !e->unknown ? sum : NAN;
}

double pj_ledger_sd_mj(const pj_ledger *l, const pj_ledger_entry *e, uint32_t rail)
{
    pj_curve_energy machine;
    pj_curve_query(l->curves[rail], e->begin_ns, e->end_ns ? e->end_ns : l->settled_ns, &machine);
    if (!(machine.energy_mj > 0)) return NAN;
    return hypot(machine.random_sd_mj, machine.bias_sd_mj) *
           fmin(1, e->taken_mj[rail] / machine.energy_mj);
}

double pj_ledger_idle_mj(const pj_ledger *l, const pj_ledger_entry *e, uint32_t rail)
{
    return isnan(l->idle_mw[rail]) ? NAN : e->idle_mj[rail];
}

double pj_ledger_divided_mj(const pj_ledger *l, int64_t *unknown_ns)
{
    *unknown_ns = l->unknown_ns;
    return l->divided_mj;
}

static void estimate_cell(pj_ledger *l, cell *c, bool is_recent)
{
    double total = 0;
    ledger_weigh(l, c);
    if (!c->live) return;
    for (uint32_t r = 0; r < l->o.rail_count; r++)
        if (l->in_total[r]) total += pj_curve_energy_mj(l->curves[r], c->begin_ns, c->end_ns);
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        if (!ledger_is_live(e, c)) continue;
        double mj = total * ledger_part_of(l, e, c);
        e->soft_mj += mj;
        e->shared |= c->live > 1;
        if (!is_decoding(e, c)) e->soft_input_mj += mj;
        if (!is_recent) continue;
        e->recent_mj += mj;
        e->recent_ns += c->end_ns - c->begin_ns;
    }
}

static void estimate_cells(pj_ledger *l, int64_t from_ns, int64_t until_ns, int64_t width_ns,
                           bool is_recent)
{
    for (int64_t at = from_ns; at < until_ns;) {
        cell c = {.begin_ns = at, .end_ns = next_edge(l, at, until_ns, width_ns)};
        at = c.end_ns;
        estimate_cell(l, &c, is_recent);
    }
}

/* Estimates the time between settled and known without settling it. A long prefill keeps that time
 * growing; it is then divided in wider cells, so that the cost of an estimate stays bounded. */
static void estimate_known(pj_ledger *l, int64_t known_ns)
{
    int64_t recent_ns = grid_before(known_ns - RATE_NS, CELL_NS);
    if (recent_ns < l->settled_ns) recent_ns = l->settled_ns;
    int64_t cells = (recent_ns - l->settled_ns) / CELL_NS;
    estimate_cells(l, l->settled_ns, recent_ns, (cells / ESTIMATE_CELLS + 1) * CELL_NS, false);
    estimate_cells(l, recent_ns, known_ns, CELL_NS, true);
}

/* Adds an entry's energy in the settled part of the last second. */
static void add_settled_recent(const pj_ledger *l, pj_ledger_entry *e, int64_t known_ns)
{
    size_t low = 0, last = e->point_count ? e->point_count - 1 : 0, rails = l->o.rail_count;
    for (size_t high = last; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (e->t_ns[middle] < known_ns - RATE_NS)
            low = middle + 1;
        else
            high = middle;
    }
    double mj = 0;
    for (size_t r = 0; r < rails && low < last; r++)
        if (l->in_total[r]) mj += e->mj[last * rails + r] - e->mj[low * rails + r];
    if (low >= last || isnan(mj)) return;
    e->recent_mj += mj;
    e->recent_ns += e->t_ns[last] - e->t_ns[low];
}

/* The output is what the input leaves. */
static pj_ledger_figure ledger_figure(const pj_ledger *l, const pj_ledger_entry *e, int64_t at_ns,
                                      double total_mj, double input_mj)
{
    pj_curve_energy machine;
    pj_ledger_machine(l, e->begin_ns, at_ns, &machine);
    double part = machine.energy_mj > 0 ? fmin(1, total_mj / machine.energy_mj) : NAN;
    return (pj_ledger_figure){.input_mj = input_mj,
                              .output_mj = e->first_ns ? total_mj - input_mj : NAN,
                              .total_mj = total_mj,
                              .sd_mj = machine.sd_mj * part,
                              .at_ns = at_ns,
                              .first_ns = e->first_ns,
                              .shared = e->shared};
}

static void set_figure(pj_ledger *l, pj_ledger_entry *e, int64_t known_ns, double machine_mw,
                       uint32_t live)
{
    int64_t to = e->end_ns && e->end_ns < known_ns ? e->end_ns : known_ns;
    if (to < e->begin_ns) to = e->begin_ns;
    double input_mj = to > e->begin_ns ? e->input_mj + e->soft_input_mj : NAN; /* nothing known */
    pj_ledger_figure f = ledger_figure(l, e, to, taken(l, e) + e->soft_mj, input_mj);
    add_settled_recent(l, e, known_ns);
    if (isnan(f.sd_mj)) f.sd_mj = 0;
    f.rate_mw = e->recent_ns > 0 ? e->recent_mj / ((double)e->recent_ns * 1e-9)
                                 : machine_mw / (live ? live : 1);
    f.provisional = true;
    f.shared |= live > 1;
    e->figure = f;
}

void pj_ledger_estimate(pj_ledger *l, int64_t now_ns)
{
    int64_t known_ns = pj_ledger_known_ns(l, NULL);
    uint32_t live = 0;
    if (!l->entries) return;
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        e->soft_mj = e->soft_input_mj = e->recent_mj = 0;
        e->recent_ns = 0;
        live += !e->end_ns;
    }
    if (known_ns == INT64_MIN) return;
    if (known_ns > now_ns) known_ns = now_ns;
    estimate_known(l, known_ns);
    double machine_mw = recent_mw(l, known_ns);
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (!e->settled) set_figure(l, e, known_ns, machine_mw, live);
}

pj_ledger_figure pj_ledger_of(const pj_ledger *l, const pj_ledger_entry *e)
{
    if (!e->settled) {
        pj_ledger_figure early = e->figure; /* the requested time may precede its first token */
        early.first_ns = e->first_ns;
        return early;
    }
    return ledger_figure(l, e, e->end_ns, taken(l, e), e->input_mj);
}

pj_ledger_figure pj_ledger_at(const pj_ledger_figure *figure, int64_t now_ns)
{
    pj_ledger_figure f = *figure;
    double seconds = (double)(now_ns - f.at_ns) * 1e-9;
    if (!f.provisional || seconds <= 0) return f;
    double more = f.rate_mw * seconds;
    double of_input = f.first_ns ? (double)(f.first_ns - f.at_ns) * 1e-9 : seconds;
    f.total_mj += more;
    f.input_mj += f.rate_mw * fmax(0, fmin(of_input, seconds));
    f.output_mj = f.first_ns ? f.total_mj - f.input_mj : NAN;
    f.sd_mj = hypot(f.sd_mj, RATE_UNCERTAINTY * more);
    f.at_ns = now_ns;
    return f;
}

pj_ledger_series pj_ledger_series_of(const pj_ledger *l, const pj_ledger_entry *e)
{
    return (pj_ledger_series){e->t_ns, e->mj, e->point_count, l->o.rail_count};
}

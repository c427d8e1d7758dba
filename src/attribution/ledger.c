/* Divides intervals of time between entries, and estimates time that no reading covers yet. */
#include "attribution/ledger.h"

#include "base/clock.h"
#include "base/estimate.h"
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
#define USUAL_PROMPT_NS  1e6 /* assumed time of a prompt's token until some have been observed */
#define USUAL_OUTPUT_NS  1e7
#define FORGETTING       0.9 /* weight of what was learnt, at every further request */
#define RATE_UNCERTAINTY 0.3 /* relative 1 sigma of extrapolated power */
/* The same where nothing but an idle machine has been seen. */
#define UNSEEN_UNCERTAINTY 2.0

/* Cumulative work in tokens, linear between steps; or a declared weight from this time on. */
typedef struct work_step {
    int64_t t_ns;
    double work;
} work_step;

struct pj_ledger_entry {
    pj_ledger_entry *next;
    int64_t begin_ns, first_ns, end_ns; /* 0: not yet */
    double prompt_work, cached, output;
    double whole;     /* output tokens of unknown times; 0: none */
    int64_t split_ns; /* end of its prefill, known or estimated; 0: not yet */
    work_step *steps; /* the first one is the begin */
    size_t step_count, step_capacity;
    int64_t *t_ns;
    double *mj; /* [point][rail] */
    size_t point_count, point_capacity, thinning;
    double taken_mj[PJ_MAX_RAILS], idle_mj[PJ_MAX_RAILS];
    double input_mj;  /* of the total, settled; of that, before the first token */
    double unsure_mj; /* 1 sigma because of requests of unknown rate */
    double level_mj;  /* more of the total if answers that came as a whole had a level rate */
    double soft_mj, soft_input_mj, soft_unsure_mj; /* estimated beyond */
    double recent_mj, recent_unsure_mj;            /* of the last second */
    int64_t recent_ns;
    double last_part; /* of the machine's energy, at the end of what is known of it */
    double weight, level_weight, usual_weight, context_weight; /* scratch of a cell */
    bool unknown, shared, settled, learnt, is_placed;
    pj_ledger_figure figure;
};

struct pj_ledger {
    pj_ledger_options o; /* with the rule that is applied; `rails` and `idle_mw` are copied: */
    pj_rail rails[PJ_MAX_RAILS];
    double idle_mw[PJ_MAX_RAILS];
    bool in_total[PJ_MAX_RAILS];
    pj_curve *curves[PJ_MAX_RAILS];
    pj_curve *resolved[PJ_MAX_RAILS]; /* of averages over long windows; else NULL */
    bool has_news[PJ_MAX_RAILS];      /* readings that are not in it yet */
    pj_ledger_entry *entries;
    int64_t settled_ns; /* everything before it is divided */
    int64_t fixed_ns;   /* what has been read of resolved curves before it stays as it is */
    double divided_mj;
    int64_t unknown_ns; /* time with entries during which some rail is unknown */
    /* Observed: tokens, and the time they took. */
    double prompt_tokens, prompt_ns, output_tokens, output_ns;
    double busy_mw; /* of the machine, while requests were in flight; NAN: not seen */
};

/* ---- making ---- */

pj_ledger *pj_ledger_new(const pj_ledger_options *o)
{
    pj_ledger *l = pj_alloc(1, sizeof *l);
    if (!l) return NULL;
    l->o = *o;
    l->o.rails = l->rails;
    l->o.idle_mw = l->idle_mw;
    l->settled_ns = l->fixed_ns = INT64_MIN;
    l->busy_mw = NAN;
    if (o->rule == PJ_BATCH_BYTES && !(o->weight_bytes > 0 && o->context_bytes > 0))
        l->o.rule = PJ_BATCH_TOKENS;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        l->rails[r] = o->rails[r];
        l->idle_mw[r] = o->idle_mw ? o->idle_mw[r] : NAN;
        l->in_total[r] = pj_rail_in_column(o->rails, o->rail_count, r, PJ_RAIL_TOTAL);
        l->curves[r] = pj_curve_new(&o->rails[r]);
        bool overlaps = pj_rail_overlaps(&o->rails[r]);
        if (overlaps) l->resolved[r] = pj_curve_new(&o->rails[r]);
        if (!l->curves[r] || (overlaps && !l->resolved[r])) {
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
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        pj_curve_free(l->curves[r]);
        pj_curve_free(l->resolved[r]);
    }
    pj_free(l);
}

pj_batch_rule pj_ledger_rule(const pj_ledger *l)
{
    return l->o.rule;
}

pj_status pj_ledger_read(pj_ledger *l, const pj_reading *reading, pj_error *err)
{
    if (reading->rail >= l->o.rail_count) return PJ_OK;
    l->has_news[reading->rail] = true;
    return pj_curve_add(l->curves[reading->rail], reading, err);
}

/* The curve that energies are read from. */
static const pj_curve *curve_of(const pj_ledger *l, uint32_t rail)
{
    return l->resolved[rail] ? l->resolved[rail] : l->curves[rail];
}

/* Deconvolves what is not settled, with two minutes before it: what a window contains is known from
 * the windows before. */
static pj_status ledger_resolve_rail(pj_ledger *l, uint32_t r, pj_error *err)
{
    int64_t begin_ns, end_ns, from_ns = l->fixed_ns;
    bool any = pj_curve_span(l->resolved[r], &begin_ns, &end_ns);
    if (!any || end_ns < from_ns) from_ns = any ? end_ns : INT64_MIN;
    int64_t since_ns = from_ns < INT64_MIN + KEEP_NS ? INT64_MIN : from_ns - KEEP_NS;
    l->has_news[r] = false;
    return pj_curve_resolve(l->curves[r], since_ns, from_ns, l->resolved[r], err);
}

static pj_status ledger_resolve(pj_ledger *l, pj_error *err)
{
    pj_status status = PJ_OK;
    for (uint32_t r = 0; r < l->o.rail_count && status == PJ_OK; r++)
        if (l->resolved[r] && l->has_news[r]) status = ledger_resolve_rail(l, r, err);
    return status;
}

static int64_t ledger_rail_read_until(const pj_ledger *l, uint32_t rail)
{
    int64_t begin_ns, end_ns;
    return pj_curve_span(l->curves[rail], &begin_ns, &end_ns) ? end_ns : INT64_MIN;
}

/* A curve of overlapping windows lags by half a window, which tells enough of the time before where
 * the windows before that are known. Where readings have only just begun, all windows that see it
 * have to. */
int64_t pj_ledger_rail_known_ns(const pj_ledger *l, uint32_t rail)
{
    const pj_rail *r = &l->rails[rail];
    int64_t begin_ns, end_ns;
    if (!pj_curve_span(l->curves[rail], &begin_ns, &end_ns)) return INT64_MIN;
    bool has_begun = l->resolved[rail] && l->settled_ns < begin_ns + 2 * r->window_ns;
    return has_begun ? end_ns - r->window_ns / 2 - 3 * r->period_ns : end_ns;
}

/* Until when the rails of the total have been read: an estimate goes on from there. */
static int64_t ledger_read_until(const pj_ledger *l)
{
    int64_t until_ns = INT64_MAX;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        int64_t rail_ns = l->in_total[r] ? ledger_rail_read_until(l, r) : INT64_MAX;
        if (rail_ns < until_ns) until_ns = rail_ns;
    }
    return until_ns == INT64_MAX ? INT64_MIN : until_ns;
}

/* Until when the rails are known that are in both sets; NULL: all. */
static int64_t ledger_known_until(const pj_ledger *l, const bool *rails, const bool *also)
{
    int64_t known = INT64_MAX;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        if ((rails && !rails[r]) || (also && !also[r])) continue;
        int64_t rail_ns = pj_ledger_rail_known_ns(l, r);
        if (rail_ns < known) known = rail_ns;
    }
    return known == INT64_MAX ? INT64_MIN : known;
}

int64_t pj_ledger_known_ns(const pj_ledger *l, const bool *rails)
{
    return ledger_known_until(l, l->in_total, rails);
}

int64_t pj_ledger_sure_ns(const pj_ledger *l)
{
    int64_t sure_ns = INT64_MAX;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        int64_t rail_ns = l->in_total[r] ? pj_curve_sure_ns(l->curves[r]) : INT64_MAX;
        if (rail_ns < sure_ns) sure_ns = rail_ns;
    }
    return sure_ns;
}

void pj_ledger_rail(const pj_ledger *l, uint32_t rail, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy)
{
    pj_curve_query(curve_of(l, rail), begin_ns, end_ns, energy);
}

int pj_ledger_log_of(const pj_ledger *l, uint32_t rail)
{
    return pj_rail_log_of(l->rails, l->o.rail_count, rail);
}

void pj_ledger_join_log(const pj_ledger *l, uint32_t rail, double ns, const pj_curve_energy *log,
                        pj_curve_energy *energy)
{
    pj_curve_join_log(l->curves[rail], ns, log, energy);
}

uint32_t pj_ledger_check(const pj_ledger *l, int64_t begin_ns, int64_t end_ns,
                         pj_finding findings[PJ_FINDINGS_MAX])
{
    const pj_curve *curves[PJ_MAX_RAILS];
    for (uint32_t r = 0; r < l->o.rail_count; r++) curves[r] = curve_of(l, r);
    return pj_rails_check_window(l->rails, l->o.rail_count, curves, begin_ns, end_ns, findings);
}

void pj_ledger_machine(const pj_ledger *l, int64_t begin_ns, int64_t end_ns, pj_curve_energy *sum)
{
    bool any = false;
    double gain = 0;
    *sum = (pj_curve_energy){.known_share = 1};
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        pj_curve_energy one;
        if (!l->in_total[r]) continue;
        pj_curve_query(curve_of(l, r), begin_ns, end_ns, &one);
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

/* 1 sigma of a share of which the other part has an unknown rate. */
static double doubt_of(double share)
{
    return share * (1 - share);
}

/* For a request whose energy is still unknown: its share of the machine's last known power. How
 * that divides into input and output is unknown. */
static pj_ledger_figure first_figure(const pj_ledger *l, int64_t begin_ns)
{
    uint32_t live = 1;
    int64_t known_ns = ledger_read_until(l);
    for (const pj_ledger_entry *e = l->entries; e; e = e->next) live += !e->end_ns;
    bool is_known = known_ns != INT64_MIN && known_ns > begin_ns - PJ_NS_PER_S;
    double machine_mw = is_known ? recent_mw(l, known_ns) : NAN, sd = UNSEEN_UNCERTAINTY;
    if (!isnan(machine_mw) && !isnan(l->busy_mw)) {
        machine_mw = l->busy_mw;
        sd = RATE_UNCERTAINTY;
    }
    return (pj_ledger_figure){.input_mj = NAN,
                              .output_mj = NAN,
                              .total_mj = isnan(machine_mw) ? NAN : 0,
                              .sd_mj = isnan(machine_mw) ? NAN : 0,
                              .rate_mw = machine_mw / live,
                              .rate_sd_mw = machine_mw / live * (sd + doubt_of(1.0 / live)),
                              .at_ns = begin_ns,
                              .provisional = true,
                              .shared = live > 1};
}

/* The time just before may still be resolved anew: a window that begins in it tells of this
 * beginning. */
static void start_at(pj_ledger *l, int64_t at_ns)
{
    int64_t longest_ns = 0;
    for (uint32_t r = 0; r < l->o.rail_count; r++)
        if (l->rails[r].window_ns > longest_ns) longest_ns = l->rails[r].window_ns;
    if (l->fixed_ns < at_ns - longest_ns) l->fixed_ns = at_ns - longest_ns;
    l->settled_ns = at_ns;
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
    if (l->settled_ns == INT64_MIN || (!l->entries && !l->o.take)) start_at(l, e->begin_ns);
    e->next = l->entries;
    l->entries = e;
    return e;
}

void pj_ledger_prompt(pj_ledger_entry *e, double worked_on, double cached)
{
    if (worked_on >= 0 && !e->first_ns) e->prompt_work = worked_on >= 1 ? worked_on : 1;
    if (cached >= 0) e->cached = cached;
}

void pj_ledger_waited(pj_ledger_entry *e, int64_t until_ns)
{
    if (!e->first_ns && !e->end_ns && until_ns > e->begin_ns) ledger_add_step(e, until_ns, 0);
}

void pj_ledger_tokens(pj_ledger_entry *e, int64_t at_ns, double tokens)
{
    if (e->end_ns || !(tokens > 0)) return;
    if (at_ns <= e->begin_ns) at_ns = e->begin_ns + 1;
    if (!e->first_ns) e->first_ns = e->split_ns = at_ns;
    e->output += tokens;
    ledger_add_step(e, at_ns, e->prompt_work + e->output);
}

void pj_ledger_whole(pj_ledger_entry *e, double tokens)
{
    if (!e->end_ns && !e->first_ns && tokens > 0) e->whole = tokens;
}

void pj_ledger_leave(pj_ledger_entry *e, int64_t end_ns)
{
    if (e->end_ns) return;
    int64_t last = e->steps[e->step_count - 1].t_ns;
    e->end_ns = end_ns > e->begin_ns ? end_ns : e->begin_ns + 1;
    if (e->end_ns < last) e->end_ns = last;
    if (!e->first_ns && !e->whole)
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

static double prompt_token_ns(const pj_ledger *l)
{
    return l->prompt_ns > 0 ? l->prompt_ns / l->prompt_tokens : USUAL_PROMPT_NS;
}

static double output_token_ns(const pj_ledger *l)
{
    if (l->output_ns > 0) return l->output_ns / l->output_tokens;
    return prompt_token_ns(l) * (USUAL_OUTPUT_NS / USUAL_PROMPT_NS);
}

/* What an ended request of known phases says about the time that tokens take. */
static void ledger_learn(pj_ledger *l, pj_ledger_entry *e)
{
    e->learnt = true;
    if (!e->first_ns || e->output < 2 || e->first_ns >= e->end_ns) return;
    l->prompt_tokens = FORGETTING * l->prompt_tokens + e->prompt_work + 1;
    l->prompt_ns = FORGETTING * l->prompt_ns + (double)(e->first_ns - e->begin_ns);
    l->output_tokens = FORGETTING * l->output_tokens + e->output - 1;
    l->output_ns = FORGETTING * l->output_ns + (double)(e->end_ns - e->first_ns);
}

/* Estimates the phases of an answer that came as a whole, as long as none of it is settled. */
static void ledger_place(const pj_ledger *l, pj_ledger_entry *e)
{
    double prompt_ns = (e->prompt_work + 1) * prompt_token_ns(l);
    double output_ns = fmax(0, e->whole - 1) * output_token_ns(l);
    double length = (double)(e->end_ns - e->begin_ns);
    e->split_ns = e->begin_ns + (int64_t)(length * prompt_ns / (prompt_ns + output_ns));
    e->step_count = 1;
    ledger_add_step(e, e->split_ns, e->prompt_work + 1);
    ledger_add_step(e, e->end_ns, e->prompt_work + e->whole);
}

/* `settles`: its place is final as soon as time is settled in which it was in flight. */
static void ledger_place_all(pj_ledger *l, bool settles)
{
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (e->end_ns && !e->learnt) ledger_learn(l, e);
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (e->end_ns && e->whole && (!e->is_placed || l->settled_ns <= e->begin_ns)) {
            ledger_place(l, e);
            e->is_placed = settles;
        }
}

/* Tokens per nanosecond of an open request that decodes. */
static double open_rate(const pj_ledger *l, const pj_ledger_entry *e)
{
    const work_step *last = &e->steps[e->step_count - 1];
    double decoding = (double)(last->t_ns - e->first_ns), made = last->work - e->prompt_work - 1;
    return decoding > 0 && made > 0 ? made / decoding : 1 / output_token_ns(l);
}

/* Beyond its last step an open request goes on at its own rate. */
static double work_beyond(const pj_ledger *l, const pj_ledger_entry *e, int64_t t_ns)
{
    const work_step *last = &e->steps[e->step_count - 1];
    if (e->end_ns) return last->work;
    if (!e->first_ns) return 0; /* unknown: see ledger_weigh */
    /* at most one token is in progress */
    return last->work + fmin(1, (double)(t_ns - last->t_ns) * open_rate(l, e));
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
    return e->split_ns && e->split_ns <= c->begin_ns;
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
        if (e->split_ns > from_ns && e->split_ns < edge) edge = e->split_ns;
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

/* The same if an answer whose phases are estimated was worked on at one rate from begin to end. */
static double level_weight_of(const pj_ledger_entry *e, const cell *c)
{
    if (!e->whole || !e->end_ns) return e->weight;
    double part = (double)(c->end_ns - c->begin_ns) / (double)(e->end_ns - e->begin_ns);
    return part * (e->prompt_work + e->whole);
}

static bool is_unknown(const pj_ledger *l, const pj_ledger_entry *e)
{
    return !l->o.take && l->o.rule != PJ_BATCH_EQUAL && !e->end_ns && !e->first_ns;
}

/* A token that is not there yet is taken to be in progress, but the last one may have been given.
 */
static bool is_guessed(const pj_ledger *l, const pj_ledger_entry *e, const cell *c)
{
    return !l->o.take && !e->end_ns && e->first_ns && c->end_ns > e->steps[e->step_count - 1].t_ns;
}

/* Requests of unknown rate get the mean weight of the others; without any all are equal. */
static void ledger_weigh_unknown(const pj_ledger *l, cell *c)
{
    uint32_t known = c->live - c->unknown;
    double mean = known && c->weights > 0 ? c->weights / known : 1;
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        if (!ledger_is_live(e, c) || !is_unknown(l, e)) continue;
        e->weight = e->usual_weight = mean;
        c->weights += mean;
    }
}

/* A token that is late was worked on all the same, though it is taken to be in progress no longer
 * than tokens usually are. */
static void ledger_guess(const pj_ledger *l, pj_ledger_entry *e, cell *c)
{
    e->usual_weight = fmax(e->weight, open_rate(l, e) * (double)(c->end_ns - c->begin_ns));
    c->guessed += e->usual_weight;
    c->late += e->usual_weight - e->weight;
}

static void ledger_weigh(const pj_ledger *l, cell *c)
{
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        e->weight = e->level_weight = e->context_weight = 0;
        if (!ledger_is_live(e, c)) continue;
        e->weight = ledger_weight_of(l, e, c);
        e->usual_weight = e->weight;
        e->level_weight = level_weight_of(e, c);
        c->level += e->level_weight;
        c->live++;
        c->unknown += is_unknown(l, e);
        c->weights += e->weight;
        if (is_guessed(l, e, c)) ledger_guess(l, e, c);
        if (is_decoding(e, c)) c->decoding += e->weight;
    }
    if (c->unknown) ledger_weigh_unknown(l, c);
    if (l->o.rule == PJ_BATCH_BYTES && c->decoding > 0) weigh_contexts(l, c);
}

/* 1 sigma of an entry's energy in a cell, because others, or it, have an unknown rate, or may have
 * given their last token: without its weight, or without theirs, shares are others. */
static double ledger_doubt(const pj_ledger *l, const pj_ledger_entry *e, const cell *c, double part,
                           double energy_mj)
{
    if (c->live < 2) return 0;
    if (c->unknown) return doubt_of(part) * energy_mj;
    if (!(c->guessed > 0) || l->o.rule == PJ_BATCH_EQUAL) return 0;
    double others = is_guessed(l, e, c) ? 1 - part : c->guessed / (c->weights + c->late);
    return others * part * energy_mj / PJ_Z95; /* all of it, or none */
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

/* How much larger the fraction would be at level rates. */
static double level_part(const pj_ledger *l, const pj_ledger_entry *e, const cell *c)
{
    if (l->o.rule == PJ_BATCH_EQUAL || c->unknown || !(c->weights > 0 && c->level > 0)) return 0;
    return e->level_weight / c->level - e->weight / c->weights;
}

double pj_ledger_part(const pj_ledger *l, const pj_ledger_entry *e, const pj_ledger_cell *c)
{
    return ledger_is_live(e, c) ? ledger_part_of(l, e, c) : NAN;
}

/* Idle energy of a cell; 0 where no baseline is known. */
static double ledger_idle_of(const pj_ledger *l, uint32_t rail, const cell *c)
{
    return isnan(l->idle_mw[rail]) ? 0
                                   : l->idle_mw[rail] * (double)(c->end_ns - c->begin_ns) * 1e-9;
}

static double rail_part(const pj_ledger *l, const pj_ledger_entry *e, const cell *c, uint32_t rail,
                        double energy_mj, double *idle_mj)
{
    double part = ledger_part_of(l, e, c), idle = ledger_idle_of(l, rail, c);
    double drawn = fmin(idle, energy_mj); /* of it, so that no share of the rest is negative */
    bool equally = l->o.rule == PJ_BATCH_BYTES;
    *idle_mj = idle * (equally ? 1.0 / c->live : part);
    return equally ? (energy_mj - drawn) * part + drawn / c->live : energy_mj * part;
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

static bool settle_entry(pj_ledger *l, pj_ledger_entry *e, const cell *c, const double *energy_mj,
                         double machine_mj)
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
    e->level_mj += level_part(l, e, c) * machine_mj;
    double part = ledger_part_of(l, e, c);
    if (c->unknown && c->live > 1 && part > 0) /* nobody waits any longer: it may be none, or all */
        e->unsure_mj += fmax(total, total / part - total) / PJ_Z95;
    return add_point(e, l->o.rail_count, c->end_ns, values);
}

/* Energy that is divided, and the machine's power while it was. */
static void ledger_count(pj_ledger *l, const cell *c, double total_mj)
{
    double seconds = (double)(c->end_ns - c->begin_ns) * 1e-9, mw = total_mj / seconds;
    l->divided_mj += total_mj;
    l->busy_mw = isnan(l->busy_mw) ? mw : l->busy_mw + (mw - l->busy_mw) * -expm1(-seconds);
}

static bool settle_cell(pj_ledger *l, cell *c)
{
    double energy_mj[PJ_MAX_RAILS], total = 0;
    ledger_weigh(l, c);
    if (l->o.take) l->o.take(l->o.context, c);
    if (l->o.take || !c->live) return true;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        energy_mj[r] = pj_curve_energy_mj(curve_of(l, r), c->begin_ns, c->end_ns);
        if (l->in_total[r]) total += energy_mj[r];
    }
    if (isnan(total))
        l->unknown_ns += c->end_ns - c->begin_ns;
    else
        ledger_count(l, c, total);
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (ledger_is_live(e, c) && !settle_entry(l, e, c, energy_mj, total)) return false;
    return true;
}

static void ledger_forget(pj_ledger *l, uint32_t r, int64_t oldest_ns, int64_t keep_ns)
{
    if (l->resolved[r]) {
        pj_curve_forget(l->resolved[r], oldest_ns - keep_ns);
        keep_ns = KEEP_NS;
    }
    pj_curve_forget(l->curves[r], oldest_ns - keep_ns);
}

/* Curves are kept as far back as a request reaches, and some time before. */
static void forget_old(pj_ledger *l)
{
    int64_t oldest = l->settled_ns, keep_ns = l->o.take ? KEEP_DECLARED_NS : KEEP_NS;
    if (l->o.keeps_all) return;
    for (const pj_ledger_entry *e = l->entries; e && !l->o.take; e = e->next)
        if (e->begin_ns < oldest) oldest = e->begin_ns;
    for (uint32_t r = 0; r < l->o.rail_count; r++)
        ledger_forget(l, r, oldest - 2 * l->rails[r].window_ns, keep_ns);
}

void pj_ledger_start(pj_ledger *l, int64_t at_ns)
{
    if (l->o.keeps_all) ledger_resolve(l, NULL);
    start_at(l, at_ns);
    forget_old(l);
}

int64_t pj_ledger_work_ns(const pj_ledger *l)
{
    int64_t known_ns = INT64_MAX;
    for (const pj_ledger_entry *e = l->entries; e; e = e->next) {
        int64_t last_ns = e->steps[e->step_count - 1].t_ns;
        if (!e->end_ns && last_ns < known_ns) known_ns = last_ns;
    }
    return known_ns;
}

int64_t pj_ledger_certain_ns(const pj_ledger *l)
{
    int64_t certain_ns = l->entries ? ledger_known_until(l, NULL, NULL) : INT64_MIN;
    if (pj_ledger_work_ns(l) < certain_ns) certain_ns = pj_ledger_work_ns(l);
    return certain_ns == INT64_MIN ? INT64_MIN : grid_before(certain_ns, CELL_NS);
}

pj_status pj_ledger_settle(pj_ledger *l, int64_t until_ns, pj_error *err)
{
    int64_t width_ns = l->o.take ? LONGEST_CELL_NS : CELL_NS;
    int64_t last_edge_ns = l->o.take ? INT64_MAX : until_ns;
    bool ok = true;
    if (l->settled_ns == INT64_MIN || until_ns <= l->settled_ns) return PJ_OK;
    pj_status status = ledger_resolve(l, err);
    if (status != PJ_OK) return status;
    ledger_place_all(l, true);
    while (ok && l->settled_ns < until_ns) {
        cell c = {.begin_ns = l->settled_ns,
                  .end_ns = next_edge(l, l->settled_ns, last_edge_ns, width_ns)};
        if (c.end_ns > until_ns) break;
        ok = settle_cell(l, &c);
        l->settled_ns = l->fixed_ns = c.end_ns;
    }
    for (pj_ledger_entry *e = l->entries; e; e = e->next)
        if (e->end_ns && e->end_ns <= l->settled_ns) e->settled = true;
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

/* 1 sigma of a settled share: estimated phases are taken to be as wrong as level rates would be. */
static double ledger_unsure_mj(const pj_ledger_entry *e)
{
    return hypot(e->unsure_mj, e->level_mj);
}

double pj_ledger_sd_mj(const pj_ledger *l, const pj_ledger_entry *e, uint32_t rail)
{
    pj_curve_energy machine;
    pj_curve_query(curve_of(l, rail), e->begin_ns, e->end_ns ? e->end_ns : l->settled_ns, &machine);
    if (!(machine.energy_mj > 0)) return NAN;
    double whole = taken(l, e), unsure = whole > 0 ? ledger_unsure_mj(e) / whole : 0;
    return hypot(unsure * e->taken_mj[rail], hypot(machine.random_sd_mj, machine.bias_sd_mj) *
                                                 fmin(1, e->taken_mj[rail] / machine.energy_mj));
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

/* A late token counts here, so that the next time is not taken to be without it. */
static double last_part_of(const pj_ledger *l, const pj_ledger_entry *e, const cell *c)
{
    double weights = c->weights + c->late;
    return l->o.rule == PJ_BATCH_EQUAL || !(weights > 0) ? 1.0 / c->live
                                                         : e->usual_weight / weights;
}

static void estimate_cell(pj_ledger *l, cell *c, bool is_recent)
{
    double total = 0;
    ledger_weigh(l, c);
    if (!c->live) return;
    for (uint32_t r = 0; r < l->o.rail_count; r++)
        if (l->in_total[r]) total += pj_curve_energy_mj(curve_of(l, r), c->begin_ns, c->end_ns);
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        if (!ledger_is_live(e, c)) continue;
        double part = ledger_part_of(l, e, c), mj = total * part;
        double unsure_mj = ledger_doubt(l, e, c, part, total);
        e->soft_mj += mj;
        e->soft_unsure_mj += unsure_mj;
        e->last_part = last_part_of(l, e, c);
        e->shared |= c->live > 1;
        if (!is_decoding(e, c)) e->soft_input_mj += mj;
        if (!is_recent) continue;
        e->recent_mj += mj;
        e->recent_unsure_mj += unsure_mj;
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
    return (pj_ledger_figure){
        .input_mj = e->whole ? NAN : input_mj,
        .output_mj = e->first_ns ? total_mj - input_mj : NAN,
        .total_mj = total_mj,
        .sd_mj = hypot(machine.sd_mj * part, ledger_unsure_mj(e) + e->soft_unsure_mj),
        .at_ns = at_ns,
        .first_ns = e->first_ns,
        .shared = e->shared};
}

/* The time around a change of power in which some sensor shows the power of both sides. */
static double smear_ns(const pj_ledger *l)
{
    int64_t most = CELL_NS;
    for (uint32_t r = 0; r < l->o.rail_count; r++) {
        const pj_rail *rail = &l->rails[r];
        int64_t smear = rail->period_ns > rail->window_ns ? rail->period_ns : rail->window_ns;
        if (l->in_total[r] && smear > most) most = smear;
    }
    return 2 * (double)most;
}

/* The rate at which an estimate goes on: the request's last part of the power of the last second,
 * in which others may have come or gone; as that may have seen the machine before the request,
 * between it and the same of the machine's usual power under load. */
static void set_rate(const pj_ledger *l, const pj_ledger_entry *e, double machine_mw, uint32_t live,
                     pj_ledger_figure *f)
{
    double seconds = (double)e->recent_ns * 1e-9;
    bool is_seen = e->recent_ns > 0 && machine_mw > 0;
    double mean_mw = is_seen ? e->recent_mj / seconds : machine_mw / live;
    pj_curve_energy machine;
    pj_ledger_machine(l, f->at_ns - e->recent_ns, f->at_ns, &machine);
    double last_mw = e->last_part * machine.energy_mj / seconds;
    double own_mw = is_seen && isfinite(last_mw) ? last_mw : mean_mw;
    double usual_mw = l->busy_mw / live;
    double doubt_mw = is_seen ? e->recent_unsure_mj / seconds : doubt_of(1.0 / live) * machine_mw;
    f->rate_mw = own_mw;
    f->rate_sd_mw = doubt_mw + RATE_UNCERTAINTY * own_mw + fabs(own_mw - mean_mw) / 2;
    if (isnan(usual_mw)) {
        f->rate_sd_mw +=
            UNSEEN_UNCERTAINTY * own_mw * fmax(0, 1 - (double)e->recent_ns / smear_ns(l));
        return;
    }
    f->rate_mw = is_seen ? own_mw : usual_mw;
    f->rate_sd_mw = doubt_mw + RATE_UNCERTAINTY * f->rate_mw +
                    (fabs(own_mw - mean_mw) + fabs(own_mw - usual_mw)) / 2;
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
    set_rate(l, e, machine_mw, live ? live : 1, &f);
    f.provisional = true;
    f.shared |= live > 1;
    e->figure = f;
}

void pj_ledger_estimate(pj_ledger *l, int64_t now_ns)
{
    int64_t known_ns = ledger_read_until(l);
    uint32_t live = 0;
    if (!l->entries) return;
    for (pj_ledger_entry *e = l->entries; e; e = e->next) {
        e->soft_mj = e->soft_input_mj = e->soft_unsure_mj = 0;
        e->recent_mj = e->recent_unsure_mj = 0;
        e->recent_ns = 0;
        e->last_part = NAN;
        live += !e->end_ns;
    }
    if (known_ns == INT64_MIN || ledger_resolve(l, NULL) != PJ_OK) return;
    ledger_place_all(l, false);
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
    f.sd_mj += f.rate_sd_mw * seconds; /* what makes one uncertain does the same to the other */
    f.at_ns = now_ns;
    return f;
}

pj_ledger_figure pj_ledger_now(const pj_ledger *l, const pj_ledger_entry *entry, int64_t now_ns)
{
    pj_ledger_figure f = pj_ledger_of(l, entry);
    double others = 0, left = 0, entered = 0, left_ns = 0, entered_ns = 0;
    if (!f.provisional) return f;
    for (const pj_ledger_entry *e = l->entries; e; e = e->next) {
        bool came = e->begin_ns > f.at_ns, went = !came && e->end_ns && e->end_ns <= now_ns;
        if (e == entry || (e->end_ns && e->end_ns <= f.at_ns)) continue;
        others += !came;
        left += went;
        entered += came;
        if (went) left_ns += (double)(now_ns - e->end_ns);
        if (came && e->begin_ns < now_ns) entered_ns += (double)(now_ns - e->begin_ns);
    }
    double changed_ns = left_ns / (1 + others - left) + entered_ns / (1 + others + entered);
    f.shared |= others + entered > 0;
    f = pj_ledger_at(&f, now_ns);
    f.sd_mj += f.rate_mw * changed_ns * 1e-9;
    return f;
}

pj_ledger_series pj_ledger_series_of(const pj_ledger *l, const pj_ledger_entry *e)
{
    return (pj_ledger_series){e->t_ns, e->mj, e->point_count, l->o.rail_count};
}

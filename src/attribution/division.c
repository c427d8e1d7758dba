/* Records and windows of a division. */
#include "attribution/division.h"

#include "attribution/ledger.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* How often time is divided that nobody asks about yet. */
#define UNWANTED_NS  (3 * PJ_NS_PER_S)
#define CHECKED_NS   (2 * PJ_NS_PER_S) /* of a window's end: as far back as curves are kept */
#define MOST_MISSING 0.05 /* if more of a window is unknown, the whole window is unknown, */
#define LATE_NS      (2 * PJ_NS_PER_S) /* unless it is less than this, and this share is known */
#define LATE_STEP_NS (20 * PJ_NS_PER_MS)
#define LEAST_KNOWN  0.25

struct pj_division_member {
    pj_division_member *next;
    pj_ledger_entry *entry;
    pj_buffer records; /* every pj_share_record is followed by its energies */
    size_t read;       /* bytes of them */
    double weight, share;
    bool has_left, is_shared;
};

typedef struct rail_sum {
    double mj, random_var, bias_mj, gain_mj, doubt_var;
    double known_ns, covered_ns; /* observed by readings; with an energy at all */
    int64_t taken_ns;            /* how far it reaches */
} rail_sum;

struct pj_division_window {
    pj_division_window *next;
    int64_t begin_ns, end_ns; /* end 0: open */
    rail_sum sums[];
};

struct pj_division {
    pj_ledger *ledger;
    pj_share_rule rule;
    uint32_t rail_count;
    int64_t latest_ns; /* of all begins, ends and changes of weights */
    pj_division_member *members;
    pj_division_window *windows;
    int64_t settled_at_ns; /* when time was divided last */
};

/* ---- cells ---- */

static void division_add_record(pj_division_member *m, pj_share_record record,
                                const pj_share_energy *energies)
{
    size_t bytes = record.rail_count * sizeof *energies;
    if (!pj_buffer_reserve(&m->records, sizeof record + bytes)) return;
    pj_buffer_append(&m->records, &record, sizeof record);
    if (bytes) pj_buffer_append(&m->records, energies, bytes);
}

/* The energy of an interval, or of its begin where a sensor is late, as on a busy machine; returns
 * until when it is known. */
static int64_t division_query_known(const pj_division *d, uint32_t rail, int64_t begin_ns,
                                    int64_t end_ns, pj_curve_energy *e)
{
    int64_t earliest_ns = begin_ns + (int64_t)(LEAST_KNOWN * (double)(end_ns - begin_ns));
    if (earliest_ns < end_ns - LATE_NS) earliest_ns = end_ns - LATE_NS;
    pj_ledger_rail(d->ledger, rail, begin_ns, end_ns, e);
    while (isnan(e->energy_mj) && end_ns - LATE_STEP_NS > earliest_ns) {
        end_ns -= LATE_STEP_NS;
        pj_ledger_rail(d->ledger, rail, begin_ns, end_ns, e);
    }
    return end_ns;
}

static void division_add_up(const pj_division *d, uint32_t rail, int64_t until_ns, rail_sum *sum)
{
    pj_curve_energy e;
    int64_t begin_ns = sum->taken_ns;
    if (until_ns <= begin_ns) return;
    int64_t end_ns = division_query_known(d, rail, begin_ns, until_ns, &e);
    sum->taken_ns = until_ns;
    if (isnan(e.energy_mj)) return;
    sum->mj += e.energy_mj;
    sum->random_var += e.random_sd_mj * e.random_sd_mj;
    sum->doubt_var += e.doubt_sd_mj * e.doubt_sd_mj;
    sum->bias_mj += e.bias_sd_mj;
    sum->gain_mj += e.gain_sd_mj;
    sum->known_ns += e.known_share * (double)(end_ns - begin_ns);
    sum->covered_ns += (double)(end_ns - begin_ns);
}

/* What a sensor has not shown by now, it may show later: the next tick of a counter that stands
 * still. */
static void division_add_to_windows(pj_division *d, int64_t until_ns)
{
    int64_t known_ns[PJ_MAX_RAILS];
    for (uint32_t r = 0; r < d->rail_count; r++)
        known_ns[r] = pj_ledger_rail_known_ns(d->ledger, r);
    for (pj_division_window *w = d->windows; w; w = w->next) {
        int64_t to = w->end_ns && w->end_ns < until_ns ? w->end_ns : until_ns;
        for (uint32_t r = 0; r < d->rail_count; r++)
            division_add_up(d, r, to < known_ns[r] ? to : known_ns[r], &w->sums[r]);
    }
}

static void division_take_cell(void *context, const pj_ledger_cell *c)
{
    pj_division *d = context;
    pj_share_energy energies[PJ_MAX_RAILS];
    for (uint32_t r = 0; c->live && r < d->rail_count; r++) {
        pj_curve_energy e;
        pj_ledger_rail(d->ledger, r, c->begin_ns, c->end_ns, &e);
        energies[r] = (pj_share_energy){e.energy_mj, hypot(e.random_sd_mj, e.bias_sd_mj)};
    }
    for (pj_division_member *m = d->members; m; m = m->next) {
        pj_share_record record = {.begin_ns = c->begin_ns,
                                  .end_ns = c->end_ns,
                                  .share = pj_ledger_part(d->ledger, m->entry, c),
                                  .rule = (uint32_t)d->rule,
                                  .rail_count = d->rail_count};
        if (!isnan(record.share)) division_add_record(m, record, energies);
    }
    division_add_to_windows(d, c->end_ns);
    if (c->end_ns > d->latest_ns) d->latest_ns = c->end_ns;
}

/* ---- making ---- */

pj_division *pj_division_new(const pj_rail *rails, uint32_t rail_count, pj_share_rule rule)
{
    pj_division *d = pj_alloc(1, sizeof *d);
    if (!d) return NULL;
    d->rule = rule;
    d->rail_count = rail_count;
    d->latest_ns = INT64_MIN;
    d->ledger = pj_ledger_new(
        &(pj_ledger_options){.rails = rails,
                             .rail_count = rail_count,
                             .rule = rule == PJ_SHARE_WEIGHT ? PJ_BATCH_TOKENS : PJ_BATCH_EQUAL,
                             .take = division_take_cell,
                             .context = d});
    if (d->ledger) return d;
    pj_free(d);
    return NULL;
}

static void division_free_member(pj_division_member *m)
{
    pj_buffer_fini(&m->records);
    pj_free(m);
}

void pj_division_free(pj_division *d)
{
    if (!d) return;
    for (pj_division_member *m = d->members, *next; m; m = next) {
        next = m->next;
        division_free_member(m);
    }
    for (pj_division_window *w = d->windows, *next; w; w = next) {
        next = w->next;
        pj_free(w);
    }
    pj_ledger_free(d->ledger);
    pj_free(d);
}

pj_status pj_division_read(pj_division *d, const pj_reading *reading, pj_error *err)
{
    return pj_ledger_read(d->ledger, reading, err);
}

int64_t pj_division_known_ns(const pj_division *d, const bool *rails)
{
    return pj_ledger_known_ns(d->ledger, rails);
}

int64_t pj_division_sure_ns(const pj_division *d)
{
    return pj_ledger_sure_ns(d->ledger);
}

/* Time is divided from here on if it was not. */
static void division_start(pj_division *d, int64_t at_ns)
{
    if (!d->members && !d->windows) pj_ledger_start(d->ledger, at_ns);
}

/* Whether somebody's figures are wanted: a run's always, a window's when its end is known. */
static bool division_is_wanted(const pj_division *d, int64_t known_ns)
{
    bool wanted = d->members != NULL;
    for (const pj_division_window *w = d->windows; w; w = w->next)
        wanted |= w->end_ns != 0 && w->end_ns <= known_ns;
    return wanted;
}

void pj_division_settle(pj_division *d, int64_t now_ns, int64_t force_ns)
{
    int64_t known_ns = pj_division_known_ns(d, NULL), sure_ns = pj_division_sure_ns(d);
    division_start(d, now_ns);
    /* a run shows its energy at once and computes it anew at its end; a window's is final */
    if (!d->members && sure_ns < known_ns) known_ns = sure_ns;
    if (known_ns < force_ns) known_ns = force_ns;
    /* Settling deconvolves the last two minutes of every curve, too costly for each reading. */
    bool can_wait = d->windows && !division_is_wanted(d, known_ns);
    if (can_wait && now_ns < d->settled_at_ns + UNWANTED_NS) return;
    d->settled_at_ns = now_ns;
    pj_ledger_settle(d->ledger, known_ns, NULL);
}

/* ---- runs ---- */

/* Times increase strictly, so that every part has a length. */
static int64_t division_advance(pj_division *d, int64_t at_ns)
{
    d->latest_ns = at_ns > d->latest_ns ? at_ns : d->latest_ns + 1;
    return d->latest_ns;
}

/* Records a share that has changed. */
static void division_announce(pj_division *d, int64_t at_ns)
{
    double weights = 0;
    uint32_t open = 0;
    for (const pj_division_member *m = d->members; m; m = m->next) {
        if (m->has_left) continue;
        open++;
        weights += m->weight;
    }
    bool by_weight = d->rule == PJ_SHARE_WEIGHT && weights > 0;
    for (pj_division_member *m = d->members; m; m = m->next) {
        double share = by_weight ? m->weight / weights : 1.0 / open;
        if (m->has_left || share == m->share) continue;
        m->share = share;
        m->is_shared |= share < 1;
        division_add_record(m, (pj_share_record){at_ns, 0, share, (uint32_t)d->rule, 0}, NULL);
    }
}

pj_division_member *pj_division_enter(pj_division *d, int64_t *at_ns, double weight)
{
    pj_division_member *m = pj_alloc(1, sizeof *m);
    if (!m) return NULL;
    *at_ns = division_advance(d, *at_ns);
    division_start(d, *at_ns);
    m->entry = pj_ledger_enter(d->ledger, *at_ns, 0);
    if (!m->entry) {
        pj_free(m);
        return NULL;
    }
    pj_ledger_weigh(m->entry, *at_ns, weight);
    pj_buffer_init(&m->records, SIZE_MAX / 2);
    m->weight = weight;
    m->share = NAN;
    m->next = d->members;
    d->members = m;
    division_announce(d, *at_ns);
    return m;
}

void pj_division_weigh(pj_division *d, pj_division_member *m, int64_t at_ns, double weight)
{
    if (m->weight == weight || m->has_left) return;
    m->weight = weight;
    if (d->rule != PJ_SHARE_WEIGHT) return;
    at_ns = division_advance(d, at_ns);
    pj_ledger_weigh(m->entry, at_ns, weight);
    division_announce(d, at_ns);
}

void pj_division_leave(pj_division *d, pj_division_member *m, int64_t *at_ns)
{
    if (m->has_left) return;
    *at_ns = division_advance(d, *at_ns);
    m->has_left = true;
    pj_ledger_leave(m->entry, *at_ns);
    division_announce(d, *at_ns);
}

void pj_division_drop(pj_division *d, pj_division_member *m)
{
    for (pj_division_member **at = &d->members; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    pj_ledger_drop(d->ledger, m->entry);
    division_free_member(m);
}

bool pj_division_is_shared(const pj_division_member *m)
{
    return m->is_shared;
}

bool pj_division_next(pj_division_member *m, pj_share_record *record,
                      const pj_share_energy **energies)
{
    *energies = NULL;
    if (!m->is_shared) return false;
    if (m->read == m->records.length) {
        pj_buffer_clear(&m->records);
        m->read = 0;
        return false;
    }
    memcpy(record, m->records.data + m->read, sizeof *record);
    m->read += sizeof *record;
    if (record->rail_count) *energies = (const void *)(m->records.data + m->read);
    m->read += record->rail_count * sizeof **energies;
    return true;
}

/* ---- windows ---- */

pj_division_window *pj_division_window_open(pj_division *d, int64_t begin_ns)
{
    pj_division_window *w = pj_alloc(1, sizeof *w + d->rail_count * sizeof *w->sums);
    if (!w) return NULL;
    division_start(d, begin_ns);
    w->begin_ns = begin_ns;
    for (uint32_t r = 0; r < d->rail_count; r++) w->sums[r].taken_ns = begin_ns;
    w->next = d->windows;
    d->windows = w;
    return w;
}

void pj_division_window_stop(pj_division_window *w, int64_t end_ns)
{
    w->end_ns = end_ns > w->begin_ns ? end_ns : w->begin_ns + 1;
}

static void window_sum_up(const pj_division *d, const pj_division_window *w, uint32_t rail,
                          pj_curve_energy *energy)
{
    rail_sum sum = w->sums[rail];
    double length = (double)(w->end_ns - w->begin_ns);
    *energy = (pj_curve_energy){NAN, NAN, NAN, NAN, NAN, 0};
    division_add_up(d, rail, w->end_ns, &sum);
    energy->known_share = sum.known_ns / length;
    bool is_late = sum.covered_ns >= LEAST_KNOWN * length && length - sum.covered_ns < LATE_NS;
    if (sum.covered_ns < (1 - MOST_MISSING) * length && !is_late) return;
    double whole_mj = sum.mj * length / sum.covered_ns;
    energy->energy_mj = whole_mj;
    energy->random_sd_mj = sqrt(sum.random_var);
    energy->bias_sd_mj = sum.bias_mj + (whole_mj - sum.mj);
    energy->gain_sd_mj = sum.gain_mj;
    energy->doubt_sd_mj = sqrt(sum.doubt_var);
    energy->sd_mj =
        sqrt(sum.random_var + energy->bias_sd_mj * energy->bias_sd_mj + sum.gain_mj * sum.gain_mj);
}

void pj_division_window_energy(const pj_division *d, const pj_division_window *w, uint32_t rail,
                               pj_curve_energy *energy)
{
    pj_curve_energy logged;
    int log = pj_ledger_log_of(d->ledger, rail);
    window_sum_up(d, w, rail, energy);
    if (log < 0) return;
    window_sum_up(d, w, (uint32_t)log, &logged);
    pj_ledger_join_log(d->ledger, rail, (double)(w->end_ns - w->begin_ns), &logged, energy);
}

uint32_t pj_division_window_check(const pj_division *d, const pj_division_window *w,
                                  pj_finding findings[PJ_FINDINGS_MAX])
{
    int64_t begin_ns = w->end_ns - CHECKED_NS;
    return pj_ledger_check(d->ledger, begin_ns > w->begin_ns ? begin_ns : w->begin_ns, w->end_ns,
                           findings);
}

void pj_division_window_close(pj_division *d, pj_division_window *w)
{
    for (pj_division_window **at = &d->windows; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    pj_free(w);
}

/* Cells, members and windows of a division. */
#include "attribution/division.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>

#define LONGEST_CELL_NS (5 * PJ_NS_PER_S)
#define KEPT_NS         (3 * PJ_NS_PER_S) /* of the curves before the first open cell */
#define MOST_MISSING    0.05 /* if more of a window is unknown, the whole window is unknown */

typedef struct cell {
    int64_t begin_ns, end_ns;  /* end 0: the present one */
    pj_share_energy *energies; /* [rail]; NULL: not determined yet */
} cell;

struct pj_division_member {
    pj_division_member *next;
    uint64_t first; /* number of its first cell */
    double *shares; /* [count] of its cells */
    size_t count, capacity;
    size_t announced,
        written; /* cells whose share, and whose energies, have been reported to the run */
    double weight;
    bool has_left, is_shared;
};

typedef struct rail_sum {
    double mj, random_var, bias_mj, gain_mj;
    double known_ns, covered_ns; /* observed by readings; with an energy at all */
} rail_sum;

struct pj_division_window {
    pj_division_window *next;
    int64_t begin_ns, end_ns, taken_ns; /* end 0: open; its sum so far reaches taken_ns */
    rail_sum sums[];
};

struct pj_division {
    pj_share_rule rule;
    pj_rail rails[PJ_MAX_RAILS];
    pj_curve *curves[PJ_MAX_RAILS];
    bool in_total[PJ_MAX_RAILS];
    uint32_t rail_count;
    cell *cells; /* the last one may be the present one */
    size_t cell_count, cell_capacity;
    uint64_t first; /* number of cells[0] */
    size_t settled; /* cells from 0 whose energy is determined */
    pj_division_member *members;
    pj_division_window *windows;
};

pj_division *pj_division_new(const pj_rail *rails, uint32_t rail_count, pj_share_rule rule)
{
    pj_division *d = pj_alloc(1, sizeof *d);
    if (!d) return NULL;
    d->rule = rule;
    d->rail_count = rail_count;
    for (uint32_t r = 0; r < rail_count; r++) {
        d->rails[r] = rails[r];
        d->in_total[r] = pj_rail_in_column(rails, rail_count, r, PJ_RAIL_TOTAL);
        d->curves[r] = pj_curve_new(&rails[r]);
        if (!d->curves[r]) {
            pj_division_free(d);
            return NULL;
        }
    }
    return d;
}

static void free_member(pj_division_member *m)
{
    pj_free(m->shares);
    pj_free(m);
}

void pj_division_free(pj_division *d)
{
    if (!d) return;
    for (pj_division_member *m = d->members, *next; m; m = next) {
        next = m->next;
        free_member(m);
    }
    for (pj_division_window *w = d->windows, *next; w; w = next) {
        next = w->next;
        pj_free(w);
    }
    for (size_t i = 0; i < d->cell_count; i++) pj_free(d->cells[i].energies);
    pj_free(d->cells);
    for (uint32_t r = 0; r < d->rail_count; r++) pj_curve_free(d->curves[r]);
    pj_free(d);
}

pj_status pj_division_read(pj_division *d, const pj_reading *reading, pj_error *err)
{
    if (reading->rail >= d->rail_count) return PJ_OK;
    return pj_curve_add(d->curves[reading->rail], reading, err);
}

/* ---- cells ---------------------------------------------------------------------------------- */

static cell *present(pj_division *d)
{
    cell *last = d->cell_count ? &d->cells[d->cell_count - 1] : NULL;
    return last && !last->end_ns ? last : NULL;
}

/* Closes the current cell and opens the next. False: out of memory, the current cell continues. */
static bool cut(pj_division *d, int64_t *at_ns)
{
    cell *now = present(d);
    if (d->cell_count && *at_ns <= d->cells[d->cell_count - 1].begin_ns)
        *at_ns = d->cells[d->cell_count - 1].begin_ns + 1;
    if (d->cell_count == d->cell_capacity) {
        size_t wanted = d->cell_capacity ? 2 * d->cell_capacity : 16;
        cell *bigger = pj_resize(d->cells, wanted, sizeof *bigger);
        if (!bigger) return false;
        d->cells = bigger;
        d->cell_capacity = wanted;
        now = present(d);
    }
    if (now) now->end_ns = *at_ns;
    d->cells[d->cell_count++] = (cell){.begin_ns = *at_ns};
    return true;
}

static double share_of(const pj_division *d, const pj_division_member *m)
{
    double sum = 0;
    uint32_t open = 0;
    for (const pj_division_member *other = d->members; other; other = other->next) {
        if (other->has_left) continue;
        open++;
        sum += other->weight;
    }
    return d->rule == PJ_SHARE_WEIGHT && sum > 0 ? m->weight / sum : 1.0 / open;
}

static bool add_share(pj_division_member *m, double share)
{
    if (m->count == m->capacity) {
        size_t wanted = m->capacity ? 2 * m->capacity : 16;
        double *bigger = pj_resize(m->shares, wanted, sizeof *bigger);
        if (!bigger) return false;
        m->shares = bigger;
        m->capacity = wanted;
    }
    m->shares[m->count++] = share;
    m->is_shared |= share < 1;
    return true;
}

/* Computes the shares of the cell that has just begun. */
static bool set_shares(pj_division *d)
{
    bool ok = true;
    for (pj_division_member *m = d->members; m; m = m->next)
        if (!m->has_left) ok &= add_share(m, share_of(d, m));
    return ok;
}

/* Drops cells that no run or window needs any more. */
static void drop_cells(pj_division *d)
{
    size_t spare = d->settled;
    for (const pj_division_member *m = d->members; m; m = m->next) {
        uint64_t needed = m->first + (m->is_shared ? m->written : 0);
        if (m->has_left && m->is_shared && m->written == m->count) continue;
        if (needed < d->first + spare) spare = (size_t)(needed - d->first);
    }
    if (spare * 2 < d->cell_count || !spare) return;
    for (size_t i = 0; i < spare; i++) pj_free(d->cells[i].energies);
    d->cell_count -= spare;
    d->settled -= spare;
    d->first += spare;
    memmove(d->cells, d->cells + spare, d->cell_count * sizeof *d->cells);
}

/* ---- what is known -------------------------------------------------------------------------- */

int64_t pj_division_known_ns(const pj_division *d, const bool *rails)
{
    int64_t known = INT64_MAX;
    for (uint32_t r = 0; r < d->rail_count; r++) {
        int64_t begin_ns, end_ns;
        if (!d->in_total[r] || (rails && !rails[r])) continue;
        if (!pj_curve_span(d->curves[r], &begin_ns, &end_ns)) return INT64_MIN;
        if (end_ns < known) known = end_ns;
    }
    return known == INT64_MAX ? INT64_MIN : known;
}

static void add_up(const pj_curve *curve, int64_t begin_ns, int64_t end_ns, rail_sum *sum)
{
    pj_curve_energy e;
    if (end_ns <= begin_ns) return;
    pj_curve_query(curve, begin_ns, end_ns, &e);
    if (isnan(e.energy_mj)) return;
    sum->mj += e.energy_mj;
    sum->random_var += e.random_sd_mj * e.random_sd_mj;
    sum->bias_mj += e.bias_sd_mj;
    sum->gain_mj += e.gain_sd_mj;
    sum->known_ns += e.known_share * (double)(end_ns - begin_ns);
    sum->covered_ns += (double)(end_ns - begin_ns);
}

static void add_to_windows(pj_division *d, int64_t until_ns)
{
    for (pj_division_window *w = d->windows; w; w = w->next) {
        int64_t to = w->end_ns && w->end_ns < until_ns ? w->end_ns : until_ns;
        if (to <= w->taken_ns) continue;
        for (uint32_t r = 0; r < d->rail_count; r++)
            add_up(d->curves[r], w->taken_ns, to, &w->sums[r]);
        w->taken_ns = to;
    }
}

static bool determine(pj_division *d, cell *c)
{
    c->energies = pj_alloc(d->rail_count ? d->rail_count : 1, sizeof *c->energies);
    for (uint32_t r = 0; c->energies && r < d->rail_count; r++) {
        pj_curve_energy e;
        pj_curve_query(d->curves[r], c->begin_ns, c->end_ns, &e);
        c->energies[r] = (pj_share_energy){e.energy_mj, hypot(e.random_sd_mj, e.bias_sd_mj)};
    }
    return c->energies != NULL;
}

void pj_division_settle(pj_division *d, int64_t now_ns, int64_t force_ns)
{
    int64_t known_ns = pj_division_known_ns(d, NULL);
    const cell *now = present(d);
    if (now && now_ns - now->begin_ns > LONGEST_CELL_NS && cut(d, &now_ns)) set_shares(d);
    while (d->settled < d->cell_count) {
        cell *c = &d->cells[d->settled];
        if (!c->end_ns || (c->end_ns > known_ns && c->end_ns > force_ns)) break;
        if (!determine(d, c)) break;
        add_to_windows(d, c->end_ns);
        d->settled++;
    }
    int64_t from_ns = d->settled < d->cell_count ? d->cells[d->settled].begin_ns : now_ns;
    for (uint32_t r = 0; r < d->rail_count; r++)
        pj_curve_forget(d->curves[r], from_ns - KEPT_NS - 2 * d->rails[r].window_ns);
    drop_cells(d);
}

/* ---- runs ----------------------------------------------------------------------------------- */

pj_division_member *pj_division_enter(pj_division *d, int64_t *at_ns, double weight)
{
    pj_division_member *m = pj_alloc(1, sizeof *m);
    if (!m) return NULL;
    m->weight = weight;
    if (!cut(d, at_ns)) {
        pj_free(m);
        return NULL;
    }
    m->first = d->first + d->cell_count - 1;
    m->next = d->members;
    d->members = m;
    set_shares(d);
    return m;
}

void pj_division_weigh(pj_division *d, pj_division_member *m, int64_t at_ns, double weight)
{
    if (m->weight == weight || m->has_left) return;
    m->weight = weight;
    if (d->rule == PJ_SHARE_WEIGHT && cut(d, &at_ns)) set_shares(d);
}

void pj_division_leave(pj_division *d, pj_division_member *m, int64_t *at_ns)
{
    if (m->has_left) return;
    bool has_cut = cut(d, at_ns);
    m->has_left = true;
    if (has_cut) set_shares(d);
}

void pj_division_drop(pj_division *d, pj_division_member *m)
{
    for (pj_division_member **at = &d->members; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    free_member(m);
    drop_cells(d);
}

bool pj_division_is_shared(const pj_division_member *m)
{
    return m->is_shared;
}

/* Announces a share where it differs from that of the cell before. */
static bool announce(const pj_division *d, pj_division_member *m, pj_share_record *record)
{
    for (; m->announced < m->count; m->announced++) {
        size_t i = m->announced;
        if (m->first + i < d->first) continue;
        if (i > 0 && m->shares[i] == m->shares[i - 1]) continue;
        *record = (pj_share_record){.begin_ns = d->cells[m->first + i - d->first].begin_ns,
                                    .share = m->shares[i],
                                    .rule = (uint32_t)d->rule};
        m->announced++;
        return true;
    }
    return false;
}

bool pj_division_next(pj_division *d, pj_division_member *m, pj_share_record *record,
                      const pj_share_energy **energies)
{
    *energies = NULL;
    if (!m->is_shared) return false;
    if (announce(d, m, record)) return true;
    uint64_t number = m->first + m->written;
    if (m->written == m->count || number >= d->first + d->settled) return false;
    const cell *c = &d->cells[number - d->first];
    *record = (pj_share_record){.begin_ns = c->begin_ns,
                                .end_ns = c->end_ns,
                                .share = m->shares[m->written++],
                                .rule = (uint32_t)d->rule,
                                .rail_count = d->rail_count};
    *energies = c->energies;
    return true;
}

/* ---- windows -------------------------------------------------------------------------------- */

pj_division_window *pj_division_window_open(pj_division *d, int64_t begin_ns)
{
    if (!present(d) && (!cut(d, &begin_ns) || !set_shares(d))) return NULL;
    pj_division_window *w = pj_alloc(1, sizeof *w + d->rail_count * sizeof *w->sums);
    if (!w) return NULL;
    w->begin_ns = w->taken_ns = begin_ns;
    w->next = d->windows;
    d->windows = w;
    return w;
}

void pj_division_window_stop(pj_division_window *w, int64_t end_ns)
{
    w->end_ns = end_ns > w->begin_ns ? end_ns : w->begin_ns + 1;
}

void pj_division_window_energy(const pj_division *d, const pj_division_window *w, uint32_t rail,
                               pj_curve_energy *energy)
{
    rail_sum sum = w->sums[rail];
    double length = (double)(w->end_ns - w->begin_ns);
    *energy = (pj_curve_energy){NAN, NAN, NAN, NAN, NAN, 0};
    if (w->taken_ns == w->begin_ns) { /* no cell ended in it */
        pj_curve_query(d->curves[rail], w->begin_ns, w->end_ns, energy);
        return;
    }
    add_up(d->curves[rail], w->taken_ns, w->end_ns, &sum);
    energy->known_share = sum.known_ns / length;
    if (sum.covered_ns < (1 - MOST_MISSING) * length) return;
    double whole_mj = sum.mj * length / sum.covered_ns;
    energy->energy_mj = whole_mj;
    energy->random_sd_mj = sqrt(sum.random_var);
    energy->bias_sd_mj = sum.bias_mj + (whole_mj - sum.mj);
    energy->gain_sd_mj = sum.gain_mj;
    energy->sd_mj =
        sqrt(sum.random_var + energy->bias_sd_mj * energy->bias_sd_mj + sum.gain_mj * sum.gain_mj);
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

/* Exact sharing of measured energy among leaves, in integer nanojoules. Only the running sum is
 * rounded, never a part, so that parts add up to the whole whatever their number, and each is
 * within one nanojoule of its exact share. */
#include "energy/attribute.h"

#include "base/interval.h"

#include <math.h>

#define UNKNOWN INT64_MIN

/* Deals out a segment's energy in proportion to real weights. */
typedef struct dealer {
    double total_weight, dealt_weight;
    int64_t total_nj, dealt_nj;
} dealer;

static int64_t deal(dealer *d, double weight)
{
    d->dealt_weight += weight;
    double part = d->total_weight > 0 ? d->dealt_weight / d->total_weight : 0;
    int64_t until = part >= 1 ? d->total_nj : (int64_t)llround((double)d->total_nj * part);
    int64_t nj = until - d->dealt_nj;
    d->dealt_nj = until;
    return nj;
}

static int64_t overlap_ns(const pj_segment *s, const pj_leaf *l)
{
    return pj_overlap_ns(l->begin_ns, l->end_ns, s->begin_ns, s->end_ns);
}

static double overlap_ms(const pj_segment *s, const pj_leaf *l)
{
    return (double)overlap_ns(s, l) * 1e-6;
}

typedef struct sums {
    double time_ms, work; /* work: power x time */
    size_t last;          /* one past the last leaf that may overlap */
} sums;

static sums share_add_up(const pj_segment *s, const pj_leaf *leaves, size_t first, size_t count,
                         const double *power)
{
    sums t = {.last = first};
    for (size_t i = first; i < count && leaves[i].begin_ns < s->end_ns; i++) {
        double ms = overlap_ms(s, &leaves[i]);
        t.time_ms += ms;
        t.work += ms * power[leaves[i].class_];
        t.last = i + 1;
    }
    return t;
}

static void share_segment(const pj_segment *s, const pj_leaf *leaves, size_t first, const sums *t,
                          const double *power, double idle_mw, int64_t energy_nj,
                          pj_share_result *r)
{
    double seconds = (double)(s->end_ns - s->begin_ns) * 1e-9;
    int64_t idle_nj = (int64_t)llround(idle_mw * seconds * 1e6);
    bool by_time = energy_nj <= idle_nj || !(t->work > 0);
    if (by_time) r->by_time++;
    /* The idle energy and net energy of time that no leaf covers stay unshared. */
    double covered = t->time_ms / (seconds * 1e3);
    if (covered > 1) covered = 1; /* parallel leaves */
    int64_t idle_dealt = (int64_t)llround((double)idle_nj * covered);
    int64_t net = energy_nj - idle_nj;
    dealer idle = {t->time_ms, 0, idle_dealt, 0};
    dealer work = {by_time ? t->time_ms : t->work, 0, net, 0};
    for (size_t i = first; i < t->last; i++) {
        double ms = overlap_ms(s, &leaves[i]);
        if (!(ms > 0)) continue;
        int64_t net_part = deal(&work, by_time ? ms : ms * power[leaves[i].class_]);
        int64_t gross_part = net_part + deal(&idle, ms);
        /* part of the leaf has no samples; its known part is left unshared */
        if (r->gross_nj[i] == UNKNOWN) {
            r->unshared_nj += gross_part;
            continue;
        }
        r->gross_nj[i] += gross_part;
        r->net_nj[i] += net_part;
    }
    r->unshared_nj += energy_nj - idle.dealt_nj - work.dealt_nj;
}

/* Iterates over the segments of known energy, each with its first leaf and the sums over its
 * leaves. */
typedef struct walk {
    const pj_segment *segments;
    size_t count, next, first;
    const pj_leaf *leaves;
    size_t leaf_count;
    const double *power;
} walk;

static const pj_segment *next_known(walk *w, sums *t)
{
    while (w->next < w->count) {
        const pj_segment *s = &w->segments[w->next++];
        while (w->first < w->leaf_count && w->leaves[w->first].end_ns <= s->begin_ns) w->first++;
        if (isnan(s->energy_mj)) continue;
        *t = share_add_up(s, w->leaves, w->first, w->leaf_count, w->power);
        return s;
    }
    return NULL;
}

void pj_share_run(const pj_segment *segments, size_t segment_count, const pj_leaf *leaves,
                  size_t leaf_count, const double *class_power_mw, double idle_mw,
                  pj_share_result *r)
{
    const walk start = {segments, segment_count, 0, 0, leaves, leaf_count, class_power_mw};
    double idle = isfinite(idle_mw) ? idle_mw : 0, cumulative_mj = 0;
    sums t;
    r->total_nj = r->unshared_nj = 0;
    r->by_time = 0;
    /* First the time of each leaf that known segments cover: a leaf that is not covered completely
     * has no known energy. */
    int64_t *covered_ns = r->net_nj;
    for (size_t i = 0; i < leaf_count; i++) covered_ns[i] = 0;
    walk w = start;
    for (const pj_segment *s; (s = next_known(&w, &t));)
        for (size_t i = w.first; i < t.last; i++) covered_ns[i] += overlap_ns(s, &leaves[i]);
    for (size_t i = 0; i < leaf_count; i++) {
        bool known = covered_ns[i] == leaves[i].end_ns - leaves[i].begin_ns;
        r->gross_nj[i] = r->net_nj[i] = known ? 0 : UNKNOWN;
    }
    w = start;
    for (const pj_segment *s; (s = next_known(&w, &t));) {
        int64_t before = r->total_nj;
        cumulative_mj += s->energy_mj;
        r->total_nj = (int64_t)llround(cumulative_mj * 1e6);
        share_segment(s, leaves, w.first, &t, class_power_mw, idle, r->total_nj - before, r);
        if (r->expected_mj)
            r->expected_mj[s - segments] =
                idle * (double)(s->end_ns - s->begin_ns) * 1e-9 + t.work * 1e-3; /* mW ms = uJ */
    }
}

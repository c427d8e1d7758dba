/* Chooses prefetch distances. */
#include "engine/kernels/ahead.h"

#include "base/clock.h"
#include "base/cpus.h"

#include <math.h>

/* Products shorter than LEAST_BYTES say little: a dispatch is a part of their time. */
enum { LEAST_BYTES = 1 << 20, FASTEST = PJ_AHEAD_SAMPLES / 4 };
static const double UNKNOWN_CACHE_BYTES = 64 << 20;
/* What another distance must gain to replace the default: less is noise. */
static const double LEAST_GAIN = 0.02;

/* Zero prefetches the line that is about to be read, which costs no more than an instruction. */
const unsigned pj_ahead_distances[PJ_AHEAD_DISTANCES] = {2048, 512, 0};

size_t pj_ahead_bytes(const pj_ahead *a, pj_dtype type)
{
    const pj_ahead_choice *c = &a->types[type];
    return pj_ahead_distances[c->measured_s == 0 && c->samples > 0 ? c->next : c->chosen];
}

bool pj_ahead_try(pj_ahead *a, pj_dtype type, size_t bytes)
{
    pj_ahead_choice *c = &a->types[type];
    if (!a->active || c->measured_s != 0 || bytes < LEAST_BYTES) return false;
    if (c->bytes == 0) c->bytes = bytes;
    return c->bytes == bytes;
}

/* Sum of the fastest quarter: whatever else the machine does only adds time. */
static double fastest_ns(const int64_t *ns)
{
    double sum = 0;
    int64_t sorted[PJ_AHEAD_SAMPLES];
    for (size_t i = 0; i < PJ_AHEAD_SAMPLES; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > ns[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = ns[i];
    }
    for (size_t i = 0; i < FASTEST; i++) sum += (double)sorted[i];
    return sum;
}

static unsigned fastest_distance(const pj_ahead_choice *c)
{
    unsigned best = 0;
    double best_ns = fastest_ns(c->ns[0]) * (1 - LEAST_GAIN);
    for (unsigned d = 1; d < PJ_AHEAD_DISTANCES; d++) {
        double ns = fastest_ns(c->ns[d]);
        if (ns < best_ns) best = d, best_ns = ns;
    }
    return best;
}

void pj_ahead_took(pj_ahead *a, pj_dtype type, int64_t ns)
{
    pj_ahead_choice *c = &a->types[type];
    c->ns[c->next][c->samples / PJ_AHEAD_DISTANCES] = ns;
    c->next = ++c->samples % PJ_AHEAD_DISTANCES;
    if (c->samples < PJ_AHEAD_DISTANCES * PJ_AHEAD_SAMPLES) return;
    c->chosen = fastest_distance(c);
    c->measured_s = pj_clock_wall_ns() / PJ_NS_PER_S;
    a->changed = true;
}

void pj_ahead_begin(pj_ahead *a, uint64_t weight_bytes)
{
    double cache_bytes = pj_cpu_cache_bytes("");
    if (isnan(cache_bytes)) cache_bytes = UNKNOWN_CACHE_BYTES;
    if ((double)weight_bytes > 2 * cache_bytes) a->active = true;
}

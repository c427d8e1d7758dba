/* Names, ends of spans, and statistics from sums. */
#include "engine/forward/instrument.h"

#include <string.h>

pj_status pj_instrument_init(pj_instrument *r, pj_run *run, pj_statistics_rows rows, pj_error *err)
{
    memset(r, 0, sizeof *r);
    if (!run) return PJ_OK;
    r->run = run;
    r->lane = pj_run_lane(run);
    if (!r->lane) return pj_fail_memory(err, "the recording lane");
    r->module = pj_run_depth(run) >= PJ_DEPTH_MODULE;
    r->deep = pj_run_depth(run) >= PJ_DEPTH_DEEP;
    for (uint32_t i = 1; i < PJ_N_COUNT; i++) {
        r->names[i] = pj_run_name(run, pj_instrument_text((pj_instrument_name)i));
        if (r->names[i] == 0) return pj_fail_memory(err, "the names of spans");
    }
    r->statistics = r->module && rows != PJ_STATISTICS_OFF;
    r->all_rows = rows == PJ_STATISTICS_ALL || (rows == PJ_STATISTICS_BY_DEPTH && r->deep);
    r->all_extras = rows == PJ_STATISTICS_ALL;
    return PJ_OK;
}

pj_stats pj_stats_of_sums(const pj_value_sums *s)
{
    double finite = (double)(s->count - s->skipped);
    if (finite <= 0) return (pj_stats){NAN, NAN, NAN, NAN, NAN, (uint32_t)s->nan, (uint32_t)s->inf};
    double mean = s->sum / finite;
    double variance = fmax(s->sum_square / finite - mean * mean, 0);
    return (pj_stats){.mean_abs = (float)(s->sum_abs / finite),
                      .mean = (float)mean,
                      .std = (float)sqrt(variance),
                      .max_abs = s->max_abs,
                      .sparsity = (float)((double)s->below / finite),
                      .nan_count = (uint32_t)s->nan,
                      .inf_count = (uint32_t)s->inf};
}

void pj_instrument_end_work(pj_instrument *r, pj_work *work, int64_t now_ns)
{
    work->extras = r->extras;
    work->extra_count = r->extra_count;
    r->ended_ns = now_ns ? now_ns : pj_clock_ns();
    pj_span_end_at(r->lane, work, r->ended_ns);
    r->extra_count = 0;
    r->operation_open = false;
}

#include "bench/ratio.h"

#include "base/median.h"

#include <math.h>

double pj_bench_median(const double *values, int64_t count)
{
    double sorted[PJ_BENCH_ROUNDS_MAX];
    for (int64_t i = 0; i < count; i++) sorted[i] = values[i];
    return pj_median(sorted, (size_t)count);
}

pj_bench_ratio pj_bench_compare(const double *with, const double *without, int64_t rounds)
{
    double r[PJ_BENCH_ROUNDS_MAX], n = (double)rounds;
    for (int64_t i = 0; i < rounds; i++) r[i] = with[i] / without[i];
    pj_sort_doubles(r, (size_t)rounds);
    int64_t low = (int64_t)floor(n / 2 - 0.98 * sqrt(n)), high = rounds - 1 - low;
    if (low < 0) low = 0;
    if (high >= rounds) high = rounds - 1;
    return (pj_bench_ratio){pj_bench_median(r, rounds), r[low], r[high]};
}

void pj_bench_write_ratio(pj_json *json, const char *key, pj_bench_ratio r)
{
    pj_json_key(json, key);
    pj_json_object_begin(json);
    pj_json_kv_double(json, "median", r.median);
    pj_json_kv_double(json, "low", r.low);
    pj_json_kv_double(json, "high", r.high);
    pj_json_object_end(json);
}

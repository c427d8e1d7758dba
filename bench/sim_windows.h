/* Intervals of energy curves against simulated sensors with a known truth: windows of random length
 * over a load whose steps and bursts are drawn from a seed. */
#ifndef PJ_BENCH_SIM_WINDOWS_H
#define PJ_BENCH_SIM_WINDOWS_H

#include "base/json.h"
#include "bench/window_score.h"

typedef enum pj_sim_load {
    PJ_LOAD_STEPS = 0, /* levels that are held for one to three seconds */
    PJ_LOAD_BURSTS,    /* between the steps, a load that switches every 5 to 200 ms */
    PJ_LOAD_COUNT
} pj_sim_load;

/* `sensor` as after "sim:" (power/sim.h); its first rail is read for a minute. */
pj_status pj_sim_windows_judge(const char *sensor, pj_sim_load load, const double length_ms[2],
                               uint64_t seed, pj_window_score *score, pj_error *err);

/* The table of `perjoule bench attribution --windows`, or rows as objects: each kind of sensor,
 * each load, four ranges of lengths; medians over `runs` seeds from `seed` on. */
pj_status pj_bench_windows(int64_t runs, int64_t seed, const char *only, pj_json *json,
                           pj_error *err);

#endif

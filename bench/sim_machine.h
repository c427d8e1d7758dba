/* A machine that computes by a law of its own: every component takes as long as its bytes or its
 * FLOPs need, and draws a power of its own. Its runs are made span by span, observed by a simulated
 * sensor and attributed by the code that attributes all runs, so that what is said of a stored run
 * can be compared with what the same machine would have taken with another setting. */
#ifndef PJ_BENCH_SIM_MACHINE_H
#define PJ_BENCH_SIM_MACHINE_H

#include "base/random.h"
#include "store/store.h"

typedef struct pj_sim_machine {
    double bytes_per_s, flops_per_s;
    double idle_mw, low_mw, high_mw; /* of components, drawn from the seed */
    uint64_t seed;
    const char *sensor; /* as after "sim:" */
    double cache_bytes, memory_bytes;
    double hidden, intermediate, vocabulary;
    uint32_t layers;
} pj_sim_machine;

/* How one request is computed. */
typedef struct pj_sim_work {
    const char *dtype, *kv_type;
    const char *prompt;
    double weight_bytes, head_bytes, kv_bytes; /* of one value */
    uint32_t input, output;                    /* tokens of each sequence */
    uint32_t cached;                           /* of the input, which are not computed again */
    uint32_t batch, threads;
    double slower, hotter; /* times the machine's time and power */
    double load_bytes;     /* read before the prompt; 0: the model was in memory */
    uint32_t stalled;      /* decode step that is held up, from 1; 0: none */
    double stall_ms;
    double age_ms; /* how long before the last run it began */
} pj_sim_work;

/* Energies that were planted, in mJ. */
typedef struct pj_sim_truth {
    double total_mj, load_mj, request_mj; /* the request: without loading */
    double stall_mj;
    double tokens; /* output tokens of all sequences */
} pj_sim_truth;

/* Stores the run; *id is the run's, *truth what it took. `store` NULL: only the truth. */
pj_status pj_sim_machine_run(const pj_sim_machine *machine, const pj_sim_work *work,
                             pj_random *random, pj_store *store, char id[PJ_UUID_BYTES],
                             pj_sim_truth *truth, pj_run_data *data, pj_error *err);

#endif

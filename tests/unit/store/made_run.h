/*
 * Runs of any size made from a seed, with energies that add up exactly at every level: leaves get
 * random nanojoules, parents the sum of their children and some self energy.
 */
#ifndef MADE_RUN_H
#define MADE_RUN_H

#include "trace/run_data.h"

typedef struct made_run {
    uint64_t seed;
    uint32_t tokens, layers; /* layers: of the model */
    uint32_t samples;
    pj_depth depth;
    bool no_energy; /* as a run without sensors */
    bool no_extras;
    double energy_factor;    /* 0: 1 */
    int64_t created_wall_ns; /* 0: now */
    const char *model_name, *prompt, *tag, *experiment_name, *repeat_group;
    pj_run_status status; /* 0: completed */
} made_run;

void make_run(const made_run *like, pj_run_data *data);
/* Fails the test with the name of the first part that differs. */
void assert_runs_equal(const pj_run_data *a, const pj_run_data *b);

/* The storage engine of a test: NULL for the one that serves a path, or the one of strict_driver.c
 * or server_driver.c in the executables that are built with it. */
#ifdef TEST_SERVER_DRIVER
const struct pj_store_driver *server_driver(void);
#define MADE_DRIVER    server_driver()
#define MADE_ON_SERVER 1 /* a test of a file's own has nothing to show */
#elif defined(TEST_STRICT_DRIVER)
const struct pj_store_driver *strict_driver(void);
#define MADE_DRIVER strict_driver()
#else
#define MADE_DRIVER NULL
#endif
#ifndef MADE_ON_SERVER
#define MADE_ON_SERVER 0
#endif

#endif

/* The live line of `run`: power and energy per token at the bottom of the terminal while the text
 * streams above it. Figures come from the collector thread; the thread that prints the text draws
 * the line, at most five times per second. */
#ifndef PJ_CLI_RUN_LIVE_H
#define PJ_CLI_RUN_LIVE_H

#include "base/progress.h"
#include "trace/live.h"

#include <stdatomic.h>
#include <stdio.h>

typedef struct pj_run_live {
    FILE *out;          /* standard output, or standard error where that alone is a terminal */
    uint32_t run, runs; /* which of how many repetitions */
    _Atomic double power_mw, energy_mj; /* latest, and sum over tokens; NAN: unavailable */
    _Atomic uint32_t tokens;
    pj_progress loading; /* of the model */
    int64_t drawn_ns;
    int rows; /* of the terminal; 0: no line */
} pj_run_live;

/* Reserves the bottom row of a terminal. */
void pj_run_live_begin(pj_run_live *live, uint32_t run, uint32_t runs);
void pj_run_live_end(pj_run_live *live); /* releases the row; may run twice */
pj_live_sink pj_run_live_sink(pj_run_live *live);
void pj_run_live_draw(pj_run_live *live, uint32_t tokens, double tokens_per_second);

#endif

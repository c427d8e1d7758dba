/* Tokens of a run with planted anomalies: known truth for the search (analysis/anomalies.h).
 * Work grows with the position, and its figures vary by 1 or 2 %. */
#ifndef PJ_BENCH_PLANTED_TOKENS_H
#define PJ_BENCH_PLANTED_TOKENS_H

#include "analysis/anomalies.h"
#include "base/random.h"

enum { PJ_PLANTED_TOKENS = 400, PJ_PLANTED_ANOMALIES = 8 };

typedef struct pj_planted_tokens {
    double duration[PJ_PLANTED_TOKENS], energy[PJ_PLANTED_TOKENS], attention[PJ_PLANTED_TOKENS],
        spread[PJ_PLANTED_TOKENS], processor[PJ_PLANTED_TOKENS], faults[PJ_PLANTED_TOKENS],
        clock[PJ_PLANTED_TOKENS];
    pj_anomaly_cause planted[PJ_PLANTED_TOKENS]; /* PJ_CAUSE_UNKNOWN: an ordinary token */
} pj_planted_tokens;

/* Every 50th token takes 1.3 to 2.5 times as long, for one of four causes in turn. */
void pj_planted_tokens_make(pj_planted_tokens *tokens, pj_random *random, bool with_anomalies);
/* Tokens of one duration whose energies differ by the rounding of doubles, and every 97th by
 * `step_mj`, one step of the sensor. */
void pj_planted_tokens_flat(pj_planted_tokens *tokens, pj_random *random, double step_mj);
pj_token_figures pj_planted_tokens_figures(const pj_planted_tokens *tokens);

typedef struct pj_planted_score {
    double runs, reported, right, caused; /* right: planted ones; caused: with their cause */
} pj_planted_score;

/* Searches one run and adds to the score. */
void pj_planted_tokens_judge(const pj_planted_tokens *tokens, pj_planted_score *score);

#endif

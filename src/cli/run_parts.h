/* Time and energy of a run's phases and components, summed by name. */
#ifndef PJ_CLI_RUN_PARTS_H
#define PJ_CLI_RUN_PARTS_H

#include "trace/run_data.h"

enum { PJ_RUN_PARTS_MAX = 256 };

typedef struct pj_run_part {
    const char *name; /* points into the run's data, or static */
    double ms, gross_mj, net_mj, sd_mj, net_sd_mj;
} pj_run_part;

/* In order of first appearance; names beyond the limit are dropped. */
typedef struct pj_run_parts {
    pj_run_part items[PJ_RUN_PARTS_MAX];
    uint32_t count;
} pj_run_parts;

void pj_run_parts_phases(pj_run_parts *parts, const pj_run_data *run);
void pj_run_parts_components(pj_run_parts *parts, const pj_run_data *run);
/* Speculative decoding: the draft model's passes, and the rest of prefill and decode. */
typedef struct pj_run_draft {
    char name[128];            /* "": the run had no draft model */
    double proposed, accepted; /* tokens; NAN: unknown */
    double ms, mj, sd_mj;
    double target_mj; /* of prefill and decode without the draft's passes */
} pj_run_draft;

/* Of the draft's passes; `sd_mj` without the sensor's calibration. */
void pj_run_draft_get(const pj_run_data *run, double ms, double mj, double sd_mj,
                      pj_run_draft *draft);
/* "demo: 5 of 8 proposed tokens accepted (62 %); it took 1.2 ms, 3.0 ± 0.5 mJ (0.6 ± 0.1 mJ per
 * accepted token), and the model 9 mJ" */
void pj_run_draft_text(const pj_run_draft *draft, char *text, size_t bytes);

/* Takes the sensor's calibration error out of the standard deviations: see pj_gain_note_print. */
void pj_run_parts_drop_gain(pj_run_parts *parts, double gain_sd);
/* NULL: no such name. */
const pj_run_part *pj_run_parts_find(const pj_run_parts *parts, const char *name);

#endif

/* Results of experiments, from the store alone. JSON: docs/api.md, "Experiments". */
#ifndef PJ_EXPERIMENT_EXPERIMENT_VIEW_H
#define PJ_EXPERIMENT_EXPERIMENT_VIEW_H

#include "analysis/compare.h"
#include "analysis/part_cost.h"
#include "analysis/ratio.h"
#include "analysis/score.h"
#include "experiment/experiment_done.h"
#include "insight/model_use.h"

typedef struct pj_experiment_progress {
    uint32_t done, total; /* runs; total: at most */
    uint32_t block, cell;
    char name[96];           /* of the cell */
    double joules_per_token; /* of the last run; NAN: unknown, or none */
    double left_s;           /* estimated from the pace so far; NAN: unknown */
} pj_experiment_progress;

/* Progress of an experiment that is running or queued on a server. */
typedef struct pj_experiment_live {
    const char *state;               /* "queued" or "running"; NULL: neither */
    char run_id[PJ_UUID_BYTES];      /* of the run in progress; "": none */
    pj_experiment_progress progress; /* of a running one */
} pj_experiment_live;

/* Fills in the progress of the experiment of that name. */
typedef void pj_experiment_live_fn(void *context, const char *name, pj_experiment_live *live);

/* A cell: means over its runs, NAN where unavailable. */
typedef struct pj_cell_figures {
    char name[160];
    pj_cell cell;
    uint32_t n, disturbed;
    double *joules;                 /* [n] the primary figure of each run */
    pj_mean mean, typical, primary; /* joules per token; primary: one of the two */
    double speed, ttft_ms, latency_ms, power_mw, loss;
    const char *outcomes; /* of the tasks (analysis/score.h); NULL: not scored */
    pj_score score;
    pj_score_contrast against_best; /* of the best score (a) with this one (b) */
    double mj_per_million_active;   /* parameters */
    double weight_bytes;            /* that a decode step reads */
    pj_context_use context;         /* of the first run: all runs of a cell have one length */
    pj_expert_use experts;
} pj_cell_figures;

/* Energy per token relative to the first cell, or to the same cell in the previous round. */
typedef struct pj_cell_ratio {
    uint32_t cell;
    pj_ratio ratio;
    double p; /* corrected */
    bool different;
} pj_cell_ratio;

/* The batch beyond which doubling saves less than a tenth. */
typedef struct pj_batch_knee {
    uint32_t first_cell, cell, batch;
    double saves, saves_lo, saves_hi; /* of a doubling beyond it */
    bool settled;                     /* significantly less than a tenth */
    char text[320];
} pj_batch_knee;

/* A Pareto front of energy per token against another cost. */
typedef struct pj_cell_front {
    const char *over;             /* "loss", "score", "seconds_per_token" */
    uint32_t *cells, count, knee; /* knee: a cell; PJ_NO_CELL: no knee */
} pj_cell_front;

/* Answers to the plan's tasks: the best score, and the least energy of the cells whose scores do
 * not differ from it for certain. */
typedef struct pj_cell_answers {
    uint32_t tasks, best, least; /* tasks 0: not scored; cells, PJ_NO_CELL: none */
    char text[400];
} pj_cell_answers;

/* A part of the model that a cell leaves out: its energy by two measurements. */
typedef struct pj_ablated_part {
    uint32_t cell, whole_cell;
    pj_part_cost cost;
    double planted; /* joules per token of a simulation; NAN: not simulated */
    const char *text;
} pj_ablated_part;

enum { PJ_NO_CELL = UINT32_MAX };

typedef struct pj_experiment_result {
    pj_arena arena;
    pj_store *store;
    pj_plan plan;
    pj_experiment_runs runs, former;
    pj_experiment_live live;
    const char *state, *error; /* state "completed", "unfinished", ...; error: of a failed one */
    uint32_t done, total;      /* runs */
    uint32_t all_threads;      /* of cells that set no threads; 0: none has run */
    const char *refusal;       /* of a verdict over all cells; NULL: they are comparable */
    uint32_t primary;          /* the figure that decides: pj_primary_figure */
    pj_cell_figures *cells;
    uint32_t optimum; /* the cell with the least energy, PJ_NO_CELL: none */
    uint32_t *ties;   /* cells that are not distinguishable from it */
    pj_cell_ratio *against_first, *against_former;
    pj_batch_knee *knees;
    pj_cell_front fronts[3];
    pj_cell_answers answers;
    pj_ablated_part *ablations;
    uint32_t count, tie_count, first_count, former_count, knee_count, front_count, ablation_count;
} pj_experiment_result;

/* What the energies of a cell lack: "CPU only, GPU missing"; NULL: nothing. */
const char *pj_cell_partial(const pj_cell_runs *runs, char *text, size_t bytes);
/* `live` NULL: nothing is running. On failure *result is NULL. */
pj_status pj_experiment_result_get(pj_store *store, const char *name,
                                   const pj_experiment_live *live, pj_experiment_result **result,
                                   pj_error *err);
void pj_experiment_result_free(pj_experiment_result *result); /* NULL is allowed */
void pj_experiment_result_write(const pj_experiment_result *result, pj_json *json);

/* The same as JSON, and a list of all experiments. */
pj_status pj_view_experiment(pj_store *store, const char *name, const pj_experiment_live *live,
                             pj_json *json, pj_error *err);
pj_status pj_view_experiments(pj_store *store, pj_experiment_live_fn *live, void *context,
                              pj_json *json, pj_error *err);
/* Precedence: what a server is doing now, then completed runs, then the state that a server
 * stored. */
const char *pj_experiment_state(const char *live, const char *stored, bool complete);

#endif

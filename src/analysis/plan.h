/*
 * The plan of an experiment: a grid of settings, how often and in which order its cells run.
 * Randomised complete blocks: every cell once per block, each block in an order of its own from the
 * seed, so that warming and load from other programs affect all cells equally.
 * Pure; JSON in and out (docs/formats.md).
 */
#ifndef PJ_ANALYSIS_PLAN_H
#define PJ_ANALYSIS_PLAN_H

#include "base/json.h"
#include "base/memory.h"

enum { PJ_PLAN_VALUES = 64, PJ_PLAN_CELLS = 4096 };

typedef struct pj_plan {
    const char *name;
    const char *models[PJ_PLAN_VALUES], *dtypes[PJ_PLAN_VALUES]; /* dtype "": as stored */
    /* Parts that the engine leaves out; the first is "", the whole model. */
    const char *ablate[PJ_PLAN_VALUES];
    const char *engines[PJ_PLAN_VALUES]; /* "": ours; "attach:URL", "exec:COMMAND" */
    uint32_t batches[PJ_PLAN_VALUES], inputs[PJ_PLAN_VALUES], outputs[PJ_PLAN_VALUES],
        threads[PJ_PLAN_VALUES]; /* threads 0: one per core */
    uint32_t model_count, dtype_count, batch_count, input_count, output_count, thread_count,
        ablate_count, engine_count;
    uint32_t repeat;       /* blocks at most */
    double precision;      /* relative half width at which a cell stops; 0: never before `repeat` */
    double cool_down_s;    /* at most; 0: none */
    double max_latency_ms; /* limit of milliseconds per token for the optimum; 0: none */
    uint64_t seed;
    const char *prompt; /* NULL: a text of `inputs` tokens */
    const char *eval;   /* text file whose loss is measured for each model and dtype; NULL: none */
    const char *eval_text; /* the text itself instead of a file; NULL: none */
    const char *tasks; /* a file of tasks (analysis/tasks.h) that each model and dtype answers */
    const char *tasks_text; /* the tasks themselves instead of a file; NULL: none */
    const char *depth;      /* "off", "module", "deep" */
    const char *device;     /* that computes (pj_engine_options.device); NULL: the CPU */
    const char *power;      /* the --power list that measures it, without secrets; NULL: not said */
    double interval_ms;     /* between power samples; 0: each source's own */
    uint32_t round;         /* 0, 1, ...: repetition of the whole plan */
} pj_plan;

typedef struct pj_cell {
    const char *model, *dtype, *ablate, *engine;
    uint32_t batch, input, output, threads;
} pj_cell;

/* Missing lists get their usual single value. Texts live in the arena. */
pj_status pj_plan_parse(const char *json, pj_arena *arena, pj_plan *plan, pj_error *err);
void pj_plan_write(const pj_plan *plan, pj_json *json);
uint32_t pj_plan_cells(const pj_plan *plan);
/* The cell with the whole model that an ablated cell is compared with; its own index otherwise. */
uint32_t pj_plan_whole_cell(const pj_plan *plan, uint32_t index);
void pj_plan_cell(const pj_plan *plan, uint32_t index, pj_cell *cell);
/* "q8_0, batch 4": the settings in which the plan's cells differ. */
void pj_plan_cell_name(const pj_plan *plan, uint32_t index, char *text, size_t bytes);
/* The order of a block: a permutation of 0 .. cells - 1. */
void pj_plan_order(const pj_plan *plan, uint32_t block, uint32_t *order);
/* Whether a cell with these values of joules per token needs no further blocks. */
bool pj_plan_is_enough(const pj_plan *plan, const double *joules, uint32_t count);

#endif

/* Stored runs as a table of tests, as benchmarks print them: a row per setting and test, the prompt
 * ("pp512") and decoding ("tg128") apart, each with speed and energy per token. */
#ifndef PJ_INSIGHT_RUN_TABLE_H
#define PJ_INSIGHT_RUN_TABLE_H

#include "analysis/compare.h"
#include "trace/run_data.h"

enum { PJ_TABLE_TEXT = 96 };

typedef struct pj_table_row {
    char model[PJ_TABLE_TEXT], dtype[24], engine[48], machine[PJ_TABLE_TEXT], device[PJ_TABLE_TEXT];
    char power[PJ_TABLE_TEXT]; /* the sources, "rapl,nvml"; "": none */
    uint32_t batch, threads;   /* threads 0: unknown */
    uint32_t concurrency;      /* requests that the client kept in flight; 0: unknown */
    uint64_t tokens;           /* of each sequence */
    bool is_prompt;            /* the prompt's test, else decoding's */
    char test[24];             /* "pp512", "tg128" */
    const char *settings;      /* others that tell rows of a test apart: "deep, no_mmap" */
    double bytes, parameters;  /* of the model; NAN: unknown */
    pj_source_quality quality;
    pj_mean speed;      /* tokens per second, of all sequences together */
    pj_mean joules;     /* per token of the test */
    double gain_sd;     /* of the sensors' calibration, relative; the intervals leave it out */
    const char *figure; /* what `joules` is: its column of the API */
    /* Tokens between reasoning marks of all output tokens, in the runs with such marks; NAN: none
     * has, or the prompt's test. */
    double thinking_share;
    uint32_t runs;
} pj_table_row;

typedef struct pj_run_table {
    pj_arena arena;
    pj_table_row *rows;
    uint32_t count;
    uint32_t left_out; /* runs that are not completed, or had a part of the model left out */
} pj_run_table;

/* Rows in the order of their newest runs, as the list is. */
pj_status pj_run_table_make(const pj_run_info *runs, uint32_t count, pj_run_table *table,
                            pj_error *err);
void pj_run_table_fini(pj_run_table *table);

#endif

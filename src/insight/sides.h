/*
 * Comparison of groups of runs, shared by compare, compare/groups, experiments and reports. A side
 * is a single run, a --repeat series or every run with one value of a field. Table and tests are
 * made over the same runs of a side. Forms of the JSON: docs/api.md, "Comparison".
 */
#ifndef PJ_INSIGHT_SIDES_H
#define PJ_INSIGHT_SIDES_H

#include "analysis/compare.h"
#include "analysis/ratio.h"
#include "store/class_sums.h"
#include "store/views.h"

enum { PJ_SIDES_MAX = 32, PJ_SIDE_NAME_BYTES = 96, PJ_SIDE_TESTS = 1024 };

typedef struct pj_side {
    char name[PJ_SIDE_NAME_BYTES]; /* name in sentences: "A", "bf16" */
    const pj_run_info **runs;      /* [run_count] the compared runs, at least 1 */
    uint32_t run_count;
    uint32_t left_out;      /* left out as disturbed or throttled */
    bool kept_disturbed;    /* disturbed runs kept, because too few others exist */
    pj_token_series tokens; /* with one run per side, else empty */
} pj_side;

/* Energy and time of one class of work per output token, mean over a side's runs. */
typedef struct pj_side_part {
    uint8_t phase;
    const char *name;
    double ms, mj, variance; /* variance: of the mean, mJ^2 */
} pj_side_part;

typedef struct pj_sides {
    pj_arena arena;
    pj_store *store;
    pj_side sides[PJ_SIDES_MAX];
    uint32_t count;
    bool with_disturbed; /* leave nothing out */
    struct pj_side_test *tests;
    uint32_t test_count;
} pj_sides;

void pj_sides_init(pj_sides *sides, pj_store *store);
void pj_sides_fini(pj_sides *sides);
/* A side of these runs, without disturbed ones if enough others remain. */
pj_status pj_sides_add(pj_sides *sides, const char *name, const pj_run_info *const *runs,
                       uint32_t count, pj_error *err);

/* A figure of a run by its index in the table of figures. */
typedef struct pj_figure {
    const char *name, *unit, *better;
    double (*get)(const pj_run_info *info, const pj_run_ratios *r);
} pj_figure;
extern const pj_figure pj_figures[];
extern const uint32_t pj_figure_count;
/* All runs of a side; returns how many values (NAN where unavailable). */
uint32_t pj_side_values(const pj_side *side, uint32_t figure, double *values);
uint32_t pj_figure_find(const char *name);

/* Computes the tests; then each writes members into an open object. */
pj_status pj_sides_test(pj_sides *sides, pj_error *err);
void pj_sides_write_metrics(const pj_sides *sides, pj_json *json);
void pj_sides_write_tests(const pj_sides *sides, pj_json *json);
void pj_sides_write_best(const pj_sides *sides, pj_json *json);
/* Name, number of runs, how many were left out, and the first ids of each side. */
void pj_sides_write_sides(const pj_sides *sides, pj_json *json);
/* Settings that differ between or within sides, and caveats. */
void pj_sides_write_settings(const pj_sides *sides, pj_json *json);
/* Why two sides are not comparable, or NULL. */
const char *pj_sides_refusal(const pj_side *a, const pj_side *b);

/* Whether runs are comparable: what the first of them with an energy is, and in what others differ
 * from it. Start from zero. */
typedef struct pj_likeness {
    const pj_run_info *first;
    bool source, scope, devices;
} pj_likeness;

void pj_likeness_add(pj_likeness *likeness, const pj_run_info *run);
/* Why the runs are not comparable; NULL: they are. */
const char *pj_likeness_refusal(const pj_likeness *likeness);
pj_status pj_sides_write_verdicts(const pj_sides *sides, pj_json *json, pj_error *err);
/* The difference of each side from the first, by phase and component. */
pj_status pj_sides_write_decomposition(const pj_sides *sides, pj_json *json, pj_error *err);

/* A setting of a run as text: a field of the run, or "settings.NAME", "model.NAME". False: the run
 * has no such value. */
bool pj_run_field(const pj_run_info *info, const char *field, char *text, size_t bytes);
extern const char *const pj_group_fields[]; /* NULL-terminated: names that always work */
/* Whether a run was disturbed: disturbed tokens took more than a tenth of its energy, or clocks
 * were throttled. */
bool pj_run_is_disturbed(const pj_run_info *info);
/* A part of the model was left out (experiment/experiment.h). */
bool pj_run_is_ablated(const pj_run_info *info);

#endif

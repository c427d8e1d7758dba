/*
 * Comparison of groups of runs, shared by compare, compare/groups, experiments and reports. A side
 * is a single run, a --repeat series or every run with one value of a field. Table and tests use
 * the same runs of a side. JSON: docs/api.md, "Comparison".
 */
#ifndef PJ_INSIGHT_SIDES_H
#define PJ_INSIGHT_SIDES_H

#include "analysis/compare.h"
#include "analysis/decompose.h"
#include "analysis/verdict.h"
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

/* One test of one figure between two sides. */
typedef struct pj_side_test {
    const char *metric, *unit, *sample; /* sample: "run" or "token" */
    uint32_t a, b;
    bool primary; /* what verdicts and "most efficient" rest on */
    pj_comparison result;
    pj_contrast pair; /* judged together with the other pairs in this metric */
} pj_side_test;

/* A setting that differs between or within sides. */
typedef struct pj_side_difference {
    const char *setting, *values[PJ_SIDES_MAX]; /* NULL: unknown */
} pj_side_difference;

typedef struct pj_side_caveat {
    const char *code, *text;
} pj_side_caveat;

/* The verdict on a pair of sides, in energy per token. */
typedef struct pj_side_verdict {
    uint32_t a, b;
    pj_judgement judgement;
    char text[800];
    double ratio, ratio_lo, ratio_hi, p;
    const char *method;
} pj_side_verdict;

/* A sentence of the result: of one pair, or of all that are not distinguishable. */
typedef struct pj_side_conclusion {
    pj_outcome outcome;
    char *text;
    uint32_t verdict; /* index, if it is of one pair; else the number of verdicts */
} pj_side_conclusion;

/* The side with the best mean of a figure. */
typedef struct pj_side_best {
    const char *title, *metric;
    uint32_t side;
    double value; /* its mean */
    /* each other side: without the figure; significantly worse; not significantly different;
     * untested, since one run per side has no spread */
    enum {
        PJ_STANDING_NONE = 0,
        PJ_STANDING_WORSE,
        PJ_STANDING_TIED,
        PJ_STANDING_UNTESTED
    } standing[PJ_SIDES_MAX];
} pj_side_best;

/* The difference of a side's energy per token from the first side's, by phase and component. */
typedef struct pj_side_terms {
    uint32_t side, count;
    double mj_a, mj_b; /* per token */
    pj_term *terms;    /* largest first; a last one of phase "" sums up all others */
} pj_side_terms;

enum { PJ_SIDE_BESTS = 3, PJ_SIDE_VERDICTS = 32 };

typedef struct pj_sides {
    pj_arena arena;
    pj_store *store;
    pj_side sides[PJ_SIDES_MAX];
    uint32_t count;
    bool with_disturbed; /* leave nothing out */
    uint32_t primary;    /* the figure that decides: pj_primary_figure, known after pj_sides_test */
    pj_side_test *tests;
    pj_side_difference *differences;
    pj_side_caveat *caveats;
    pj_side_verdict verdicts[PJ_SIDE_VERDICTS];
    pj_side_conclusion conclusions[PJ_SIDE_VERDICTS];
    pj_side_best bests[PJ_SIDE_BESTS];
    pj_side_terms terms[PJ_SIDES_MAX];
    uint32_t test_count, difference_count, caveat_count, verdict_count, conclusion_count,
        best_count, term_count;
} pj_sides;

/* What its energies are: "measured", "modelled" or "unavailable", "measured and modelled" where
 * runs differ; and what their totals lack: "CPU only, GPU missing", or NULL. */
const char *pj_side_source(const pj_side *side);
const char *pj_side_partial(const pj_side *side, char *text, size_t bytes);

void pj_sides_init(pj_sides *sides, pj_store *store);
void pj_sides_fini(pj_sides *sides);
/* A side of these runs, without disturbed ones if enough others remain. */
pj_status pj_sides_add(pj_sides *sides, const char *name, const pj_run_info *const *runs,
                       uint32_t count, pj_error *err);

/* A figure of a run by its index in the table of figures. */
typedef struct pj_figure {
    const char *name, *unit, *better;
    size_t in_run, in_ratios; /* offset in pj_run_info, or in pj_run_ratios; SIZE_MAX: not there */
    size_t energy, sd; /* offsets of the energy in pj_run_info whose relative errors it has, and
                          of their parts; both 0: none */
    bool may_be_negative;
} pj_figure;
extern const pj_figure pj_figures[];
extern const uint32_t pj_figure_count;
double pj_figure_of(const pj_run_info *info, uint32_t figure);
/* All runs of a side; returns how many values (NAN where unavailable). */
uint32_t pj_side_values(const pj_side *side, uint32_t figure, double *values);
uint32_t pj_figure_find(const char *name);
/* The figure that decides between runs: the typical token's joules if all runs with an energy have
 * them, else the mean's. Begin with true, and pass each run. */
void pj_note_typical(bool *all, const pj_run_info *run);
uint32_t pj_primary_figure(bool all_typical);

/* Mean over a side's runs (pj_sample_mean). Its interval holds their spread and what the sensor
 * gets wrong in all of them, but not its calibration, which the sides share; of a single run that
 * run's own errors. */
pj_mean pj_side_mean_of(const pj_side *side, uint32_t figure);

/* Computes all of the above, after all sides are added. */
pj_status pj_sides_compute(pj_sides *sides, pj_error *err);
/* Its parts, by file. */
pj_status pj_sides_test(pj_sides *sides, pj_error *err);
pj_status pj_sides_settings(pj_sides *sides, pj_error *err);
pj_status pj_sides_terms(pj_sides *sides, pj_error *err);
/* As members of an open object. */
void pj_sides_write(const pj_sides *sides, pj_json *json);
/* Why two sides are not comparable, or NULL. */
const char *pj_sides_refusal(const pj_side *a, const pj_side *b);

/* Whether runs are comparable: how others differ from the first with an energy. Zeroed first. */
typedef struct pj_likeness {
    const pj_run_info *first;
    bool source, scope, devices, model; /* model: both modelled, by different sources */
} pj_likeness;

void pj_likeness_add(pj_likeness *likeness, const pj_run_info *run);
/* Why the runs are not comparable; NULL: they are. */
const char *pj_likeness_refusal(const pj_likeness *likeness);
/* A field of a run as text, or its "settings.NAME", "model.NAME". False: it has no such value. */
bool pj_run_field(const pj_run_info *info, const char *field, char *text, size_t bytes);
/* Requests that its server answered at a time, as the client says that kept so many going; 0:
 * several, but how many is unknown. */
uint32_t pj_run_at_a_time(const pj_run_info *info);
/* Whether the same devices computed both: the field "device", of at most so many bytes. */
enum { PJ_DEVICES_TEXT = 512 };
bool pj_run_same_devices(const pj_run_info *a, const pj_run_info *b);
extern const char *const pj_group_fields[]; /* NULL-terminated: names that always work */
/* Whether a run was disturbed: disturbed tokens took more than a tenth of its energy, or clocks
 * were throttled. */
bool pj_run_is_disturbed(const pj_run_info *info);
/* A part of the model was left out (experiment/experiment.h). */
bool pj_run_is_ablated(const pj_run_info *info);

#endif

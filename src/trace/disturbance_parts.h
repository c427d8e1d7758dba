/* Private to trace/disturbance*.c: what is judged, and how a disturbance is shared among rows. */
#ifndef PJ_TRACE_DISTURBANCE_PARTS_H
#define PJ_TRACE_DISTURBANCE_PARTS_H

#include "trace/disturbance.h"

/* Something that can be disturbed. */
typedef struct pj_disturbed_unit {
    pj_disturbance_kind kind;
    uint32_t phase;      /* row */
    uint32_t first, end; /* token rows of a step or prompt */
    uint32_t section;    /* row of loading */
    double start_ms, ms, flops, bytes;
    double own_ms;                 /* prompts: what its parts usually took; NAN: unknown */
    double expected_ms, spread_ms; /* spread: of what is expected, 1 sigma */
    bool disturbed;
    pj_disturbed part; /* set by pj_disturbances_share */
} pj_disturbed_unit;

/* Steps and prompts are in order of their rows, loading and gaps follow. */
typedef struct pj_disturbed_units {
    pj_disturbed_unit *items;
    uint32_t count, step_count;
    uint32_t *of_token; /* [token_count] index + 1 of the step or prompt; 0: in none */
} pj_disturbed_units;

static inline double pj_unit_extra_ms(const pj_disturbed_unit *unit)
{
    return unit->disturbed ? unit->ms - unit->expected_ms : 0;
}

/* A part of a step or prompt that has no parts of its own: a component, or the time of a layer,
 * section or step that no part of it covers. */
typedef enum pj_leaf_kind {
    PJ_LEAF_COMPONENT,
    PJ_LEAF_LAYER,
    PJ_LEAF_SECTION,
    PJ_LEAF_STEP
} pj_leaf_kind;

typedef struct pj_unit_leaf {
    uint32_t unit, row; /* row: of its kind; of a step none */
    uint16_t group;     /* leaves of one phase and name */
    uint8_t kind;       /* pj_leaf_kind */
    double ms, work;
    double usual_ms; /* by the median of its group; NAN: too few */
    double share;    /* of it that is disturbance */
} pj_unit_leaf;

typedef struct pj_unit_leaves {
    pj_unit_leaf *items;
    uint32_t count;
} pj_unit_leaves;

/* The leaves of all prompts, and of all steps if one of them is disturbed, with their usual times;
 * sets own_ms of prompts. Free the items. */
pj_status pj_unit_leaves_find(const pj_run_data *data, pj_disturbed_units *units,
                              pj_unit_leaves *leaves, pj_error *err);
/* Shares the extra time of every disturbed unit among its leaves, and sets the disturbed parts of
 * all rows. */
pj_status pj_disturbances_share(pj_run_data *data, pj_disturbed_units *units,
                                pj_unit_leaves *leaves, pj_error *err);
/* Then the disturbed parts of rails, classes and the run: sums of those of rows. */
pj_status pj_disturbances_sum(pj_run_data *data, const pj_disturbed_units *units, pj_error *err);
/* Stores the list with the run. */
pj_status pj_disturbances_keep(pj_run_data *data, const pj_disturbances *list, pj_error *err);

static inline int64_t pj_disturbed_share_of(int64_t nj, double share)
{
    return nj == PJ_NJ_UNKNOWN ? 0 : llround((double)nj * share);
}

static inline void pj_disturbed_add(pj_disturbed *to, const pj_disturbed *part)
{
    to->ms += part->ms;
    to->gross_nj += part->gross_nj;
    to->net_nj += part->net_nj;
}

#endif

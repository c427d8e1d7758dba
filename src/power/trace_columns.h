/* The columns of recorded power traces, by their names: our own, those of our exports, of
 * nvidia-smi, of Zeus, and plain NAME_mw, NAME_w, NAME [W]. */
#ifndef PJ_POWER_TRACE_COLUMNS_H
#define PJ_POWER_TRACE_COLUMNS_H

#include "power/trace_file.h"

typedef enum pj_trace_column_kind {
    PJ_TRACE_COLUMN_OTHER = 0,
    PJ_TRACE_COLUMN_TIME,
    PJ_TRACE_COLUMN_POWER,
    PJ_TRACE_COLUMN_ENERGY,  /* over the row's time (PJ_TRACE_COLUMN_ELAPSED) */
    PJ_TRACE_COLUMN_ELAPSED, /* how long a row took, from its time on */
    PJ_TRACE_COLUMN_DAY,     /* 20260131; the time of day is another column */
    PJ_TRACE_COLUMN_QUALITY,
    PJ_TRACE_COLUMN_RUN,   /* exported samples of a run, whose quality is not among them */
    PJ_TRACE_COLUMN_WALL,  /* milliseconds since 1970 */
    PJ_TRACE_COLUMN_DEVICE /* which GPU the row belongs to */
} pj_trace_column_kind;

typedef struct pj_trace_column {
    pj_trace_column_kind kind;
    int rail;     /* of powers and energies */
    double scale; /* cell x scale = mW, mJ or ms; 0: by the size of the number */
    bool dates;   /* a time that may be a date */
} pj_trace_column;

/* Adds a rail to the trace for a column of power or energy; one that is named twice, or for which
 * there is no room, becomes PJ_TRACE_COLUMN_OTHER. */
pj_trace_column pj_trace_column_of(pj_trace *trace, const char *name);
/* Of `nvidia-smi dmon`, whose names differ. */
pj_trace_column pj_trace_column_of_dmon(pj_trace *trace, const char *name);

#endif

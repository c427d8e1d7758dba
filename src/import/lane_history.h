/*
 * What was open on a lane of the markers and when, so that work of a device that is reported later
 * is put into the span that launched it. Only the latest entries are kept.
 */
#ifndef PJ_IMPORT_LANE_HISTORY_H
#define PJ_IMPORT_LANE_HISTORY_H

#include "trace/lane.h"

#include <stdbool.h>

typedef struct pj_lane_entry {
    int64_t at_ns;         /* from then on */
    int64_t begin_ns;      /* of the innermost open span; INT64_MIN: none was open */
    pj_launch_place place; /* that span */
} pj_lane_entry;

typedef struct pj_lane_history {
    pj_lane_entry *entries; /* a ring */
    uint64_t count;         /* of all so far */
    uint32_t capacity;
    int64_t begins_ns[PJ_MAX_OPEN_SPANS];
    uint32_t depth;
} pj_lane_history;

/* A span of the lane has just begun, or ended. Times do not fall. */
void pj_lane_history_begin(pj_lane_history *history, const pj_lane *lane, int64_t at_ns);
void pj_lane_history_end(pj_lane_history *history, const pj_lane *lane, int64_t at_ns);
/* What was open at a time; NULL: nothing, or it is no longer known. */
const pj_lane_entry *pj_lane_history_at(const pj_lane_history *history, int64_t at_ns);
/* Until when all is known: the time of the latest entry. */
int64_t pj_lane_history_until(const pj_lane_history *history);
void pj_lane_history_fini(pj_lane_history *history);

#endif

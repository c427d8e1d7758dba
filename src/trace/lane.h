/* A lane's stack with explicit times: what the public calls on spans are made of. */
#ifndef PJ_TRACE_LANE_H
#define PJ_TRACE_LANE_H

#include "trace/recorder.h"

/* As pj_span_begin and pj_span_end at a given time; times on one lane need not be in order. */
void pj_lane_begin(pj_lane *lane, pj_span_kind kind, uint32_t id, int64_t now_ns);
/* Returns the kind of what was closed, -1: nothing that is recorded. */
int pj_lane_end(pj_lane *lane, const pj_work *work, int64_t now_ns, uint8_t flags);
/* Puts the outermost span of a lane, just begun, into a phase: its other context was a guess. */
void pj_lane_set_phase(pj_lane *lane, pj_span_kind begun, pj_phase phase);
/* A quiet lane does not tell other threads where the run is. */
void pj_lane_set_quiet(pj_lane *lane, bool quiet);
/* The layer that what is recorded next lies in: it may have no span of its own. -1: none. */
int32_t pj_lane_layer(const pj_lane *lane);
void pj_lane_set_layer(pj_lane *lane, int32_t layer);
/* Half of the ring is free: records of one span fit in any case. */
bool pj_lane_has_room(const pj_lane *lane);
int64_t pj_lane_begun_ns(const pj_lane *lane); /* when the run began */
void pj_lane_misuse(pj_lane *lane);

/* A kind may lie in one that is as coarse or coarser, and a section in a token. */
static inline bool pj_span_may_nest(pj_span_kind outer, pj_span_kind inner)
{
    return inner >= outer || (inner == PJ_SPAN_SECTION && outer == PJ_SPAN_TOKEN);
}

#endif

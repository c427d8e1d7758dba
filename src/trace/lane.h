/* A lane's span stack with explicit times: the basis of the public span functions. */
#ifndef PJ_TRACE_LANE_H
#define PJ_TRACE_LANE_H

#include "base/clock.h"
#include "trace/recorder.h"

/* As pj_span_begin and pj_span_end at a given time; times on one lane need not be in order. */
void pj_lane_begin(pj_lane *lane, pj_span_kind kind, uint32_t id, int64_t now_ns);
/* Returns the kind of the closed span; -1: no recorded span was open. */
int pj_lane_end(pj_lane *lane, const pj_work *work, int64_t now_ns, uint8_t flags);
/* Corrects the phase of a lane's outermost span, which has just begun. */
void pj_lane_set_phase(pj_lane *lane, pj_span_kind begun, pj_phase phase);
/* A quiet lane does not update the run's current context. */
void pj_lane_set_quiet(pj_lane *lane, bool quiet);
/* Sets the layer of the spans recorded next, for layers without a span of their own. -1: none. */
int32_t pj_lane_layer(const pj_lane *lane);
void pj_lane_set_layer(pj_lane *lane, int32_t layer);
/* Waits for the collector until half of the ring is free, which is room for the records of any
 * span; the time is taken from the caller's patience, after which spans are lost. */
#define PJ_LANE_PATIENCE_NS (2 * PJ_NS_PER_S)
void pj_lane_wait_for_room(const pj_lane *lane, int64_t *patience_ns);
pj_recorder *pj_lane_recorder(const pj_lane *lane);
int64_t pj_lane_begun_ns(const pj_lane *lane); /* when the run began */
void pj_lane_misuse(pj_lane *lane);

/* What a pj_launch contains. */
typedef struct pj_launch_place {
    uint32_t lane, serial; /* of the innermost open span; lane + 1, 0: there was none */
    int32_t phase, section, token, layer, component;
    uint32_t noted; /* 0: nowhere in particular */
} pj_launch_place;

_Static_assert(sizeof(pj_launch_place) == sizeof(pj_launch), "a launch is copied as a whole");

void pj_lane_locate(const pj_lane *lane, pj_launch_place *place);
/* Says where the spans that follow on a device's lane were launched. No span may be open on it. */
void pj_lane_launch(pj_lane *lane, const pj_launch_place *place, int64_t clock_error_ns);

/* Whether a span kind may nest in another: in one at least as coarse, and a section in a
 * token. */
static inline bool pj_span_may_nest(pj_span_kind outer, pj_span_kind inner)
{
    return inner >= outer || (inner == PJ_SPAN_SECTION && outer == PJ_SPAN_TOKEN);
}

#endif

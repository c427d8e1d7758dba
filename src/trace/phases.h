/* Names of phases, defined once: X(ID, name), in the order of pj_phase. */
#ifndef PJ_TRACE_PHASES_H
#define PJ_TRACE_PHASES_H

#include <perjoule.h>

#define PJ_PHASES(X)                  \
    X(IDLE, "idle")                   \
    X(PRE_INFERENCE, "pre_inference") \
    X(PREFILL, "prefill")             \
    X(DECODE, "decode")               \
    X(POST_INFERENCE, "post_inference")

#define PJ_PHASE_BAR(ID, name) "|" name
#define PJ_PHASE_CHOICES       (&(PJ_PHASES(PJ_PHASE_BAR))[1]) /* "idle|..." */

int pj_phase_parse(const char *name); /* -1: unknown */

#endif

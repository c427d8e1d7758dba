/*
 * What this machine can do at most, measured: memory read by a team, and multiply-adds from
 * registers by a team with the instruction a kernel set uses. The figures that speeds are shares
 * of.
 */
#ifndef PJ_LLM_LIMITS_H
#define PJ_LLM_LIMITS_H

#include "llm/kernels/linear.h"

/* Bytes per second of one pass over `memory` by all threads of the team, each reading its share in
 * `streams` (1 .. 16) interleaved runs. */
double pj_limits_read(pj_team *team, const void *memory, size_t bytes, unsigned streams);
/* Operations per second (two a multiply-add) of all threads in registers, over about `duration_ns`
 * (for AMX: with tiles already loaded). */
double pj_limits_peak(const pj_kernels *kernels, pj_team *team, pj_form form, int64_t duration_ns);

#endif

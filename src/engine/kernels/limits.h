/* Measures the machine's limits: memory read bandwidth of a thread team, and multiply-adds from
 * registers with the instruction that a kernel set uses. Speeds are reported as shares of these. */
#ifndef PJ_KERNELS_LIMITS_H
#define PJ_KERNELS_LIMITS_H

#include "engine/kernels/linear.h"

/* Bytes per second of one pass over `memory` by all threads of the team, each reading its share in
 * `streams` (1 .. 16) interleaved streams, with prefetches `ahead` bytes before the reads. Which is
 * fastest depends on the processor: a limit is the best of several, pj_ahead_distances among them.
 */
double pj_limits_read(pj_team *team, const void *memory, size_t bytes, unsigned streams,
                      unsigned ahead);
/* Operations per second (two per multiply-add) of all threads in registers, over about
 * `duration_ns` (for AMX: with tiles already loaded). */
double pj_limits_peak(const pj_kernels *kernels, pj_team *team, pj_form form, int64_t duration_ns);

#endif

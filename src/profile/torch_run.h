/*
 * A run from a trace of PyTorch's profiler and a recording of power made beside it, joined by their
 * wall clocks. Where the trace has kernels, they and the ranges around them on the device are
 * recorded; where it has none, operations and ranges of the CPU. Ranges become sections, kernels
 * and outermost operations components, what those call operations; a stream or thread is a lane.
 * What lies outside the recording has no energy.
 */
#ifndef PJ_PROFILE_TORCH_RUN_H
#define PJ_PROFILE_TORCH_RUN_H

#include "power/trace_file.h"
#include "profile/kineto.h"
#include "trace/run_data.h"

/* `power` must have an origin. The caller calls pj_run_data_fini. */
pj_status pj_torch_run(const pj_kineto *trace, const pj_trace *power, pj_run_data *data,
                       pj_error *err);

#endif

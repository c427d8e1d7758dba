/*
 * Builds a run from a trace of PyTorch's profiler and a power recording made at the same time,
 * aligned by wall clock. If the trace has kernels, these and the device ranges around them are
 * used; otherwise CPU operators and ranges. Ranges become sections, kernels and outermost operators
 * components, nested operators operations; each stream or thread is a lane. Time outside the
 * recording has no energy.
 */
#ifndef PJ_IMPORT_TORCH_RUN_H
#define PJ_IMPORT_TORCH_RUN_H

#include "import/kineto.h"
#include "power/trace_file.h"
#include "trace/run_data.h"

/* `power` must have an origin. The caller calls pj_run_data_fini. */
pj_status pj_torch_run(const pj_kineto *trace, const pj_trace *power, pj_run_data *data,
                       pj_error *err);

#endif

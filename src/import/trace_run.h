/* Makes a run from a power trace without phase markers: phases are detected (analysis/phases.h)
 * with a model trained on the tagged runs of the store, and the run is built like any other. */
#ifndef PJ_IMPORT_TRACE_RUN_H
#define PJ_IMPORT_TRACE_RUN_H

#include "store/store.h"

/* `path`: a CSV as `perjoule top --record` writes it, or a log of nvidia-smi. Its own phases are
 * ignored. `data` must be finished by the caller. The settings of the run name the segments with
 * their confidence (docs/formats.md). PJ_E_INVALID: too short, or flatter than its noise. */
pj_status pj_trace_run_make(pj_store *store, const char *path, pj_run_data *data, pj_error *err);

#endif

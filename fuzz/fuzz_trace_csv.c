/* Recorded power traces as CSV; also the --power list with the simulator's keys, which HTTP
 * requests may contain too. */
#include "base/memory.h"
#include "power/sim.h"
#include "power/source.h"
#include "power/trace_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_trace(const char *text, size_t size)
{
    pj_trace trace;
    pj_error err;
    if (pj_trace_read_csv(text, size, "fuzz", &trace, &err) != PJ_OK) return;
    if (trace.row_count == 0 || trace.row_count > size || trace.rail_count == 0) abort();
    for (size_t i = 0; i < trace.row_count; i++) {
        if (!isfinite(trace.t_ms[i]) || (i > 0 && !(trace.t_ms[i] > trace.t_ms[i - 1]))) abort();
        for (uint32_t k = 0; k < trace.rail_count; k++)
            if (isinf((double)trace.mw[i * trace.rail_count + k])) abort();
    }
    for (uint32_t k = 0; k < trace.rail_count; k++)
        if (trace.rails[k].parent >= (int)trace.rail_count) abort();
    pj_trace_fini(&trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = pj_strndup((const char *)data, size);
    if (!text) return 0;
    check_trace((const char *)data, size);
    pj_power_list list;
    pj_sim_spec spec;
    pj_error err;
    pj_power_list_parse(text, &list, &err);
    if (pj_sim_parse(text, &spec, &err) == PJ_OK && spec.period_ns <= 0) abort();
    pj_free(text);
    return 0;
}

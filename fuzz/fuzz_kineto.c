/* Traces of PyTorch's profiler (Kineto), and the run that is built from one at constant power. */
#include "import/torch_run.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_run(const pj_kineto *trace)
{
    double t_ms[] = {0, 1000};
    float mw[] = {5000, 5000};
    bool gap[] = {false, false};
    pj_trace power = {.rail_count = 1, .row_count = 2, .t_ms = t_ms, .mw = mw, .gap = gap};
    pj_run_data run;
    pj_error err;
    power.origin_unix_ms = (double)trace->events[0].begin_ns * 1e-6 - 500;
    power.rails[0] = (pj_rail){.name = "cpu", .source = "replay", .parent = -1};
    power.rails[0].kind = PJ_RAIL_INSTANT;
    if (pj_torch_run(trace, &power, &run, &err) == PJ_OK && run.phase_count == 0) abort();
    pj_run_data_fini(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_kineto trace;
    pj_error err;
    if (pj_kineto_read((const char *)data, size, &trace, &err) != PJ_OK) return 0;
    if (trace.count == 0 || trace.count > size) abort();
    for (size_t i = 0; i < trace.count; i++)
        if (trace.events[i].end_ns <= trace.events[i].begin_ns || trace.events[i].begin_ns < 0 ||
            trace.events[i].name >= trace.name_count)
            abort();
    check_run(&trace);
    pj_kineto_fini(&trace);
    return 0;
}

/* powermetrics output: a single property list, and a recorded stream of them. */
#include "power/powermetrics_plist.h"
#include "power/trace_file.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_pm_sample sample;
    pj_trace trace;
    pj_error err;
    if (pj_pm_parse((const char *)data, size, &sample, &err) == PJ_OK)
        for (int k = 0; k < PJ_PM_RAILS; k++)
            if (sample.mw[k] < 0) abort(); /* never negative watts */
    if (pj_trace_read_plist((const char *)data, size, "fuzz", &trace, &err) == PJ_OK)
        pj_trace_fini(&trace);
    return 0;
}

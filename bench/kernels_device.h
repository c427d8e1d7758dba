/* The kernels of a GPU, as one step of decode dispatches them. */
#ifndef PJ_BENCH_KERNELS_DEVICE_H
#define PJ_BENCH_KERNELS_DEVICE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_bench_device {
    const char *device; /* NULL: nothing is run */
    const char *model, *dtype;
    int64_t context, batch;
    bool packs; /* outline: as on a device with dot products of 8-bit integers */
    bool json;
} pj_bench_device;

pj_status pj_bench_device_kernels(const pj_bench_device *bench, pj_error *err);

#endif

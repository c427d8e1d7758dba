/* The CPU as a backend of the forward pass. */
#ifndef PJ_CPU_DEVICE_H
#define PJ_CPU_DEVICE_H

#include "engine/forward/ops.h"

extern const pj_backend pj_backend_cpu;

#endif

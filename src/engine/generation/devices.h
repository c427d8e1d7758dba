/* The list of compute backends. Adding one is a line in devices.c. */
#ifndef PJ_GENERATION_DEVICES_H
#define PJ_GENERATION_DEVICES_H

#include "engine/forward/ops.h"

/* The backend of the device with this name; NULL: the CPU. An unknown name is an error. */
pj_status pj_device_find(const char *device, const pj_backend **backend, pj_error *err);

#endif

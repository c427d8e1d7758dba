/* The list of compute backends. Adding one: see "A device" in docs/design.md. */
#ifndef PJ_GENERATION_DEVICES_H
#define PJ_GENERATION_DEVICES_H

#include "engine/forward/compute.h"

/* Loads the model on the device that the request names: NULL: the CPU; "auto": hardware on which it
 * fits, else the CPU. An unknown name is an error. */
pj_status pj_device_load(pj_loaded *loaded, pj_load_request *request, pj_error *err);
/* Fails where it would for such a name. */
pj_status pj_device_check(const char *device, pj_error *err);

#endif

/* What the kernel says a process has used. Only macOS on Apple Silicon says so; it covers the CPU
 * alone and is the vendor's model. */
#ifndef PJ_POWER_PROCESS_ENERGY_H
#define PJ_POWER_PROCESS_ENERGY_H

#include "power/source.h"

/* Since the process began, without its children, millijoules; also of one that has ended and was
 * not yet waited for. NAN: the system does not say. */
double pj_process_energy_mj(const pj_power_env *env, int pid);

#endif

/* Calls proc_pid_rusage, which is in macOS' C library; tests name a library that has it. */
#include "power/process_energy.h"

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#ifdef __APPLE__
#include <libproc.h>
#endif

/* The layout of rusage_info_v6, as far as it is used. */
typedef struct process_usage {
    uint8_t uuid[16];
    uint64_t before[40], energy_nj, after[24];
} process_usage;

enum { USAGE_VERSION = 6 };

#ifdef __APPLE__
_Static_assert(offsetof(process_usage, energy_nj) == offsetof(struct rusage_info_v6, ri_energy_nj),
               "energy is where the system puts it");
_Static_assert(sizeof(process_usage) >= sizeof(struct rusage_info_v6), "what it writes fits");
#endif

typedef int usage_fn(int pid, int version, process_usage *usage);

static usage_fn *find_call(const pj_power_env *env, void **library)
{
    *library = NULL;
#ifdef __APPLE__
    if (!env->ioreport_library) return (usage_fn *)dlsym(RTLD_DEFAULT, "proc_pid_rusage");
#endif
    if (env->ioreport_library) *library = dlopen(env->ioreport_library, RTLD_NOW | RTLD_LOCAL);
    return *library ? (usage_fn *)dlsym(*library, "proc_pid_rusage") : NULL;
}

double pj_process_energy_mj(const pj_power_env *env, int pid)
{
    process_usage usage = {.energy_nj = 0};
    void *library;
    usage_fn *call = find_call(env, &library);
    int failed = call ? call(pid, USAGE_VERSION, &usage) : -1;
    if (library) dlclose(library);
    /* Intel Macs leave it 0. */
    return failed || usage.energy_nj == 0 ? NAN : (double)usage.energy_nj * 1e-6;
}

/* Published thermal design powers of CPU models, for estimates. */
#ifndef PJ_POWER_TDP_H
#define PJ_POWER_TDP_H

typedef struct pj_tdp {
    const char *model; /* matched as whole words in the kernel's "model name" */
    double watts;      /* thermal design (or base) power of the package */
    int threads;       /* hardware threads of the package */
} pj_tdp;

/* The longest entry contained in a CPU's model name; NULL: unknown. */
const pj_tdp *pj_tdp_find(const char *model_name);

/* Thermal design power of all packages of this machine, by model; NAN: unknown. */
struct pj_power_env;
double pj_tdp_of_machine_mw(const struct pj_power_env *env);

#endif

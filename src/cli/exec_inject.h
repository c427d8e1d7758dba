/*
 * What `perjoule exec` has loaded into the program, so that it reports its parts as markers:
 * libperjoule-nvtx.so by NVTX's own variable, and libperjoule-llama.so by LD_PRELOAD where the
 * program is linked with a shared libllama. Nothing is loaded where it could not work: an object
 * of the wrong kind would make the loader complain into the program's output.
 */
#ifndef PJ_CLI_EXEC_INJECT_H
#define PJ_CLI_EXEC_INJECT_H

#include "profile/run.h"

#include <limits.h>

typedef struct pj_injection {
    char nvtx[PATH_MAX + 64], preload[2 * PATH_MAX], llama[32]; /* NAME=VALUE; "": none */
    const char *variables[4];                                   /* those that are not "" */
} pj_injection;

/* For the program in the file `path` recorded at `depth`; what is out of reach becomes a warning of
 * the run. With `is_llama` the llama.cpp library is loaded whatever the file is: a script that
 * starts such a program, say. */
void pj_injection_choose(pj_injection *injection, pj_run *run, const char *path, pj_depth depth,
                         bool is_llama);

#endif

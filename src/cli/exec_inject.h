/*
 * The libraries that `perjoule exec` injects into the program, so that it reports its parts as
 * markers: libperjoule-nvtx.so through NVTX's own variable, libperjoule-cuda.so through the CUDA
 * driver's, and libperjoule-llama.so through LD_PRELOAD if the program is linked with a shared
 * libllama. Nothing is injected where it cannot
 * work: an incompatible object would make the loader print errors into the program's output.
 */
#ifndef PJ_CLI_EXEC_INJECT_H
#define PJ_CLI_EXEC_INJECT_H

#include "record/run.h"

#include <limits.h>

typedef struct pj_injection {
    char nvtx[PATH_MAX + 64], preload[2 * PATH_MAX], llama[32]; /* NAME=VALUE; "": none */
    char cuda[PATH_MAX + 64];
    const char *variables[5]; /* number that are not "" */
} pj_injection;

/* Chooses the libraries for the program in the file `path` recorded at `depth`; if one cannot be
 * injected, the run gets a warning. With `is_llama` the llama.cpp library is injected whatever the
 * file is, for example a script that starts such a program. */
void pj_injection_choose(pj_injection *injection, pj_run *run, const char *path, pj_depth depth,
                         bool is_llama);

#endif

/*
 * GPU work of a program's processes, which libperjoule-cuda.so puts into shared memory
 * (inject/cuda_shared.h) while the program runs: its kernels become spans of the GPU, packed
 * (import/device_work.h).
 */
#ifndef PJ_CLI_EXEC_CUDA_H
#define PJ_CLI_EXEC_CUDA_H

#include "import/markers.h"

typedef struct pj_exec_cuda pj_exec_cuda;

/* `in_graphs`: also the kernels inside graphs. NULL: there is no such memory here. */
pj_exec_cuda *pj_exec_cuda_open(pj_run *run, const pj_markers *markers, bool in_graphs);
/* NAME=VALUE for the program's environment. */
const char *pj_exec_cuda_variable(const pj_exec_cuda *cuda);
/* Takes what has come; false: no process has used CUDA yet. */
bool pj_exec_cuda_take(pj_exec_cuda *cuda);
/* The program has ended and its markers were read: takes the rest, and warns of what is missing. */
void pj_exec_cuda_finish(pj_exec_cuda *cuda);
void pj_exec_cuda_close(pj_exec_cuda *cuda); /* NULL is allowed */

#endif

/* The memory in which libperjoule-nvtx.so keeps ranges until it writes them (inject/nvtx_shared.h),
 * created for a program and read when it has ended. */
#ifndef PJ_CLI_EXEC_NVTX_H
#define PJ_CLI_EXEC_NVTX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pj_nvtx_shared pj_nvtx_shared;

typedef struct pj_nvtx_memory {
    pj_nvtx_shared *shared; /* NULL: not available */
    int fd;
    char variable[96]; /* NAME=VALUE for the program's environment */
} pj_nvtx_memory;

/* `pipe_fd`: of the marker pipe. On failure, and where memfd is missing, there is no such memory.
 */
void pj_nvtx_memory_open(pj_nvtx_memory *m, int pipe_fd);
/* Hands over the marker lines that were not written. False: some may be missing. */
bool pj_nvtx_memory_read(const pj_nvtx_memory *m,
                         void (*take)(void *context, const char *bytes, size_t count),
                         void *context);
void pj_nvtx_memory_close(pj_nvtx_memory *m);

#endif

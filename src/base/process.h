/* Memory use of this process, memory that is left for it, and its path. */
#ifndef PJ_BASE_PROCESS_H
#define PJ_BASE_PROCESS_H

#include "base/error.h"

/* Resident bytes now. Pages of mapped files are shared with the page cache and with other
 * processes, and the kernel can evict them. */
typedef struct pj_process_memory {
    uint64_t resident_bytes;
    uint64_t anonymous_bytes; /* the process's own: heap, stacks, blocks from the system */
    uint64_t file_bytes;      /* of mapped files: weights, the program, libraries */
} pj_process_memory;

/* False where the system does not report it; `memory` is then all zero and meaningless. */
bool pj_process_memory_get(pj_process_memory *memory);
/* Bytes of memory that this process may use altogether: the machine's, or what a control group
 * limits it to; NAN when unknown. `root`: what /proc and /sys are below, "" for the system's own.
 */
double pj_memory_limit(const char *root);
/* Bytes that it can still take, before the kernel kills a process: what can be reclaimed from the
 * page cache, and swap, count as available. NAN when unknown (macOS, which swaps to any file). */
double pj_memory_available(const char *root);
/* Path of the running program, with which it can be started again. */
pj_status pj_process_path(char *path, size_t bytes, pj_error *err);
/* Path of another program in the same folder. */
pj_status pj_process_sibling(const char *name, char *path, size_t bytes, pj_error *err);

#endif

/* A temporary folder for the databases of a benchmark. It is deleted at the end and by the signals
 * that end a program: half a gigabyte should not be left over. */
#ifndef PJ_BENCH_BENCH_FOLDER_H
#define PJ_BENCH_BENCH_FOLDER_H

#include "base/error.h"

/* In `base`, NULL: $TMPDIR or /tmp. One at a time. */
pj_status pj_bench_folder_open(const char *base, pj_error *err);
/* The path of a database in it, whose files are deleted with it; at most eight. */
void pj_bench_folder_database(const char *name, char *path, size_t bytes);
/* A run of that database has begun and has its spool in the same folder. */
void pj_bench_folder_note_run(const char *path, const char *run_id);
void pj_bench_folder_remove(void); /* may run twice */

#endif

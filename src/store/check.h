/* Checks a database: SQLite's integrity check, whether every run and the sums stored for charts can
 * be read, rows without a run, and whether the energies of parts add up to their wholes. Read-only.
 */
#ifndef PJ_STORE_CHECK_H
#define PJ_STORE_CHECK_H

#include "store/store.h"

typedef struct pj_store_check_result {
    uint64_t runs;                      /* number checked */
    uint64_t damaged;                   /* defects of the file, unreadable runs, corrupt sums */
    uint64_t orphans;                   /* rows that refer to a missing row */
    uint64_t unbalanced;                /* wholes that differ from the sum of their parts */
    double worst_relative;              /* largest relative difference, including balanced ones */
    char first[4][PJ_ERROR_TEXT_BYTES]; /* the first finding of each kind; "": none */
} pj_store_check_result;

enum { PJ_FINDING_DAMAGE = 0, PJ_FINDING_ORPHAN, PJ_FINDING_BALANCE, PJ_FINDING_KINDS };

/* `id` limits the sums to one run; NULL: all runs. A database that SQLite cannot read is a failure;
 * findings are not. */
pj_status pj_store_check(pj_store *store, const char *id, pj_store_check_result *result,
                         pj_error *err);

#endif

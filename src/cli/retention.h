/* The runs that rm and compact select by age and number, after confirmation on a terminal. */
#ifndef PJ_CLI_RETENTION_H
#define PJ_CLI_RETENTION_H

#include "cli/options.h"
#include "store/store.h"

typedef struct pj_retention {
    const char *db, *older_than;
    int64_t keep;      /* -1: not given */
    int64_t before_ns; /* set by pj_retention_apply */
    bool yes, dry_run, tagged;
    bool is_tight;           /* little space is free; set by pj_retention_apply */
    bool operations;         /* only the operations of the runs are deleted */
    const char *verb, *past; /* "delete", "deleted" */
    const char *unchanged;   /* said when the answer is no */
    void (*question)(uint64_t count, const char *first_id); /* prints it on standard error */
} pj_retention;

/* Fails where a question is needed, but there is no terminal. */
pj_status pj_retention_can_ask(const pj_retention *retention, pj_error *err);
/* Asks, unless --yes was given. */
bool pj_retention_is_confirmed(const pj_retention *retention, uint64_t count, const char *first_id);
/* "deleted 3 runs" */
void pj_retention_print_count(const char *what, uint64_t count);
/* Deletes or lists the selected runs; returns the exit code. */
int pj_retention_apply(const pj_command *command, pj_retention *retention);

#endif

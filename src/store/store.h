/*
 * The database of runs. A store is one open connection: use it from one thread at a time, and open
 * as many as there are threads; processes and threads share a database through its write-ahead log.
 * A finished run goes in whole, in one transaction, and comes out equal. Ids of runs are UUIDs;
 * ids of rows are local to the database. docs/formats.md describes the tables.
 */
#ifndef PJ_STORE_STORE_H
#define PJ_STORE_STORE_H

#include "trace/run_data.h"

typedef struct pj_store pj_store;

typedef struct pj_store_options {
    const char *path; /* NULL: $PERJOULE_DB, else perjoule.db in the user's data folder */
    bool read_only;   /* the file must exist; nothing is migrated */
    /* Never insert rows in bulk. PERJOULE_STORE_PAGES=0 in the environment does the same. The
     * database is equal, saving a large run is slower. */
    bool by_statements;
    const struct pj_store_driver *driver; /* NULL: the one that serves the path (driver.h) */
} pj_store_options;

/* Creates and migrates as needed. */
pj_status pj_store_open(const pj_store_options *options, pj_store **store, pj_error *err);
void pj_store_close(pj_store *store); /* NULL is allowed */
/* Whether a file's content is a database of this program. */
bool pj_store_is_database(const char *path);
const char *pj_store_path(const pj_store *store);
/* The path that pj_store_open takes for `path` (NULL: the default). */
pj_status pj_store_default_path(const char *path, char *out, size_t bytes, pj_error *err);

/* Saves a finished run; a run of the same id is replaced. Durable once it returns, except for a
 * loss of power (then: whole or not at all). */
pj_status pj_store_save(pj_store *store, const pj_run_data *data, pj_error *err);
/* `data` comes zeroed or finished and is to be freed with pj_run_data_fini. */
pj_status pj_store_load(pj_store *store, const char *id, pj_run_data *data, pj_error *err);
pj_status pj_store_delete(pj_store *store, const char *id, pj_error *err);
/* Retention: gives up the runs created before a moment, except for the newest `keep` of all runs,
 * for those with a tag and for those that have not ended. */
typedef struct pj_prune {
    int64_t before_ns; /* INT64_MAX: whenever created */
    uint32_t keep;
    bool tagged;  /* give up runs with tags too */
    bool dry_run; /* only list them */
} pj_prune;
typedef void pj_pruned_fn(void *context, const char *id);
/* Calls `take` for each run, oldest first, once it is deleted. */
pj_status pj_store_prune(pj_store *store, const pj_prune *rule, pj_pruned_fn *take, void *context,
                         pj_error *err);
/* A full id, a unique prefix of one (at least 4 characters), "last", or "last~N": N runs before. */
pj_status pj_store_resolve(pj_store *store, const char *text, char id[PJ_UUID_BYTES],
                           pj_error *err);

typedef enum pj_run_sort {
    PJ_SORT_DATE = 0,
    PJ_SORT_DURATION,
    PJ_SORT_ENERGY,
    PJ_SORT_TOKENS_PER_SECOND,
    PJ_SORT_JOULES_PER_TOKEN,
    PJ_SORT_COUNT
} pj_run_sort;

int pj_run_sort_parse(const char *name); /* "date", ...; -1: none of them */

/* Zeroed, it asks for the newest PJ_QUERY_LIMIT runs. NULL and 0 mean "any". */
typedef struct pj_run_query {
    const char *search; /* part of the prompt, without regard to (ASCII) case */
    const char *model, *experiment, *repeat_group, *energy_source, *engine, *dtype;
    const char *machine; /* part of its name: the CPU's model and the host */
    const char *status;
    const char *const *tags; /* a run must carry all of them */
    uint32_t tag_count;
    const char *from, *to; /* ISO 8601 times or dates: created at or after, and before */
    bool has_min_energy, has_max_energy;
    double min_energy_mj, max_energy_mj;
    bool has_min_joules_per_token, has_max_joules_per_token;
    double min_joules_per_token, max_joules_per_token;
    pj_run_sort sort; /* runs that lack the figure come last */
    bool ascending;
    uint32_t limit; /* 0: PJ_QUERY_LIMIT */
    uint64_t offset;
} pj_run_query;

enum { PJ_QUERY_LIMIT = 1000, PJ_QUERY_MAX = 1000000 };

/* Runs without their rows; texts live in the arena. output_text and machine_json are NULL. */
typedef struct pj_run_list {
    pj_arena arena;
    pj_run_info *runs;
    uint32_t count;
    uint64_t total; /* that match, with no regard to limit and offset */
} pj_run_list;

pj_status pj_store_list(pj_store *store, const pj_run_query *query, pj_run_list *list,
                        pj_error *err);
/* The list of one run, texts complete. */
pj_status pj_store_info(pj_store *store, const char *id, pj_run_list *one, pj_error *err);
void pj_run_list_fini(pj_run_list *list); /* may run twice */

/* For the benchmark: processor time of plain inserts of so many rows of 20 columns, in a database
 * of the same settings beside the path given. */
pj_status pj_store_measure_inserts(const char *beside, uint64_t rows, double *seconds,
                                   pj_error *err);

#endif

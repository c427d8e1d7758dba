/* The database of runs. A store is one open connection: use it from one thread at a time and open
 * one per thread; processes and threads share a database through its write-ahead log. A finished
 * run is saved in one transaction and loads back equal. Run ids are UUIDs; row ids are local to the
 * database. docs/formats.md describes the tables. */
#ifndef PJ_STORE_STORE_H
#define PJ_STORE_STORE_H

#include "base/json.h"
#include "trace/run_data.h"

typedef struct pj_store pj_store;

typedef struct pj_store_options {
    const char *path; /* NULL: $PERJOULE_DB, else perjoule.db in the user's data folder */
    bool read_only;   /* the file must exist; nothing is migrated */
    const struct pj_store_driver *driver; /* NULL: the one that serves the path (driver.h) */
    /* An unreachable server is not an error at opening: runs go to the local outbox (outbox.h),
     * everything else fails until the server is reachable. */
    bool may_be_away;
    bool is_direct; /* runs go directly to the server, bypassing the outbox */
} pj_store_options;

/* The address that opening uses for options.path. */
pj_status pj_store_find_address(const char *path, char *address, size_t bytes, pj_error *err);
/* `say` gets a sentence when any connection of the process has waited a second for a lock of
 * another process; NULL: nobody does. SQLite alone. */
void pj_store_on_wait(void (*say)(const char *text));
/* Creates and migrates as needed. */
pj_status pj_store_open(const pj_store_options *options, pj_store **store, pj_error *err);
void pj_store_close(pj_store *store); /* NULL is allowed */
/* For a disk with little space: runs are deleted in parts, so that the log stays small. */
void pj_store_be_frugal(pj_store *store);
/* Copies SQLite's write-ahead log into the database as far as no reader needs it, without waiting
 * for anybody: for who has nothing else to do. */
void pj_store_write_back(pj_store *store);
/* For connections that are open at a slow reader's pace: at most 2 MB of cached pages. */
void pj_store_limit_cache(pj_store *store);
/* Whether an address is a server's address and not a path. */
bool pj_store_is_server(const char *address);
/* Whether a file's content is a database of this program. */
bool pj_store_is_database(const char *path);
const char *pj_store_path(const pj_store *store);
/* Whether everything read from now on, lists, views, exports and rows, is without the runs'
 * disturbances (trace/disturbance.h). At first it is with them. Sums of components are without them
 * either way, and state them beside. What is read this way must not be saved. */
void pj_store_leave_out_disturbances(pj_store *store, bool leave);
bool pj_store_leaves_out_disturbances(const pj_store *store);

/* Saves a finished run, replacing a run of the same id. Durable on return, also against
 * a power failure. */
pj_status pj_store_save(pj_store *store, const pj_run_data *data, pj_error *err);
/* `data` must be zeroed or finished; free it with pj_run_data_fini. */
pj_status pj_store_load(pj_store *store, const char *id, pj_run_data *data, pj_error *err);
/* The same with only the first `limit` rows of some tables (bits of pj_table_id): what a screen
 * shows. Rows may refer to rows that were not loaded. */
pj_status pj_store_load_tables(pj_store *store, const char *id, uint32_t tables, uint32_t limit,
                               pj_run_data *data, pj_error *err);
pj_status pj_store_delete(pj_store *store, const char *id, pj_error *err);
/* Adds tags to a stored run, or removes them; writes the tags that it then has as an array. */
typedef struct pj_tag_change {
    const char *tag;
    bool remove;
} pj_tag_change;
pj_status pj_store_retag(pj_store *store, const char *id, const pj_tag_change *changes,
                         uint32_t count, pj_json *json, pj_error *err);
/* The name and the note of a stored run, by which people know it: one line of text each. NULL: as
 * it is; "": none. */
enum { PJ_RUN_NAME_BYTES = 200, PJ_RUN_NOTE_BYTES = 2000 };
pj_status pj_store_describe(pj_store *store, const char *id, const char *name, const char *note,
                            pj_error *err);

/* Retention: selects the runs created before a time, except the newest `keep` of all runs, runs
 * with a tag and runs that have not ended. */
typedef struct pj_prune {
    int64_t before_ns; /* INT64_MAX: any time */
    uint32_t keep;
    bool tagged;  /* delete tagged runs too */
    bool dry_run; /* only list them */
    /* keep the runs and delete only their operations, whose sums over the run are stored
     * separately */
    bool operations;
} pj_prune;
typedef void pj_pruned_fn(void *context, const char *id);
/* Calls `take` for each run, oldest first, once it, or its operations, are deleted. */
pj_status pj_store_prune(pj_store *store, const pj_prune *rule, pj_pruned_fn *take, void *context,
                         pj_error *err);
/* Resolves a full id, a unique prefix (at least 4 characters), "last", or "last~N": the N-th run
 * before it. */
pj_status pj_store_resolve(pj_store *store, const char *text, char id[PJ_UUID_BYTES],
                           pj_error *err);

/* How far back "last" (0) and "last~N" are; -1: `text` is neither. */
int64_t pj_store_parse_last(const char *text);
/* How many runs were created after a time. */
pj_status pj_store_count_newer(pj_store *store, int64_t created_wall_ns, int64_t *count,
                               pj_error *err);

typedef enum pj_run_sort {
    PJ_SORT_DATE = 0,
    PJ_SORT_DURATION,
    PJ_SORT_ENERGY,
    PJ_SORT_TOKENS_PER_SECOND,
    PJ_SORT_JOULES_PER_TOKEN,
    PJ_SORT_TYPICAL,
    PJ_SORT_COUNT
} pj_run_sort;

int pj_run_sort_parse(const char *name); /* "date", ...; -1: none of them */

/* Zeroed: no bounds. */
typedef struct pj_run_bounds {
    bool has_min, has_max;
    double min, max;
} pj_run_bounds;

/* Zeroed, it selects the newest PJ_QUERY_LIMIT runs. NULL and 0 mean "any". */
typedef struct pj_run_query {
    const char *search; /* substring of the prompt, case-insensitive (ASCII) */
    const char *model, *experiment, *repeat_group, *energy_source, *engine, *dtype, *scope, *level;
    const char *machine; /* substring of the machine's name: CPU model and host */
    const char *status;
    const char *const *tags; /* a run must carry all of them */
    uint32_t tag_count;
    const char *from, *to; /* ISO 8601 times or dates: from inclusive, to exclusive */
    const char *ids;       /* only these, each with its NUL; NULL: any */
    uint32_t id_count;
    pj_run_bounds energy_mj, joules_per_token;
    pj_run_bounds joules_per_token_typical; /* of the mean where a run has no typical token */
    pj_run_sort sort;                       /* runs without the figure come last */
    bool ascending;
    bool whole_prompts; /* else their first PJ_LIST_PROMPT_MAX characters */
    uint32_t limit;     /* 0: PJ_QUERY_LIMIT */
    uint64_t offset;
} pj_run_query;

enum { PJ_QUERY_LIMIT = 1000, PJ_QUERY_MAX = 1000000, PJ_LIST_PROMPT_MAX = 16384 };

/* Runs without their rows; texts are in the arena. output_text and machine_json are NULL. */
typedef struct pj_run_list {
    pj_arena arena;
    pj_run_info *runs;
    uint32_t count;
    uint64_t total; /* number of matches, regardless of limit and offset */
} pj_run_list;

pj_status pj_store_list(pj_store *store, const pj_run_query *query, pj_run_list *list,
                        pj_error *err);
/* The same runs, in the same order, by their ids alone, each with its NUL. */
pj_status pj_store_list_ids(pj_store *store, const pj_run_query *query, pj_buffer *ids,
                            uint64_t *total, pj_error *err);
/* A list of one run, with complete texts. */
pj_status pj_store_info(pj_store *store, const char *id, pj_run_list *one, pj_error *err);
void pj_run_list_fini(pj_run_list *list); /* may run twice */

#endif

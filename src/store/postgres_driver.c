/* PostgreSQL as a storage engine: schema versions, transactions, ids, removal and checks. */
#include "store/postgres.h"

#include "store/schema.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT_BYTES = 4096, FIRST_YEAR = 2020, LAST_YEAR = 2099 };

/* ---- schema -------------------------------------------------------------------------------- */

static pj_status postgres_driver_ask_int(pj_postgres *pg, const char *text, int64_t *value,
                                         pj_error *err)
{
    PGresult *result = pj_pg_query(pg, text, err);
    if (!result) return pg->error.status;
    *value = -1;
    if (pj_pq.PQntuples(result) && !pj_pq.PQgetisnull(result, 0, 0))
        *value = strtoll(pj_pq.PQgetvalue(result, 0, 0), NULL, 10);
    pj_pq.PQclear(result);
    return PJ_OK;
}

/* A schema is ours if it contains our version. One with a table of our names but no version is
 * foreign; other tables besides ours are allowed. */
static pj_status get_version(void *db, pj_db_owner *owner, int64_t *version, pj_error *err)
{
    static const char find[] =
        "SELECT CASE WHEN current_schema() IS NULL THEN 3"
        " WHEN EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        "  AND relname = 'perjoule_schema') THEN 2"
        " WHEN EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        "  AND relname IN ('profiling_runs', 'power_samples', 'pipeline_sections', 'tokens',"
        "   'layer_metrics', 'component_metrics', 'deep_operation_metrics', 'run_rows',"
        "   'experiments', 'run_queue')) THEN 1 ELSE 0 END";
    pj_postgres *pg = db;
    int64_t found = 0;
    *version = 0;
    pj_status status = pj_pg_ensure(pg, err);
    if (status == PJ_OK) status = postgres_driver_ask_int(pg, find, &found, err);
    if (status != PJ_OK) return status;
    *owner = found == 2 ? PJ_DB_OURS : found == 1 ? PJ_DB_FOREIGN : PJ_DB_NEW;
    if (found == 3)
        return pj_fail(
            err, PJ_E_INVALID,
            "database %s has no schema for this role: its search_path names no schema that "
            "exists",
            pg->address);
    if (found == 0 && pg->read_only)
        return pj_fail(err, PJ_E_NOT_FOUND,
                       "%s contains no runs yet: record one first, or create the tables "
                       "with perjoule setup --postgres",
                       pg->address);
    if (found != 2) return PJ_OK;
    status = postgres_driver_ask_int(
        pg, "SELECT max(version) FROM perjoule_schema WHERE application = 'perjoule'", version,
        err);
    if (status == PJ_OK && *version < 0) *owner = PJ_DB_FOREIGN;
    return status;
}

static pj_status set_version(void *db, int64_t version, pj_error *err)
{
    char text[200];
    snprintf(text, sizeof text,
             "INSERT INTO perjoule_schema (application, version) VALUES ('perjoule', %lld)"
             " ON CONFLICT (application) DO UPDATE SET version = excluded.version",
             (long long)version);
    return pj_pg_run(db, text, err);
}

static pj_status postgres_driver_list_columns(void *db, const char *name, pj_column_name_fn *take,
                                              void *context, pj_error *err)
{
    const pj_pg_table *table;
    pj_status status = pj_pg_table_get(db, name, &table, err);
    for (int c = 0; status == PJ_OK && c < table->count; c++) take(context, table->columns[c].name);
    return status;
}

/* ---- transactions -------------------------------------------------------------------------- */

#define LIMITS_OF_WRITING "SET LOCAL statement_timeout = '30min'; SET LOCAL lock_timeout = '2min';"

/* PJ_WRITE takes an advisory lock: several machines may open, and migrate, an old schema at once.
 * Inserts are planned once. */
static void write_begin(const pj_postgres *pg, pj_transaction kind, char *text, size_t bytes)
{
    if (kind == PJ_READ)
        snprintf(text, bytes, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    else
        snprintf(text, bytes, "BEGIN;SET LOCAL plan_cache_mode = auto;%s%s",
                 pg->has_default_limit ? LIMITS_OF_WRITING : "",
                 kind == PJ_WRITE ? "SELECT pg_advisory_xact_lock(5785247, 1)" : "");
}

/* A second time where it turns out that the idle connection had been closed. */
static pj_status run_again(pj_postgres *pg, const char *text, pj_error *err)
{
    for (bool is_first = true;; is_first = false) {
        pj_status status = pj_pg_ensure(pg, err);
        if (status != PJ_OK) return status;
        PGresult *result = pj_pg_query(pg, text, err);
        pj_pq.PQclear(result);
        if (result) return PJ_OK;
        if (!is_first || pj_pg_is_alive(pg)) return pg->error.status;
    }
}

static pj_status begin(void *db, pj_transaction kind, pj_error *err)
{
    pj_postgres *pg = db;
    char text[TEXT_BYTES];
    write_begin(pg, kind, text, sizeof text);
    pj_status status = run_again(pg, text, err);
    if (status == PJ_OK) pg->in_transaction = true;
    return status;
}

static void rollback(void *db)
{
    pj_postgres *pg = db;
    bool was = pg->in_transaction;
    pg->in_transaction = false;
    if (was && pj_pg_is_alive(pg)) pj_pq.PQclear(pj_pg_query(pg, "ROLLBACK", NULL));
}

static pj_status commit(void *db, pj_error *err)
{
    pj_postgres *pg = db;
    pj_pg_settle(pg);
    PGresult *result = pj_pg_query(pg, "COMMIT", err);
    pj_status status = result ? PJ_OK : pg->error.status;
    /* A transaction that had failed answers COMMIT with ROLLBACK. */
    if (result && strcmp(pj_pq.PQcmdStatus(result), "COMMIT") != 0)
        status = pj_fail(err, PJ_E_STATE, "database %s: the transaction had failed", pg->address);
    pj_pq.PQclear(result);
    pg->in_transaction = false;
    return status;
}

static pj_status fail(void *db, int code, pj_error *err)
{
    const pj_postgres *pg = db;
    if (err) *err = pg->error;
    return pg->error.status ? pg->error.status : PJ_E_IO;
}

/* ---- a run's rows -------------------------------------------------------------------------- */

/* Year * 12 + month of a run, from the time in its UUIDv7; 0: of no month that has partitions. */
static int month_of(const char *run_id)
{
    int64_t ms = 0;
    int digits = 0;
    for (const char *c = run_id; *c && digits < 12; c++) {
        if (*c == '-') continue;
        if (!isxdigit((unsigned char)*c)) return 0;
        ms = ms << 4 | (*c <= '9' ? *c - '0' : (*c | 32) - 'a' + 10);
        digits++;
    }
    time_t seconds = (time_t)(ms / 1000);
    struct tm at;
    if (digits < 12 || !gmtime_r(&seconds, &at)) return 0;
    int year = at.tm_year + 1900;
    return year < FIRST_YEAR || year > LAST_YEAR ? 0 : year * 12 + at.tm_mon;
}

/* Checks for the partitions first, because creating them needs a privilege and a lock. */
static pj_status make_partitions(pj_postgres *pg, int month, pj_error *err)
{
    char text[200];
    int64_t is_there = 0;
    if (!month || month == pg->month) return PJ_OK;
    snprintf(text, sizeof text, "SELECT (to_regclass('run_conditions_%04d_%02d') IS NOT NULL)::int",
             month / 12, month % 12 + 1);
    pj_status status = postgres_driver_ask_int(pg, text, &is_there, err);
    if (status != PJ_OK) return status;
    snprintf(text, sizeof text, "SELECT perjoule_make_partitions('%04d-%02d-01')", month / 12,
             month % 12 + 1);
    if (is_there != 1) status = run_again(pg, text, err);
    if (status == PJ_OK) pg->month = month;
    return status;
}

static bool is_id(const char *text)
{
    size_t length = strspn(text, "0123456789abcdefABCDEF-");
    return length < PJ_UUID_BYTES && !text[length];
}

static pj_status enter_run(void *db, const char *run_id, const int64_t *machine_id, pj_error *err)
{
    pj_postgres *pg = db;
    char text[300];
    if (!is_id(run_id)) return pj_fail(err, PJ_E_INVALID, "the run's id is not a UUID");
    if (machine_id)
        snprintf(text, sizeof text, "SELECT set_config('perjoule.machine_id', '%lld', false)",
                 (long long)*machine_id);
    else
        snprintf(text, sizeof text,
                 "SELECT set_config('perjoule.machine_id', machine_id::text, false) FROM"
                 " profiling_runs WHERE id = '%s'",
                 run_id);
    pj_status status = run_again(pg, text, err);
    return status == PJ_OK && machine_id ? make_partitions(pg, month_of(run_id), err) : status;
}

static pj_status reserve_ids(void *db, const char *const *tables, const int64_t *counts, int count,
                             int64_t *first, pj_error *err)
{
    char text[TEXT_BYTES];
    int n = snprintf(text, sizeof text, "SELECT unnest(perjoule_reserve('{");
    for (int i = 0; i < count; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", i ? "," : "", tables[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "}', '{");
    for (int i = 0; i < count; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", i ? "," : "",
                      (long long)counts[i]);
    snprintf(text + n, sizeof text - (size_t)n, "}'))");
    PGresult *result = pj_pg_query(db, text, err);
    if (!result) return ((pj_postgres *)db)->error.status;
    bool good = pj_pq.PQntuples(result) == count;
    for (int i = 0; i < count && good; i++)
        first[i] = strtoll(pj_pq.PQgetvalue(result, i, 0), NULL, 10);
    pj_pq.PQclear(result);
    return good ? PJ_OK : pj_fail(err, PJ_E_INTERNAL, "ids of a run's rows are missing");
}

/* Deletes large tables by ranges of ids. The lock serialises writers of one run. */
static pj_status remove_run(void *db, const char *run_id, pj_error *err)
{
    char text[TEXT_BYTES];
    int64_t is_there = 0;
    if (!is_id(run_id)) return PJ_OK;
    snprintf(text, sizeof text,
             "SELECT pg_advisory_xact_lock(hashtextextended('%s', 0));"
             "SELECT 1 FROM profiling_runs WHERE id = '%s'",
             run_id, run_id);
    pj_status status = postgres_driver_ask_int(db, text, &is_there, err);
    if (status != PJ_OK || is_there != 1) return status;
    for (int t = PJ_TABLE_COUNT - 1; t >= 0 && status == PJ_OK; t--) {
        const char *name = pj_tables[t].name;
        snprintf(
            text, sizeof text,
            "DELETE FROM %s t USING run_rows r WHERE r.run_id = '%s' AND r.table_name = '%s'"
            " AND t.run_id = '%s' AND t.id BETWEEN r.first_id AND r.first_id + r.row_count - 1",
            name, run_id, name, run_id);
        status = pj_pg_run(db, text, err);
    }
    for (const pj_schema_table *table = pj_schema_tables; table->run && status == PJ_OK; table++) {
        if (table->rows) continue;
        snprintf(text, sizeof text, "DELETE FROM %s WHERE run_id = '%s'", table->name, run_id);
        status = pj_pg_run(db, text, err);
    }
    snprintf(text, sizeof text, "DELETE FROM profiling_runs WHERE id = '%s'", run_id);
    return status == PJ_OK ? pj_pg_run(db, text, err) : status;
}

/* ---- checks -------------------------------------------------------------------------------- */

/* There are no foreign keys, so orphans are searched for. */
static pj_status check_table(pj_postgres *pg, const char *table, pj_defect_fn *take, void *context,
                             pj_error *err)
{
    char text[400];
    int64_t count = 0;
    snprintf(text, sizeof text,
             "SELECT count(*) FROM %s t WHERE NOT EXISTS"
             " (SELECT 1 FROM profiling_runs p WHERE p.id = t.run_id)",
             table);
    pj_status status = postgres_driver_ask_int(pg, text, &count, err);
    if (status != PJ_OK || count == 0) return status;
    snprintf(text, sizeof text, "%lld rows of %s belong to a missing run", (long long)count, table);
    take(context, PJ_DEFECT_REFERENCE, text);
    return PJ_OK;
}

/* Lifts the statement timeout, because the checks read every row of every run. The connection is
 * used for nothing else. */
static pj_status check(void *db, pj_defect_fn *take, void *context, pj_error *err)
{
    pj_status status = pj_pg_run(db, "SET statement_timeout = 0", err);
    for (const pj_schema_table *table = pj_schema_tables + 1; table->run && status == PJ_OK;
         table++)
        status = check_table(db, table->name, take, context, err);
    return status;
}

static pj_status server_clock(void *db, int64_t *wall_ns, pj_error *err)
{
    pj_status status = pj_pg_ensure(db, err);
    if (status != PJ_OK) return status;
    return postgres_driver_ask_int(
        db, "SELECT (extract(epoch FROM clock_timestamp()) * 1e9)::bigint", wall_ns, err);
}

static const char *const prefixes[] = {"postgresql:", "postgres:", NULL};

extern const pj_store_driver pj_postgres_driver;
const pj_store_driver pj_postgres_driver = {.name = "PostgreSQL",
                                            .prefixes = prefixes,
                                            .dialect = &pj_postgres_dialect,
                                            .is_remote = true,
                                            .listed_runs = PJ_PG_LISTED_RUNS,
                                            .open = pj_pg_open,
                                            .close = pj_pg_close,
                                            .fail = fail,
                                            .get_version = get_version,
                                            .set_version = set_version,
                                            .columns = postgres_driver_list_columns,
                                            .begin = begin,
                                            .commit = commit,
                                            .rollback = rollback,
                                            .run = pj_pg_run,
                                            .prepare = pj_pg_prepare,
                                            .bind = pj_pg_bind,
                                            .step = pj_pg_step,
                                            .column = pj_pg_column_get,
                                            .reset = pj_pg_reset,
                                            .clear = pj_pg_clear,
                                            .finalize = pj_pg_finalize,
                                            .insert_rows = pj_pg_insert_rows,
                                            .check = check,
                                            .setup = pj_pg_setup,
                                            .enter_run = enter_run,
                                            .reserve_ids = reserve_ids,
                                            .remove_run = remove_run,
                                            .clock = server_clock};

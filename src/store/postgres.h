/* A connection to a PostgreSQL server, as the files of the PostgreSQL driver share it. Private to
 * them. libpq is opened at run time, so that neither the program nor the library depends on it (and
 * on the TLS and Kerberos libraries that it brings) unless a server is used. */
#ifndef PJ_STORE_POSTGRES_H
#define PJ_STORE_POSTGRES_H

#include "base/memory.h"
#include "store/driver.h"

#include <libpq-fe.h>

enum {
    PJ_PG_ADDRESS_BYTES = 4096,
    PJ_PG_TABLES = 32,
    PJ_PG_COLUMNS = PJ_TABLE_COLUMNS,
    PJ_PG_MIN_VERSION = 130000
};

/* pg_type.oid of the types that occur; they are fixed. */
enum {
    PJ_PG_BOOL = 16,
    PJ_PG_BYTES = 17,
    PJ_PG_INT8 = 20,
    PJ_PG_INT2 = 21,
    PJ_PG_INT4 = 23,
    PJ_PG_TEXT = 25,
    PJ_PG_FLOAT4 = 700,
    PJ_PG_FLOAT8 = 701,
    PJ_PG_NUMERIC = 1700
};

/* libpq's functions, by their own names. */
#define PJ_PG_FUNCTIONS(X)  \
    X(PQconnectdbParams)    \
    X(PQconninfoParse)      \
    X(PQconninfoFree)       \
    X(PQfreemem)            \
    X(PQfinish)             \
    X(PQstatus)             \
    X(PQerrorMessage)       \
    X(PQserverVersion)      \
    X(PQparameterStatus)    \
    X(PQsetNoticeProcessor) \
    X(PQexec)               \
    X(PQprepare)            \
    X(PQdescribePrepared)   \
    X(PQnparams)            \
    X(PQparamtype)          \
    X(PQsendQueryPrepared)  \
    X(PQsetSingleRowMode)   \
    X(PQgetResult)          \
    X(PQclear)              \
    X(PQresultStatus)       \
    X(PQcmdStatus)          \
    X(PQresultErrorField)   \
    X(PQntuples)            \
    X(PQnfields)            \
    X(PQftype)              \
    X(PQgetvalue)           \
    X(PQgetlength)          \
    X(PQgetisnull)          \
    X(PQputCopyData)        \
    X(PQputCopyEnd)

typedef struct pj_libpq {
#define MEMBER(name) __typeof__(&name) name;
    PJ_PG_FUNCTIONS(MEMBER)
#undef MEMBER
} pj_libpq;

extern pj_libpq pj_pq;
pj_status pj_libpq_load(pj_error *err); /* postgres_libpq.c; once for all threads */

typedef struct pj_pg_column {
    char name[64];
    uint32_t type;
} pj_pg_column;

typedef struct pj_pg_table {
    char name[64];
    int count;
    pj_pg_column columns[PJ_PG_COLUMNS];
} pj_pg_table;

typedef struct pj_pg_statement pj_pg_statement;

typedef struct pj_postgres {
    PGconn *connection;
    uint64_t generation; /* of the connection; prepared statements are of one */
    uint64_t next_name;
    bool read_only, in_transaction;
    bool has_default_limit;     /* of time for a statement: the address and the server set none */
    pj_pg_statement *streaming; /* statement whose rows are still being received */
    void (*settle)(struct pj_postgres *pg); /* of the streaming statement */
    pj_pg_table *tables[PJ_PG_TABLES];      /* columns as read, until the schema changes */
    int month;      /* month whose partitions exist: year * 12 + month; 0: unknown */
    pj_error error; /* the last failure */
    char address[PJ_PG_ADDRESS_BYTES];
} pj_postgres;

/* ---- connection (postgres.c) ---- */
pj_status pj_pg_open(const char *address, bool read_only, void **db, pj_error *err);
void pj_pg_close(void *db);
/* Connects again, with growing pauses, if the connection is gone and no transaction is open. */
pj_status pj_pg_ensure(pj_postgres *pg, pj_error *err);
bool pj_pg_is_alive(const pj_postgres *pg);
/* A failed result as a status and a sentence. `result` may be NULL: the connection's failure. */
pj_status pj_pg_fail(pj_postgres *pg, const PGresult *result, pj_error *err);
/* Runs a text of one or several statements. The result of the last, NULL when one failed. */
PGresult *pj_pg_query(pj_postgres *pg, const char *text, pj_error *err);
pj_status pj_pg_run(void *db, const char *text, pj_error *err);

/* Reads the rows of the streaming statement into memory: the connection can be used again. */
static inline void pj_pg_settle(pj_postgres *pg)
{
    if (pg->streaming) pg->settle(pg);
}

/* ---- statements (postgres_statement.c) ---- */
/* Appends a text in the common subset of SQL in PostgreSQL's dialect. */
void pj_pg_translate(const char *text, pj_buffer *out);
pj_status pj_pg_prepare(void *db, const char *text, void **statement, pj_error *err);
int pj_pg_bind(void *statement, int index, const pj_value *value);
int pj_pg_step(void *statement, bool *row);
void pj_pg_column_get(void *statement, int column, pj_value *value);
int pj_pg_reset(void *statement);
void pj_pg_clear(void *statement);
void pj_pg_finalize(void *statement);

/* ---- values (postgres_value.c) ---- */
/* Appends a value in the binary form of a type; false: it has none. NULL is not a value. */
bool pj_pg_write(pj_buffer *out, uint32_t type, const pj_value *value);
/* Texts that PostgreSQL cannot store are decoded into `scratch`. */
void pj_pg_read(uint32_t type, const char *bytes, size_t count, pj_arena *scratch, pj_value *value);

/* ---- rows (postgres_copy.c) ---- */
pj_status pj_pg_insert_rows(void *db, const pj_bulk_rows *rows, pj_error *err);
pj_status pj_pg_table_get(pj_postgres *pg, const char *name, const pj_pg_table **table,
                          pj_error *err);

void pj_pg_setup(pj_buffer *out, const char *schema, bool is_distributed); /* postgres_setup.c */

/* ---- the schema (postgres_schema.c) ---- */
/* Runs whose names fit into an index together (a key is a third of a page at most). */
#define PJ_PG_BYTES_OF_NAMES                                                           \
    "octet_length(coalesce(machine, '') || coalesce(model_name, '') ||"                \
    " coalesce(engine, '') || coalesce(dtype, '') || coalesce(experiment_name, '') ||" \
    " coalesce(status, '') || coalesce(energy_source, '') || coalesce(scope, '') ||"   \
    " coalesce(level, ''))"
#define PJ_PG_LISTED_RUNS "(" PJ_PG_BYTES_OF_NAMES " <= 2000)"
extern const pj_dialect pj_postgres_dialect;

#endif

/*
 * Prepared statements. The rows of a statement arrive one by one; when another statement needs the
 * connection meanwhile, the remaining ones are read into memory first. A statement outlives its
 * connection: on a new one it is prepared again, and what had returned nothing is executed again
 * unless a transaction was open.
 */
#include "store/postgres.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PARAMETERS = 128, MAX_TEXT_BYTES = 1 << 20 };

struct pj_pg_statement {
    pj_postgres *pg;
    char *text; /* in PostgreSQL's dialect */
    char name[32];
    uint64_t generation; /* the connection (by number) on which it is prepared; 0: none */
    int count;
    uint32_t types[MAX_PARAMETERS];
    pj_value values[MAX_PARAMETERS];
    bool is_executed;
    PGresult *row;     /* the current one */
    pj_buffer waiting; /* PGresult pointers: rows read into memory */
    size_t next;       /* the first of them that is not fetched yet, in bytes */
    pj_arena copies;   /* of decoded texts, until the next step */
};

/* ---- from the common subset of SQL ----------------------------------------------------------- */

static const char *skip_quoted(const char *c, pj_buffer *out)
{
    char quote = *c;
    do pj_buffer_char(out, *c++);
    while (*c && *c != quote);
    if (*c) pj_buffer_char(out, *c++);
    return c;
}

static const char *write_parameter(const char *c, int *last, pj_buffer *out)
{
    int number = 0;
    while (isdigit((unsigned char)*++c)) number = 10 * number + (*c - '0');
    if (!number) number = ++*last;
    pj_buffer_printf(out, "$%d", number);
    return c;
}

/* "RUN l=t" in a comment: rows of l are of the run that t is of. "RUN l=?1": of that run. "RUN l":
 * the run of l as a further column. */
static const char *postgres_statement_write_run(const char *c, pj_buffer *out)
{
    const char *end = strstr(c, "*/"), *equals = strchr(c, '=');
    const char *left = c + strlen("/*RUN ");
    if (!end) return left;
    if (!equals || equals > end) {
        pj_buffer_printf(out, ", %.*s.run_id", (int)(end - left), left);
        return end + 2;
    }
    pj_buffer_printf(out, " AND %.*s.run_id = ", (int)(equals - left), left);
    if (equals[1] == '?')
        pj_buffer_printf(out, "$%.*s", (int)(end - equals - 2), equals + 2);
    else
        pj_buffer_printf(out, "%.*s.run_id", (int)(end - equals - 1), equals + 1);
    return end + 2;
}

void pj_pg_translate(const char *c, pj_buffer *out)
{
    static const char cross[] = "CROSS JOIN", run[] = "/*RUN ";
    int last = 0;
    while (*c) {
        if (*c == '\'' || *c == '"') {
            c = skip_quoted(c, out);
        } else if (*c == '?') {
            c = write_parameter(c, &last, out);
        } else if (strncmp(c, run, sizeof run - 1) == 0) {
            c = postgres_statement_write_run(c, out);
        } else if (strncmp(c, cross, sizeof cross - 1) == 0) {
            pj_buffer_text(out, "JOIN"); /* CROSS fixes the join order in SQLite only */
            c += sizeof cross - 1;
        } else {
            pj_buffer_char(out, *c++);
        }
    }
}

/* ---- preparing ------------------------------------------------------------------------------- */

static pj_status postgres_statement_describe(pj_pg_statement *s, pj_error *err)
{
    PGresult *result = pj_pq.PQdescribePrepared(s->pg->connection, s->name);
    pj_status status = PJ_OK;
    if (pj_pq.PQresultStatus(result) != PGRES_COMMAND_OK) {
        status = pj_pg_fail(s->pg, result, err);
    } else if ((s->count = pj_pq.PQnparams(result)) > MAX_PARAMETERS) {
        status = pj_fail(err, PJ_E_INTERNAL, "a statement has too many parameters");
        s->count = 0;
    }
    for (int i = 0; i < s->count && status == PJ_OK; i++)
        s->types[i] = pj_pq.PQparamtype(result, i);
    pj_pq.PQclear(result);
    return status;
}

static pj_status postgres_statement_make_known(pj_pg_statement *s, pj_error *err)
{
    pj_postgres *pg = s->pg;
    pj_status status = pj_pg_ensure(pg, err);
    if (status != PJ_OK || s->generation == pg->generation) return status;
    pj_pg_settle(pg);
    snprintf(s->name, sizeof s->name, "pj%llu", (unsigned long long)++pg->next_name);
    PGresult *result = pj_pq.PQprepare(pg->connection, s->name, s->text, 0, NULL);
    if (pj_pq.PQresultStatus(result) != PGRES_COMMAND_OK) status = pj_pg_fail(pg, result, err);
    pj_pq.PQclear(result);
    if (status == PJ_OK) status = postgres_statement_describe(s, err);
    if (status == PJ_OK) s->generation = pg->generation;
    return status;
}

pj_status pj_pg_prepare(void *db, const char *text, void **statement, pj_error *err)
{
    pj_postgres *pg = db;
    pj_buffer out;
    pj_pg_statement *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "a statement");
    s->pg = pg;
    pj_arena_init(&s->copies, 0);
    pj_buffer_init(&s->waiting, 1 << 30);
    pj_buffer_init(&out, MAX_TEXT_BYTES);
    pj_pg_translate(text, &out);
    pj_status status = pj_buffer_status(&out, "a statement", err);
    if (status == PJ_OK) s->text = pj_buffer_take(&out);
    pj_buffer_fini(&out);
    if (status == PJ_OK && !s->text) status = pj_fail_memory(err, "a statement");
    if (status == PJ_OK) status = postgres_statement_make_known(s, err);
    /* The connection was replaced since the statement was prepared. */
    if (status == PJ_E_UNAVAILABLE && !pg->in_transaction && !pj_pg_is_alive(pg))
        status = postgres_statement_make_known(s, err);
    if (status == PJ_OK)
        *statement = s;
    else
        pj_pg_finalize(s);
    return status;
}

int pj_pg_bind(void *statement, int index, const pj_value *value)
{
    pj_pg_statement *s = statement;
    if (index < 1 || index > s->count) {
        pj_fail(&s->pg->error, PJ_E_INTERNAL, "a statement has no parameter %d", index);
        return 1;
    }
    s->values[index - 1] = *value;
    return 0;
}

/* ---- executing ------------------------------------------------------------------------------- */

static bool send(pj_pg_statement *s)
{
    const char *values[MAX_PARAMETERS];
    size_t begins[MAX_PARAMETERS];
    int lengths[MAX_PARAMETERS], formats[MAX_PARAMETERS];
    pj_buffer bytes;
    bool good = true;
    pj_buffer_init(&bytes, (size_t)1 << 30);
    for (int i = 0; i < s->count && good; i++) {
        begins[i] = bytes.length;
        formats[i] = 1;
        if (s->values[i].type != PJ_VALUE_NULL)
            good = pj_pg_write(&bytes, s->types[i], &s->values[i]);
        lengths[i] = (int)(bytes.length - begins[i]);
    }
    if (!good || !pj_buffer_char(&bytes, 0)) {
        pj_fail(&s->pg->error, PJ_E_INTERNAL,
                "a parameter of a statement has the wrong type: %.200s", s->text);
        pj_buffer_fini(&bytes);
        return false;
    }
    for (int i = 0; i < s->count; i++)
        values[i] = s->values[i].type == PJ_VALUE_NULL ? NULL : bytes.data + begins[i];
    good = pj_pq.PQsendQueryPrepared(s->pg->connection, s->name, s->count, values, lengths, formats,
                                     1) == 1;
    if (good) pj_pq.PQsetSingleRowMode(s->pg->connection);
    if (!good) pj_pg_fail(s->pg, NULL, NULL);
    pj_buffer_fini(&bytes);
    return good;
}

/* The next row from the server, NULL at the end. False: the statement failed. */
static bool receive(pj_pg_statement *s, PGresult **row)
{
    pj_postgres *pg = s->pg;
    bool good = true;
    *row = pj_pq.PQgetResult(pg->connection);
    if (*row && pj_pq.PQresultStatus(*row) == PGRES_SINGLE_TUPLE) return true;
    for (PGresult *end = *row; end; end = pj_pq.PQgetResult(pg->connection)) {
        ExecStatusType status = pj_pq.PQresultStatus(end);
        if (good && status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
            pj_pg_fail(pg, end, NULL);
            good = false;
        }
        pj_pq.PQclear(end);
    }
    if (good && !pj_pg_is_alive(pg)) {
        pj_pg_fail(pg, NULL, NULL);
        good = false;
    }
    *row = NULL;
    pg->streaming = NULL;
    return good;
}

static bool take_waiting(pj_pg_statement *s)
{
    if (s->next == s->waiting.length) return false;
    memcpy(&s->row, s->waiting.data + s->next, sizeof s->row);
    s->next += sizeof s->row;
    return true;
}

static void drop_rows(pj_pg_statement *s)
{
    pj_pq.PQclear(s->row);
    while (take_waiting(s)) pj_pq.PQclear(s->row);
    s->row = NULL;
    pj_buffer_fini(&s->waiting);
    s->next = 0;
}

static void settle(pj_postgres *pg)
{
    pj_pg_statement *s = pg->streaming;
    PGresult *row;
    while (s && pg->streaming && receive(s, &row) && row)
        if (!pj_buffer_append(&s->waiting, &row, sizeof row)) pj_pq.PQclear(row);
}

static bool execute_once(pj_pg_statement *s)
{
    pj_error err = {0};
    if (postgres_statement_make_known(s, &err) != PJ_OK) {
        s->pg->error = err;
        return false;
    }
    pj_pg_settle(s->pg);
    if (!send(s)) return false;
    s->pg->streaming = s;
    s->pg->settle = settle;
    s->is_executed = true;
    return receive(s, &s->row);
}

static bool postgres_statement_execute(pj_pg_statement *s)
{
    bool was_in_transaction = s->pg->in_transaction;
    if (execute_once(s)) return true;
    if (was_in_transaction || pj_pg_is_alive(s->pg)) return false;
    return execute_once(s);
}

static void forget_copies(pj_pg_statement *s)
{
    if (s->copies.used_bytes) pj_arena_fini(&s->copies);
}

static bool postgres_statement_next_row(pj_pg_statement *s)
{
    pj_pq.PQclear(s->row);
    s->row = NULL;
    return take_waiting(s) || s->pg->streaming != s || receive(s, &s->row);
}

int pj_pg_step(void *statement, bool *row)
{
    pj_pg_statement *s = statement;
    forget_copies(s);
    bool good = s->is_executed ? postgres_statement_next_row(s) : postgres_statement_execute(s);
    *row = s->row != NULL;
    return good ? 0 : 1;
}

void pj_pg_column_get(void *statement, int column, pj_value *value)
{
    pj_pg_statement *s = statement;
    *value = (pj_value){.type = PJ_VALUE_NULL};
    if (!s->row || column >= pj_pq.PQnfields(s->row) || pj_pq.PQgetisnull(s->row, 0, column))
        return;
    const char *bytes = pj_pq.PQgetvalue(s->row, 0, column);
    pj_pg_read(pj_pq.PQftype(s->row, column), bytes, (size_t)pj_pq.PQgetlength(s->row, 0, column),
               &s->copies, value);
}

/* ---- ending ---------------------------------------------------------------------------------- */

int pj_pg_reset(void *statement)
{
    pj_pg_statement *s = statement;
    PGresult *row;
    while (s->pg->streaming == s && receive(s, &row) && row) pj_pq.PQclear(row);
    drop_rows(s);
    forget_copies(s);
    s->is_executed = false;
    return 0;
}

void pj_pg_clear(void *statement)
{
    pj_pg_statement *s = statement;
    pj_pg_reset(s);
    memset(s->values, 0, sizeof s->values);
}

void pj_pg_finalize(void *statement)
{
    pj_pg_statement *s = statement;
    char text[64];
    if (!s) return;
    pj_pg_reset(s);
    if (s->generation && s->generation == s->pg->generation && pj_pg_is_alive(s->pg)) {
        pj_pg_settle(s->pg);
        snprintf(text, sizeof text, "DEALLOCATE %s", s->name);
        pj_pq.PQclear(pj_pq.PQexec(s->pg->connection, text));
    }
    pj_arena_fini(&s->copies);
    pj_free(s->text);
    pj_free(s);
}

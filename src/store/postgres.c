/*
 * Connections to PostgreSQL servers, and the server's failures as sentences.
 *
 * Everything about the connection is libpq's: the address, TLS, the password (from PGPASSFILE, the
 * service file or the environment, never from the address, which is printed). Defaults that an
 * address may change: ten seconds to connect, two minutes for a statement that reads. A statement
 * of a transaction that writes has half an hour, because a large run on a busy server takes
 * minutes, and a run that always timed out would never be handed over; what it waits for is bounded
 * separately.
 */
#include "store/postgres.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define NO_CONNECTION_PATIENCE_NS (4 * PJ_NS_PER_S)

enum { FIRST_PAUSE_MS = 50, MAX_PAUSE_MS = 1000 };

/* ---- failures ------------------------------------------------------------------------------ */

/* Joins libpq's multi-line messages into one sentence. */
static void one_line(const char *text, char *out, size_t bytes)
{
    size_t n = 0;
    for (; *text && n + 3 < bytes; text++) {
        if (*text != '\n' && *text != '\t' && *text != '\r') {
            out[n++] = *text;
        } else if (n && out[n - 1] != ' ') {
            if (text[1] && *text == '\n') out[n++] = ';';
            out[n++] = ' ';
        }
    }
    while (n && (out[n - 1] == ' ' || out[n - 1] == ';')) n--;
    out[n] = 0;
}

static bool is_state(const char *state, const char *prefix)
{
    return strncmp(state, prefix, strlen(prefix)) == 0;
}

static pj_status postgres_status_of(const char *state)
{
    static const struct {
        const char *prefix;
        pj_status status;
    } known[] = {
        {"08", PJ_E_UNAVAILABLE}, {"57P", PJ_E_UNAVAILABLE}, {"28", PJ_E_DENIED},
        {"42501", PJ_E_DENIED},   {"25006", PJ_E_DENIED},    {"53100", PJ_E_FULL},
        {"53200", PJ_E_FULL},     {"54", PJ_E_FULL},         {"53300", PJ_E_UNAVAILABLE},
        {"57014", PJ_E_AGAIN},    {"55P03", PJ_E_AGAIN},     {"40", PJ_E_AGAIN},
        {"23", PJ_E_STATE},       {"42P01", PJ_E_INVALID},   {"42703", PJ_E_INVALID},
        {"42883", PJ_E_INVALID},  {"3D000", PJ_E_NOT_FOUND}, {"XX", PJ_E_IO},
        {"58", PJ_E_IO},          {"22", PJ_E_INVALID},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_state(state, known[i].prefix)) return known[i].status;
    return PJ_E_IO;
}

static const char *remedy_of(const char *state)
{
    if (is_state(state, "42501"))
        return ": the role lacks a privilege; the owner can grant it with what perjoule setup --postgres "
               "prints";
    if (is_state(state, "25006")) return ": the server or the role is read-only";
    if (is_state(state, "53100")) return ": the server's disk is full";
    if (is_state(state, "57014")) return ": it timed out or was cancelled; try again";
    if (is_state(state, "55P03") || is_state(state, "40")) return ": try again";
    if (is_state(state, "42P01") || is_state(state, "42703") || is_state(state, "42883"))
        return ": the tables do not match the schema of perjoule";
    return "";
}

static pj_status fail_connection(pj_postgres *pg, pj_error *err)
{
    char text[PJ_ERROR_TEXT_BYTES];
    one_line(pg->connection ? pj_pq.PQerrorMessage(pg->connection) : "no connection", text,
             sizeof text);
    return pj_fail(err, PJ_E_UNAVAILABLE, "the server of %s cannot be reached: %s", pg->address,
                   text[0] ? text : "the connection was closed");
}

pj_status pj_pg_fail(pj_postgres *pg, const PGresult *result, pj_error *err)
{
    char text[PJ_ERROR_TEXT_BYTES];
    const char *state = result ? pj_pq.PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *message = result ? pj_pq.PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    pj_status status;
    if (!state || !message || !pj_pg_is_alive(pg)) {
        status = fail_connection(pg, &pg->error);
    } else {
        one_line(message, text, sizeof text);
        status = pj_fail(&pg->error, postgres_status_of(state), "database %s: %s%s", pg->address,
                         text, remedy_of(state));
    }
    if (err) *err = pg->error;
    return status;
}

static void forget_tables(pj_postgres *pg)
{
    for (int i = 0; i < PJ_PG_TABLES; i++) {
        pj_free(pg->tables[i]);
        pg->tables[i] = NULL;
    }
}

/* ---- statements without results -------------------------------------------------------------- */

bool pj_pg_is_alive(const pj_postgres *pg)
{
    return pg->connection && pj_pq.PQstatus(pg->connection) == CONNECTION_OK;
}

static bool is_good(const PGresult *result)
{
    ExecStatusType status = pj_pq.PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_COPY_IN ||
           status == PGRES_EMPTY_QUERY;
}

PGresult *pj_pg_query(pj_postgres *pg, const char *text, pj_error *err)
{
    pj_pg_settle(pg);
    PGresult *result = pj_pq.PQexec(pg->connection, text);
    if (result && is_good(result)) return result;
    pj_pg_fail(pg, result, err);
    pj_pq.PQclear(result);
    return NULL;
}

pj_status pj_pg_run(void *db, const char *text, pj_error *err)
{
    pj_postgres *pg = db;
    pj_error failure = {0};
    pj_status status = pj_pg_ensure(pg, err);
    if (status != PJ_OK) return status;
    PGresult *result = pj_pg_query(pg, text, &failure);
    if (result) {
        pj_pq.PQclear(result);
        forget_tables(pg); /* it may have changed the schema */
        return PJ_OK;
    }
    if (err) *err = failure;
    return failure.status;
}

/* ---- opening ------------------------------------------------------------------------------- */

static void ignore_notice(void *context, const char *text) {}

/* The address is printed, stored by shells and shown by `ps`. */
static pj_status refuse_password(const char *address, pj_error *err)
{
    char *why = NULL;
    bool has_password = false;
    PQconninfoOption *options = pj_pq.PQconninfoParse(address, &why);
    if (!options) {
        pj_pq.PQfreemem(why); /* its message would quote the address */
        return pj_fail(err, PJ_E_INVALID,
                       "the database address is not a PostgreSQL address (use "
                       "postgresql://user@host/name)");
    }
    for (const PQconninfoOption *o = options; o->keyword; o++)
        if (o->val && o->val[0] && strstr(o->keyword, "password")) has_password = true;
    pj_pq.PQconninfoFree(options);
    if (!has_password) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "a password in the database address is visible to other users: put it into "
                   "~/.pgpass (or the file that PGPASSFILE names) and leave it out here");
}

static pj_status set_up(pj_postgres *pg, pj_error *err)
{
    /* A generic plan does not know the words of a search, and chooses an index that such words as
     * occur in most prompts, or are shorter than three characters, make slower than none. */
    static const char limits[] = "SET client_min_messages = warning; SET jit = off;"
                                 "SET plan_cache_mode = force_custom_plan;"
                                 "SET standard_conforming_strings = on;"
                                 "SET idle_in_transaction_session_timeout = '10min';"
                                 "SELECT set_config('statement_timeout', '120s', false)"
                                 " WHERE current_setting('statement_timeout') = '0'";
    PGresult *result = pj_pg_query(pg, limits, err);
    pg->has_default_limit = result && pj_pq.PQntuples(result) == 1;
    if (result && pg->read_only) {
        pj_pq.PQclear(result);
        result = pj_pg_query(pg, "SET default_transaction_read_only = on", err);
    }
    if (!result) return pg->error.status;
    pj_pq.PQclear(result);
    const char *encoding = pj_pq.PQparameterStatus(pg->connection, "server_encoding");
    if (encoding && strcmp(encoding, "UTF8") == 0) return PJ_OK;
    return pj_fail(err, PJ_E_UNSUPPORTED,
                   "database %s is encoded as %s, but perjoule needs UTF8: create it with ENCODING "
                   "'UTF8' TEMPLATE template0",
                   pg->address, encoding ? encoding : "something unknown");
}

static pj_status connect(pj_postgres *pg, pj_error *err)
{
    const char *const keywords[] = {"connect_timeout",  "fallback_application_name",
                                    "tcp_user_timeout", "dbname",
                                    "client_encoding",  NULL};
    const char *const values[] = {"10", "perjoule", "30000", pg->address, "UTF8", NULL};
    if (pg->connection) pj_pq.PQfinish(pg->connection);
    pg->connection = pj_pq.PQconnectdbParams(keywords, values, 1);
    pg->generation++;
    pg->streaming = NULL;
    pg->in_transaction = false;
    forget_tables(pg);
    if (!pj_pg_is_alive(pg)) return fail_connection(pg, err);
    pj_pq.PQsetNoticeProcessor(pg->connection, ignore_notice, NULL);
    int version = pj_pq.PQserverVersion(pg->connection);
    if (version < PJ_PG_MIN_VERSION)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "the server of %s is PostgreSQL %d, but perjoule needs %d or newer",
                       pg->address, version / 10000, PJ_PG_MIN_VERSION / 10000);
    return set_up(pg, err);
}

/* A restarting server is back in seconds; longer outages are handled by the caller. */
pj_status pj_pg_ensure(pj_postgres *pg, pj_error *err)
{
    if (pj_pg_is_alive(pg) || pg->in_transaction) return PJ_OK;
    int64_t give_up_ns = pj_clock_ns() + NO_CONNECTION_PATIENCE_NS;
    for (int64_t pause_ms = FIRST_PAUSE_MS;;) {
        pj_status status = connect(pg, err);
        if (status != PJ_E_UNAVAILABLE) return status;
        if (pj_clock_ns() + pause_ms * PJ_NS_PER_MS > give_up_ns) return status;
        pj_clock_sleep_until(pj_clock_ns() + pause_ms * PJ_NS_PER_MS);
        pause_ms = 2 * pause_ms < MAX_PAUSE_MS ? 2 * pause_ms : MAX_PAUSE_MS;
    }
}

void pj_pg_close(void *db)
{
    pj_postgres *pg = db;
    if (!pg) return;
    forget_tables(pg);
    if (pg->connection) pj_pq.PQfinish(pg->connection);
    pj_free(pg);
}

pj_status pj_pg_open(const char *address, bool read_only, void **db, pj_error *err)
{
    pj_status status = pj_libpq_load(err);
    if (status == PJ_OK) status = refuse_password(address, err);
    if (status != PJ_OK) return status;
    pj_postgres *pg = pj_alloc(1, sizeof *pg);
    if (!pg) return pj_fail_memory(err, "the database");
    pg->read_only = read_only;
    snprintf(pg->address, sizeof pg->address, "%s", address);
    status = connect(pg, err);
    if (status == PJ_OK)
        *db = pg;
    else
        pj_pg_close(pg);
    return status;
}

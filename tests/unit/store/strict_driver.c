/*
 * A second storage engine: SQLite behind a driver that enforces the interface's contract, so that
 * tests of the store over it show what the engine-neutral code relies on. It
 *   - refuses statements outside the common subset of SQL (driver.h);
 *   - numbers parameters itself, as an engine with another notation has to;
 *   - frees texts and blobs at the next step, when their loan ends (seen by the address sanitizer);
 *   - insists on transactions that do not nest, statements that are finalized before the
 *     connection is closed, and columns that are read from a row;
 *   - offers nothing that is optional but one of two kinds of runs, so that lists are put together
 *     from both.
 */
#include "made_run.h"

#include "base/memory.h"
#include "store/driver.h"

#include <ctype.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PLAIN (pj_store_drivers[0])

enum { COPIES = 256, TEXT_BYTES = 16384 };

typedef struct strict_db {
    void *plain;
    int statements;
    bool in_transaction;
} strict_db;

typedef struct strict_statement {
    strict_db *db;
    void *plain;
    bool has_row;
    int copy_count;
    char *copies[COPIES];
} strict_statement;

static void demand(bool good, const char *what, const char *text)
{
    if (good) return;
    fprintf(stderr, "strict driver: %s: %s\n", what, text);
    abort();
}

/* ---- connection ------------------------------------------------------------------------------ */

static pj_status strict_open(const char *address, bool read_only, void **out, pj_error *err)
{
    strict_db *db = pj_alloc(1, sizeof *db);
    if (!db) return pj_fail_memory(err, "a connection");
    pj_status status = PLAIN->open(address, read_only, &db->plain, err);
    if (status == PJ_OK)
        *out = db;
    else
        pj_free(db);
    return status;
}

static void strict_close(void *context)
{
    strict_db *db = context;
    if (!db) return;
    demand(db->statements == 0, "statements are open", "close");
    PLAIN->close(db->plain);
    pj_free(db);
}

static pj_status strict_fail(void *db, int code, pj_error *err)
{
    return PLAIN->fail(((strict_db *)db)->plain, code, err);
}

static pj_status strict_get_version(void *db, pj_db_owner *owner, int64_t *version, pj_error *err)
{
    return PLAIN->get_version(((strict_db *)db)->plain, owner, version, err);
}

static pj_status strict_set_version(void *context, int64_t version, pj_error *err)
{
    strict_db *db = context;
    demand(db->in_transaction, "the version is set outside a transaction", "set_version");
    return PLAIN->set_version(db->plain, version, err);
}

static pj_status strict_columns(void *db, const char *table, pj_column_name_fn *take, void *context,
                                pj_error *err)
{
    return PLAIN->columns(((strict_db *)db)->plain, table, take, context, err);
}

/* ---- transactions ---------------------------------------------------------------------------- */

static pj_status strict_begin(void *context, pj_transaction kind, pj_error *err)
{
    strict_db *db = context;
    demand(!db->in_transaction, "transactions nest", "begin");
    pj_status status = PLAIN->begin(db->plain, kind, err);
    db->in_transaction = status == PJ_OK;
    return status;
}

static pj_status strict_commit(void *context, pj_error *err)
{
    strict_db *db = context;
    demand(db->in_transaction, "outside a transaction", "commit");
    db->in_transaction = false;
    return PLAIN->commit(db->plain, err);
}

static void strict_rollback(void *context)
{
    strict_db *db = context;
    db->in_transaction = false;
    PLAIN->rollback(db->plain);
}

/* ---- statements ------------------------------------------------------------------------------ */

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, length) == 0) return true;
    return false;
}

/* Tests mark SQLite-specific statements. */
static void demand_common_sql(const char *text)
{
    if (strncmp(text, "/* SQLite */", 12) == 0) return;
    static const char *const foreign[] = {
        "PRAGMA", "sqlite_", "INSERT OR", "REPLACE INTO", "json_",  "ifnull(", "GLOB", "datetime(",
        "iif(",   "printf(", "typeof(",   "ATTACH",       "VACUUM", "==",      NULL};
    for (int i = 0; foreign[i]; i++) demand(!has_word(text, foreign[i]), foreign[i], text);
}

static pj_status strict_run(void *db, const char *text, pj_error *err)
{
    return PLAIN->run(((strict_db *)db)->plain, text, err);
}

/* ? becomes ?N; a text uses one form. */
static void number_parameters(const char *text, char *out)
{
    char quote = 0;
    int number = 0;
    demand(strlen(text) < TEXT_BYTES / 4, "a statement is too long", text);
    for (; *text; text++) {
        if (quote ? *text == quote : *text == '\'' || *text == '"') quote = quote ? 0 : *text;
        *out++ = *text;
        if (quote || *text != '?' || isdigit((unsigned char)text[1])) continue;
        demand(number < 999, "too many parameters", text);
        out += sprintf(out, "%d", ++number);
    }
    *out = 0;
}

static pj_status strict_prepare(void *context, const char *text, void **out, pj_error *err)
{
    static char numbered[TEXT_BYTES];
    strict_db *db = context;
    demand_common_sql(text);
    number_parameters(text, numbered);
    strict_statement *statement = pj_alloc(1, sizeof *statement);
    if (!statement) return pj_fail_memory(err, "a statement");
    statement->db = db;
    pj_status status = PLAIN->prepare(db->plain, numbered, &statement->plain, err);
    if (status != PJ_OK) {
        pj_free(statement);
        return status;
    }
    db->statements++;
    *out = statement;
    return PJ_OK;
}

static void end_loans(strict_statement *statement)
{
    while (statement->copy_count) free(statement->copies[--statement->copy_count]);
    statement->has_row = false;
}

static int strict_bind(void *context, int index, const pj_value *value)
{
    strict_statement *statement = context;
    demand(!statement->has_row, "a parameter is bound while a row is read", "bind");
    return PLAIN->bind(statement->plain, index, value);
}

static int strict_step(void *context, bool *row)
{
    strict_statement *statement = context;
    end_loans(statement);
    int code = PLAIN->step(statement->plain, row);
    statement->has_row = *row;
    return code;
}

static void strict_column(void *context, int column, pj_value *value)
{
    strict_statement *statement = context;
    demand(statement->has_row, "there is no row", "column");
    PLAIN->column(statement->plain, column, value);
    if (!value->text || statement->copy_count == COPIES) return;
    bool is_text = value->type == PJ_VALUE_TEXT;
    char *copy = malloc(value->bytes + is_text);
    if (!copy) abort();
    memcpy(copy, value->text, value->bytes);
    if (is_text) copy[value->bytes] = 0;
    value->text = statement->copies[statement->copy_count++] = copy;
}

static int strict_reset(void *context)
{
    strict_statement *statement = context;
    end_loans(statement);
    return PLAIN->reset(statement->plain);
}

static void strict_clear(void *context)
{
    strict_statement *statement = context;
    end_loans(statement);
    PLAIN->clear(statement->plain);
}

static void strict_finalize(void *context)
{
    strict_statement *statement = context;
    if (!statement) return;
    end_loans(statement);
    PLAIN->finalize(statement->plain);
    statement->db->statements--;
    pj_free(statement);
}

/* The schema is the engine's own; this one has SQLite's. */
const pj_store_driver *strict_driver(void)
{
    static pj_store_driver driver;
    driver = (pj_store_driver){.name = "strict",
                               .dialect = PLAIN->dialect,
                               .listed_runs = "(rowid % 2 = 0)",
                               .open = strict_open,
                               .close = strict_close,
                               .fail = strict_fail,
                               .get_version = strict_get_version,
                               .set_version = strict_set_version,
                               .columns = strict_columns,
                               .begin = strict_begin,
                               .commit = strict_commit,
                               .rollback = strict_rollback,
                               .run = strict_run,
                               .prepare = strict_prepare,
                               .bind = strict_bind,
                               .step = strict_step,
                               .column = strict_column,
                               .reset = strict_reset,
                               .clear = strict_clear,
                               .finalize = strict_finalize};
    return &driver;
}

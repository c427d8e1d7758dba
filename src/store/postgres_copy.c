/* Bulk insertion by COPY in binary format, and the column types it needs. */
#include "store/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MOST_ROOM: a row of numbers. Small chunks keep both sides busy: the server parses one while the
 * next is encoded. A socket holds only a few hundred kilobytes, so that with large ones each side
 * waits for the other. */
enum {
    CHUNK_BYTES = 1 << 16,
    MAX_ROW_BYTES = 1 << 30,
    COPY_TEXT_BYTES = 8192,
    MOST_ROOM = 2 + 12 * PJ_TABLE_COLUMNS
};

/* ---- columns --------------------------------------------------------------------------------- */

static pj_status read_columns(pj_postgres *pg, pj_pg_table *table, pj_error *err)
{
    char text[400];
    snprintf(text, sizeof text,
             "SELECT attname, atttypid::bigint FROM pg_attribute WHERE attrelid ="
             " to_regclass(quote_ident(current_schema()) || '.%s') AND attnum > 0 AND NOT"
             " attisdropped ORDER BY attnum",
             table->name);
    PGresult *result = pj_pg_query(pg, text, err);
    if (!result) return pg->error.status;
    int count = pj_pq.PQntuples(result);
    for (int i = 0; i < count && i < PJ_PG_COLUMNS; i++) {
        pj_pg_column *column = &table->columns[table->count++];
        snprintf(column->name, sizeof column->name, "%s", pj_pq.PQgetvalue(result, i, 0));
        column->type = (uint32_t)strtoul(pj_pq.PQgetvalue(result, i, 1), NULL, 10);
    }
    pj_pq.PQclear(result);
    return PJ_OK;
}

pj_status pj_pg_table_get(pj_postgres *pg, const char *name, const pj_pg_table **out, pj_error *err)
{
    int slot = 0;
    for (; slot < PJ_PG_TABLES && pg->tables[slot]; slot++)
        if (strcmp(pg->tables[slot]->name, name) == 0) {
            *out = pg->tables[slot];
            return PJ_OK;
        }
    pj_status status = pj_pg_ensure(pg, err);
    if (status != PJ_OK) return status;
    if (slot == PJ_PG_TABLES) return pj_fail(err, PJ_E_INTERNAL, "there are too many tables");
    pj_pg_table *table = pj_alloc(1, sizeof *table);
    if (!table) return pj_fail_memory(err, "the columns of a table");
    snprintf(table->name, sizeof table->name, "%.60s", name);
    status = read_columns(pg, table, err);
    if (status == PJ_OK)
        *out = pg->tables[slot] = table;
    else
        pj_free(table);
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static pj_status begin_copy(pj_postgres *pg, const pj_pg_table *table, pj_error *err)
{
    char text[COPY_TEXT_BYTES];
    int n = snprintf(text, sizeof text, "COPY %s (", table->name);
    for (int c = 0; c < table->count && n < COPY_TEXT_BYTES; c++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", c ? ", " : "",
                      table->columns[c].name);
    if (n + 40 > COPY_TEXT_BYTES)
        return pj_fail(err, PJ_E_INTERNAL, "table %s has too many columns", table->name);
    snprintf(text + n, sizeof text - (size_t)n, ") FROM STDIN (FORMAT binary)");
    PGresult *result = pj_pg_query(pg, text, err);
    if (!result) return pg->error.status;
    pj_pq.PQclear(result);
    return PJ_OK;
}

/* Ends a COPY, with the server's error if it reported one. */
static pj_status end_copy(pj_postgres *pg, const char *why, pj_error *err)
{
    pj_status status = PJ_OK;
    if (pj_pq.PQputCopyEnd(pg->connection, why) != 1) status = pj_pg_fail(pg, NULL, err);
    for (PGresult *r; (r = pj_pq.PQgetResult(pg->connection)); pj_pq.PQclear(r))
        if (pj_pq.PQresultStatus(r) != PGRES_COMMAND_OK && status == PJ_OK)
            status = pj_pg_fail(pg, r, err);
    if (status == PJ_OK && !pj_pg_is_alive(pg)) status = pj_pg_fail(pg, NULL, err);
    return status;
}

static void put_16(pj_buffer *out, int value)
{
    pj_buffer_char(out, (char)(value >> 8));
    pj_buffer_char(out, (char)value);
}

static void put_32(pj_buffer *out, uint32_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    memcpy(out->data + out->length, &value, sizeof value);
    out->length += sizeof value;
}

/* A value in the column's type, with its length. */
static bool postgres_copy_put_value(pj_buffer *out, uint32_t type, const pj_value *value)
{
    if (value->type == PJ_VALUE_NULL) {
        put_32(out, UINT32_MAX);
        return true;
    }
    size_t begin = out->length;
    if (!pj_buffer_append(out, "\0\0\0\0", 4) || !pj_pg_write(out, type, value)) return false;
    size_t end = out->length;
    out->length = begin;
    put_32(out, (uint32_t)(end - begin - 4));
    out->length = end;
    return pj_buffer_reserve(out, MOST_ROOM);
}

static bool put_row(pj_buffer *out, const pj_pg_table *table, const pj_bulk_rows *rows,
                    uint32_t row)
{
    const pj_value *values = rows->encode(rows->context, row);
    if (!values || !pj_buffer_reserve(out, MOST_ROOM)) return false;
    put_16(out, table->count);
    for (int c = 0; c < table->count; c++)
        if (!postgres_copy_put_value(out, table->columns[c].type, &values[c])) return false;
    return true;
}

static pj_status send_rows(pj_postgres *pg, const pj_pg_table *table, const pj_bulk_rows *rows,
                           pj_buffer *out, pj_error *err)
{
    static const char header[19] = "PGCOPY\n\xff\r\n"; /* and its zeros */
    bool good = pj_buffer_append(out, header, sizeof header), connected = true;
    for (uint32_t row = 0; row < rows->rows && good && connected; row++) {
        good = put_row(out, table, rows, row);
        if (row + 1 == rows->rows) put_16(out, -1);
        if (out->length < CHUNK_BYTES && row + 1 < rows->rows) continue;
        good = good && !out->failed;
        if (good) connected = pj_pq.PQputCopyData(pg->connection, out->data, (int)out->length) == 1;
        pj_buffer_clear(out);
    }
    if (good) return end_copy(pg, NULL, err);
    end_copy(pg, "a row could not be written", NULL);
    return pj_fail_memory(err, "a run to be stored");
}

pj_status pj_pg_insert_rows(void *db, const pj_bulk_rows *rows, pj_error *err)
{
    pj_postgres *pg = db;
    const pj_pg_table *table;
    pj_buffer out;
    pj_status status = pj_pg_table_get(pg, rows->table, &table, err);
    if (status == PJ_OK) status = begin_copy(pg, table, err);
    if (status != PJ_OK) return status;
    pj_buffer_init(&out, MAX_ROW_BYTES);
    status = send_rows(pg, table, rows, &out, err);
    pj_buffer_fini(&out);
    return status;
}

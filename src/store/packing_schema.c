/* The tables and views of packed rows, in SQLite's SQL, and packing a database of before. The views
 * use nothing that a reader's SQLite may lack, such as sqrt(). */
#include "store/packing.h"

#include "store/schema.h"
#include "store/store_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- views ---------------------------------------------------------------------------------- */

#define POSITIVE_FLOAT(code) \
    "(" code " & 8388607 | 8388608) * 1.0 / (1 << (150 - (" code " >> 23)))"
#define ANY_FLOAT "iif(@ > 0, " POSITIVE_FLOAT("@") ", iif(@ < 0, -" POSITIVE_FLOAT("-@") ", 0.0))"

/* A text by its code, or one without a code. */
#define ANY_TEXT "iif(typeof(#) = 'blob', (SELECT text FROM packed_texts WHERE code = #), #)"

/* Extra figures: the parts of their JSON between places for numbers, and the numbers. A number gets
 * the 7 digits that give it back, or else 9. LIMIT keeps SQLite from repeating inner expressions
 * wherever they are used. */
/* clang-format off */
#define ALL_BYTES \
    "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F" \
    "202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F" \
    "404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F" \
    "606162636465666768696A6B6C6D6E6F707172737475767778797A7B7C7D7E7F" \
    "808182838485868788898A8B8C8D8E8F909192939495969798999A9B9C9D9E9F" \
    "A0A1A2A3A4A5A6A7A8A9AAABACADAEAFB0B1B2B3B4B5B6B7B8B9BABBBCBDBEBF" \
    "C0C1C2C3C4C5C6C7C8C9CACBCCCDCECFD0D1D2D3D4D5D6D7D8D9DADBDCDDDEDF" \
    "E0E1E2E3E4E5E6E7E8E9EAEBECEDEEEFF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF"
#define BYTE(n) "instr(x'" ALL_BYTES "', substr(packed, at + " n ", 1)) - 1"
#define BITS "(((" BYTE("0") ") * 256 + " BYTE("1") ") * 256 + " BYTE("2") ") * 256 + " BYTE("3")
#define NUMBER \
    "(SELECT iif(negative, '-', '') || iif(bits = 0, '0', iif(abs(printf('%.7g', x) - x) < near," \
    " printf('%.7g', x), printf('%.9g', x))) FROM (SELECT negative, bits, " \
    POSITIVE_FLOAT("bits") " AS x, iif(bits & 8388607, 0.5, 0.25) / (1 << (150 - (bits >> 23)))" \
    " AS near FROM (SELECT word >> 31 AS negative, word & 2147483647 AS bits FROM" \
    " (SELECT " BITS " AS word) LIMIT 1) LIMIT 1))"
#define CODE  "substr(#, 1, length(#) % 4)"
#define PLACE "'" PJ_PACKED_PLACE "'"
#define NEXT  "instr(rest, " PLACE ")"
#define ANY_EXTRAS \
    "iif(typeof(#) = 'blob', (WITH RECURSIVE parts(made, rest, packed, at) AS (SELECT '', text, #," \
    " length(#) % 4 + 1 FROM packed_texts WHERE code = " CODE " AND length(text) <= 4096 AND" \
    " 4 * (length(text) - length(replace(text, " PLACE ", ''))) = length(#) / 4 * 4" \
    " UNION ALL SELECT made || substr(rest, 1, " NEXT " - 1) || " NUMBER ", substr(rest, " NEXT \
    " + 1), packed, at + 4 FROM parts WHERE " NEXT " > 0)" \
    " SELECT made || rest FROM parts WHERE " NEXT " = 0), #)"
/* clang-format on */

/* With # for the stored value, and @ for its code. */
static const char *const decoded[] = {
    [PJ_CODE_NONE] = "#",
    [PJ_CODE_MILLIONTHS] = "iif(typeof(#) = 'integer', # / 1e6, #)",
    [PJ_CODE_FLOAT] = "iif(typeof(#) = 'integer', " ANY_FLOAT ", #)",
    [PJ_CODE_TEXT] = ANY_TEXT,
    [PJ_CODE_EXTRAS] = ANY_EXTRAS,
};

static void write_stored_name(pj_buffer *out, const pj_column *column)
{
    bool is_number = pj_code_is_number(pj_code_of(column));
    pj_buffer_printf(out, "%s%s", column->name, is_number ? PJ_CODE_SUFFIX : "");
}

static const pj_column *base_of(const pj_row_table *table, const pj_relation *relation)
{
    const pj_column *column = table->columns;
    while (strcmp(column->name, relation->base) != 0) column++;
    return column;
}

static void write_code(pj_buffer *out, const pj_row_table *table, const pj_column *column)
{
    const pj_relation *relation = pj_relation_of(column->name);
    bool is_difference = relation && !relation->is_equal;
    if (is_difference) pj_buffer_char(out, '(');
    write_stored_name(out, column);
    if (!is_difference) return;
    pj_buffer_text(out, " + ");
    write_stored_name(out, base_of(table, relation));
    pj_buffer_char(out, ')');
}

static void write_decoded(pj_buffer *out, const pj_row_table *table, const pj_column *column)
{
    for (const char *at = decoded[pj_code_of(column)]; *at; at++)
        if (*at == '#')
            write_stored_name(out, column);
        else if (*at == '@')
            write_code(out, table, column);
        else
            pj_buffer_char(out, *at);
}

/* Numbers are cast so that the view's columns have a type, by which they are compared. */
static void write_view_column(pj_buffer *out, const pj_row_table *table, const pj_column *column)
{
    const pj_relation *relation = pj_relation_of(column->name);
    pj_code code = pj_code_of(column);
    bool may_be_equal = relation && relation->is_equal;
    pj_buffer_text(out, pj_code_is_number(code) ? ", CAST(" : ", ");
    if (may_be_equal) {
        pj_buffer_text(out, "iif(");
        write_stored_name(out, column);
        pj_buffer_text(out, " = '', ");
        write_decoded(out, table, base_of(table, relation));
        pj_buffer_text(out, ", ");
    }
    write_decoded(out, table, column);
    if (may_be_equal) pj_buffer_char(out, ')');
    if (pj_code_is_number(code)) pj_buffer_text(out, " AS REAL)");
    if (code != PJ_CODE_NONE) pj_buffer_printf(out, " AS %s", column->name);
}

static void write_view(pj_buffer *out, const pj_schema_table *table)
{
    const pj_row_table *rows = table->rows;
    pj_buffer_printf(out, "DROP VIEW IF EXISTS %s; CREATE VIEW %s AS SELECT id", rows->name,
                     rows->name);
    for (int i = 0; i < pj_schema_own_columns(table); i++)
        pj_buffer_printf(out, ", %s", table->columns[i].name);
    for (uint16_t c = 0; c < rows->column_count; c++)
        write_view_column(out, rows, &rows->columns[c]);
    pj_buffer_printf(out, " FROM %s;", rows->packed);
}

static void write_columns(pj_buffer *out, const pj_schema_table *table, const char *suffix)
{
    pj_schema_column column;
    pj_buffer_text(out, "id");
    for (int i = 0; pj_schema_column_get(table, i, &column); i++)
        pj_buffer_printf(out, ", %s%s", column.name, pj_code_is_number(column.code) ? suffix : "");
}

/* Other programs may change the views' rows. What they give is stored as it is, but an integer as a
 * real and a blob as a text, because those would be codes. */
static void write_given(pj_buffer *out, const pj_schema_column *column)
{
    const char *name = column->name;
    bool is_number = pj_code_is_number(column->code);
    if (column->code == PJ_CODE_NONE)
        pj_buffer_printf(out, "NEW.%s", name);
    else
        pj_buffer_printf(out, "iif(typeof(NEW.%s) = '%s', CAST(NEW.%s AS %s), NEW.%s)", name,
                         is_number ? "integer" : "blob", name, is_number ? "REAL" : "TEXT", name);
}

static void write_insertion(pj_buffer *out, const pj_schema_table *table)
{
    pj_schema_column column;
    pj_buffer_printf(out, "CREATE TRIGGER %s_insert INSTEAD OF INSERT ON %s BEGIN INSERT INTO %s (",
                     table->name, table->name, table->rows->packed);
    write_columns(out, table, PJ_CODE_SUFFIX);
    pj_buffer_text(out, ") VALUES (NEW.id");
    for (int i = 0; pj_schema_column_get(table, i, &column); i++) {
        pj_buffer_text(out, ", ");
        write_given(out, &column);
    }
    pj_buffer_text(out, "); END;");
}

/* A value that has a base, which may change, is no longer stored with respect to it. */
static void write_changed_column(pj_buffer *out, const pj_schema_column *column, bool has_base)
{
    const char *name = column->name;
    bool is_coded = column->code != PJ_CODE_NONE;
    const char *suffix = pj_code_is_number(column->code) ? PJ_CODE_SUFFIX : "";
    pj_buffer_printf(out, ", %s%s = ", name, suffix);
    if (is_coded && !has_base)
        pj_buffer_printf(out, "iif(NEW.%s IS OLD.%s, %s%s, ", name, name, name, suffix);
    write_given(out, column);
    if (is_coded && !has_base) pj_buffer_char(out, ')');
}

static void write_change(pj_buffer *out, const pj_schema_table *table)
{
    pj_schema_column column;
    pj_buffer_printf(out,
                     "CREATE TRIGGER %s_update INSTEAD OF UPDATE ON %s BEGIN UPDATE %s SET"
                     " id = NEW.id",
                     table->name, table->name, table->rows->packed);
    for (int i = 0; pj_schema_column_get(table, i, &column); i++)
        write_changed_column(out, &column, pj_relation_of(column.name) != NULL);
    pj_buffer_text(out, " WHERE id = OLD.id; END;");
}

void pj_packing_write(pj_buffer *out, const pj_schema_table *table)
{
    write_view(out, table);
    write_insertion(out, table);
    write_change(out, table);
    pj_buffer_printf(out,
                     "CREATE TRIGGER %s_delete INSTEAD OF DELETE ON %s BEGIN"
                     " DELETE FROM %s WHERE id = OLD.id; END;",
                     table->name, table->name, table->rows->packed);
}

bool pj_packing_owns_trigger(const char *name)
{
    static const char *const events[] = {"insert", "update", "delete"};
    char ours[96];
    for (int t = 0; t < PJ_TABLE_COUNT; t++)
        for (int e = 0; e < 3 && pj_tables[t].packed; e++) {
            snprintf(ours, sizeof ours, "%s_%s", pj_tables[t].name, events[e]);
            if (strcmp(name, ours) == 0) return true;
        }
    return false;
}

/* ---- databases of before -------------------------------------------------------------------- */

static bool add_columns(pj_packer *packer, const pj_schema_table *table)
{
    bool good = true;
    for (int i = -1; i < pj_schema_own_columns(table) && good; i++) /* with the id */
        good = pj_packer_add(packer, NULL);
    for (uint16_t c = 0; c < table->rows->column_count && good; c++)
        good = pj_packer_add(packer, &table->rows->columns[c]);
    pj_packer_begin(packer);
    return good;
}

static pj_status move_each(pj_store *store, const pj_schema_table *table, const char *select,
                           const char *insert, pj_error *err)
{
    pj_packer packer = {.texts = &store->texts};
    pj_value values[PJ_PACKED_COLUMNS];
    if (!add_columns(&packer, table))
        return pj_fail(err, PJ_E_INTERNAL, "table %s has too many columns", table->name);
    pj_error reading = {0};
    pj_sql *from = pj_sql_begin(store, select, &reading), *to = pj_sql_begin(store, insert, err);
    while (pj_sql_step(from)) {
        for (uint32_t c = 0; c < packer.count; c++) {
            pj_sql_get_value(from, (int)c, &values[c]);
            pj_value_check_utf8(&values[c]);
        }
        pj_packer_pack(&packer, values);
        if (packer.texts->failure.status != PJ_OK) break;
        pj_sql_execute(to, values, (int)packer.count);
    }
    pj_status written = pj_sql_end(to, err), read = pj_sql_end(from, &reading);
    if (read == PJ_OK) {
        reading = packer.texts->failure;
        read = reading.status;
    }
    if (written == PJ_OK && read != PJ_OK && err) *err = reading;
    return written == PJ_OK ? read : written;
}

static pj_status move_table(pj_store *store, const pj_schema_table *table, pj_error *err)
{
    pj_buffer select, insert;
    pj_buffer_init(&select, 1 << 16);
    pj_buffer_init(&insert, 1 << 16);
    pj_buffer_text(&select, "SELECT ");
    write_columns(&select, table, "");
    pj_buffer_printf(&select, " FROM %s ORDER BY id", table->name);
    pj_buffer_printf(&insert, "INSERT INTO %s (", table->rows->packed);
    write_columns(&insert, table, PJ_CODE_SUFFIX);
    pj_schema_column column;
    pj_buffer_text(&insert, ") VALUES (?");
    for (int i = 0; pj_schema_column_get(table, i, &column); i++) pj_buffer_text(&insert, ", ?");
    pj_buffer_char(&insert, ')');
    pj_status status = pj_buffer_status(&insert, "the schema", err);
    if (status == PJ_OK) status = pj_buffer_status(&select, "the schema", err);
    if (status == PJ_OK)
        status = move_each(store, table, pj_buffer_get(&select), pj_buffer_get(&insert), err);
    pj_buffer_fini(&select);
    pj_buffer_fini(&insert);
    return status;
}

static pj_status drop_table(pj_store *store, const pj_schema_table *table, pj_error *err)
{
    char text[96];
    snprintf(text, sizeof text, "DROP TABLE %s", table->name);
    return pj_sql_run(store, text, err);
}

/* Rows come after those that they refer to, and are dropped before them. */
pj_status pj_packing_move_rows(pj_store *store, pj_error *err)
{
    pj_status status = PJ_OK;
    const pj_schema_table *table = pj_schema_tables;
    for (; table->name && status == PJ_OK; table++)
        if (table->rows && table->rows->packed) status = move_table(store, table, err);
    while (table-- > pj_schema_tables && status == PJ_OK)
        if (table->rows && table->rows->packed) status = drop_table(store, table, err);
    return status;
}

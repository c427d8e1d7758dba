/* Which rows of each table belong to a run: run_rows names them by first id and count. */
#include "store/rows.h"
#include "store/store_impl.h"

#include <stdio.h>
#include <string.h>

pj_status pj_store_ranges(pj_store *store, const char *run_id, pj_row_range *ranges, pj_error *err)
{
    memset(ranges, 0, PJ_TABLE_COUNT * sizeof *ranges);
    pj_sql *sql = pj_sql_begin(
        store, "SELECT table_name, first_id, row_count FROM run_rows WHERE run_id = ?", err);
    pj_sql_text(sql, 1, run_id);
    while (pj_sql_step(sql)) {
        const char *name = pj_sql_get_text(sql, 0, NULL);
        int64_t first = pj_sql_get_int(sql, 1), count = pj_sql_get_int(sql, 2);
        if (!name || first < 1 || count < 0 || count >= UINT32_MAX ||
            first > INT64_MAX - UINT32_MAX)
            continue;
        for (int t = 0; t < PJ_TABLE_COUNT; t++)
            if (strcmp(pj_tables[t].name, name) == 0)
                ranges[t] = (pj_row_range){first, (uint32_t)count};
    }
    return pj_sql_end(sql, err);
}

/* The highest N of the parameters ?N, at least 2. */
static int last_parameter(const char *text)
{
    int last = 2;
    while ((text = strchr(text, '?')))
        if (*++text > '0' + last && *text <= '9') last = *text - '0';
    return last;
}

pj_sql *pj_select_rows(pj_store *store, const char *run_id, int table, pj_row_range range,
                       const char *columns, const char *rest, pj_error *err)
{
    char text[4096], of_run[40] = "";
    int parameter = last_parameter(rest) + 1;
    bool by_run = store->driver->is_remote;
    if (by_run) snprintf(of_run, sizeof of_run, "AND run_id = ?%d", parameter);
    snprintf(text, sizeof text, "SELECT %s FROM %s WHERE id BETWEEN ?1 AND ?2 %s %s", columns,
             pj_tables[table].name, of_run, rest);
    pj_sql *sql = pj_sql_begin(store, text, err);
    if (by_run) pj_sql_text(sql, parameter, run_id);
    pj_sql_int(sql, 1, range.first);
    pj_sql_int(sql, 2, range.first + range.count - 1);
    return sql;
}

/* Changes the tags of a stored run: the array in its row, and the rows to search by. */
#include "store/sql.h"
#include "store/store.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TAGS_OF_A_RUN = 64 };

static bool holds(const pj_tag_change *list, uint32_t count, const char *tag)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(list[i].tag, tag) == 0) return true;
    return false;
}

static bool has(const json_t *list, const char *tag)
{
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value)
    {
        const char *text = json_string_value(value);
        if (text && strcmp(text, tag) == 0) return true;
    }
    return false;
}

/* The existing tags without the removed ones, then the new ones, in that order. */
static json_t *changed(const json_t *old, const pj_tag_change *changes, uint32_t count)
{
    pj_tag_change gone[TAGS_OF_A_RUN];
    uint32_t gone_count = 0;
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        if (changes[i].remove && gone_count < TAGS_OF_A_RUN) gone[gone_count++] = changes[i];
    for (size_t i = 0; i < json_array_size(old); i++) {
        const char *text = json_string_value(json_array_get(old, i));
        if (text && !holds(gone, gone_count, text)) json_array_append_new(list, json_string(text));
    }
    for (uint32_t i = 0; i < count; i++)
        if (!changes[i].remove && !has(list, changes[i].tag))
            json_array_append_new(list, json_string(changes[i].tag));
    return list;
}

static pj_status read_list(pj_store *store, const char *id, json_t **list, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "SELECT tags FROM profiling_runs WHERE id = ?", err);
    pj_sql_text(sql, 1, id);
    bool found = pj_sql_step(sql);
    size_t bytes = 0;
    const char *text = found ? pj_sql_get_text(sql, 0, &bytes) : NULL;
    *list = text ? json_loadb(text, bytes, 0, NULL) : NULL;
    pj_status status = pj_sql_end(sql, err);
    if (status == PJ_OK && !found) return pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", id);
    return status;
}

static pj_status tags_write_rows(pj_store *store, const char *id, const json_t *list, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "DELETE FROM run_tags WHERE run_id = ?", err);
    pj_sql_text(sql, 1, id);
    pj_sql_step(sql);
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK || json_array_size(list) == 0) return status;
    sql = pj_sql_begin(
        store, "INSERT INTO run_tags (tag, run_id) VALUES (?, ?) ON CONFLICT DO NOTHING", err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        pj_sql_text(sql, 1, json_string_value(json_array_get(list, i)));
        pj_sql_text(sql, 2, id);
        pj_sql_step(sql);
        pj_sql_reset(sql);
    }
    return pj_sql_end(sql, err);
}

static pj_status tags_write_list(pj_store *store, const char *id, const json_t *list, pj_error *err)
{
    char *text = json_dumps(list, JSON_COMPACT);
    if (!text) return pj_fail_memory(err, "the run's tags");
    pj_sql *sql = pj_sql_begin(store, "UPDATE profiling_runs SET tags = ? WHERE id = ?", err);
    pj_sql_text(sql, 1, text);
    pj_sql_text(sql, 2, id);
    pj_sql_step(sql);
    pj_status status = pj_sql_end(sql, err);
    free(text);
    return status == PJ_OK ? tags_write_rows(store, id, list, err) : status;
}

static pj_status change(pj_store *store, const char *id, const pj_tag_change *changes,
                        uint32_t count, pj_json *json, pj_error *err)
{
    json_t *old = NULL, *list = NULL;
    pj_status status = read_list(store, id, &old, err);
    if (status == PJ_OK) {
        list = changed(old, changes, count);
        if (json_array_size(list) > TAGS_OF_A_RUN)
            status = pj_fail(err, PJ_E_INVALID, "a run has at most %d tags", TAGS_OF_A_RUN);
        else
            status = tags_write_list(store, id, list, err);
    }
    for (size_t i = 0; i < json_array_size(list) && status == PJ_OK; i++)
        pj_json_string(json, json_string_value(json_array_get(list, i)));
    json_decref(old);
    json_decref(list);
    return status;
}

pj_status pj_store_retag(pj_store *store, const char *id, const pj_tag_change *changes,
                         uint32_t count, pj_json *json, pj_error *err)
{
    pj_status status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    pj_json_array_begin(json);
    status = change(store, id, changes, count, json, err);
    pj_json_array_end(json);
    if (status == PJ_OK) return pj_sql_commit(store, err);
    pj_sql_rollback(store);
    return status;
}

/* The tags of a run: the array in its row, and the rows to search by. */
#include "store/sql.h"

#include <jansson.h>
#include <string.h>

enum { TAGS_OF_A_RUN = 64, MAX_TAGS = 4096 };

void pj_tags_write(pj_json *json, const char *const *tags, uint32_t count)
{
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) pj_json_string(json, tags[i]);
    pj_json_array_end(json);
}

pj_status pj_tags_read(const char *text, size_t bytes, pj_arena *arena, const char *const **out,
                       uint32_t *count, pj_error *err)
{
    json_t *list = text ? json_loadb(text, bytes, 0, NULL) : NULL;
    size_t most = json_array_size(list) < MAX_TAGS ? json_array_size(list) : MAX_TAGS;
    const char **tags = pj_arena_alloc(arena, most + 1, sizeof *tags);
    *out = tags;
    *count = 0;
    for (size_t i = 0; i < most && tags; i++) {
        const char *tag = json_string_value(json_array_get(list, i));
        tags[i] = pj_arena_strndup(arena, tag ? tag : "", tag ? strlen(tag) : 0);
        if (tags[i]) ++*count;
    }
    json_decref(list);
    return tags && *count == most ? PJ_OK : pj_fail_memory(err, "the run's tags");
}

pj_status pj_tags_insert(pj_store *store, const char *id, const char *const *tags, uint32_t count,
                         pj_error *err)
{
    if (!count) return PJ_OK;
    pj_sql *sql = pj_sql_begin(
        store, "INSERT INTO run_tags (tag, run_id) VALUES (?, ?) ON CONFLICT DO NOTHING", err);
    for (uint32_t i = 0; i < count; i++)
        pj_sql_execute(sql, PJ_VALUES(pj_value_text(tags[i]), pj_value_text(id)));
    return pj_sql_end(sql, err);
}

/* ---- changing them --------------------------------------------------------------------------- */

typedef struct tag_list {
    const char *const *tags;
    uint32_t count;
} tag_list;

static bool tags_hold(const tag_list *list, const char *tag)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(list->tags[i], tag) == 0) return true;
    return false;
}

static bool is_removed(const pj_tag_change *changes, uint32_t count, const char *tag)
{
    for (uint32_t i = 0; i < count; i++)
        if (changes[i].remove && strcmp(changes[i].tag, tag) == 0) return true;
    return false;
}

static pj_status tags_load(pj_store *store, const char *id, pj_arena *arena, tag_list *list,
                           pj_error *err)
{
    pj_status status = PJ_OK;
    pj_sql *sql = pj_sql_begin(store, "SELECT tags FROM profiling_runs WHERE id = ?", err);
    pj_sql_text(sql, 1, id);
    bool found = pj_sql_step(sql);
    if (found) {
        size_t bytes;
        const char *text = pj_sql_get_text(sql, 0, &bytes);
        status = pj_tags_read(text, bytes, arena, &list->tags, &list->count, err);
    }
    status = pj_sql_end_after(sql, status, err);
    if (status == PJ_OK && !found) return pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", id);
    return status;
}

/* The existing tags without the removed ones, then the new ones, in that order. */
static pj_status tags_change(const tag_list *old, const pj_tag_change *changes, uint32_t count,
                             pj_arena *arena, tag_list *new, pj_error *err)
{
    const char **tags = pj_arena_alloc(arena, (size_t)old->count + count + 1, sizeof *tags);
    new->tags = tags;
    if (!tags) return pj_fail_memory(err, "the run's tags");
    for (uint32_t i = 0; i < old->count; i++)
        if (!is_removed(changes, count, old->tags[i])) tags[new->count++] = old->tags[i];
    for (uint32_t i = 0; i < count; i++)
        if (!changes[i].remove && !tags_hold(new, changes[i].tag))
            tags[new->count++] = changes[i].tag;
    if (new->count <= TAGS_OF_A_RUN) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "a run has at most %d tags", TAGS_OF_A_RUN);
}

static pj_status tags_store(pj_store *store, const char *id, const tag_list *list, pj_error *err)
{
    pj_buffer text;
    pj_json json;
    pj_buffer_init(&text, 1 << 28);
    pj_json_init(&json, &text);
    pj_tags_write(&json, list->tags, list->count);
    pj_status status = pj_buffer_status(&text, "the run's tags", err);
    if (status == PJ_OK)
        status =
            pj_sql_change(store, "UPDATE profiling_runs SET tags = ? WHERE id = ?",
                          PJ_VALUES(pj_value_text(pj_buffer_get(&text)), pj_value_text(id)), err);
    if (status == PJ_OK)
        status = pj_sql_change(store, "DELETE FROM run_tags WHERE run_id = ?",
                               PJ_VALUES(pj_value_text(id)), err);
    pj_buffer_fini(&text);
    return status == PJ_OK ? pj_tags_insert(store, id, list->tags, list->count, err) : status;
}

pj_status pj_store_retag(pj_store *store, const char *id, const pj_tag_change *changes,
                         uint32_t count, pj_json *json, pj_error *err)
{
    tag_list old = {0}, new = {0};
    pj_arena arena;
    pj_status status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    pj_arena_init(&arena, 0);
    status = tags_load(store, id, &arena, &old, err);
    if (status == PJ_OK) status = tags_change(&old, changes, count, &arena, &new, err);
    if (status == PJ_OK) status = tags_store(store, id, &new, err);
    pj_tags_write(json, new.tags, new.count);
    pj_arena_fini(&arena);
    return pj_sql_finish(store, status, err);
}

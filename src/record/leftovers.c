/* Lists spools, and the runs of those that wait to be recovered by the facts that they begin with.
 */
#include "record/leftovers.h"

#include "base/memory.h"
#include "base/text.h"
#include "record/spool_files.h"
#include "store/rows.h"
#include "trace/run_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MOST_LEFTOVERS = 1000, FACTS_BYTES = 1 << 20 /* of a spool's begin */ };

/* ---- spools ---- */

const char *pj_spool_state_name(pj_spool_state state)
{
    static const char *const names[] = {"running", "left", "unreadable", "damaged", "foreign"};
    return names[state];
}

static void leftovers_inspect(const char *path, pj_spool_entry *entry)
{
    pj_spool_reader reader;
    char tries[PJ_SPOOL_DIR_BYTES];
    struct stat info;
    *entry = (pj_spool_entry){.state = PJ_SPOOL_LEFT};
    snprintf(entry->path, sizeof entry->path, "%s", path);
    pj_status status = pj_spool_file_open(path, &reader, &entry->bytes, &entry->reason);
    bool is_open = status == PJ_OK;
    if (status == PJ_E_AGAIN) entry->state = PJ_SPOOL_RUNNING;
    if (status == PJ_E_DENIED) entry->state = PJ_SPOOL_FOREIGN;
    if (pj_ends_with(path, ".damaged"))
        entry->state = PJ_SPOOL_DAMAGED;
    else if (status == PJ_OK && pj_spool_tries_path(path, tries, sizeof tries) &&
             stat(tries, &info) == 0 && info.st_size >= PJ_SPOOL_MOST_TRIES)
        status = pj_fail(&entry->reason, PJ_E_STATE, "its recovery failed to finish %d times",
                         PJ_SPOOL_MOST_TRIES);
    else if (status == PJ_OK) {
        bool has_facts = false;
        for (const pj_record *record; !has_facts && (record = pj_spool_next(&reader));)
            has_facts = pj_record_kind(record) == PJ_RECORD_INFO;
        if (!has_facts) status = pj_fail(&entry->reason, PJ_E_INVALID, "it does not name its run");
    }
    if (status != PJ_OK && entry->state == PJ_SPOOL_LEFT) entry->state = PJ_SPOOL_UNREADABLE;
    if (is_open) pj_spool_reader_close(&reader); /* and releases its lock */
}

static void list_folder(const char *dir, void (*take)(void *, const pj_spool_entry *),
                        void *context)
{
    pj_spool_entry entry;
    char path[PJ_SPOOL_DIR_BYTES];
    DIR *spools = opendir(dir);
    while (pj_spool_next_file(spools, dir, true, path)) {
        leftovers_inspect(path, &entry);
        if (entry.reason.status != PJ_E_NOT_FOUND) take(context, &entry);
    }
}

void pj_spools_list(const char *database, void (*take)(void *, const pj_spool_entry *),
                    void *context)
{
    pj_spool_dirs dirs;
    pj_spool_dirs_of(database, &dirs);
    for (int i = 0; i < PJ_SPOOL_DIRS; i++) {
        pj_spool_entry entry = {.state = PJ_SPOOL_FOREIGN};
        if (!dirs.path[i][0]) continue;
        pj_status status = pj_spool_dir_check(dirs.path[i], &entry.reason);
        snprintf(entry.path, sizeof entry.path, "%s", dirs.path[i]);
        if (status == PJ_OK)
            list_folder(dirs.path[i], take, context);
        else if (status != PJ_E_NOT_FOUND)
            take(context, &entry);
    }
}

/* ---- their runs ---- */

bool pj_leftovers_wanted(const pj_run_query *q)
{
    const char *const chosen[] = {q->search,        q->model,   q->experiment, q->repeat_group,
                                  q->energy_source, q->engine,  q->dtype,      q->scope,
                                  q->level,         q->machine, q->from,       q->to};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        if (chosen[i]) return false;
    const pj_run_bounds *bounds[] = {&q->energy_mj, &q->joules_per_token,
                                     &q->joules_per_token_typical};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i]->has_min || bounds[i]->has_max) return false;
    return !q->tag_count && !q->id_count && !q->offset && q->sort == PJ_SORT_DATE &&
           !q->ascending && (!q->status || strcmp(q->status, "interrupted") == 0);
}

/* The facts at the begin of a spool; a later record replaces members of an earlier one. */
static bool read_facts(const char *path, pj_arena *arena, pj_run_info *info)
{
    pj_spool_reader reader;
    int64_t begin_ns = 0;
    if (pj_spool_reader_open(path, &reader, NULL) != PJ_OK) return false;
    pj_run_info_init(info);
    pj_run_info_unknown(info);
    info->created_wall_ns = reader.start_wall_ns;
    for (const pj_record *record; reader.offset < FACTS_BYTES && (record = pj_spool_next(&reader));)
        if (pj_record_kind(record) == PJ_RECORD_INFO)
            pj_run_info_read((const char *)record->payload, pj_record_bytes(record), arena, info,
                             &begin_ns, NULL);
    info->status = PJ_RUN_INTERRUPTED;
    info->quality = PJ_UNAVAILABLE; /* so far */
    pj_spool_reader_close(&reader);
    return info->id[0] != 0;
}

static bool leftovers_is_stored(pj_store *store, const char *id)
{
    char found[PJ_UUID_BYTES];
    return pj_store_resolve(store, id, found, NULL) == PJ_OK;
}

static void take_leftover(void *context, const pj_spool_entry *entry)
{
    pj_run_list *list = context;
    if ((entry->state == PJ_SPOOL_LEFT || entry->state == PJ_SPOOL_UNREADABLE) &&
        list->count < MOST_LEFTOVERS &&
        read_facts(entry->path, &list->arena, &list->runs[list->count]))
        list->count++;
}

static int by_age(const void *a, const void *b)
{
    int64_t x = ((const pj_run_info *)a)->created_wall_ns;
    int64_t y = ((const pj_run_info *)b)->created_wall_ns;
    return (x < y) - (x > y);
}

void pj_leftovers_read(const char *database, pj_run_list *list)
{
    *list = (pj_run_list){0};
    pj_arena_init(&list->arena, 0);
    list->runs = pj_arena_alloc(&list->arena, MOST_LEFTOVERS, sizeof *list->runs);
    if (!list->runs) return;
    pj_spools_list(database, take_leftover, list);
    qsort(list->runs, list->count, sizeof *list->runs, by_age);
}

const pj_run_info **pj_leftovers_unstored(const pj_run_list *list, pj_store *store, uint32_t *count)
{
    const pj_run_info **runs = pj_alloc(list->count, sizeof *runs);
    *count = 0;
    for (uint32_t i = 0; runs && i < list->count; i++)
        if (!leftovers_is_stored(store, list->runs[i].id)) runs[(*count)++] = &list->runs[i];
    return runs;
}

/* ---- naming one of them ---- */

/* The run that is `back` runs before the newest of all. */
static pj_status leftovers_resolve_last(const pj_run_info *const *runs, uint32_t count,
                                        pj_store *store, const char *text, char id[PJ_UUID_BYTES],
                                        const pj_run_info **found, pj_error *err)
{
    int64_t back = pj_store_parse_last(text), passed = 0;
    char stored[32];
    for (uint32_t i = 0; i < count; i++) {
        int64_t newer;
        pj_status status = pj_store_count_newer(store, runs[i]->created_wall_ns, &newer, err);
        if (status != PJ_OK) return status;
        if (newer + i == back) {
            *found = runs[i];
            memcpy(id, runs[i]->id, PJ_UUID_BYTES);
            return PJ_OK;
        }
        passed += newer + i < back;
    }
    snprintf(stored, sizeof stored, "last~%lld", (long long)(back - passed));
    pj_status status = pj_store_resolve(store, stored, id, err);
    /* in the words of the caller */
    return status == PJ_E_NOT_FOUND ? pj_store_resolve(store, text, id, err) : status;
}

static pj_status leftovers_resolve_prefix(const pj_run_info *const *runs, uint32_t count,
                                          pj_store *store, const char *text, char id[PJ_UUID_BYTES],
                                          const pj_run_info **found, pj_error *err)
{
    enum { LEAST = 4 };
    uint32_t matches = 0;
    size_t length = strlen(text);
    const pj_run_info *match = NULL;
    for (uint32_t i = 0; i < count && length >= LEAST; i++)
        if (strncasecmp(runs[i]->id, text, length) == 0) {
            match = runs[i];
            matches++;
        }
    pj_status status = pj_store_resolve(store, text, id, err);
    if (!matches || (status == PJ_OK && strcmp(id, match->id) == 0)) return status;
    if (status != PJ_E_NOT_FOUND || matches > 1)
        return status != PJ_OK && status != PJ_E_NOT_FOUND
                   ? status
                   : pj_fail(err, PJ_E_INVALID, "the id %s is ambiguous: give more characters",
                             text);
    *found = match;
    memcpy(id, match->id, PJ_UUID_BYTES);
    return PJ_OK;
}

pj_status pj_leftovers_resolve(const pj_run_list *waiting, pj_store *store, const char *text,
                               char id[PJ_UUID_BYTES], const pj_run_info **found, pj_error *err)
{
    uint32_t count = 0;
    *found = NULL;
    if (!waiting->count) return pj_store_resolve(store, text, id, err);
    const pj_run_info **runs = pj_leftovers_unstored(waiting, store, &count);
    bool last = pj_store_parse_last(text) >= 0;
    pj_status status = last ? leftovers_resolve_last(runs, count, store, text, id, found, err)
                            : leftovers_resolve_prefix(runs, count, store, text, id, found, err);
    pj_free(runs);
    return status;
}

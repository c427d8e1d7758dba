/*
 * Leftovers: a run's events lie in a spool beside the database until the run is stored. Whoever
 * opens the database next, to record or only to look, turns the spools of dead processes into runs.
 */
#include "profile/recover.h"

#include "base/file.h"
#include "attribution/build.h"
#include "trace/spool.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

pj_status pj_spool_dir_of(const pj_store *store, char *dir, size_t bytes, pj_error *err)
{
    const char *path = pj_store_path(store);
    const char *slash = strrchr(path, '/');
    if (!strstr(path, "://")) {
        snprintf(dir, bytes, "%.*sspool", slash ? (int)(slash + 1 - path) : 0, path);
        return PJ_OK;
    }
    pj_status status = pj_path_user_data(dir, bytes, err);
    if (status == PJ_OK) strncat(dir, "/spool", bytes - strlen(dir) - 1);
    return status;
}

static bool has_facts(pj_spool_reader *reader)
{
    for (const pj_record *record; (record = pj_spool_next(reader));)
        if (pj_record_kind(record) == PJ_RECORD_INFO) return true;
    return false;
}

/* The lock is held from reading to removing, so that two starting processes do not both take it. */
static pj_status recover(pj_store *store, const char *path, uint32_t *recovered, pj_error *err)
{
    pj_spool_reader reader;
    pj_run_data data = {0};
    pj_status status = pj_spool_reader_open(path, &reader, err);
    if (status == PJ_E_AGAIN || status == PJ_E_NOT_FOUND) return PJ_OK; /* somebody else's */
    if (status != PJ_OK) return status;
    if (!has_facts(&reader)) { /* died before it had begun: there is no run in it */
        unlink(path);
        pj_spool_reader_close(&reader);
        return PJ_OK;
    }
    status = pj_build_run(&reader, &(pj_build_options){0}, &data, err);
    if (status == PJ_OK) status = pj_store_save(store, &data, err);
    if (status == PJ_OK) {
        unlink(path);
        ++*recovered;
    }
    pj_run_data_fini(&data);
    pj_spool_reader_close(&reader);
    return status;
}

uint32_t pj_spools_recover(pj_store *store, const char *dir, char *warning, size_t bytes)
{
    uint32_t recovered = 0;
    DIR *spools = opendir(dir);
    if (!spools) return 0;
    for (struct dirent *entry; (entry = readdir(spools));) {
        char path[4096];
        pj_error err = {0};
        size_t length = strlen(entry->d_name);
        if (length < 7 || strcmp(entry->d_name + length - 6, ".spool") != 0 ||
            !pj_path_join(path, sizeof path, dir, entry->d_name))
            continue;
        if (recover(store, path, &recovered, &err) != PJ_OK)
            snprintf(warning, bytes, "a run that was interrupted stays in %s: %s", path, err.text);
    }
    closedir(spools);
    return recovered;
}

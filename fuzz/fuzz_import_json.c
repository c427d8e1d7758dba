/* Importing a run from any bytes. An accepted run must be stored, read back and deleted without
 * error. The database takes most of the time, so only one input in eight, chosen
 * by its content, is stored; the others are only read. */
#include "store/export.h"
#include "trace/spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static pj_store *store;
static char folder[] = "/tmp/perjoule-fuzz-XXXXXX";

static void remove_store(void)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char path[64];
    pj_store_close(store);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%s/runs.db%s", folder, endings[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_store(void)
{
    char path[64];
    pj_error err;
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/runs.db", folder);
    if (pj_store_open(&(pj_store_options){.path = path}, &store, &err) != PJ_OK) abort();
    atexit(remove_store);
}

static void store_and_load(const pj_run_data *run)
{
    pj_run_data back = {0};
    pj_error err;
    if (!store) make_store();
    if (pj_store_save(store, run, &err) != PJ_OK) return;
    if (pj_store_load(store, run->info.id, &back, &err) != PJ_OK) abort();
    pj_run_data_fini(&back);
    if (pj_store_delete(store, run->info.id, &err) != PJ_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_run_data run = {0};
    pj_error err;
    if (pj_import_json((const char *)data, size, &run, &err) != PJ_OK) return 0;
    if (pj_crc32c(0, data, size) % 8 == 0) store_and_load(&run);
    pj_run_data_fini(&run);
    return 0;
}

/* Imported runs: any bytes. What is taken must also go into a database and come out again. */
#include "store/export.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pj_store *store;
    pj_run_data run = {0}, back = {0};
    pj_error err;
    if (!store) pj_store_open(&(pj_store_options){.path = ":memory:"}, &store, &err);
    if (pj_import_json((const char *)data, size, &run, &err) != PJ_OK) return 0;
    if (store && pj_store_save(store, &run, &err) == PJ_OK) {
        if (pj_store_load(store, run.info.id, &back, &err) != PJ_OK) __builtin_trap();
        pj_run_data_fini(&back);
    }
    pj_run_data_fini(&run);
    return 0;
}

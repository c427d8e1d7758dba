/*
 * The tests of the store over PostgreSQL: what a test calls a file becomes a schema of its own on
 * the server that PERJOULE_TEST_POSTGRES names (tests/postgres/server.py). Without a server, or in
 * a build without the engine, the test is skipped.
 */
#include "made_run.h"

#include "store/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE_BYTES = 512 };

static const pj_store_driver *engine(void)
{
    const pj_store_driver *driver;
    if (pj_store_driver_find("postgresql:", &driver, NULL) == PJ_OK) return driver;
    printf("skipped: this build does not support PostgreSQL\n");
    exit(77);
}

/* A schema per path; names are hashed because schemas have short ones. */
static pj_status open_schema(const char *path, bool read_only, void **db, pj_error *err)
{
    char address[PLACE_BYTES], text[PLACE_BYTES];
    const char *folder = getenv("PERJOULE_TEST_POSTGRES");
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = path; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    if (!folder) {
        printf("skipped: no PostgreSQL server\n");
        exit(77);
    }
    snprintf(address, sizeof address, "postgresql:///postgres?host=%s&user=owner", folder);
    void *plain = NULL;
    pj_status status = engine()->open(address, false, &plain, err);
    snprintf(text, sizeof text, "CREATE SCHEMA IF NOT EXISTS test_%016llx",
             (unsigned long long)hash);
    if (status == PJ_OK && !read_only) status = engine()->run(plain, text, err);
    engine()->close(plain);
    if (status != PJ_OK) return status;
    snprintf(text, sizeof text, "%s&options=-csearch_path%%3Dtest_%016llx", address,
             (unsigned long long)hash);
    return engine()->open(text, read_only, db, err);
}

const pj_store_driver *server_driver(void)
{
    static pj_store_driver driver;
    driver = *engine();
    driver.open = open_schema;
    return &driver;
}

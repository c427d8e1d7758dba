/* libpq, opened at run time: a machine that stores in a file needs none of it. */
#include "store/postgres.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

pj_libpq pj_pq;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing; /* a library or function */

static const char *const names[] = {
#ifdef __APPLE__
    "libpq.5.dylib", "/opt/homebrew/opt/libpq/lib/libpq.5.dylib",
    "/usr/local/opt/libpq/lib/libpq.5.dylib",
#endif
    "libpq.so.5", NULL};

static void postgres_libpq_load(void)
{
    void *library = NULL;
    for (int i = 0; names[i] && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        missing = "libpq.so.5";
        return;
    }
#define FIND(name)                                 \
    do {                                           \
        void *found = dlsym(library, #name);       \
        if (!found) missing = #name;               \
        memcpy(&pj_pq.name, &found, sizeof found); \
    } while (0);
    PJ_PG_FUNCTIONS(FIND)
#undef FIND
}

pj_status pj_libpq_load(pj_error *err)
{
    pthread_once(&once, postgres_libpq_load);
    if (!missing) return PJ_OK;
    return pj_fail(err, PJ_E_UNAVAILABLE,
                   "PostgreSQL's client library is not usable here (%s is missing): install libpq "
                   "(Debian: libpq5), or give --db a file",
                   missing);
}

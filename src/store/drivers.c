/* The list of storage engines. Adding one is a file, a line here, and its prefixes below. */
#include "store/driver.h"
#include "store/store.h"

#include "base/file.h"

#include <string.h>

extern const pj_store_driver pj_sqlite_driver;
#ifdef PJ_HAS_POSTGRES
extern const pj_store_driver pj_postgres_driver;
#endif

const pj_store_driver *const pj_store_drivers[] = {&pj_sqlite_driver,
#ifdef PJ_HAS_POSTGRES
                                                   &pj_postgres_driver,
#endif
                                                   NULL};

/* Prefixes of engines that this build may lack, so that their addresses are not taken for file
 * names. */
static const char *const addresses[] = {"postgresql:", "postgres:", NULL};

static bool begins_with_one(const char *address, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (strncmp(address, *prefixes, strlen(*prefixes)) == 0) return true;
    return false;
}

bool pj_store_is_server(const char *address)
{
    return begins_with_one(address, addresses);
}

/* Whether an address begins like "mysql:", and is not a file. A path in which a slash comes before
 * the colon is a path. */
static bool has_unknown_scheme(const char *address)
{
    size_t length = strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789+.-");
    return length && address[length] == ':' && !pj_file_exists(address);
}

pj_status pj_store_driver_find(const char *address, const pj_store_driver **driver, pj_error *err)
{
    *driver = NULL;
    for (int i = 0; pj_store_drivers[i]; i++) {
        const pj_store_driver *d = pj_store_drivers[i];
        if (d->prefixes && begins_with_one(address, d->prefixes)) {
            *driver = d;
            return PJ_OK;
        }
        if (!d->prefixes && !*driver) *driver = d;
    }
    if (has_unknown_scheme(address) && !pj_store_is_server(address))
        return pj_fail(err, PJ_E_INVALID,
                       "%.200s is neither a file nor the address of a known database: give "
                       "postgresql://HOST/DATABASE or, for a file of this name, ./%.200s",
                       address, address);
    if (*driver && !pj_store_is_server(address)) return PJ_OK;
    return pj_fail(err, PJ_E_UNSUPPORTED,
                   "this build supports SQLite only: --db must be a file, not a server");
}

bool pj_store_is_database(const char *path)
{
    for (int i = 0; pj_store_drivers[i]; i++)
        if (pj_store_drivers[i]->recognise && pj_store_drivers[i]->recognise(path)) return true;
    return false;
}

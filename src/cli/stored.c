/* Shared code of the commands on stored runs. */
#include "cli/stored.h"
#include "cli/interrupt.h"

#include "analysis/cost.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/terminal.h"
#include "insight/insight.h"
#include "record/recover.h"
#include "record/spool_dir.h"
#include "store/outbox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { RECOVERY_MS = 2000 };
static const double MUCH_BYTES = 2e9; /* a month of daily use */

static pj_status stored_rule_region(const char *region, pj_error *err)
{
    if (!isnan(pj_cost_region_g_per_kwh(region))) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "no carbon intensity is known for this region: give it with --g-per-kwh");
}

pj_option pj_price_option(pj_price_options *prices, int which, const char *needs)
{
    pj_option options[] = {
        {"usd-per-kwh", 0, PJ_OPTION_DOUBLE, &prices->usd_per_kwh, "USD",
         "price of a kilowatt-hour (default 0.12)", 0, 1e6},
        {"g-per-kwh", 0, PJ_OPTION_DOUBLE, &prices->g_per_kwh, "G",
         "grams of CO2 per kilowatt-hour (default 400)", 0, 1e6},
        {"region", 0, PJ_OPTION_TEXT, &prices->region, "NAME",
         "use the carbon intensity of a region: california, texas, eu, us, or a country's two "
         "letters",
         .rule = stored_rule_region, .excludes = "g-per-kwh"}};
    options[which].needs = needs;
    return options[which];
}

pj_cost_rates pj_prices_get(const pj_price_options *options)
{
    pj_cost_rates rates = PJ_COST_RATES_DEFAULT;
    if (options->region) rates.co2_g_per_kwh = pj_cost_region_g_per_kwh(options->region);
    if (!isnan(options->usd_per_kwh)) rates.usd_per_kwh = options->usd_per_kwh;
    if (!isnan(options->g_per_kwh)) rates.co2_g_per_kwh = options->g_per_kwh;
    return rates;
}

void pj_say_waiting(const char *db)
{
    char path[4096];
    const char *address = db ? db : getenv("PERJOULE_DB");
    if (!address || !pj_store_is_server(address)) return;
    unsigned long long count = pj_outbox_count(address);
    if (count == 0 || pj_outbox_path(address, path, sizeof path, NULL) != PJ_OK) return;
    pj_print(stderr,
             "perjoule: %llu run%s kept in %s until the server takes %s: the next run or perjoule "
             "push hands over\n",
             count, count == 1 ? " is" : "s are", path, count == 1 ? "it" : "them");
}

double pj_database_bytes(const char *path)
{
    char log[4096];
    struct stat file;
    if (pj_store_is_server(path) || stat(path, &file) != 0) return NAN;
    double bytes = (double)file.st_size;
    snprintf(log, sizeof log, "%s-wal", path);
    return stat(log, &file) == 0 ? bytes + (double)file.st_size : bytes;
}

void pj_say_size(const char *path)
{
    double bytes = pj_database_bytes(path);
    if (bytes >= MUCH_BYTES)
        pj_say("perjoule: %s takes %.1f GB: perjoule compact and perjoule rm make it smaller", path,
               bytes * 1e-9);
}

static void stored_say(void *speaker, const char *text)
{
    pj_say("%s: %s", (const char *)speaker, text);
}

pj_status pj_stored_session(const pj_command *command, const pj_session_options *options,
                            pj_session **session, pj_error *err)
{
    static char speaker[64]; /* of the messages, which come until the session is closed */
    pj_status status = pj_session_open(options, session, err);
    if (status != PJ_OK) return status;
    snprintf(speaker, sizeof speaker, "perjoule %s", command->name);
    (*session)->stored = pj_insight_prepare;
    (*session)->listens_after = true;
    if ((*session)->warning[0]) stored_say(speaker, (*session)->warning);
    pj_recovery_on_message((*session)->recovery, stored_say, speaker);
    return PJ_OK;
}

void pj_stored_session_close(pj_session *session)
{
    if (session && session->store) {
        pj_say_waiting(pj_store_path(session->store));
        pj_say_size(pj_store_path(session->store));
    }
    pj_session_close(session);
}

static void count_left(void *context, const pj_spool_entry *entry)
{
    if (entry->state == PJ_SPOOL_LEFT) ++*(uint32_t *)context;
}

/* Interrupted runs: the recovery of those in the spools of a database. */
typedef struct recovering {
    pj_recovery *recovery; /* NULL: there are none */
    uint32_t left;
} recovering;

static char recovery_speaker[] = "perjoule";

static recovering begin_recovery(pj_store *store)
{
    recovering r = {0};
    pj_interrupt_catch_recovery();
    pj_spools_list(pj_store_path(store), count_left, &r.left);
    if (r.left)
        pj_say("%s: recovering %u interrupted run%s", recovery_speaker, r.left,
               r.left == 1 ? "" : "s");
    r.recovery = pj_recovery_start(pj_store_path(store));
    return r;
}

/* Short recoveries are awaited, so that the runs are visible; longer ones are left to
 * longer-running commands. */
static void await_recovery(const recovering *r, int64_t patience_ns)
{
    pj_recovery_on_message(r->recovery, stored_say, recovery_speaker);
    pj_recovery_state state = pj_recovery_wait(r->recovery, patience_ns);
    if (!state.done)
        pj_say("%s: %u of %u interrupted runs were recovered so far: perjoule check recovers the "
               "rest",
               recovery_speaker, state.recovered, r->left);
}

bool *pj_without_disturbances(void)
{
    static bool without;
    return &without;
}

/* Read-only where it cannot be written; its interrupted runs are then left alone. */
static pj_status open_stored(const char *db, pj_store **store, bool *is_writable, pj_error *err)
{
    if (db && !pj_store_is_server(db) && !pj_file_exists(db))
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no database at %s", db);
    pj_store_options options = {.path = db};
    pj_status status = pj_store_open(&options, store, err);
    *is_writable = status == PJ_OK;
    if (status != PJ_E_DENIED && status != PJ_E_IO && status != PJ_E_FULL) return status;
    pj_error second;
    options.read_only = true;
    return pj_store_open(&options, store, &second) == PJ_OK ? PJ_OK : status;
}

static pj_status open_patiently(const char *db, int64_t patience_ns, pj_store **store,
                                pj_error *err)
{
    bool is_writable;
    pj_status status = open_stored(db, store, &is_writable, err);
    if (status != PJ_OK || !is_writable) return status;
    recovering r = begin_recovery(*store);
    await_recovery(&r, patience_ns);
    pj_recovery_close(r.recovery);
    return PJ_OK;
}

pj_status pj_stored_open_new(const char *db, pj_store **store, pj_error *err)
{
    if (!db || pj_store_is_server(db) || pj_file_exists(db)) return pj_stored_open(db, store, err);
    pj_status status = pj_store_open(&(pj_store_options){.path = db}, store, err);
    if (status == PJ_OK) pj_store_leave_out_disturbances(*store, *pj_without_disturbances());
    return status;
}

pj_status pj_stored_open(const char *db, pj_store **store, pj_error *err)
{
    pj_status status = open_patiently(db, RECOVERY_MS * PJ_NS_PER_MS, store, err);
    if (status == PJ_OK) pj_store_leave_out_disturbances(*store, *pj_without_disturbances());
    return status;
}

bool pj_stored_make_room(const char *db)
{
    char path[PJ_SPOOL_DIR_BYTES];
    pj_spool_dirs dirs;
    struct statvfs disk;
    struct stat file;
    if (pj_store_find_address(db, path, sizeof path, NULL) != PJ_OK || pj_store_is_server(path) ||
        statvfs(path, &disk) != 0 || stat(path, &file) != 0)
        return false;
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    pj_spool_dirs_of(path, &dirs);
    for (int i = 0; i < 2 && free_bytes < (uint64_t)PJ_SPOOL_RESERVE_BYTES; i++)
        if (dirs.path[i][0] && pj_spool_dir_check(dirs.path[i], NULL) == PJ_OK)
            pj_spool_release(dirs.path[i]);
    return free_bytes < (uint64_t)file.st_size;
}

void pj_stored_keep_room(const char *db)
{
    char path[PJ_SPOOL_DIR_BYTES];
    pj_spool_dirs dirs;
    if (pj_store_find_address(db, path, sizeof path, NULL) != PJ_OK || pj_store_is_server(path))
        return;
    pj_spool_dirs_of(path, &dirs);
    for (int i = 0; i < 2; i++)
        if (dirs.path[i][0] && pj_spool_dir_check(dirs.path[i], NULL) == PJ_OK) {
            pj_spool_reserve(dirs.path[i]);
            return;
        }
}

int pj_stored_command(const pj_command *command, const char *db,
                      pj_status (*act)(pj_store *store, void *context, pj_error *err),
                      void *context)
{
    pj_store *store = NULL;
    pj_error err = {0};
    pj_status status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK) status = act(store, context, &err);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

int pj_stored_at_once(const pj_command *command, const char *db,
                      pj_status (*act)(pj_store *store, void *context, pj_error *err),
                      void *context, const pj_run_list **waiting)
{
    pj_store *store = NULL;
    pj_error err = {0};
    bool is_writable;
    recovering r = {0};
    pj_status status = open_stored(db, &store, &is_writable, &err);
    if (status == PJ_OK) pj_store_leave_out_disturbances(store, *pj_without_disturbances());
    if (status == PJ_OK && is_writable) r = begin_recovery(store);
    *waiting = pj_recovery_waiting(r.recovery);
    if (status == PJ_OK) status = act(store, context, &err);
    fflush(stdout);
    await_recovery(&r, RECOVERY_MS * PJ_NS_PER_MS);
    if (status == PJ_E_AGAIN) status = act(store, context, &err);
    pj_recovery_close(r.recovery);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

pj_status pj_stored_open_and_recover(const char *db, pj_store **store, pj_error *err)
{
    return open_patiently(db, INT64_MAX, store, err);
}

int64_t pj_age_parse(const char *text)
{
    static const double most_s = 200.0 * 365 * 86400;
    char *end;
    double number = strtod(text, &end), hours = 0;
    switch (*end) {
    case 'h': hours = 1; break;
    case 'd': hours = 24; break;
    case 'w': hours = 7 * 24; break;
    case 'y': hours = 365 * 24; break;
    default: return -1;
    }
    double seconds = number * hours * 3600;
    if (end == text || end[1] || !(number >= 0 && seconds <= most_s)) return -1;
    return (int64_t)(seconds * PJ_NS_PER_S);
}

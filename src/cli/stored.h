/* Shared code of the commands on stored runs: opening the database, JSON, prices. */
#ifndef PJ_CLI_STORED_H
#define PJ_CLI_STORED_H

#include "cli/json_out.h"
#include "cli/options.h"
#include "record/session.h"
#include "store/views.h"

#define PJ_OPTION_DB(target)                                                        \
    {                                                                               \
        "db", 0, PJ_OPTION_TEXT, target, "FILE",                                    \
            "the database (default: $PERJOULE_DB, else in the user's data folder)", \
            .rule = pj_rule_database                                                \
    }

/* --without-disturbances: one switch for every figure that a command reads. */
#define PJ_OPTION_WITHOUT                                                           \
    {                                                                               \
        "without-disturbances", 0, PJ_OPTION_FLAG, pj_without_disturbances(), NULL, \
            "leave out what other load, throttling or waiting added"                \
    }
/* Its target: every database that is opened by pj_stored_open obeys it. */
bool *pj_without_disturbances(void);

/* --usd-per-kwh, --g-per-kwh and --region; NAN and NULL: not given. */
typedef struct pj_price_options {
    double usd_per_kwh, g_per_kwh;
    const char *region;
} pj_price_options;

#define PJ_PRICES_NONE ((pj_price_options){__builtin_nan(""), __builtin_nan(""), NULL})
#define PJ_OPTIONS_PRICES(prices, needs)                                  \
    pj_price_option(prices, 0, needs), pj_price_option(prices, 1, needs), \
        pj_price_option(prices, 2, needs)

/* `needs`: as in pj_option, or NULL. */
pj_option pj_price_option(pj_price_options *prices, int which, const char *needs);
pj_cost_rates pj_prices_get(const pj_price_options *options);

/* Prints a notice on standard error if runs are waiting in the outbox. */
void pj_say_waiting(const char *db);
/* Bytes of a database's file and its log; NAN: a server's, or unknown. */
double pj_database_bytes(const char *path);
/* Prints a notice on standard error if that is a lot. */
void pj_say_size(const char *path);
/* Opens for writing if permitted, and then recovers runs of dead processes; otherwise for
 * reading. */
pj_status pj_stored_open(const char *db, pj_store **store, pj_error *err);

/* The same, but a database that does not exist is created. */
pj_status pj_stored_open_new(const char *db, pj_store **store, pj_error *err);
/* Opens, calls `act` and closes; returns the exit code. */
int pj_stored_command(const pj_command *command, const char *db,
                      pj_status (*act)(pj_store *store, void *context, pj_error *err),
                      void *context);
/* Before deleting runs: on a full disk, gives up the space that is kept for runs in progress. True
 * if less space is free than the log of a whole deletion could take. */
bool pj_stored_make_room(const char *db);
/* Afterwards: keeps that space again, for the next full disk. */
void pj_stored_keep_room(const char *db);
/* As pj_stored_command, but `act` does not wait for the runs that are to be recovered, which are in
 * *waiting: they are recovered when it has printed. Where it needs what is in them it returns
 * PJ_E_AGAIN, and is called again after their recovery, or when that takes long. */
int pj_stored_at_once(const pj_command *command, const char *db,
                      pj_status (*act)(pj_store *store, void *context, pj_error *err),
                      void *context, const pj_run_list **waiting);
/* As pj_stored_open, but waits until the recovery is complete. */
pj_status pj_stored_open_and_recover(const char *db, pj_store **store, pj_error *err);

/* A session whose runs are one at a time: it measures idle power after them, too, prepares them for
 * views, and prints its warning and what it recovers. */
pj_status pj_stored_session(const pj_command *command, const pj_session_options *options,
                            pj_session **session, pj_error *err);

/* Closes it, and says if runs are waiting for its server. NULL is allowed. */
void pj_stored_session_close(pj_session *session);

/* "30d", "12h", "4w", "1y" as nanoseconds; -1 for anything else. */
int64_t pj_age_parse(const char *text);

#endif

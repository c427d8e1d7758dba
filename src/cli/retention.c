/* Selects runs by age and number, asks, and deletes. */
#include "cli/retention.h"

#include "base/clock.h"
#include "cli/stored.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

typedef struct pruned {
    uint64_t count;
    char first[PJ_UUID_BYTES];
    bool print;
} pruned;

static void retention_take(void *context, const char *id)
{
    pruned *p = context;
    if (p->count++ == 0) snprintf(p->first, sizeof p->first, "%s", id);
    if (p->print) pj_print(stdout, "%s\n", id);
}

pj_status pj_retention_can_ask(const pj_retention *r, pj_error *err)
{
    if (r->yes || isatty(STDIN_FILENO)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "cannot ask for confirmation without a terminal: give --yes to %s", r->verb);
}

bool pj_retention_is_confirmed(const pj_retention *r, uint64_t count, const char *first_id)
{
    char answer[8] = "";
    if (r->yes) return true;
    r->question(count, first_id);
    fputs(" [y/N] ", stderr);
    if (fgets(answer, sizeof answer, stdin) && tolower((unsigned char)answer[0]) == 'y')
        return true;
    pj_print(stdout, "%s\n", r->unchanged);
    return false;
}

void pj_retention_print_count(const char *what, uint64_t count)
{
    pj_print(stdout, "%s %llu run%s\n", what, (unsigned long long)count, count == 1 ? "" : "s");
}

/* Counts the runs first, unless nothing is asked. */
static pj_status retention_prune(pj_store *store, void *context, pj_error *err)
{
    const pj_retention *r = context;
    pj_prune rule = {.before_ns = r->before_ns,
                     .keep = r->keep > 0 ? (uint32_t)r->keep : 0,
                     .tagged = r->tagged,
                     .operations = r->operations,
                     .dry_run = true};
    pruned listed = {.print = r->dry_run}, done = {0};
    pj_status status = PJ_OK;
    if (r->is_tight) pj_store_be_frugal(store);
    if (!r->yes || r->dry_run) status = pj_store_prune(store, &rule, retention_take, &listed, err);
    if (status == PJ_OK && r->dry_run) {
        pj_print(stdout, "would ");
        pj_retention_print_count(r->verb, listed.count);
    }
    if (status != PJ_OK || r->dry_run ||
        (listed.count && !pj_retention_is_confirmed(r, listed.count, listed.first)))
        return status;
    rule.dry_run = false;
    status = pj_store_prune(store, &rule, retention_take, &done, err);
    if (status == PJ_OK || done.count) pj_retention_print_count(r->past, done.count);
    return status;
}

int pj_retention_apply(const pj_command *command, pj_retention *r)
{
    pj_error err;
    int64_t age_ns = r->older_than ? pj_age_parse(r->older_than) : 0;
    if (!r->dry_run && pj_retention_can_ask(r, &err) != PJ_OK)
        return pj_command_failed(command, &err);
    r->before_ns = r->older_than ? pj_clock_wall_ns() - age_ns : INT64_MAX;
    r->is_tight = pj_stored_make_room(r->db);
    int code = pj_stored_command(command, r->db, retention_prune, r);
    pj_stored_keep_room(r->db);
    return code;
}

/* perjoule compact: deletes single operations of old deep runs, whose sums remain. */
#include "cli/stored.h"
#include "cli/terminal.h"

#include "base/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

typedef struct compact_args {
    const char *db, *older_than;
    int64_t keep; /* -1: not given */
    bool yes, dry_run, tagged;
} compact_args;

typedef struct found {
    uint64_t count;
    bool print;
} found;

static void compact_take(void *context, const char *id)
{
    found *f = context;
    f->count++;
    if (f->print) puts(id);
}

static const char *runs(uint64_t count)
{
    return count == 1 ? "run" : "runs";
}

static bool compact_request(uint64_t count)
{
    char answer[8] = "";
    fprintf(stderr, "Keep only sums of the operations of %llu %s? [y/N] ",
            (unsigned long long)count, runs(count));
    return fgets(answer, sizeof answer, stdin) && tolower((unsigned char)answer[0]) == 'y';
}

static pj_status compact(pj_store *store, pj_prune rule, const compact_args *a, pj_error *err)
{
    found listed = {.print = a->dry_run}, done = {0};
    rule.dry_run = true;
    pj_status status = pj_store_prune(store, &rule, compact_take, &listed, err);
    if (status != PJ_OK) return status;
    if (a->dry_run) {
        printf("would compact %llu %s\n", (unsigned long long)listed.count, runs(listed.count));
        return PJ_OK;
    }
    if (listed.count && !a->yes && !compact_request(listed.count)) {
        printf("nothing was changed\n");
        return PJ_OK;
    }
    rule.dry_run = false;
    status = pj_store_prune(store, &rule, compact_take, &done, err);
    if (status == PJ_OK || done.count)
        printf("compacted %llu %s\n", (unsigned long long)done.count, runs(done.count));
    return status;
}

static int run_compact(const pj_command *command, int argc, char **argv)
{
    compact_args a = {.keep = -1};
    const pj_option options[] = {
        {"older-than", 0, PJ_OPTION_TEXT, &a.older_than, "AGE",
         "of runs older than this: 12h, 30d, 4w, 1y"},
        {"keep", 0, PJ_OPTION_INT, &a.keep, "N", "but not of the newest N", 0, 1e9},
        {"tagged", 0, PJ_OPTION_FLAG, &a.tagged, NULL, "of runs with tags too"},
        {"yes", 'y', PJ_OPTION_FLAG, &a.yes, NULL, "do not ask"},
        {"dry-run", 0, PJ_OPTION_FLAG, &a.dry_run, NULL, "only list the runs"},
        PJ_OPTION_DB(&a.db),
        {0}};
    int positional;
    pj_error err = {0};
    pj_store *store = NULL;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    int64_t age_ns = a.older_than ? pj_age_parse(a.older_than) : 0;
    if (positional > 0 || (!a.older_than && a.keep < 0))
        return pj_command_usage(command, "select runs with --older-than AGE, --keep N, or both");
    if (age_ns < 0)
        return pj_command_usage(command,
                                "--older-than takes an age such as 12h, 30d, 4w or 1y, not %.40s",
                                a.older_than);
    if (!a.yes && !a.dry_run && !isatty(STDIN_FILENO)) {
        pj_fail(&err, PJ_E_INVALID,
                "cannot ask for confirmation without a terminal: give --yes to continue");
        return pj_command_failed(command, &err);
    }
    const pj_prune rule = {.before_ns = a.older_than ? pj_clock_wall_ns() - age_ns : INT64_MAX,
                           .keep = a.keep > 0 ? (uint32_t)a.keep : 0,
                           .tagged = a.tagged,
                           .operations = true};
    pj_status status = pj_stored_open(a.db, &store, &err);
    if (status == PJ_OK) status = compact(store, rule, &a, &err);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_compact = {
    .name = "compact",
    .summary = "keep only sums of the operations of old runs",
    .run = run_compact,
    .usage = "[options] --older-than AGE --keep N",
    .text =
        "Single operations are most of the rows of a deep run. This deletes them from old runs; "
        "what stays are tokens, layers and components with their energy, and the sums of "
        "operations over the run, from which all views of the whole run are drawn. Only views of "
        "the operations of one token are empty afterwards.\n\n"
        "Runs with a tag are left as they are unless --tagged is given. The space is used for "
        "later runs; perjoule rm --shrink returns it to the file system.",
    .examples = "perjoule compact --older-than 30d --dry-run\n"
                "perjoule compact --older-than 30d --keep 100 --yes\n",
};

/* perjoule rm: deletes runs, by name or by age (retention), after confirmation on a terminal, and
 * returns the space that deleted runs left in the database's file. */
#include "cli/stored.h"
#include "cli/terminal.h"

#include "base/clock.h"
#include "store/sql.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RUNS = 1000 };

typedef struct rm_args {
    const char *db, *older_than;
    int64_t keep; /* -1: not given */
    bool yes, dry_run, tagged, shrink;
} rm_args;

static bool rm_request(uint64_t count, const char *first)
{
    char answer[8] = "";
    if (count == 1)
        fprintf(stderr, "Delete run %s and all its rows? [y/N] ", first);
    else
        fprintf(stderr, "Delete %llu runs and all their rows? [y/N] ", (unsigned long long)count);
    return fgets(answer, sizeof answer, stdin) && tolower((unsigned char)answer[0]) == 'y';
}

static bool can_ask(const rm_args *a, pj_error *err)
{
    if (a->yes || isatty(STDIN_FILENO)) return true;
    pj_fail(err, PJ_E_INVALID,
            "cannot ask for confirmation without a terminal: give --yes to delete");
    return false;
}

static void print_count(const char *what, uint64_t count)
{
    printf("%s %llu run%s\n", what, (unsigned long long)count, count == 1 ? "" : "s");
}

/* ---- retention ---- */

typedef struct pruned {
    uint64_t count;
    char first[PJ_UUID_BYTES];
    bool print;
} pruned;

static void take_pruned(void *context, const char *id)
{
    pruned *p = context;
    if (p->count++ == 0) snprintf(p->first, sizeof p->first, "%s", id);
    if (p->print) puts(id);
}

/* Counts the runs to delete, asks for confirmation, and deletes them. */
static pj_status prune_after_asking(pj_store *store, pj_prune rule, const rm_args *a, pj_error *err)
{
    pruned p = {0}, deleted = {0};
    if (!a->yes) {
        rule.dry_run = true;
        pj_status status = pj_store_prune(store, &rule, take_pruned, &p, err);
        if (status != PJ_OK) return status;
        if (p.count && !rm_request(p.count, p.first)) {
            printf("nothing was deleted\n");
            return PJ_OK;
        }
        rule.dry_run = false;
    }
    pj_status status = pj_store_prune(store, &rule, take_pruned, &deleted, err);
    if (status == PJ_OK || deleted.count) print_count("deleted", deleted.count);
    return status;
}

static pj_status prune_dry(pj_store *store, pj_prune rule, pj_error *err)
{
    pruned p = {.print = true};
    pj_status status = pj_store_prune(store, &rule, take_pruned, &p, err);
    if (status == PJ_OK) print_count("would delete", p.count);
    return status;
}

static int rm_prune(const pj_command *command, const rm_args *a)
{
    pj_error err = {0};
    pj_store *store = NULL;
    int64_t age_ns = a->older_than ? pj_age_parse(a->older_than) : 0;
    if (age_ns < 0)
        return pj_command_usage(command,
                                "--older-than takes an age such as 12h, 30d, 4w or 1y, not %.40s",
                                a->older_than);
    if (!a->older_than && a->keep == 0)
        return pj_command_usage(command, "--keep 0 needs --older-than: it would delete every run");
    if (!a->dry_run && !can_ask(a, &err)) return pj_command_failed(command, &err);
    const pj_prune rule = {.before_ns = a->older_than ? pj_clock_wall_ns() - age_ns : INT64_MAX,
                           .keep = a->keep > 0 ? (uint32_t)a->keep : 0,
                           .tagged = a->tagged,
                           .dry_run = a->dry_run};
    pj_status status = pj_stored_open(a->db, &store, &err);
    if (status == PJ_OK)
        status =
            a->dry_run ? prune_dry(store, rule, &err) : prune_after_asking(store, rule, a, &err);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

/* ---- runs by name ---- */

static int remove_named(const pj_command *command, const rm_args *a, char **names, int count)
{
    static char ids[MAX_RUNS][PJ_UUID_BYTES];
    if (count < 1) return pj_command_usage(command, "give at least one run");
    if (count > MAX_RUNS) return pj_command_usage(command, "give at most %d runs", MAX_RUNS);
    pj_store *store = NULL;
    pj_error err = {0};
    pj_status status = pj_store_open(&(pj_store_options){.path = a->db}, &store, &err);
    for (int i = 0; i < count && status == PJ_OK; i++)
        status = pj_store_resolve(store, names[i], ids[i], &err);
    if (status == PJ_OK && !can_ask(a, &err)) status = PJ_E_INVALID;
    bool go = status == PJ_OK && (a->yes || rm_request((uint64_t)count, ids[0]));
    for (int i = 0; i < count && status == PJ_OK && go; i++)
        status = pj_store_delete(store, ids[i], &err);
    if (status == PJ_OK && go)
        print_count("deleted", (uint64_t)count);
    else if (status == PJ_OK)
        printf("nothing was deleted\n");
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

/* ---- space ---- */

static double megabytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (double)info.st_size / 1e6 : 0;
}

/* Deleted rows leave free pages, which later runs fill; rewriting the database gives them back. */
static int shrink(const pj_command *command, const rm_args *a)
{
    char path[4096];
    pj_error err = {0};
    pj_store *store = NULL;
    pj_status status = pj_stored_open(a->db, &store, &err);
    if (status != PJ_OK) return pj_command_failed(command, &err);
    snprintf(path, sizeof path, "%s", pj_store_path(store));
    double before = megabytes(path);
    status = pj_sql_run(store, "VACUUM", &err);
    pj_store_close(store); /* the file is cut when the log is written back */
    if (status != PJ_OK) return pj_command_failed(command, &err);
    printf("%s: %.1f MB before, %.1f MB now\n", path, before, megabytes(path));
    return PJ_EXIT_OK;
}

static int run_rm(const pj_command *command, int argc, char **argv)
{
    rm_args a = {.keep = -1};
    const pj_option options[] = {
        {"yes", 'y', PJ_OPTION_FLAG, &a.yes, NULL, "do not ask"},
        {"older-than", 0, PJ_OPTION_TEXT, &a.older_than, "AGE",
         "delete runs older than this: 12h, 30d, 4w, 1y"},
        {"keep", 0, PJ_OPTION_INT, &a.keep, "N", "delete runs, but not the newest N", 0, 1e9},
        {"tagged", 0, PJ_OPTION_FLAG, &a.tagged, NULL, "delete runs with tags too"},
        {"dry-run", 0, PJ_OPTION_FLAG, &a.dry_run, NULL, "only list what would be deleted"},
        {"shrink", 0, PJ_OPTION_FLAG, &a.shrink, NULL,
         "then rewrite the database, so that its file is as small as its rows"},
        PJ_OPTION_DB(&a.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    bool by_rule = a.older_than || a.keep >= 0;
    if (by_rule && positional > 0)
        return pj_command_usage(command, "give runs, or --older-than or --keep, not both");
    if (a.shrink && a.dry_run)
        return pj_command_usage(command, "--shrink and --dry-run exclude each other");
    if (!by_rule && (a.dry_run || a.tagged))
        return pj_command_usage(command, "--dry-run and --tagged need --older-than or --keep");
    if (by_rule)
        code = rm_prune(command, &a);
    else if (positional > 0 || !a.shrink)
        code = remove_named(command, &a, argv + 1, positional);
    else
        code = PJ_EXIT_OK;
    return code == PJ_EXIT_OK && a.shrink ? shrink(command, &a) : code;
}

const pj_command pj_command_rm = {
    .name = "rm",
    .summary = "delete runs",
    .run = run_rm,
    .usage = "[options] RUN... | --older-than AGE --keep N | --shrink",
    .text =
        "Deletes runs with all their rows. Asks first; without a terminal --yes must be given.\n\n"
        "--older-than and --keep choose runs by age: those older than AGE, except for the "
        "newest N of all runs. Runs with a tag are kept unless --tagged is given.\n\n"
        "The space of deleted runs is used for later ones. --shrink returns it to the file system "
        "instead; meanwhile it needs room for a second copy.",
    .examples = "perjoule rm last\nperjoule rm --yes 01989c2e 01989c2f\n"
                "perjoule rm --older-than 30d --keep 100 --dry-run\n"
                "perjoule rm --older-than 30d --yes --shrink\n",
};

/* perjoule rm: deletes runs, by name or by age (retention), after confirmation on a terminal, and
 * returns the space that deleted runs left in the database's file. */
#include "cli/retention.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "store/sql.h"

#include <stdio.h>
#include <sys/stat.h>

enum { MAX_RUNS = 1000 };

static void rm_ask(uint64_t count, const char *first_id)
{
    if (count == 1)
        pj_print(stderr, "Delete run %s and all its rows?", first_id);
    else
        pj_print(stderr, "Delete %llu runs and all their rows?", (unsigned long long)count);
}

static int remove_named(const pj_command *command, const pj_retention *r, char **names, int count)
{
    static char ids[MAX_RUNS][PJ_UUID_BYTES];
    if (count < 1) return pj_command_usage(command, "give at least one run");
    if (count > MAX_RUNS) return pj_command_usage(command, "give at most %d runs", MAX_RUNS);
    pj_store *store = NULL;
    pj_error err = {0};
    bool is_tight = pj_stored_make_room(r->db);
    pj_status status = pj_store_open(&(pj_store_options){.path = r->db}, &store, &err);
    if (status == PJ_OK && is_tight) pj_store_be_frugal(store);
    for (int i = 0; i < count && status == PJ_OK; i++)
        status = pj_store_resolve(store, names[i], ids[i], &err);
    if (status == PJ_OK) status = pj_retention_can_ask(r, &err);
    bool go = status == PJ_OK && pj_retention_is_confirmed(r, (uint64_t)count, ids[0]);
    for (int i = 0; i < count && status == PJ_OK && go; i++)
        status = pj_store_delete(store, ids[i], &err);
    if (status == PJ_OK && go) pj_retention_print_count(r->past, (uint64_t)count);
    pj_store_close(store);
    pj_stored_keep_room(r->db);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

/* ---- space ---- */

static double megabytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (double)info.st_size / 1e6 : 0;
}

/* Deleted rows leave free pages, which later runs fill; rewriting the database gives them back. */
static int shrink(const pj_command *command, const char *db)
{
    char path[4096];
    pj_error err = {0};
    pj_store *store = NULL;
    pj_status status = pj_stored_open(db, &store, &err);
    if (status != PJ_OK) return pj_command_failed(command, &err);
    snprintf(path, sizeof path, "%s", pj_store_path(store));
    double before = megabytes(path);
    status = pj_sql_run(store, "VACUUM", &err);
    pj_store_close(store); /* the file is cut when the log is written back */
    if (status != PJ_OK) return pj_command_failed(command, &err);
    pj_print(stdout, "%s: %.1f MB before, %.1f MB now\n", path, before, megabytes(path));
    return PJ_EXIT_OK;
}

static int run_rm(const pj_command *command, int argc, char **argv)
{
    pj_retention r = {.keep = -1,
                      .verb = "delete",
                      .past = "deleted",
                      .unchanged = "nothing was deleted",
                      .question = rm_ask};
    bool shrinks = false;
    const pj_option options[] = {
        {"yes", 'y', PJ_OPTION_FLAG, &r.yes, NULL, "do not ask"},
        {"older-than", 0, PJ_OPTION_TEXT, &r.older_than, "AGE",
         "delete runs older than this: 12h, 30d, 4w, 1y", .rule = pj_rule_age},
        {"keep", 0, PJ_OPTION_INT, &r.keep, "N", "delete runs, but not the newest N", 0, 1e9},
        {"tagged", 0, PJ_OPTION_FLAG, &r.tagged, NULL, "delete runs with tags too",
         .needs = "older-than keep"},
        {"dry-run", 0, PJ_OPTION_FLAG, &r.dry_run, NULL, "only list what would be deleted",
         .needs = "older-than keep"},
        {"shrink", 0, PJ_OPTION_FLAG, &shrinks, NULL,
         "then rewrite the database, so that its file is as small as its rows",
         .excludes = "dry-run"},
        PJ_OPTION_DB(&r.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    bool by_rule = r.older_than || r.keep >= 0;
    if (by_rule && positional > 0)
        return pj_command_usage(command, "give runs, or --older-than or --keep, not both");
    if (!r.older_than && r.keep == 0)
        return pj_command_usage(command, "--keep 0 needs --older-than: it would delete every run");
    if (by_rule)
        code = pj_retention_apply(command, &r);
    else if (positional > 0 || !shrinks)
        code = remove_named(command, &r, argv + 1, positional);
    else
        code = PJ_EXIT_OK;
    return code == PJ_EXIT_OK && shrinks ? shrink(command, r.db) : code;
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

/* perjoule rm: deletes runs, after asking on a terminal. */
#include "cli/stored.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_RUNS = 1000 };

static bool ask(int count, const char *first)
{
    char answer[8] = "";
    if (count == 1)
        fprintf(stderr, "Delete run %s and all its rows? [y/N] ", first);
    else
        fprintf(stderr, "Delete %d runs and all their rows? [y/N] ", count);
    return fgets(answer, sizeof answer, stdin) && tolower((unsigned char)answer[0]) == 'y';
}

static int run_rm(const pj_command *command, int argc, char **argv)
{
    static char ids[MAX_RUNS][PJ_UUID_BYTES];
    const char *db = NULL;
    bool yes = false;
    const pj_option options[] = {
        {"yes", 'y', PJ_OPTION_FLAG, &yes, NULL, "do not ask"}, PJ_OPTION_DB(&db), {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional < 1) return pj_command_usage(command, "name at least one run");
    if (positional > MAX_RUNS) return pj_command_usage(command, "name at most %d runs", MAX_RUNS);
    pj_store *store = NULL;
    pj_error err = {0};
    pj_status status = pj_store_open(&(pj_store_options){.path = db}, &store, &err);
    for (int i = 0; i < positional && status == PJ_OK; i++)
        status = pj_store_resolve(store, argv[i + 1], ids[i], &err);
    bool go = yes || !isatty(STDIN_FILENO) || status != PJ_OK || ask(positional, ids[0]);
    if (status == PJ_OK && !yes && !isatty(STDIN_FILENO)) {
        status = pj_fail(&err, PJ_E_INVALID, "nobody is there to ask: give --yes to delete");
        go = false;
    }
    for (int i = 0; i < positional && status == PJ_OK && go; i++)
        status = pj_store_delete(store, ids[i], &err);
    if (status == PJ_OK && go)
        printf("deleted %d run%s\n", positional, positional == 1 ? "" : "s");
    else if (status == PJ_OK)
        printf("nothing was deleted\n");
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_rm = {
    .name = "rm",
    .summary = "delete runs",
    .run = run_rm,
    .usage = "[options] RUN...",
    .text = "Deletes runs with all their rows. Asks first; without a terminal --yes must be given.",
    .examples = "perjoule rm last\nperjoule rm --yes 01989c2e 01989c2f\n",
};

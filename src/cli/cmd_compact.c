/* perjoule compact: deletes single operations of old deep runs, whose sums remain. */
#include "cli/retention.h"
#include "cli/stored.h"
#include "cli/terminal.h"

#include <stdio.h>

static void compact_ask(uint64_t count, const char *first_id)
{
    pj_print(stderr, "Keep only sums of the operations of %llu run%s?", (unsigned long long)count,
             count == 1 ? "" : "s");
}

static int run_compact(const pj_command *command, int argc, char **argv)
{
    pj_retention r = {.keep = -1,
                      .operations = true,
                      .verb = "compact",
                      .past = "compacted",
                      .unchanged = "nothing was changed",
                      .question = compact_ask};
    const pj_option options[] = {
        {"older-than", 0, PJ_OPTION_TEXT, &r.older_than, "AGE",
         "of runs older than this: 12h, 30d, 4w, 1y", .rule = pj_rule_age},
        {"keep", 0, PJ_OPTION_INT, &r.keep, "N", "but not of the newest N", 0, 1e9},
        {"tagged", 0, PJ_OPTION_FLAG, &r.tagged, NULL, "of runs with tags too"},
        {"yes", 'y', PJ_OPTION_FLAG, &r.yes, NULL, "do not ask"},
        {"dry-run", 0, PJ_OPTION_FLAG, &r.dry_run, NULL, "only list the runs"},
        PJ_OPTION_DB(&r.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 0 || (!r.older_than && r.keep < 0))
        return pj_command_usage(command, "select runs with --older-than AGE, --keep N, or both");
    return pj_retention_apply(command, &r);
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

/* perjoule name: what people call a run, and what they have to say about it. */
#include "cli/stored.h"
#include "cli/terminal.h"

#include <stdio.h>

typedef struct name_args {
    const char *run, *name, *note; /* NULL: as it is */
} name_args;

static void name_print(const char *what, const char *text)
{
    pj_print(stdout, "%s: %s\n", what, text ? pj_safe(text).s : "none");
}

static pj_status name_show(pj_store *store, const char *id, pj_error *err)
{
    pj_run_list one;
    pj_status status = pj_store_info(store, id, &one, err);
    if (status != PJ_OK) return status;
    name_print("name", one.runs->name);
    name_print("note", one.runs->note);
    pj_run_list_fini(&one);
    return PJ_OK;
}

static pj_status name_act(pj_store *store, void *context, pj_error *err)
{
    const name_args *a = context;
    char id[PJ_UUID_BYTES];
    pj_status status = pj_store_resolve(store, a->run, id, err);
    if (status == PJ_OK && !a->name && !a->note) return name_show(store, id, err);
    return status == PJ_OK ? pj_store_describe(store, id, a->name, a->note, err) : status;
}

static int run_name(const pj_command *command, int argc, char **argv)
{
    name_args a = {0};
    const char *db = NULL;
    const pj_option options[] = {{"note", 0, PJ_OPTION_ANY_TEXT, &a.note, "TEXT",
                                  "a note on the run; an empty one removes it"},
                                 PJ_OPTION_DB(&db),
                                 {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional < 1) return pj_command_usage(command, "give a run");
    if (positional > 2)
        return pj_command_usage(command, "give one run and one name; quote a name with spaces");
    a.run = argv[1];
    if (positional == 2) a.name = argv[2];
    return pj_stored_command(command, db, name_act, &a);
}

const pj_command pj_command_name = {
    .name = "name",
    .summary = "give a run a name and a note",
    .run = run_name,
    .usage = "[--note TEXT] RUN [NAME]",
    .text = "Gives a stored run a name, a note or both, for perjoule ls, perjoule show and the "
            "dashboard, where a search finds them. They are exported with the run. An empty text "
            "removes what was given; without NAME and --note both are printed.",
    .examples = "perjoule name last \"after the driver update\"\n"
                "perjoule name --note \"fans at full speed\" 01989c2e\n"
                "perjoule name last \"\"\n",
};

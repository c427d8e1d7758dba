/* perjoule push: transfers the runs in a server's outbox to it. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "store/outbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void push_print_id(void *context, const char *id)
{
    const bool *json = context;
    if (!*json) pj_print(stdout, "%s\n", id);
}

static void push_print_json(const pj_outbox_result *result, const char *path)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "handed_over", result->handed_over);
    pj_json_kv_uint(json, "waiting", result->left);
    pj_json_kv_string(json, "kept_in", path);
    pj_json_kv_string(json, "reason", result->left ? result->reason.text : NULL);
    pj_json_object_end(json);
    pj_json_out_end(&out, PJ_OK, NULL);
}

static int push(const pj_command *command, const char *server, bool json)
{
    char path[4096];
    pj_outbox_result result;
    pj_error err = {0};
    pj_status status = pj_outbox_path(server, path, sizeof path, &err);
    if (status == PJ_OK) status = pj_outbox_push(server, push_print_id, &json, &result, &err);
    if (status != PJ_OK) return pj_command_failed(command, &err);
    if (json) push_print_json(&result, path);
    if (!json && !result.left && !result.handed_over) pj_print(stdout, "nothing to transfer\n");
    if (!result.left) return PJ_EXIT_OK;
    pj_error_prefix(&result.reason, "%" PRIu64 " run%s still kept in %s", result.left,
                    result.left == 1 ? " is" : "s are", path);
    return pj_command_failed(command, &result.reason);
}

static int run_push(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL;
    bool json = false;
    const pj_option options[] = {
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "print one JSON object"},
        {"db", 0, PJ_OPTION_TEXT, &db, "URL", "the server (default: what PERJOULE_DB names)"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    if (!db) db = getenv("PERJOULE_DB");
    if (!db || !pj_store_is_server(db))
        return pj_command_usage(command, "--db must be a server: postgresql://HOST/DATABASE");
    return push(command, db, json);
}

const pj_command pj_command_push = {
    .name = "push",
    .summary = "transfer runs that were stored while a server was unreachable",
    .run = run_push,
    .usage = "[options]",
    .text = "Runs for a PostgreSQL server are first saved on this machine. While the server cannot "
            "be\nreached they stay there, and every later run transfers them; this command does so "
            "now.\nEach run is stored on the server exactly once. Prints the ids of the runs "
            "that\nwere transferred. PERJOULE_FALLBACK names another file to keep runs in.",
    .examples = "perjoule push --db postgresql://bench@db.lab/perjoule\n",
};

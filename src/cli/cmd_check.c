/* perjoule check: recovers interrupted runs and checks the database. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "store/check.h"
#include "store/outbox.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct check {
    pj_store_check_result result;
    uint64_t spools[PJ_SPOOL_FOREIGN + 1]; /* by state */
    pj_json *json;                         /* NULL: text */
    uint64_t waiting;                      /* runs not yet transferred to a server */
} check;

static const char *check_describe(const pj_spool_entry *entry)
{
    switch (entry->state) {
    case PJ_SPOOL_RUNNING: return "belongs to a run that is in progress";
    case PJ_SPOOL_LEFT: return "has not been recovered yet";
    case PJ_SPOOL_DAMAGED: return "is damaged; its readable part is stored";
    default: return entry->reason.text;
    }
}

static void check_take_spool(void *context, const pj_spool_entry *entry)
{
    check *c = context;
    c->spools[entry->state]++;
    if (!c->json) {
        bool named = strncmp(check_describe(entry), entry->path, strlen(entry->path)) == 0;
        pj_print(stdout, "spool %s%s%s\n", named ? "" : entry->path, named ? "" : ": ",
                 check_describe(entry));
        return;
    }
    pj_json_object_begin(c->json);
    pj_json_kv_string(c->json, "path", entry->path);
    pj_json_kv_string(c->json, "state", pj_spool_state_name(entry->state));
    pj_json_kv_uint(c->json, "bytes", entry->bytes);
    pj_json_kv_string(c->json, "reason", check_describe(entry));
    pj_json_object_end(c->json);
}

static bool check_is_sound(const check *c)
{
    const pj_store_check_result *r = &c->result;
    return !r->damaged && !r->orphans && !r->unbalanced && !c->spools[PJ_SPOOL_UNREADABLE] &&
           !c->spools[PJ_SPOOL_LEFT];
}

static const char *const kinds[PJ_FINDING_KINDS] = {"integrity", "orphans", "conservation"};

static uint64_t findings(const pj_store_check_result *r, int kind)
{
    return kind == PJ_FINDING_DAMAGE   ? r->damaged
           : kind == PJ_FINDING_ORPHAN ? r->orphans
                                       : r->unbalanced;
}

static void check_print_text(const check *c, const char *path)
{
    static const char *const good[PJ_FINDING_KINDS] = {
        "the file is intact", "every row belongs to a run", "parts add up to their wholes"};
    const pj_store_check_result *r = &c->result;
    double bytes = pj_database_bytes(path);
    pj_print(stdout, "%s: %" PRIu64 " run%s", path, r->runs, r->runs == 1 ? "" : "s");
    if (!isnan(bytes)) pj_print(stdout, ", %.*f MB", bytes < 1e8 ? 1 : 0, bytes * 1e-6);
    pj_print(stdout, "\n");
    for (int k = 0; k < PJ_FINDING_KINDS; k++) {
        uint64_t count = findings(r, k);
        if (count)
            pj_print(stdout, "%-13s %" PRIu64 " finding%s; the first: %s\n", kinds[k], count,
                     count == 1 ? "" : "s", r->first[k]);
        else
            pj_print(stdout, "%-13s ok: %s\n", kinds[k], good[k]);
    }
}

static void check_write_json(const check *c, const char *path, pj_json *json)
{
    const pj_store_check_result *r = &c->result;
    pj_json_kv_string(json, "database", path);
    pj_json_kv_uint(json, "runs", r->runs);
    pj_json_kv_double(json, "bytes", pj_database_bytes(path));
    pj_json_kv_bool(json, "sound", check_is_sound(c));
    pj_json_kv_uint(json, "waiting", c->waiting);
    for (int k = 0; k < PJ_FINDING_KINDS; k++) {
        pj_json_kv_object_begin(json, kinds[k]);
        pj_json_kv_uint(json, "findings", findings(r, k));
        pj_json_kv_string(json, "first", r->first[k][0] ? r->first[k] : NULL);
        pj_json_object_end(json);
    }
    pj_json_kv_double(json, "worst_relative_difference", r->worst_relative);
}

static void check_print(check *c, const char *path)
{
    check_print_text(c, path);
    pj_spools_list(path, check_take_spool, c);
    if (pj_store_is_server(path))
        pj_print(stdout, "%-13s %" PRIu64 " run%s kept on this machine for the server\n", "waiting",
                 c->waiting, c->waiting == 1 ? "" : "s");
}

static pj_status check_print_json(check *c, const char *path, pj_error *err)
{
    pj_json_out out;
    pj_json *json = c->json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_array_begin(json, "spools");
    pj_spools_list(path, check_take_spool, c);
    pj_json_array_end(json);
    check_write_json(c, path, json);
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

static int run_check(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL;
    bool json = false;
    const pj_option options[] = {
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "print one JSON object"}, PJ_OPTION_DB(&db), {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1) return pj_command_usage(command, "give at most one run");
    static check c;
    pj_store *store = NULL;
    pj_error err = {0};
    pj_status status = pj_stored_open_and_recover(db, &store, &err);
    char id[PJ_UUID_BYTES];
    if (status == PJ_OK && positional) status = pj_store_resolve(store, argv[1], id, &err);
    if (status == PJ_OK) {
        c.waiting = pj_outbox_count(pj_store_path(store));
        status = pj_store_check(store, positional ? id : NULL, &c.result, &err);
    }
    if (status == PJ_OK && json) status = check_print_json(&c, pj_store_path(store), &err);
    if (status == PJ_OK && !json) check_print(&c, pj_store_path(store));
    if (status == PJ_OK) pj_say_size(pj_store_path(store));
    pj_store_close(store);
    if (status != PJ_OK) return pj_command_failed(command, &err);
    return check_is_sound(&c) ? PJ_EXIT_OK : PJ_EXIT_FAILED;
}

const pj_command pj_command_check = {
    .name = "check",
    .summary = "recover interrupted runs and check the database",
    .run = run_check,
    .usage = "[options] [RUN]",
    .text =
        "First stores the runs that dead processes left in their spools, however long that takes. "
        "Then checks the database: that the file is intact and all that is in it can be read, that "
        "every row belongs to a run, and that the energies of parts add up to their wholes (of one "
        "run, or of all). Finally it "
        "lists the spools that remain, with the reason. The size of the database is named, and what "
        "makes it smaller where it is large. Nothing is repaired or deleted.\n\n"
        "Exit code 0: no problems; 1: problems found.",
    .examples = "perjoule check\nperjoule check last --json\n",
};

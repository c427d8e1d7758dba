/* perjoule machines: the machines that store in a database, with their last heartbeats. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "store/machines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The names of an array as "a,b"; "none" for an empty one, "-" for null. */
static void join(const json_t *names, char *text, size_t bytes)
{
    size_t used = 0, i;
    const json_t *name;
    snprintf(text, bytes, "%s", json_is_array(names) ? "none" : "-");
    json_array_foreach(names, i, name) if (used < bytes) used +=
        (size_t)snprintf(text + used, bytes - used, "%s%s", i ? "," : "", json_string_value(name));
}

static const char *text_of(const json_t *machine, const char *key)
{
    const char *text = json_string_value(json_object_get(machine, key));
    return text ? text : "-";
}

static void print_machine(const json_t *m)
{
    char sensors[64], throttle[64], today[40] = "-", clock[32] = "-", seen[32];
    double mj = pj_member_number(m, "energy_today_mj"), ms = pj_member_number(m, "clock_offset_ms");
    join(json_object_get(m, "sensors"), sensors, sizeof sensors);
    join(json_object_get(m, "throttle"), throttle, sizeof throttle);
    if (!isnan(mj)) {
        pj_format_energy(mj, today, sizeof today - 2);
        if (strcmp(text_of(m, "energy_source"), "modelled") == 0) strcat(today, "~");
        if (strcmp(text_of(m, "energy_today_of"), "runs") == 0) strcat(today, "*");
    }
    if (!isnan(ms)) snprintf(clock, sizeof clock, "%+.1f ms", ms);
    snprintf(seen, sizeof seen, "%.16s", text_of(m, "last_seen"));
    if (seen[10] == 'T') seen[10] = ' ';
    printf("%-16s  %6.0f  %12s  %-14.14s  %-10.10s  %10s  %-8s  %s\n", seen,
           pj_member_number(m, "runs"), today, sensors, throttle, clock, text_of(m, "version"),
           text_of(m, "name"));
}

static int print_table(const json_t *machines)
{
    size_t i;
    const json_t *m;
    bool runs_only = false, modelled = false;
    if (json_array_size(machines) == 0) {
        printf("no machines\n");
        return PJ_EXIT_OK;
    }
    printf("%s%-16s  %6s  %12s  %-14s  %-10s  %10s  %-8s  %s%s\n",
           pj_style_on(stdout, PJ_STYLE_BOLD), "last seen (UTC)", "runs", "today", "sensors",
           "throttled", "clock", "version", "machine", pj_style_off(stdout));
    json_array_foreach(machines, i, m)
    {
        print_machine(m);
        runs_only |= strcmp(text_of(m, "energy_today_of"), "runs") == 0;
        modelled |= strcmp(text_of(m, "energy_source"), "modelled") == 0;
    }
    if (runs_only) printf("* of its runs: no perjoule serve counts there all the time\n");
    if (modelled) printf("~ modelled, not measured\n");
    return PJ_EXIT_OK;
}

static int show_machines(const pj_command *command, const char *db, bool as_json)
{
    pj_store *store = NULL;
    pj_error err = {0};
    pj_buffer out;
    pj_json json;
    int code = PJ_EXIT_OK;
    pj_buffer_init(&out, 64 << 20);
    pj_json_init(&json, &out);
    pj_status status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK) status = pj_view_machines(store, NULL, NULL, &json, &err);
    pj_json_finish(&json);
    json_t *tree = status == PJ_OK && !as_json ? pj_parse_view(&out, &err) : NULL;
    if (status == PJ_OK && as_json)
        code = pj_print_json(&out);
    else if (tree)
        code = print_table(tree);
    else
        code = pj_command_failed(command, &err);
    json_decref(tree);
    pj_store_close(store);
    pj_buffer_fini(&out);
    return code;
}

static int run_machines(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL;
    bool json = false;
    const pj_option options[] = {
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "an array of machines"}, PJ_OPTION_DB(&db), {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    return show_machines(command, db, json);
}

const pj_command pj_command_machines = {
    .name = "machines",
    .summary = "list the machines that store in a database",
    .run = run_machines,
    .usage = "[options]",
    .text =
        "When a machine was last seen, how many runs it has stored, the energy of the day (UTC), "
        "its\nsensors, whether it is throttled, the offset of its clock from the server's, and its "
        "version.\nA machine on which perjoule serve runs counts its energy all day; of another "
        "one only its\nruns are known.",
    .examples = "perjoule machines --db postgresql://analyst@db.lab/perjoule\n",
};

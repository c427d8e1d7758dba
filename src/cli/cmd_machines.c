/* perjoule machines: the machines that store in a database, with their last heartbeats. */
#include "base/clock.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "store/machines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *or_dash(const char *text)
{
    return text ? text : "-";
}

/* "none" for an empty list, "-" for one that is unknown. */
static const char *list_or_dash(const char *names)
{
    return names && !*names ? "none" : or_dash(names);
}

static bool is_modelled(const pj_machine_row *m)
{
    const char *source = pj_machine_source(m);
    return source && strcmp(source, pj_quality_name(PJ_MODELLED)) == 0;
}

static bool is_of_runs(const pj_machine_row *m)
{
    return isnan(m->today_meter_mj) && !isnan(m->today_runs_mj);
}

static void print_machine(const pj_machine_row *m)
{
    char seen[40];
    double mj = pj_machine_today_mj(m);
    pj_text today = pj_or_dash(mj, pj_energy_text(mj));
    if (!isnan(mj) && is_modelled(m)) strcat(today.s, "~");
    if (!isnan(mj) && is_of_runs(m)) strcat(today.s, "*");
    pj_clock_format_iso(m->beat_ns >= m->run_ns ? m->beat_ns : m->run_ns, seen);
    seen[10] = ' ';
    pj_print(stdout, "%-16.16s  %6lld  %s  %-14.14s  %-10.10s  %10s  %-8s  %s\n", seen,
             (long long)m->runs, pj_padded(12, today).s, pj_safe(list_or_dash(m->sensors)).s,
             pj_safe(list_or_dash(m->throttle)).s, pj_number_text("%+.1f ms", m->offset_ms).s,
             pj_safe(or_dash(m->version)).s, pj_safe(m->name).s);
}

static void machines_print_table(const pj_machine_row *machines, uint32_t count)
{
    bool runs_only = false, modelled = false;
    if (!count) {
        pj_print(stdout, "no machines\n");
        return;
    }
    pj_print(stdout, "%s%-16s  %6s  %12s  %-14s  %-10s  %10s  %-8s  %s%s\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), "last seen (UTC)", "runs", "today", "sensors",
             "throttled", "clock", "version", "machine", pj_style_off(stdout));
    for (uint32_t i = 0; i < count; i++) {
        print_machine(&machines[i]);
        runs_only |= is_of_runs(&machines[i]);
        modelled |= is_modelled(&machines[i]);
    }
    if (runs_only) pj_print(stdout, "* of its runs only: no perjoule serve is running there\n");
    if (modelled) pj_print(stdout, "~ modelled, not measured\n");
}

static pj_status show_json(pj_store *store, void *context, pj_error *err)
{
    pj_json_out out;
    pj_status status = pj_view_machines(store, NULL, NULL, pj_json_out_begin(&out), err);
    return pj_json_out_end(&out, status, err);
}

static pj_status show_table(pj_store *store, void *context, pj_error *err)
{
    pj_arena arena;
    pj_machine_row *machines;
    uint32_t count;
    pj_arena_init(&arena, 0);
    pj_status status = pj_store_machines(store, &arena, &machines, &count, err);
    if (status == PJ_OK) machines_print_table(machines, count);
    pj_arena_fini(&arena);
    return status;
}

static int run_machines(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL;
    bool json = false;
    const pj_option options[] = {
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "print an array of machines"},
        PJ_OPTION_DB(&db),
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    return pj_stored_command(command, db, json ? show_json : show_table, NULL);
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

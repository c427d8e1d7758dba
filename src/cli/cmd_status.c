/* perjoule status: one line for a prompt or a status line. It reads stored runs without recovering
 * any, and the sensors for a moment. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "power/now.h"
#include "record/machine.h"
#include "store/machines.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is left of 50 ms when the program has started and read the database. */
static const int64_t SENSORS_NS = 32 * PJ_NS_PER_MS;

typedef struct state {
    pj_run_list last;     /* at most one run: the last completed one */
    pj_run_ratios ratios; /* of it */
    pj_energy_today today;
    pj_power_now power;
} state;

static const pj_run_info *last_of(const state *s)
{
    return s->last.count ? &s->last.runs[0] : NULL;
}

/* ---- reading ---- */

static pj_status read_stored(const char *db, const pj_power_env *env, state *s, pj_error *err)
{
    char address[PATH_MAX];
    pj_store *store = NULL;
    pj_arena arena;
    pj_machine machine = {0};
    pj_status status = pj_store_find_address(db, address, sizeof address, err);
    if (status != PJ_OK) return status;
    if (!pj_store_is_server(address) && !pj_file_exists(address)) return PJ_OK; /* nothing yet */
    const pj_store_options options = {.path = address, .read_only = true};
    const pj_run_query query = {.status = "completed", .limit = 1};
    pj_arena_init(&arena, 0);
    status = pj_store_open(&options, &store, err);
    if (status == PJ_OK) status = pj_store_list(store, &query, &s->last, err);
    if (status == PJ_OK)
        status = pj_machine_read(env->procfs_root ? env->procfs_root : "", NULL, 0, &arena,
                                 &machine, err);
    if (status == PJ_OK) status = pj_store_energy_today(store, machine.name, &s->today, err);
    if (s->last.count) pj_run_ratios_get(&s->last.runs[0], &s->ratios);
    pj_store_close(store);
    pj_arena_fini(&arena);
    return status;
}

/* ---- printing ---- */

static pj_text ago_text(int64_t wall_ns)
{
    static const struct {
        double seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    double seconds = fmax(0, (double)(pj_clock_wall_ns() - wall_ns) * 1e-9);
    pj_text text = {"0 s"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (seconds < units[i].seconds) continue;
        snprintf(text.s, sizeof text.s, "%.0f %s", floor(seconds / units[i].seconds),
                 units[i].unit);
        break;
    }
    return text;
}

static pj_text modelled_text(pj_text text, bool modelled)
{
    bool known = strcmp(text.s, "-") != 0;
    if (modelled && known && strlen(text.s) + 2 < sizeof text.s) strcat(text.s, "~");
    return text;
}

/* With the digits that ls shows. */
static pj_text status_token(const state *s)
{
    const pj_run_info *run = last_of(s);
    const pj_run_ratios *r = &s->ratios;
    double mj = run ? 1e3 * pj_run_ratios_primary(r) : NAN;
    double sd_mj = 1e3 * (isnan(r->joules_per_token_typical) ? r->joules_per_token_sd
                                                             : r->joules_per_token_typical_sd);
    double own_mj = run ? pj_sd_without_gain(mj, sd_mj, pj_run_gain_sd(run)) : NAN;
    return modelled_text(pj_or_dash(mj, pj_supported_text(mj, own_mj)),
                         run && run->quality == PJ_MODELLED);
}

static pj_text status_power(const state *s)
{
    return modelled_text(pj_or_dash(s->power.total_mw, pj_power_text(s->power.total_mw)),
                         s->power.modelled);
}

static pj_text status_today(const state *s)
{
    return modelled_text(pj_or_dash(s->today.mj, pj_energy_text(s->today.mj)), s->today.modelled);
}

static pj_text status_ago(const state *s)
{
    return last_of(s) ? ago_text(last_of(s)->created_wall_ns) : (pj_text){"-"};
}

static pj_text status_model(const state *s)
{
    pj_text text;
    const pj_run_info *run = last_of(s);
    snprintf(text.s, sizeof text.s, "%.100s",
             run && run->model_name ? pj_safe(run->model_name).s : "-");
    return text;
}

static pj_text status_run(const state *s)
{
    pj_text text;
    snprintf(text.s, sizeof text.s, "%s", last_of(s) ? last_of(s)->id : "-");
    return text;
}

static const struct {
    const char *name;
    pj_text (*text)(const state *);
} fields[] = {{"token", status_token}, {"power", status_power}, {"today", status_today},
              {"ago", status_ago},     {"model", status_model}, {"run", status_run}};

static const char usual_format[] = "{token}/token {model}, {ago} ago | {power} | {today} today";
static const char first_format[] = "no runs yet | {power} | {today} today";

/* "{power}": the field's text; everything else stays. */
static pj_status print_format(const state *s, const char *format, pj_buffer *out, pj_error *err)
{
    while (*format) {
        size_t length = strcspn(format, "{"), i = 0;
        pj_buffer_append(out, format, length);
        format += length;
        if (!*format) break;
        size_t name = strcspn(++format, "}");
        while (i < sizeof fields / sizeof *fields &&
               !(strlen(fields[i].name) == name && strncmp(fields[i].name, format, name) == 0))
            i++;
        if (i == sizeof fields / sizeof *fields || !format[name])
            return pj_fail(err, PJ_E_INVALID,
                           "--format takes {token}, {power}, {today}, {ago}, {model} and {run}, "
                           "not {%.*s",
                           (int)(name < 40 ? name + (format[name] == '}') : 40), format);
        pj_buffer_text(out, fields[i].text(s).s);
        format += name + 1;
    }
    return PJ_OK;
}

static void write_status(const state *s, pj_json *json)
{
    const pj_run_info *run = last_of(s);
    pj_json_object_begin(json);
    pj_json_key(json, "last_run");
    if (run) {
        char created[32];
        pj_clock_format_iso(run->created_wall_ns, created);
        pj_json_object_begin(json);
        pj_json_kv_string(json, "id", run->id);
        pj_json_kv_string(json, "created_at", created);
        pj_json_kv_string(json, "model_name", run->model_name);
        pj_json_kv_string(json, "energy_source", pj_quality_name(run->quality));
        pj_json_kv_double(json, "joules_per_token_typical", s->ratios.joules_per_token_typical);
        pj_json_kv_double(json, "joules_per_token", s->ratios.joules_per_token);
        pj_json_object_end(json);
    } else {
        pj_json_null(json);
    }
    pj_json_kv_double(json, "power_mw", s->power.total_mw);
    pj_json_kv_object_begin(json, "rails");
    for (uint32_t i = 0; i < s->power.count; i++) {
        char name[PJ_RAIL_NAME_BYTES + 4];
        snprintf(name, sizeof name, "%s_mw", s->power.rails[i].name);
        pj_json_kv_double(json, name, s->power.mw[i]);
    }
    pj_json_object_end(json);
    pj_json_kv_string(json, "late_sources", s->power.late);
    pj_json_kv_double(json, "energy_today_mj", s->today.mj);
    pj_json_kv_string(json, "energy_today_of",
                      isnan(s->today.mj) ? NULL
                      : s->today.metered ? "meter"
                                         : "runs");
    pj_json_object_end(json);
}

static pj_status print_status(const state *s, const char *format, bool as_json, pj_error *err)
{
    pj_json_out out;
    pj_buffer text;
    if (as_json) {
        write_status(s, pj_json_out_begin(&out));
        return pj_json_out_end(&out, PJ_OK, err);
    }
    if (!format) format = last_of(s) ? usual_format : first_format;
    pj_buffer_init(&text, 1 << 20);
    pj_status status = print_format(s, format, &text, err);
    if (status == PJ_OK) pj_print(stdout, "%s\n", pj_buffer_get(&text));
    pj_buffer_fini(&text);
    return status;
}

static int run_status(const pj_command *command, int argc, char **argv)
{
    const char *format = NULL, *power = NULL, *db = NULL;
    int64_t within_ns = SENSORS_NS;
    bool json = false;
    const pj_option options[] = {
        {"within", 0, PJ_OPTION_DURATION, &within_ns, "TIME",
         "how long sensors are waited for (32ms)", 1e6, 1e11},
        {"format", 0, PJ_OPTION_TEXT, &format, "TEXT",
         "what to print, with {token}, {power}, {today}, {ago}, {model} and {run} replaced",
         .excludes = "json"},
        PJ_OPTION_POWER(&power),
        PJ_OPTION_DB(&db),
        {"json", 0, PJ_OPTION_FLAG, &json, NULL, "print one JSON object"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_error err = {0};
    pj_power_env env;
    state s = {.today = {.mj = NAN}};
    pj_power_env_get(&env);
    pj_status status = read_stored(db, &env, &s, &err);
    if (status == PJ_OK) status = pj_power_now_read(&env, power, within_ns, &s.power, &err);
    if (status == PJ_OK) status = print_status(&s, format, json, &err);
    pj_run_list_fini(&s.last);
    code = status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
    if (!s.power.late[0]) return code;
    fflush(stdout);
    _exit(code); /* a driver is still busy in its thread */
}

const pj_command pj_command_status = {
    .name = "status",
    .summary = "print one line: the last run's joules per token, power now, joules today",
    .run = run_status,
    .usage = "[options]",
    .text =
        "For a shell's prompt, tmux, or an editor's status line: it takes less than 50 ms and "
        "changes nothing.\n{token} is the energy of the last completed run's typical token, {power} "
        "the machine's power now, {today}\nits energy since midnight (UTC): of everything if "
        "perjoule serve runs, else of its runs. \"-\": unavailable;\n\"~\": modelled. A sensor that "
        "does not answer in time is left out, and with it the total: give it longer with --within.",
    .examples = "perjoule status\n"
                "perjoule status --format '{power} {token}'\n"
                "set -g status-right '#(perjoule status)'   # in tmux.conf\n",
};

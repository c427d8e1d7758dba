/* perjoule bench sampler: cost and punctuality of sampling power. Each row runs one meter for a few
 * seconds and prints its own statistics: CPU time of the sampler threads as a share of one core,
 * duration of a read call, lateness of ticks, missed ticks. Sensors that this machine lacks are
 * replaced by files of the same form: reading two counters from a folder costs what the kernel's
 * file system costs, without the sensor. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/thread.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "power/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 8 };

typedef struct row {
    const char *name, *sources;
    int64_t interval_ns; /* 0: the sources' own */
    bool stand_in;       /* on the folder of files */
    bool only_sleeps;    /* no meter: the cost of waking up on this machine */
    pj_meter_cost cost;
    uint32_t rails;
    int64_t took_ns;
} row;

static const char *const stand_in_files[][2] = {
    {"sys/class/powercap/intel-rapl:0/name", "package-0\n"},
    {"sys/class/powercap/intel-rapl:0/energy_uj", "123456789\n"},
    {"sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n"},
    {"sys/class/powercap/intel-rapl:0:0/name", "core\n"},
    {"sys/class/powercap/intel-rapl:0:0/energy_uj", "23456789\n"},
    {"sys/class/powercap/intel-rapl:0:0/max_energy_range_uj", "262143328850\n"},
};

enum { FILES = sizeof stand_in_files / sizeof *stand_in_files };

static pj_status make_stand_in(const char *folder, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int i = 0; i < FILES && status == PJ_OK; i++) {
        char path[512], parent[512];
        snprintf(path, sizeof path, "%s/%s", folder, stand_in_files[i][0]);
        snprintf(parent, sizeof parent, "%s", path);
        *strrchr(parent, '/') = 0;
        status = pj_dir_make(parent, err);
        const char *text = stand_in_files[i][1];
        if (status == PJ_OK) status = pj_file_write(path, text, strlen(text), err);
    }
    return status;
}

static void remove_stand_in(const char *folder)
{
    static const char *const folders[] = {"sys/class/powercap/intel-rapl:0:0",
                                          "sys/class/powercap/intel-rapl:0", "sys/class/powercap",
                                          "sys/class", "sys"};
    char path[512];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, stand_in_files[i][0]);
        unlink(path);
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        rmdir(path);
    }
    rmdir(folder);
}

/* The baseline: a loop that wakes up and reads nothing. */
static void measure_sleep(row *r, int64_t duration_ns)
{
    int64_t begin = pj_clock_ns(), cpu = pj_clock_thread_cpu_ns(), due = begin;
    pj_thread_timer_slack(1);
    for (; due < begin + duration_ns; r->cost.ticks++) pj_clock_sleep_until(due += r->interval_ns);
    r->took_ns = pj_clock_ns() - begin;
    r->cost.cpu_share = (double)(pj_clock_thread_cpu_ns() - cpu) / (double)r->took_ns;
    r->cost.call_us = r->cost.jitter_us = r->cost.jitter_p99_us = NAN;
    r->rails = 1;
}

static pj_status sampler_measure(row *r, const char *folder, int64_t duration_ns, pj_error *err)
{
    pj_power_env env;
    pj_reading readings[256];
    pj_meter *meter;
    if (r->only_sleeps) {
        measure_sleep(r, duration_ns);
        return PJ_OK;
    }
    pj_power_env_get(&env);
    env.interval_ns = r->interval_ns;
    if (r->stand_in) env.sysfs_root = folder;
    pj_meter_options options = {
        .sources = r->sources, .env = &env, .skip_characterise = r->stand_in};
    pj_status status = pj_meter_open(&options, &meter, err);
    if (status != PJ_OK) return status;
    pj_meter_rails(meter, &r->rails);
    int64_t begin = pj_clock_ns();
    status = r->rails > 0 ? pj_meter_start(meter, err) : PJ_OK;
    while (status == PJ_OK && r->rails > 0 && pj_clock_ns() - begin < duration_ns) {
        pj_clock_sleep_until(pj_clock_ns() + 50 * PJ_NS_PER_MS);
        while (pj_meter_read(meter, readings, 256) == 256) {
        }
    }
    pj_meter_stop(meter);
    r->took_ns = pj_clock_ns() - begin;
    pj_meter_get_cost(meter, &r->cost);
    pj_meter_close(meter);
    return status;
}

static void sampler_print_figure(double value)
{
    if (isnan(value))
        printf("  %9s", "");
    else
        printf("  %9.1f", value);
}

static void sampler_print_row(const row *r)
{
    if (r->rails == 0) {
        printf("%-36s  not on this machine\n", r->name);
        return;
    }
    printf("%-36s  %8.0f  %8.3f %%", r->name, (double)r->cost.ticks / ((double)r->took_ns * 1e-9),
           r->cost.cpu_share * 100);
    sampler_print_figure(r->cost.call_us);
    sampler_print_figure(r->cost.jitter_us);
    sampler_print_figure(r->cost.jitter_p99_us);
    printf("  %7llu\n", (unsigned long long)r->cost.missed);
}

static void row_json(pj_json *json, const row *r)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", r->name);
    pj_json_kv_bool(json, "stand_in", r->stand_in);
    pj_json_kv_uint(json, "rails", r->rails);
    pj_json_kv_uint(json, "ticks", r->cost.ticks);
    pj_json_kv_uint(json, "missed", r->cost.missed);
    pj_json_kv_uint(json, "readings", r->cost.readings);
    pj_json_kv_uint(json, "lost", r->cost.lost);
    pj_json_kv_double(json, "cpu_share", r->rails ? r->cost.cpu_share : NAN);
    pj_json_kv_double(json, "call_us", r->rails ? r->cost.call_us : NAN);
    pj_json_kv_double(json, "jitter_us", r->rails ? r->cost.jitter_us : NAN);
    pj_json_kv_double(json, "jitter_p99_us", r->rails ? r->cost.jitter_p99_us : NAN);
    pj_json_object_end(json);
}

static void sampler_print_json(const row *rows, int count)
{
    pj_buffer text;
    pj_json json;
    pj_buffer_init(&text, 1 << 20);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    pj_json_key(&json, "sampler");
    pj_json_array_begin(&json);
    for (int i = 0; i < count; i++) row_json(&json, &rows[i]);
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    if (pj_json_finish(&json)) puts(pj_buffer_get(&text));
    pj_buffer_fini(&text);
}

static int run_bench_sampler(const pj_command *command, int argc, char **argv)
{
    double duration_s = 3;
    bool json = false;
    const pj_option options[] = {{"duration", 0, PJ_OPTION_DOUBLE, &duration_s, "S",
                                  "seconds per row (3)", 0.1, 600, .old_letter = 'd'},
                                 {"json", 0, PJ_OPTION_FLAG, &json, NULL, "one JSON object", 0, 0},
                                 {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    row rows[] = {
        {.name = "this machine's sensors", .sources = "auto"},
        {.name = "this machine's sensors at 1 kHz", .sources = "auto", .interval_ns = PJ_NS_PER_MS},
        {.name = "two RAPL files at 1 kHz (stand-in)",
         .sources = "rapl",
         .interval_ns = PJ_NS_PER_MS,
         .stand_in = true},
        {.name = "two RAPL files at 100 Hz (stand-in)",
         .sources = "rapl",
         .interval_ns = 10 * PJ_NS_PER_MS,
         .stand_in = true},
        {.name = "waking up at 1 kHz, reading nothing",
         .interval_ns = PJ_NS_PER_MS,
         .only_sleeps = true},
        {.name = "CPU utilisation (estimate)", .sources = "estimate"},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    char folder[] = "/tmp/perjoule-bench-XXXXXX";
    pj_error err = {0};
    if (!mkdtemp(folder)) return pj_command_usage(command, "cannot create a folder in /tmp");
    pj_status status = make_stand_in(folder, &err);
    if (status == PJ_OK && !json)
        printf("%-36s  %8s  %10s  %9s  %9s  %9s  %7s\n", "", "ticks/s", "of a core", "us/read",
               "late, us", "p99, us", "missed");
    for (int i = 0; i < ROWS && status == PJ_OK; i++) {
        status = sampler_measure(&rows[i], folder, (int64_t)(duration_s * 1e9), &err);
        if (status == PJ_OK && !json) sampler_print_row(&rows[i]);
    }
    remove_stand_in(folder);
    if (status != PJ_OK) return pj_command_failed(command, &err);
    if (json) sampler_print_json(rows, ROWS);
    return PJ_EXIT_OK;
}

const pj_command pj_bench_sampler = {
    .name = "bench sampler",
    .summary = "what reading power costs, and how punctual it is",
    .run = run_bench_sampler,
    .usage = "[options]",
    .text = "Runs the sampler over this machine's sensors and over files of the same shape, and "
            "prints ticks per second, CPU time as a share of one core, microseconds per read "
            "call, median and 99th percentile of the ticks' lateness, and ticks missed.",
    .examples = "perjoule bench sampler\nperjoule bench sampler --duration 10 --json\n",
};

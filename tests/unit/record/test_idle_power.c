/* Net energy of runs that compute nothing, on a processor whose idle power moves: it is 0. Its
 * counter is a file that a thread writes every millisecond, and time is virtual. */
#include "../assertions.h"
#include "../virtual_clock.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "record/result.h"
#include "record/run.h"
#include "record/session.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64], database[128];

/* ---- the processor ----------------------------------------------------------------------------
 */

/* Idle power: two levels, four seconds each, and a rise. */
static _Atomic(double) low_w = 20, high_w = 20, rise_w_per_s;
static atomic_int_fast64_t rise_ns;
static atomic_bool has_ended;
static pthread_t counting;

static double idle_w(int64_t t)
{
    double w = t / (4 * PJ_NS_PER_S) % 2 ? high_w : low_w;
    return w + rise_w_per_s * (double)(t - rise_ns) * 1e-9;
}

static int open_file(const char *name, const char *text)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(pj_file_write(path, text, strlen(text), NULL), PJ_OK);
    return open(path, O_WRONLY);
}

static void rewrite(int file, const char *format, double value)
{
    char text[64];
    int length = snprintf(text, sizeof text, format, value);
    assert_int_equal(pwrite(file, text, (size_t)length, 0), length);
}

/* The machine is at rest all the time. */
static void *count_energy(void *context)
{
    (void)context;
    int counter = open_file("sys/class/powercap/intel-rapl:0/energy_uj", "0");
    int stat = open_file("proc/stat", "cpu  600000 0 0 400000 0 0 0 0 0 0\n");
    int64_t begin_ns = pj_clock_ns();
    double uj = 1e6;
    for (int64_t at_ns = begin_ns; !has_ended; at_ns += PJ_NS_PER_MS) {
        pj_clock_sleep_until(at_ns);
        uj += idle_w(at_ns) * 1e3;
        rewrite(counter, "%015.0f\n", uj);
        rewrite(stat, "cpu  600000 0 0 %012.0f 0 0 0 0 0 0\n",
                4e5 + (double)(at_ns - begin_ns) * 1e-5);
    }
    close(counter);
    close(stat);
    return NULL;
}

static void make(const char *name, const char *text)
{
    close(open_file(name, text));
}

static int set_up(void **state)
{
    char zone[160];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/perjoule-idle-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(database, sizeof database, "%s/runs.db", folder);
    snprintf(zone, sizeof zone, "%s/sys/class/powercap/intel-rapl:0", folder);
    if (pj_dir_make(zone, NULL) != PJ_OK) return -1;
    snprintf(zone, sizeof zone, "%s/proc", folder);
    if (pj_dir_make(zone, NULL) != PJ_OK) return -1;
    make("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    make("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("PERJOULE_SYSFS", folder, 1);
    setenv("PERJOULE_PROCFS", folder, 1);
    unsetenv("PERJOULE_BASELINE"); /* the default: idle power from the last minute will do */
    if (pthread_create(&counting, NULL, count_energy, NULL) != 0) return -1;
    pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_S);
    return 0;
}

static int tear_down(void **state)
{
    char command[160];
    (void)state;
    has_ended = true;
    pthread_join(counting, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- runs of nothing ----------------------------------------------------------------------------
 */

typedef struct nothing {
    unsigned runs, within, known;
    double worst; /* error / standard deviation */
} nothing;

static void pass_ms(double ms)
{
    pj_clock_sleep_until(pj_clock_ns() + (int64_t)(ms * 1e6));
}

static pj_session *open_session(bool listens_after)
{
    pj_session *session;
    pj_error err = {0};
    pj_session_options options = {.power = "rapl", .database = database};
    if (pj_session_open(&options, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    session->listens_after = listens_after;
    return session;
}

static pj_run_info run_in(pj_session *session, double ms)
{
    pj_error err = {0};
    pj_run *run;
    pj_run_data data;
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.prompt = "sleep"}, &run, &err),
                     PJ_OK);
    pass_ms(ms);
    assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err), PJ_OK);
    pj_run_info info = data.info;
    pj_run_data_fini(&data);
    return info; /* its texts are gone */
}

static void count(nothing *n, double net_mj, double sd_mj)
{
    double z = fabs(net_mj) / sd_mj;
    n->runs++;
    n->known += !isnan(z);
    n->within += isnan(z) || z <= 1.96;
    n->worst = fmax(n->worst, z);
}

static void run_nothing(double ms, nothing *n)
{
    pj_session *session = open_session(true);
    pj_run_info info = run_in(session, ms);
    count(n, info.net_mj, info.net_sd_mj);
    pj_session_close(session);
}

static void print(const char *what, const nothing *n)
{
    print_message("%s: %u of %u within, %u known, worst %.1f sd\n", what, n->within, n->runs,
                  n->known, n->worst);
}

static void net_energy_of_nothing(void **state)
{
    (void)state;
    pj_random random = {9127};
    nothing steady = {0}, swings = {0}, rises = {0};
    for (int i = 0; i < 4; i++) run_nothing(1500, &steady);
    high_w = 50;
    for (int i = 0; i < 20; i++) {
        pass_ms(8000 * pj_random_unit(&random));
        run_nothing(1500, &swings);
    }
    high_w = 20;
    rise_ns = pj_clock_ns();
    rise_w_per_s = 2;
    for (int i = 0; i < 8; i++) run_nothing(500 + 2500 * pj_random_unit(&random), &rises);
    rise_w_per_s = 0;
    print("steady", &steady);
    print("swings", &swings);
    print("rises", &rises);
    assert_int_equal(steady.within, steady.runs);
    assert_int_equal(steady.known, steady.runs);
    assert_that(swings.within, >=, 0.92 * swings.runs);
    assert_that(swings.known, >=, 0.9 * swings.runs);
    assert_that(rises.within, >=, 0.92 * rises.runs);
    assert_int_equal(rises.known, rises.runs);
}

/* A server's, an experiment's or a gate's runs: idle power was another when their session began. */
static void net_energy_of_a_long_session(void **state)
{
    (void)state;
    nothing rises = {0};
    rise_ns = pj_clock_ns();
    rise_w_per_s = 2;
    pj_session *session = open_session(true);
    for (int i = 0; i < 5; i++) {
        pj_run_info info = run_in(session, 1500);
        count(&rises, info.net_mj, info.net_sd_mj);
        pass_ms(500);
    }
    pj_session_close(session);
    rise_w_per_s = 0;
    print("a long session", &rises);
    assert_int_equal(rises.within, rises.runs);
    assert_int_equal(rises.known, rises.runs);
}

/* Where nobody looks at idle power again, it is known to a tenth at best. */
static void nobody_looks_again(void **state)
{
    (void)state;
    pj_session *session = open_session(false);
    pj_run_info info = run_in(session, 1500);
    assert_that(info.net_sd_mj, >=, 0.099 * info.idle_mj);
    pj_open_window *window;
    pj_window_result result = {.size = sizeof result};
    assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
    pass_ms(1500);
    assert_int_equal(pj_window_end(window, &result, NULL), PJ_OK);
    assert_that(result.net.hi_mj - result.net.lo_mj, >=, 2 * 1.96 * 0.1 * 0.99 * result.total.mj);
    assert_that(result.net.lo_mj, <, 0);
    assert_that(result.net.hi_mj, >, 0);
    pj_session_close(session);
}

/* A window of a machine that draws much less than when its idle power was measured. */
static void less_than_an_idle_machine_has_no_net_energy(void **state)
{
    (void)state;
    pj_session *session = open_session(false);
    pj_open_window *window;
    pj_window_result result = {.size = sizeof result};
    low_w = high_w = 5;
    pass_ms(500);
    assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
    pass_ms(1500);
    assert_int_equal(pj_window_end(window, &result, NULL), PJ_OK);
    low_w = high_w = 20;
    pj_session_close(session);
    assert_near(result.total.mj, 7500, 300);
    assert_true(isnan(result.net.mj));
    assert_true(isnan(result.net.lo_mj));
    assert_true(isnan(result.net.hi_mj));
}

/* What is known from the last minute costs a short run a fraction of a second, not seconds. */
static void a_short_run_waits_little(void **state)
{
    (void)state;
    nothing warm = {0};
    run_nothing(20, &warm);
    int64_t begin_ns = pj_clock_ns();
    for (int i = 0; i < 5; i++) run_nothing(20, &warm);
    double each_ms = (double)(pj_clock_ns() - begin_ns) * 1e-6 / 5;
    print_message("%.0f ms each\n", each_ms);
    assert_that(each_ms, <, 400);
}

int main(void)
{
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(net_energy_of_nothing),
        cmocka_unit_test(net_energy_of_a_long_session),
        cmocka_unit_test(nobody_looks_again),
        cmocka_unit_test(less_than_an_idle_machine_has_no_net_energy),
        cmocka_unit_test(a_short_run_waits_little),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

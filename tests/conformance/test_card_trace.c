/* The readings of an H200 under a known load (fixtures/nvml/traces/h200): the grid of its energy
 * counter, the dates of its values, and how its log of power distributes what the counter counted
 * over the bursts of the load. */
#include "judge.h"

#include "base/clock.h"
#include "power/curve.h"
#include "power/filter.h"
#include "power/grid.h"

static int64_t recorded_now(void);
static int64_t recorded_wall(void);
#define pj_clock_ns      recorded_now
#define pj_clock_wall_ns recorded_wall
#include "power/nvml_log.c"
#undef pj_clock_ns
#undef pj_clock_wall_ns

#define MS PJ_NS_PER_MS
enum { MOST_TICKS = 256, MOST_SAMPLES = 1024, MOST_CALLS = 64, MOST_BURSTS = 256 };

typedef struct call { /* of the log */
    int64_t begin_ns, end_ns, wall_ns;
    uint32_t first, count;
} call;

typedef struct recording {
    int64_t old_ns[MOST_TICKS], begin_ns[MOST_TICKS], end_ns[MOST_TICKS]; /* reads around a tick */
    double mj[MOST_TICKS];
    uint32_t tick_count;
    nvml_sample samples[MOST_SAMPLES];
    uint32_t sample_count;
    call calls[MOST_CALLS];
    uint32_t call_count;
    int64_t on_ns[MOST_BURSTS], off_ns[MOST_BURSTS];
    uint32_t burst_count;
    pj_rail rails[2]; /* the counter and its log */
    pj_curve *curves[2];
    pj_reading ticks[MOST_TICKS]; /* as the filter dates them */
} recording;

static recording rec;

/* ---- files -------------------------------------------------------------------------------------
 */

static char *read_recorded(const char *file)
{
    char path[PATH_MAX], folder[PATH_MAX], *text;
    size_t bytes;
    judge_join(folder, judge_folder("PJ_FIXTURES"), "nvml/traces/h200");
    judge_join(path, folder, file);
    if (pj_file_read(path, 16 << 20, &text, &bytes, NULL) != PJ_OK)
        fail_msg("cannot read %s", path);
    return text;
}

static void take_line(const char *line)
{
    long long a, b, c, d;
    int kind, status, count;
    uint32_t t = rec.tick_count;
    if (sscanf(line, "E %lld %lld %lld %lld", &a, &b, &c, &d) == 4) {
        assert_that(t, <, MOST_TICKS);
        rec.old_ns[t] = a;
        rec.begin_ns[t] = b;
        rec.end_ns[t] = c;
        rec.mj[t] = (double)d;
        rec.tick_count++;
    } else if (sscanf(line, "B%d %lld %lld %d %d real %lld", &kind, &a, &b, &status, &count, &c) ==
                   6 &&
               kind == 0 && status == 0) {
        assert_that(rec.call_count, <, MOST_CALLS);
        rec.calls[rec.call_count++] = (call){a, b, c, rec.sample_count, (uint32_t)count};
    } else if (sscanf(line, "S0 %lld %lld", &a, &b) == 2) {
        assert_that(rec.sample_count, <, MOST_SAMPLES);
        rec.samples[rec.sample_count++] = (nvml_sample){(unsigned long long)a, {.ui = (unsigned)b}};
    }
}

static void read_watch(void)
{
    char *text = read_recorded("watch.txt");
    for (char *line = text; line; line = strchr(line, '\n'))
        take_line(*line == '\n' ? ++line : line);
    pj_free(text);
    assert_that(rec.tick_count, >, 100);
    assert_that(rec.call_count, >, 20);
    assert_that(rec.sample_count, >, 500);
}

static void read_schedule(void)
{
    char *text = read_recorded("schedule.txt"), *at = text, *end;
    for (;;) {
        int64_t on = strtoll(at, &end, 10), off = strtoll(end, &end, 10);
        if (off <= on) break;
        assert_that(rec.burst_count, <, MOST_BURSTS);
        rec.on_ns[rec.burst_count] = on;
        rec.off_ns[rec.burst_count++] = off;
        at = end;
    }
    pj_free(text);
    assert_that(rec.burst_count, >, 90);
}

/* ---- replay ------------------------------------------------------------------------------------
 */

static const call *replayed;

static int64_t recorded_now(void)
{
    return replayed->end_ns;
}

static int64_t recorded_wall(void)
{
    return replayed->wall_ns;
}

static nvml_return recorded_samples(nvml_device device, int kind, unsigned long long since,
                                    int *type, unsigned *count, nvml_sample *samples)
{
    (void)device;
    (void)kind;
    (void)since;
    assert_that(replayed->count, <=, *count);
    *type = 1;
    *count = replayed->count;
    memcpy(samples, &rec.samples[replayed->first], replayed->count * sizeof *samples);
    return NVML_OK;
}

static void replay_log(void)
{
    static const nvml_api api = {.samples = recorded_samples};
    nvml_log log = {0};
    pj_filter filter;
    pj_reading readings[NVML_LOG_MOST];
    uint32_t count, used = 0;
    pj_filter_init(&filter, &rec.rails[1]);
    for (uint32_t c = 0; c < rec.call_count; c++) {
        replayed = &rec.calls[c];
        assert_int_equal(nvml_log_read(&api, NULL, &log, 1, readings, NVML_LOG_MOST, &count),
                         NVML_OK);
        for (uint32_t i = 0; i < count; i++) {
            if (!pj_filter_take(&filter, &readings[i])) continue;
            assert_int_equal(pj_curve_add(rec.curves[1], &readings[i], NULL), PJ_OK);
        }
        used += count;
    }
    assert_int_equal(used, rec.sample_count); /* each value once */
}

/* The reads around each tick: one of the old value, one of the new. */
static void replay_counter(void)
{
    pj_filter filter;
    pj_filter_init(&filter, &rec.rails[0]);
    for (uint32_t i = 0; i < rec.tick_count; i++) {
        pj_reading old = {.before_ns = rec.old_ns[i],
                          .after_ns = rec.begin_ns[i],
                          .value = i ? rec.mj[i - 1] * 1e3 : 0};
        pj_reading r = {
            .before_ns = rec.begin_ns[i], .after_ns = rec.end_ns[i], .value = rec.mj[i] * 1e3};
        if (i) pj_filter_take(&filter, &old);
        assert_true(pj_filter_take(&filter, &r));
        assert_int_equal(r.status, i ? PJ_READING_OK : PJ_READING_RESET);
        rec.ticks[i] = r;
        assert_int_equal(pj_curve_add(rec.curves[0], &r, NULL), PJ_OK);
    }
}

static int replay(void **state)
{
    (void)state;
    if (!getenv("PJ_FIXTURES")) return 0; /* each test says so */
    read_watch();
    read_schedule();
    rec.rails[0] = (pj_rail){.name = "gpu0",
                             .source = "nvml",
                             .kind = PJ_RAIL_COUNTER,
                             .scope = PJ_SCOPE_BOARD,
                             .parent = -1,
                             .period_ns = 100 * MS,
                             .delay_ns = 6 * MS,
                             .resolution = 1000,
                             .max_mw = 700e3};
    rec.rails[1] = rec.rails[0];
    rec.rails[1].kind = PJ_RAIL_INSTANT;
    rec.rails[1].parent = 0;
    rec.rails[1].period_ns = 20 * MS;
    rec.rails[1].window_ns = 25 * MS;
    rec.rails[1].delay_ns = 2500000;
    rec.rails[1].log_ns = 2300 * MS;
    rec.rails[1].resolution = 1;
    for (int i = 0; i < 2; i++) rec.curves[i] = pj_curve_new(&rec.rails[i]);
    pj_curves_link(rec.curves, rec.rails, 2);
    replay_log();
    replay_counter();
    for (int i = 1; i >= 0; i--) assert_int_equal(pj_curve_finish(rec.curves[i], NULL), PJ_OK);
    return 0;
}

static int release(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) pj_curve_free(rec.curves[i]);
    return 0;
}

static double recorded_mj(int rail, int64_t from_ns, int64_t to_ns)
{
    return pj_curve_energy_mj(rec.curves[rail], from_ns, to_ns);
}

/* ---- tests -------------------------------------------------------------------------------------
 */

/* The middle of the interval, relative to the first tick's, in which all ticks have their phase. */
static double phase_ms(void)
{
    int64_t from = -100 * MS, to = 100 * MS, begin = rec.old_ns[1];
    for (uint32_t i = 1; i < rec.tick_count; i++) {
        int64_t n = (rec.begin_ns[i] - rec.begin_ns[1] + 50 * MS) / (100 * MS) * 100 * MS;
        if (rec.old_ns[i] - n - begin > from) from = rec.old_ns[i] - n - begin;
        if (rec.end_ns[i] - n - begin < to) to = rec.end_ns[i] - n - begin;
    }
    assert_that(to, >, from);
    return (double)(from + to) / 2 * 1e-6;
}

/* Any twelve ticks in a row show the period; twelve are enough for the phase; and the filter, which
 * knows no grid, dates each tick within its stated error. */
static void ticks_are_on_a_grid(void **state)
{
    (void)state;
    judge_folder("PJ_FIXTURES");
    double phase = phase_ms();
    uint32_t close = 0;
    for (uint32_t i = 1; i + 12 <= rec.tick_count; i++)
        assert_int_equal(pj_grid_find(&rec.old_ns[i], &rec.end_ns[i], 12), 100 * MS);
    pj_grid g = {.period_ns = 100 * MS};
    for (uint32_t i = 1; i < rec.tick_count; i++) {
        assert_true(pj_grid_observe(&g, rec.old_ns[i], rec.end_ns[i]));
        if (i < 12) continue;
        double tick = (double)(pj_grid_last(&g, rec.begin_ns[i] + 50 * MS) - rec.old_ns[1]) * 1e-6;
        double off = fmod(tick - phase + 1050, 100) - 50;
        double filtered = (double)(rec.ticks[i].fresh_ns - rec.old_ns[1]) * 1e-6;
        assert_near(off, 0, 2);
        assert_that(pj_grid_error(&g, rec.end_ns[i]), <, 4 * MS);
        assert_near(fmod(filtered - phase + 1050, 100) - 50, 0,
                    (double)rec.ticks[i].fresh_error_ns * 1e-6 + 0.1);
        if (rec.ticks[i].fresh_error_ns < 8 * MS) close++;
    }
    assert_that(close, >, 0.9 * rec.tick_count - 12);
}

static void sums_between_ticks_are_exact(void **state)
{
    (void)state;
    judge_folder("PJ_FIXTURES");
    int64_t delay = rec.rails[0].delay_ns;
    for (uint32_t i = 1; i < rec.tick_count; i++)
        for (uint32_t j = 0; j < i; j += 1 + (i - j) / 4) {
            double mj =
                recorded_mj(0, rec.ticks[j].fresh_ns - delay, rec.ticks[i].fresh_ns - delay);
            double counted = rec.mj[i] - rec.mj[j];
            assert_near(mj, counted, 1e-9 * rec.mj[i]);
        }
}

static void log_agrees_with_the_counter(void **state)
{
    (void)state;
    judge_folder("PJ_FIXTURES");
    int64_t from, to, log_from, log_to;
    assert_true(pj_curve_span(rec.curves[0], &from, &to));
    assert_true(pj_curve_span(rec.curves[1], &log_from, &log_to));
    if (from < log_from) from = log_from;
    if (to > log_to) to = log_to;
    assert_that(to - from, >, 14000 * MS);
    double counted = recorded_mj(0, from, to), logged = recorded_mj(1, from, to);
    assert_near(logged / counted, 1, 0.02);
}

static double on_share(int64_t from_ns, int64_t to_ns)
{
    double on = 0;
    for (uint32_t i = 0; i < rec.burst_count; i++) {
        int64_t a = rec.on_ns[i] > from_ns ? rec.on_ns[i] : from_ns;
        int64_t b = rec.off_ns[i] < to_ns ? rec.off_ns[i] : to_ns;
        if (b > a) on += (double)(b - a);
    }
    return on / (double)(to_ns - from_ns);
}

/* Power while the load is on, by least squares over pieces of `step_ms`. */
static double busy_watts(uint32_t first, uint32_t last, int64_t step_ms)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    int64_t step = step_ms * MS;
    for (int64_t at = rec.on_ns[first] - step; at < rec.off_ns[last]; at += step) {
        double share = on_share(at, at + step);
        double watts = recorded_mj(0, at, at + step) * 1e-3 / ((double)step * 1e-9);
        n++;
        x += share;
        y += watts;
        xx += share * share;
        xy += share * watts;
    }
    double slope = (n * xy - x * y) / (n * xx - x * x);
    return (y - slope * x) / n + slope;
}

/* Bursts are not attributable one by one where the log's windows are longer than they are, but
 * their power follows from all of them; a long one has it by itself. */
static void bursts_have_their_power(void **state)
{
    (void)state;
    judge_folder("PJ_FIXTURES");
    enum { RANDOM = 1, TRAIN = 73 }; /* after the burst of 2 s; the bursts of 20 ms */
    double s = (double)(rec.off_ns[0] - rec.on_ns[0]) * 1e-9;
    double steady = recorded_mj(0, rec.on_ns[0], rec.off_ns[0]) * 1e-3 / s;
    assert_near(steady, 700, 20);
    for (int64_t step = 20; step <= 60; step += 20) {
        double random = busy_watts(RANDOM, TRAIN - 1, step);
        double train = busy_watts(TRAIN, rec.burst_count - 1, step);
        print_message("%d ms: %.0f W in random bursts, %.0f W in bursts of 20 ms\n", (int)step,
                      random, train);
        assert_near(random, 725, 125);
        /* shorter than the windows of the log, bursts are smeared by them */
        assert_near(train, 725, step > 25 ? 125 : 225);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_on_a_grid),
        cmocka_unit_test(sums_between_ticks_are_exact),
        cmocka_unit_test(log_agrees_with_the_counter),
        cmocka_unit_test(bursts_have_their_power),
    };
    return cmocka_run_group_tests(tests, replay, release);
}

/*
 * Several runs and windows of one session at the same time, on a machine whose power is planted: a
 * recorded trace. What is divided adds up to what the machine drew, in threads and whatever begins
 * and ends when; a killed process leaves the same shares; windows nest and know what is too short.
 */
#include "../assertions.h"
#include "../child.h"
#include "../virtual_clock.h"
#include "base/clock.h"
#include "record/run.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], database[128], steady[128], slow[128];

/* 20 W CPU and 5 W DRAM, a row every `step_ms`. */
static bool write_trace(const char *path, int step_ms)
{
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fprintf(file, "timestamp_ms,cpu_mw,dram_mw,phase\n");
    for (int ms = 0; ms < 120000; ms += step_ms)
        fprintf(file, "%d,%d,%d,\n", ms, 20000 + ms / step_ms % 2, 5000);
    return fclose(file) == 0;
}

static void name_files(void)
{
    snprintf(database, sizeof database, "%s/runs.db", folder);
    snprintf(steady, sizeof steady, "replay:%s/steady.csv", folder);
    snprintf(slow, sizeof slow, "replay:%s/slow.csv", folder);
}

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/perjoule-several-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    name_files();
    if (!write_trace(steady + strlen("replay:"), 2)) return -1;
    return write_trace(slow + strlen("replay:"), 400) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- what was determined, once for all runs ------------------------------------------------- */

typedef struct cell {
    int64_t begin_ns;
    double mj; /* of both rails */
} cell;

static cell cells[4096];
static size_t cell_count;
static pthread_mutex_t cell_mutex = PTHREAD_MUTEX_INITIALIZER;

static void keep_cell(const pj_share_record *record, const unsigned char *energies)
{
    cell c = {.begin_ns = record->begin_ns};
    for (uint32_t r = 0; r < record->rail_count; r++) {
        pj_share_energy e;
        memcpy(&e, energies + r * sizeof e, sizeof e);
        c.mj += e.mj;
    }
    for (size_t i = 0; i < cell_count; i++)
        if (cells[i].begin_ns == c.begin_ns) {
            assert_that(cells[i].mj, ==, c.mj); /* the same in every spool */
            return;
        }
    assert_that(cell_count, <, sizeof cells / sizeof *cells);
    cells[cell_count++] = c;
}

static void inspect(void *context, pj_spool_reader *reader)
{
    pj_spool_rewind(reader);
    pthread_mutex_lock(&cell_mutex);
    for (const pj_record *record; (record = pj_spool_next(reader));) {
        pj_share_record share;
        if (pj_record_kind(record) != PJ_RECORD_SHARE) continue;
        memcpy(&share, record->payload, sizeof share);
        if (share.end_ns) keep_cell(&share, record->payload + sizeof share);
    }
    pthread_mutex_unlock(&cell_mutex);
}

static double determined_mj(void)
{
    double sum = 0;
    for (size_t i = 0; i < cell_count; i++) sum += cells[i].mj;
    return sum;
}

static pj_session *open_session(const char *power, const char *rule)
{
    pj_session *session;
    pj_error err = {0};
    pj_session_options options = {.size = sizeof options,
                                  .power = power,
                                  .database = database,
                                  .baseline_seconds = -1,
                                  .share_rule = rule};
    if (pj_session_open(&options, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    session->inspect = inspect;
    cell_count = 0;
    return session;
}

static void wait_ms(int64_t ms)
{
    pj_clock_sleep_until(pj_clock_ns() + ms * PJ_NS_PER_MS);
}

/* The sampler's cost is counted once, however many runs it serves. */
static void runs_share_the_time_of_the_sampler(void **state)
{
    pj_error err = {0};
    pj_session *session = open_session(steady, NULL);
    pj_subscriber a = {0}, b = {0};
    assert_int_equal(pj_reading_hub_join(session->hub, &a, &err), PJ_OK);
    assert_int_equal(pj_reading_hub_join(session->hub, &b, &err), PJ_OK);
    int64_t a_begin = pj_reading_hub_begin(session->hub, &a, 1);
    wait_ms(3);
    int64_t b_begin = pj_reading_hub_begin(session->hub, &b, 1);
    wait_ms(5);
    int64_t a_end = pj_reading_hub_end(session->hub, &a);
    wait_ms(2);
    int64_t b_end = pj_reading_hub_end(session->hub, &b);
    double both = (double)(a_end - b_begin) / 2;
    assert_near(a.sampled_ns, ((double)(b_begin - a_begin) + both), 1);
    assert_near(b.sampled_ns, ((double)(b_end - a_end) + both), 1);
    pj_reading_hub_part(session->hub, &a, a_end);
    pj_reading_hub_part(session->hub, &b, b_end);
    pj_subscriber_fini(session->hub, &a);
    pj_subscriber_fini(session->hub, &b);
    pj_session_close(session);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static pj_run *begin(pj_session *session, double weight)
{
    pj_run *run;
    pj_error err = {0};
    pj_run_options options = {.size = sizeof options, .depth = PJ_DEPTH_MODULE, .weight = weight};
    if (pj_run_begin(session, &options, &run, &err) != PJ_OK) fail_msg("%s", err.text);
    return run;
}

/* Tokens with two components each, for a while. */
static void decode(pj_run *run, int64_t ms, uint32_t *position)
{
    pj_lane *lane = pj_run_lane(run);
    uint32_t q = pj_run_name(run, "q_proj"), down = pj_run_name(run, "down_proj");
    int64_t until_ns = pj_clock_ns() + ms * PJ_NS_PER_MS;
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    while (pj_clock_ns() < until_ns) {
        pj_span_begin(lane, PJ_SPAN_TOKEN, (*position)++);
        pj_span_begin(lane, PJ_SPAN_COMPONENT, q);
        wait_ms(3);
        pj_span_next(lane, NULL, PJ_SPAN_COMPONENT, down);
        wait_ms(5);
        pj_span_end(lane, NULL);
        pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
}

static pj_run_data finish(pj_run *run)
{
    pj_run_data data;
    pj_error err = {0};
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err) != PJ_OK) fail_msg("%s", err.text);
    return data;
}

static int64_t tokens_nj(const pj_run_data *d)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < d->token_count; i++) sum += d->tokens[i].energy.gross_nj;
    return sum;
}

static int64_t phases_nj(const pj_run_data *d)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) sum += d->phases[i].energy.gross_nj;
    return sum;
}

static double rails_mj(const pj_run_data *d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d->rail_energy_count; i++)
        if (d->rail_energy[i].phase == PJ_PHASE_COUNT) sum += d->rail_energy[i].gross_mj;
    return sum;
}

static void parts_add_up(const pj_run_data *d)
{
    int64_t whole = llround(d->info.total_mj * 1e6);
    assert_near(phases_nj(d), whole, 1);
    assert_that(tokens_nj(d), <=, whole);
    assert_near(rails_mj(d), d->info.total_mj, 1e-6 * d->info.total_mj);
    int64_t components = 0;
    for (uint32_t i = 0; i < d->component_count; i++)
        components += d->components[i].energy.gross_nj;
    assert_that(components, >, 0);
    assert_that(components, <=, tokens_nj(d));
}

static void runs_that_overlap_divide_the_energy(void **state)
{
    pj_session *session = open_session(steady, NULL);
    uint32_t at_a = 0, at_b = 0;
    pj_run *a = begin(session, 0);
    decode(a, 300, &at_a);
    pj_run *b = begin(session, 0);
    decode(a, 150, &at_a);
    decode(b, 150, &at_b);
    pj_run_data db = finish(b);
    decode(a, 200, &at_a);
    pj_run_data da = finish(a);
    double sum = da.info.total_mj + db.info.total_mj, whole = determined_mj();
    assert_near(sum, whole, 1e-9 * whole);
    assert_near(whole, 25 * da.info.total_ms, 0.02 * whole); /* 25 W all the time */
    assert_near(db.info.total_mj, 12.5 * db.info.total_ms, 0.02 * db.info.total_mj);
    assert_string_equal(da.info.allocation, "equal");
    assert_string_equal(db.info.allocation, "equal");
    assert_int_equal(db.info.method, PJ_METHOD_ALLOCATED);
    parts_add_up(&da);
    parts_add_up(&db);
    /* what A did alone is attributed as always, what it did beside B is a share */
    uint32_t last = da.token_count - 1;
    assert_int_equal(db.tokens[0].energy.method, PJ_METHOD_ALLOCATED);
    assert_that(da.tokens[0].energy.method, !=, PJ_METHOD_ALLOCATED);
    assert_that(da.tokens[last].energy.method, !=, PJ_METHOD_ALLOCATED);
    double alone_mw = da.tokens[2].power_mw, beside_mw = db.tokens[2].power_mw;
    assert_near(beside_mw / alone_mw, 0.5, 0.1);
    pj_run_data_fini(&da);
    pj_run_data_fini(&db);
    pj_session_close(session);
}

static void weights_count_where_the_rule_says_so(void **state)
{
    pj_session *session = open_session(steady, "weight");
    pj_error err = {0};
    pj_run *a = begin(session, 3), *b = begin(session, 1);
    int64_t begun_ns = pj_clock_ns();
    wait_ms(400);
    double weighed_ms = (double)(pj_clock_ns() - begun_ns) / 1e6;
    assert_int_equal(pj_run_set_weight(a, 0, &err), PJ_OK);
    wait_ms(200);
    assert_int_equal(pj_run_set_weight(a, -1, &err), PJ_E_INVALID);
    assert_int_equal(pj_run_set_weight(a, NAN, &err), PJ_E_INVALID);
    assert_int_equal(pj_run_set_weight(NULL, 1, &err), PJ_E_INVALID);
    pj_run_data db = finish(b), da = finish(a);
    double whole = determined_mj();
    assert_near(da.info.total_mj + db.info.total_mj, whole, 1e-9 * whole);
    double expected = 25 * (weighed_ms / 4 + (db.info.total_ms - weighed_ms));
    assert_near(db.info.total_mj, expected, 0.05 * expected);
    assert_string_equal(db.info.allocation, "weight");
    pj_run_data_fini(&da);
    pj_run_data_fini(&db);
    pj_session_close(session);
    pj_session_options wrong = {.size = sizeof wrong, .power = "none", .share_rule = "fair"};
    assert_int_equal(pj_session_open(&wrong, &session, &err), PJ_E_INVALID);
}

static void runs_one_after_the_other_are_alone(void **state)
{
    pj_session *session = open_session(steady, NULL);
    for (int i = 0; i < 2; i++) {
        pj_run *run = begin(session, 0);
        wait_ms(100);
        pj_run_data d = finish(run);
        assert_null(d.info.allocation);
        assert_near(d.info.total_mj, 25 * d.info.total_ms, 0.1 * d.info.total_mj);
        pj_run_data_fini(&d);
    }
    assert_int_equal(cell_count, 0);
    pj_session_close(session);
}

/* ---- threads -------------------------------------------------------------------------------- */

typedef struct worker {
    pj_session *session;
    int number, failed_line; /* cmocka's assertions belong to the main thread */
    double mj;
} worker;

#define WORKER_CHECK(condition) \
    if (!(condition) && !w->failed_line) w->failed_line = __LINE__

static bool adds_up(const pj_run_data *d)
{
    int64_t whole = llround(d->info.total_mj * 1e6);
    return llabs(phases_nj(d) - whole) <= 1 && tokens_nj(d) <= whole;
}

static void *work(void *context)
{
    worker *w = context;
    for (int i = 0; i < 4; i++) {
        uint32_t position = 0;
        wait_ms(7 * w->number);
        pj_run *run = begin(w->session, 1 + w->number);
        pj_open_window *window;
        WORKER_CHECK(pj_window_begin(w->session, &window, NULL) == PJ_OK);
        decode(run, 30 + 17 * ((w->number + i) % 5), &position);
        pj_run_set_weight(run, 0.5, NULL);
        pj_run_set_tokens(run, 1, position);
        pj_window_result result = {.size = sizeof result};
        if (i % 2) {
            WORKER_CHECK(pj_window_end(window, &result, NULL) == PJ_OK);
            WORKER_CHECK(fabs(result.total.mj - 25 * result.duration_ms) < 0.2 * result.total.mj);
        } else {
            WORKER_CHECK(pj_window_end(window, NULL, NULL) == PJ_OK);
        }
        pj_run_data d = finish(run);
        WORKER_CHECK(adds_up(&d));
        if (d.info.allocation) w->mj += d.info.total_mj; /* else it was alone: no cells */
        pj_run_data_fini(&d);
    }
    return NULL;
}

static void threads_divide_all_of_it(void **state)
{
    pj_session *session = open_session(steady, "weight");
    enum { THREADS = 6 };
    worker workers[THREADS];
    pthread_t threads[THREADS];
    double sum = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.session = session, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].failed_line, 0);
        sum += workers[i].mj;
    }
    double whole = determined_mj();
    assert_that(cell_count, >, 2 * THREADS);
    assert_near(sum, whole, 1e-9 * whole);
    pj_session_close(session);
}

/* ---- a kill --------------------------------------------------------------------------------- */

static void leave_two_runs(const char *argument, int tell)
{
    char ids[2][PJ_UUID_BYTES];
    uint32_t position = 0;
    name_files();
    virtual_clock_use();
    pj_session *session = open_session(steady, NULL);
    pj_run *a = begin(session, 0);
    decode(a, 200, &position);
    pj_run *b = begin(session, 0);
    decode(b, 300, &position);
    wait_ms(100); /* the collectors have written it */
    memcpy(ids[0], pj_run_id(a), PJ_UUID_BYTES);
    memcpy(ids[1], pj_run_id(b), PJ_UUID_BYTES);
    _exit(write(tell, ids, sizeof ids) == sizeof ids ? 0 : 1);
}

static void killed_runs_keep_their_shares(void **state)
{
    char ids[2][PJ_UUID_BYTES] = {{0}};
    int told;
    pid_t child = child_start(folder, "", &told);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(told, ids, sizeof ids), sizeof ids);
    close(told);
    pj_session *session = open_session("none", NULL);
    pj_run_data d[2];
    memset(d, 0, sizeof d);
    pj_error err = {0};
    for (int64_t until_ns = pj_clock_ns() + 45 * PJ_NS_PER_S; pj_clock_ns() < until_ns;)
        if (pj_session_settle(session, PJ_NS_PER_S).done) break;
    for (int i = 0; i < 2; i++) {
        if (pj_store_load(session->store, ids[i], &d[i], &err) != PJ_OK) fail_msg("%s", err.text);
        assert_int_equal(d[i].info.status, PJ_RUN_INTERRUPTED);
        assert_string_equal(d[i].info.allocation, "equal");
    }
    double b_ms = d[1].info.total_ms, a_ms = d[0].info.total_ms;
    assert_near(d[1].info.total_mj, 12.5 * b_ms, 0.05 * d[1].info.total_mj);
    double alone_ms = (double)(d[1].info.created_wall_ns - d[0].info.created_wall_ns) / 1e6;
    double expected = 25 * (alone_ms + (a_ms - alone_ms) / 2); /* where its spool ends */
    assert_near(d[0].info.total_mj, expected, 0.2 * expected);
    pj_run_data_fini(&d[0]);
    pj_run_data_fini(&d[1]);
    pj_session_close(session);
}

/* ---- simulated sensors ---------------------------------------------------------------------- */

static void simulated_machines_can_be_shared(void **state)
{
    pj_session *session = open_session("sim:period_ms=5", NULL);
    uint32_t at_a = 0, at_b = 0;
    pj_run *a = begin(session, 0), *b = begin(session, 0);
    decode(a, 150, &at_a);
    decode(b, 150, &at_b);
    pj_run_data da = finish(a);
    pj_run_data db = finish(b);
    double sum = da.info.total_mj + db.info.total_mj, whole = determined_mj();
    assert_that(whole, >, 0);
    assert_near(sum, whole, 1e-9 * whole);
    assert_int_equal(da.info.quality, PJ_MODELLED);
    pj_run_data_fini(&da);
    pj_run_data_fini(&db);
    pj_session_close(session);
}

/* ---- windows -------------------------------------------------------------------------------- */

static pj_window_result end_window(pj_open_window *window)
{
    pj_window_result r = {.size = sizeof r};
    pj_error err = {0};
    if (pj_window_end(window, &r, &err) != PJ_OK) fail_msg("%s", err.text);
    return r;
}

static void windows_nest(void **state)
{
    pj_session *session = open_session(steady, NULL);
    pj_open_window *outer, *inner;
    assert_int_equal(pj_window_begin(session, &outer, NULL), PJ_OK);
    wait_ms(100);
    assert_int_equal(pj_window_begin(session, &inner, NULL), PJ_OK);
    pj_run *run = begin(session, 0); /* a run beside them does not matter */
    wait_ms(150);
    pj_window_result in = end_window(inner);
    pj_run_data d = finish(run);
    wait_ms(50);
    pj_window_result out = end_window(outer);
    assert_that(out.duration_ms, >=, 300);
    assert_that(in.duration_ms, >=, 150);
    assert_that(in.duration_ms, <, out.duration_ms);
    assert_near(in.total.mj, 25 * in.duration_ms, 0.05 * in.total.mj);
    assert_near(out.total.mj, 25 * out.duration_ms, 0.05 * out.total.mj);
    assert_that(in.total.lo_mj, <, in.total.mj);
    assert_that(in.total.mj, <, in.total.hi_mj);
    assert_that(out.total.lo_mj, <=, 25 * out.duration_ms);
    assert_that(25 * out.duration_ms, <=, out.total.hi_mj);
    assert_int_equal(out.rail_count, 2);
    assert_string_equal(out.rails[1].name, "dram");
    assert_near(out.rails[1].gross.mj * 5, out.total.mj, 0.01 * out.total.mj);
    assert_true(isnan(out.net.mj)); /* no baseline was taken */
    assert_that(out.energy_source, !=, PJ_UNAVAILABLE);
    assert_false(out.is_partial);
    assert_null(d.info.allocation);
    pj_run_data_fini(&d);
    pj_session_close(session);
}

/* A tick of the sensor at each end is what it can be wrong by. */
static void a_window_shorter_than_a_period_has_a_wide_interval(void **state)
{
    pj_session *session = open_session(slow, NULL);
    pj_open_window *window;
    assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
    pj_window_result r = end_window(window);
    assert_int_not_equal(r.energy_source, PJ_UNAVAILABLE);
    assert_that(r.total.mj, >, 0);
    assert_that(r.total.hi_mj, >, 1.3 * r.total.mj);
    assert_that(r.total.lo_mj, >=, 0);
    assert_int_equal(r.rail_count, 2);
    assert_that(r.rails[0].gross.mj, >, 0);
    assert_true(isnan(r.net.mj)); /* no baseline was taken */
    pj_session_close(session);
}

static void windows_without_sensors_have_a_time(void **state)
{
    pj_session *session = open_session("none", NULL);
    pj_open_window *window;
    pj_error err = {0};
    assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
    wait_ms(20);
    pj_window_result r = {.size = 7};
    assert_int_equal(pj_window_end(window, &r, &err), PJ_E_INVALID);
    r = end_window(window);
    assert_true(isnan(r.total.mj));
    assert_true(isnan(r.total_upper_mj));
    assert_that(r.duration_ms, >=, 20);
    assert_int_equal(r.energy_source, PJ_UNAVAILABLE);
    assert_int_equal(pj_window_begin(NULL, &window, &err), PJ_E_INVALID);
    assert_int_equal(pj_window_begin(session, NULL, &err), PJ_E_INVALID);
    assert_int_equal(pj_window_end(NULL, &r, &err), PJ_E_INVALID);
    pj_session_close(session);
}

static void closing_ends_what_is_open(void **state)
{
    pj_session *session = open_session(steady, NULL);
    pj_open_window *window;
    begin(session, 0);
    assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
    begin(session, 0);
    assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
    pj_session_close(session);
}

static pthread_mutex_t stored_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stored = PTHREAD_COND_INITIALIZER;
static pj_run_status status_stored; /* RUNNING: not yet */

static void note_stored(pj_store *store, const char *run_id)
{
    pj_run_data data = {0};
    pj_error err = {0};
    if (pj_store_load(store, run_id, &data, &err) != PJ_OK) abort();
    pthread_mutex_lock(&stored_mutex);
    status_stored = data.info.status;
    pthread_cond_signal(&stored);
    pthread_mutex_unlock(&stored_mutex);
    pj_run_data_fini(&data);
}

static void *end_completed(void *run)
{
    return (void *)(intptr_t)pj_run_end(run, PJ_RUN_COMPLETED, NULL, NULL);
}

static void closing_waits_for_an_end_in_progress(void **state)
{
    pthread_t thread;
    void *result;
    pj_session *session = open_session(steady, NULL);
    session->stored = note_stored;
    status_stored = PJ_RUN_RUNNING;
    assert_int_equal(pthread_create(&thread, NULL, end_completed, begin(session, 0)), 0);
    pthread_mutex_lock(&stored_mutex);
    while (status_stored == PJ_RUN_RUNNING) pthread_cond_wait(&stored, &stored_mutex);
    pthread_mutex_unlock(&stored_mutex);
    pj_session_close(session);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, PJ_OK);
    assert_int_equal(status_stored, PJ_RUN_COMPLETED);
}

/* Windows one after the other start and stop the sensors each time. */
static void windows_can_be_repeated(void **state)
{
    pj_session *session = open_session(steady, NULL);
    for (int i = 0; i < 5; i++) {
        pj_open_window *window;
        assert_int_equal(pj_window_begin(session, &window, NULL), PJ_OK);
        wait_ms(60);
        pj_window_result r = end_window(window);
        if (!(fabs(r.total.mj - 25 * r.duration_ms) < 0.1 * r.total.mj))
            fail_msg("window %d: %g mJ in %g ms", i, r.total.mj, r.duration_ms);
    }
    pj_session_close(session);
}

int main(int argc, char **argv)
{
    child_or_parent(argc, argv, folder, sizeof folder, leave_two_runs);
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_share_the_time_of_the_sampler),
        cmocka_unit_test(runs_that_overlap_divide_the_energy),
        cmocka_unit_test(weights_count_where_the_rule_says_so),
        cmocka_unit_test(runs_one_after_the_other_are_alone),
        cmocka_unit_test(threads_divide_all_of_it),
        cmocka_unit_test(killed_runs_keep_their_shares),
        cmocka_unit_test(simulated_machines_can_be_shared),
        cmocka_unit_test(windows_nest),
        cmocka_unit_test(a_window_shorter_than_a_period_has_a_wide_interval),
        cmocka_unit_test(windows_without_sensors_have_a_time),
        cmocka_unit_test(closing_ends_what_is_open),
        cmocka_unit_test(closing_waits_for_an_end_in_progress),
        cmocka_unit_test(windows_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

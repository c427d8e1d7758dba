/* Sessions end to end: a run into the database and out again, live events, threads, fallback,
 * processes killed at any moment, places that cannot be written. */
#include "../assertions.h"
#include "../child.h"
#include "../sanitized.h"
#include "../virtual_clock.h"
#include "attribution/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "record/live_feed.h"
#include "record/run.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], database[128];
static const int64_t PATIENCE_NS = 20000000000;

static void name_database(void)
{
    snprintf(database, sizeof database, "%s/runs.db", folder);
}

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/perjoule-session-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    name_database();
    return 0;
}

static int remove_folder(void **state)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static pj_session *open_session(const char *power)
{
    pj_session *session;
    pj_error err = {0};
    pj_session_options options = {.power = power, .database = database, .baseline_seconds = 0.05};
    if (pj_session_open(&options, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    return session;
}

static void spin(int64_t ns)
{
    for (int64_t end = pj_clock_ns() + ns; pj_clock_ns() < end;) {
    }
}

/* Records `tokens` steps of two layers each. */
static void record(pj_run *run, int tokens, int64_t part_ns)
{
    pj_lane *lane = pj_run_lane(run);
    uint32_t q = pj_run_name(run, "q_proj"), down = pj_run_name(run, "down_proj");
    uint32_t layers = pj_run_name(run, "layers");
    pj_stats stats = {.mean_abs = 0.25f, .max_abs = 3};
    for (int i = 0; i < tokens; i++) {
        if (i < 2) pj_span_begin(lane, PJ_SPAN_PHASE, i ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL);
        pj_span_begin(lane, PJ_SPAN_TOKEN, (uint32_t)i);
        pj_span_begin(lane, PJ_SPAN_SECTION, layers);
        for (uint32_t layer = 0; layer < 2; layer++) {
            pj_span_begin(lane, PJ_SPAN_LAYER, layer);
            pj_span_begin(lane, PJ_SPAN_COMPONENT, q);
            spin(part_ns);
            pj_span_next(lane, &(pj_work){1e6, 1e5, &stats, NULL, 0}, PJ_SPAN_COMPONENT, down);
            spin(part_ns * 2);
            pj_span_end(lane, &(pj_work){2e6, 2e5, &stats, NULL, 0});
            pj_span_end(lane, NULL);
        }
        pj_span_end(lane, NULL);
        /* The euro sign, cut in two: live events must not show half a character. */
        pj_token_text(lane, 0, i, i % 2 ? "\x82\xac" : "x\xe2", i % 2 ? 2 : 2);
        pj_span_end(lane, NULL);
        if (i == 0) pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
}

static void a_run_comes_out_of_the_database_as_it_went_in(void **state)
{
    pj_session *session = open_session("sim:period_ms=1");
    pj_run *run;
    pj_error err = {0};
    const char *const tags[] = {"one", "two", NULL};
    pj_run_options options = {.prompt = "hello",
                              .model_name = "m",
                              .tags = tags,
                              .depth = PJ_DEPTH_MODULE,
                              .experiment_name = "e",
                              .settings_json = "{\"a\":1}"};
    assert_int_equal(pj_run_begin(session, &options, &run, &err), PJ_OK);
    record(run, 10, 100000);
    pj_statistics_time(pj_run_lane(run), 20000);
    pj_statistics_time(pj_run_lane(run), 5000);
    pj_run_set_tokens(run, 3, 10);
    pj_run_warn(run, "test", "a warning of %d words", 4);
    char id[PJ_UUID_BYTES];
    memcpy(id, pj_run_id(run), sizeof id);
    pj_run_data data, loaded = {0};
    assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err), PJ_OK);
    assert_int_equal(pj_store_load(session->store, id, &loaded, &err), PJ_OK);
    assert_int_equal(loaded.component_count, 40);
    assert_int_equal(loaded.component_count, data.component_count);
    assert_int_equal(loaded.token_count, 10);
    assert_int_equal(loaded.info.status, PJ_RUN_COMPLETED);
    assert_int_equal(loaded.info.tag_count, 2);
    assert_int_equal(loaded.info.quality, PJ_MODELLED); /* simulated is never measured */
    assert_int_equal(loaded.info.input_tokens, 3);
    assert_that(loaded.info.total_mj, >, 0);
    assert_that(loaded.info.idle_mj, >, 0);
    assert_near(loaded.info.total_mj, data.info.total_mj, 1e-9 * data.info.total_mj);
    assert_that(loaded.info.statistics_ms, ==, 0.025); /* and part of the whole */
    assert_that(loaded.info.overhead_ms, >, 0.025);
    assert_string_equal(loaded.warnings[loaded.warning_count - 1].text, "a warning of 4 words");
    assert_true(data.components[0].has_stats);
    assert_that(data.components[0].stats.max_abs, ==, 3);
    pj_run_data_fini(&data);
    pj_run_data_fini(&loaded);
    pj_session_close(session);
    pj_session_close(NULL);
}

/* Whatever a client says must leave the run, its spool and every list of runs readable. */
static void what_a_client_says_spoils_nothing(void **state)
{
    static const char *const no_objects[] = {
        "",        "text",        "[1]",          "{\"a\":1}x",
        "{\"a\":", "{\"a\":NaN}", "{\"\xff\":1}", "{\"a\":1,\"a\":2}"};
    pj_session *session = open_session("none");
    pj_run *run;
    pj_run_data data, loaded = {0};
    pj_error err = {0};
    for (size_t i = 0; i < sizeof no_objects / sizeof *no_objects; i++) {
        pj_run_options options = {.settings_json = no_objects[i]};
        assert_int_equal(pj_run_begin(session, &options, &run, &err), PJ_E_INVALID);
        assert_null(run);
    }
    pj_run_options options = {.prompt = "\xff\x01", .settings_json = " {\"a\": [1]} "};
    assert_int_equal(pj_run_begin(session, &options, &run, &err), PJ_OK);
    pj_run_set_tokens(run, UINT64_MAX, UINT64_MAX);
    char id[PJ_UUID_BYTES];
    memcpy(id, pj_run_id(run), sizeof id);
    assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err), PJ_OK);
    assert_int_equal(pj_store_load(session->store, id, &loaded, &err), PJ_OK);
    assert_that(loaded.info.input_tokens, ==, INT64_MAX);
    assert_string_equal(loaded.info.settings_json, " {\"a\": [1]} ");
    pj_run_data_fini(&data);
    pj_run_data_fini(&loaded);
    pj_session_close(session);
}

static void passes_that_yield_no_tokens_have_no_joules_per_token(void **state)
{
    pj_session *session = open_session("sim");
    pj_run *run;
    pj_error err = {0};
    pj_result result = {.size = sizeof result};
    pj_run_facts facts = {.size = sizeof facts, .batch_size = 4};
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err),
                     PJ_OK);
    record(run, 2, 100000);
    assert_int_equal(pj_run_describe(run, &facts, &err), PJ_OK);
    pj_run_set_tokens(run, 0, PJ_NO_TOKENS);
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, &result, &err), PJ_OK);
    assert_int_equal(result.output_tokens, 0);
    assert_that(result.total.mj, >, 0);
    assert_true(isnan(result.joules_per_token));
    assert_non_null(strstr(result.json, "\"batch_size\":4"));
    pj_result_fini(&result);
    pj_session_close(session);
}

static void without_a_sensor_only_energy_is_missing(void **state)
{
    setenv("PERJOULE_SYSFS", folder, 1); /* an empty machine */
    pj_session *session = open_session(NULL);
    unsetenv("PERJOULE_SYSFS");
    pj_run *run;
    pj_run_data data;
    pj_error err = {0};
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err),
                     PJ_OK);
    record(run, 3, 10000);
    assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err), PJ_OK);
    if (data.rail_count == 0) { /* no GPU library in sight either */
        assert_int_equal(data.info.quality, PJ_UNAVAILABLE);
        assert_true(isnan(data.info.total_mj));
        assert_that(data.tokens[0].energy.gross_nj, ==, PJ_NJ_UNKNOWN);
        assert_string_equal(data.warnings[0].code, "power_unavailable");
        assert_non_null(strstr(data.warnings[0].text, "perjoule sensors"));
    }
    assert_int_equal(data.component_count, 12);
    assert_true(data.components[0].has_stats);
    pj_run_data_fini(&data);
    pj_session_close(session);
}

/* ---- live events --------------------------------------------------------------------------- */

typedef struct heard {
    int begins, ends, tokens, power, sections, parts, layers, loads;
    pj_live_layer layer;
    pj_live_load load;
    char text[256];
    double last_ms, energy_mj;
    bool ordered, valid, has_summary, stored;
} heard;

static void hear_begin(void *context, const pj_live_run *run)
{
    ((heard *)context)->begins++;
}

static void hear_token(void *context, const char *run_id, const pj_live_token *token)
{
    heard *h = context;
    h->ordered &= token->t_ms >= h->last_ms && (int)token->position == h->tokens;
    h->last_ms = token->t_ms;
    h->tokens++;
    strncat(h->text, token->text, sizeof h->text - strlen(h->text) - 1);
    if (!isnan(token->energy_mj)) h->energy_mj += token->energy_mj; /* none before a reading */
}

static void hear_power(void *context, const char *run_id, const pj_live_power *samples,
                       uint32_t count)
{
    heard *h = context;
    h->power += (int)count;
    h->valid &= samples[0].quality == PJ_MODELLED && samples[0].mw[PJ_RAIL_TOTAL] > 0;
}

static void hear_section(void *context, const char *run_id, const pj_live_section *section)
{
    heard *h = context;
    h->sections++;
    h->valid &= strcmp(section->name, "layers") == 0;
}

static void hear_parts(void *context, const char *run_id, const pj_live_part *parts, uint32_t count)
{
    heard *h = context;
    h->parts++;
    h->valid &= count == 6 && strcmp(parts[0].component, "q_proj") == 0 && parts[0].layer == 0 &&
                parts[0].stats && parts[0].stats->max_abs == 3 && parts[2].component == NULL;
}

static void hear_end(void *context, const char *run_id, const pj_live_end *end)
{
    heard *h = context;
    h->ends++;
    h->has_summary = end->data && strcmp(end->data->info.id, run_id) == 0;
    /* Another connection must already see the run with the same energy. */
    pj_store *store;
    pj_run_data stored = {0};
    pj_error err = {0};
    assert_int_equal(
        pj_store_open(&(pj_store_options){.path = database, .read_only = true}, &store, &err),
        PJ_OK);
    if (pj_store_load(store, run_id, &stored, &err) == PJ_OK && h->has_summary)
        h->stored = stored.info.status == end->status && stored.info.total_mj > 0 &&
                    end->data->info.total_mj == stored.info.total_mj;
    pj_run_data_fini(&stored);
    pj_store_close(store);
}

static void listeners_hear_the_run(void **state)
{
    heard h = {.ordered = true, .valid = true};
    pj_live_sink sink = {.version = PJ_LIVE_SINK_VERSION,
                         .context = &h,
                         .run_begin = hear_begin,
                         .power = hear_power,
                         .section_start = hear_section,
                         .section_end = hear_section,
                         .token = hear_token,
                         .parts = hear_parts,
                         .run_end = hear_end};
    pj_session *session = open_session("sim:period_ms=5");
    assert_int_equal(pj_session_add_sink(session, &sink, NULL), PJ_OK);
    pj_run *run;
    pj_error err = {0};
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err),
                     PJ_OK);
    record(run, 20, 1000000);
    assert_int_equal(pj_run_end(run, PJ_RUN_COMPLETED, NULL, &err), PJ_OK);
    assert_int_equal(h.begins, 1);
    assert_int_equal(h.ends, 1);
    assert_int_equal(h.tokens, 20);
    assert_true(h.ordered && h.valid && h.has_summary && h.stored);
    assert_that(h.power, >, 0);
    assert_that(h.parts, >, 0);
    assert_that(h.sections, >=, 2 * h.parts);
    assert_that(h.energy_mj, >, 0);
    char want[256] = "";
    for (int i = 0; i < 10; i++) strcat(want, "x\xe2\x82\xac");
    assert_string_equal(h.text, want);
    pj_session_close(session);
}

typedef struct heard_power {
    pj_live_power samples[4096];
    uint32_t count;
} heard_power;

static void keep_power(void *context, const char *run_id, const pj_live_power *samples,
                       uint32_t count)
{
    heard_power *h = context;
    for (uint32_t i = 0; i < count && h->count < 4096; i++) h->samples[h->count++] = samples[i];
}

/* Readings arrive in batches, of which one may hold a whole run: each has the phase of its time. */
static void a_power_sample_has_the_phase_of_its_time(void **state)
{
    static heard_power h;
    pj_live_sink sink = {.version = PJ_LIVE_SINK_VERSION, .context = &h, .power = keep_power};
    pj_session *session = open_session("sim:period_ms=1");
    assert_int_equal(pj_session_add_sink(session, &sink, NULL), PJ_OK);
    uint32_t inside = 0;
    for (int i = 0; i < 8; i++) {
        pj_run *run;
        pj_run_data data;
        pj_error err = {0};
        h.count = 0;
        assert_int_equal(
            pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err), PJ_OK);
        record(run, 4, 400000);
        assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err), PJ_OK);
        for (uint32_t s = 0; s < h.count; s++) {
            pj_phase phase = PJ_PHASE_IDLE;
            for (uint32_t p = 0; p < data.phase_count; p++) {
                double after_ms = h.samples[s].t_ms - data.phases[p].start_ms;
                if (after_ms >= 0 && after_ms < data.phases[p].duration_ms)
                    phase = data.phases[p].phase;
            }
            assert_int_equal(h.samples[s].phase, phase);
            inside += phase != PJ_PHASE_IDLE;
        }
        pj_run_data_fini(&data);
    }
    assert_that(inside, >, 0);
    pj_session_close(session);
}

static void hear_layer(void *context, const char *run_id, const pj_live_layer *layer)
{
    heard *h = context;
    assert_string_equal(run_id, "a run");
    h->layers++;
    h->layer = *layer;
}

/* At most every 50 ms, only inside a layer, and only when it has changed. */
static void the_running_layer_is_sampled(void **state)
{
    enum { MS = 1000000 };
    const int64_t start = 5000 * (int64_t)MS;
    static const struct {
        int ms;
        int32_t token, layer;
        bool told;
    } rounds[] = {{0, 0, -1, false},  {10, 0, 2, true},  {40, 0, 3, false}, {70, 0, 3, true},
                  {200, 0, 3, false}, {216, 1, 3, true}, {300, -1, 0, true}};
    heard h = {0};
    pj_live_sink sink = {
        .version = PJ_LIVE_SINK_VERSION, .context = &h, .layer_running = hear_layer};
    pj_live_feed *feed;
    int told = 0;
    assert_int_equal(pj_live_feed_open(&sink, "a run", start, NULL, &feed, NULL), PJ_OK);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        pj_context place = {PJ_PHASE_DECODE, rounds[i].token, rounds[i].layer};
        pj_live_feed_context(feed, &place, start + rounds[i].ms * (int64_t)MS);
        told += rounds[i].told;
        assert_int_equal(h.layers, told);
        if (!rounds[i].told) continue;
        assert_that(h.layer.t_ms, ==, rounds[i].ms);
        assert_that(h.layer.phase, ==, PJ_PHASE_DECODE);
        assert_that(h.layer.position, ==, rounds[i].token);
        assert_that((int)h.layer.layer, ==, rounds[i].layer);
    }
    pj_live_feed_close(feed);
}

static void hear_load(void *context, const char *run_id, const pj_live_load *load)
{
    heard *h = context;
    assert_string_equal(run_id, "a run");
    h->loads++;
    h->load = *load;
}

/* At most every 50 ms, only when the number of layers is known, and only when it has changed. */
static void the_progress_of_a_load_is_sampled(void **state)
{
    enum { MS = 1000000 };
    const int64_t start = 7000 * (int64_t)MS;
    static const struct {
        int ms;
        uint32_t done, total;
        bool told;
    } rounds[] = {{0, 0, 0, false},  {10, 0, 30, true},   {20, 0, 30, false},  {55, 1, 30, false},
                  {80, 5, 30, true}, {300, 5, 30, false}, {350, 29, 30, true}, {500, 30, 30, true}};
    heard h = {0};
    pj_live_sink sink = {
        .version = PJ_LIVE_SINK_VERSION, .context = &h, .load_progress = hear_load};
    pj_live_feed *feed;
    int told = 0;
    assert_int_equal(pj_live_feed_open(&sink, "a run", start, NULL, &feed, NULL), PJ_OK);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        pj_progress progress = {rounds[i].done, rounds[i].total};
        pj_live_feed_load(feed, &progress, start + rounds[i].ms * (int64_t)MS);
        told += rounds[i].told;
        assert_int_equal(h.loads, told);
        if (!rounds[i].told) continue;
        assert_that(h.load.t_ms, ==, rounds[i].ms);
        assert_that(h.load.total, ==, rounds[i].total);
        assert_int_equal(h.load.done, rounds[i].done);
    }
    pj_live_feed_close(feed);
}

/* ---- death --------------------------------------------------------------------------------- */

static int64_t runs_of_status(pj_session *session, const char *status)
{
    pj_run_list list;
    pj_error err = {0};
    pj_run_query query = {.status = status};
    if (pj_store_list(session->store, &query, &list, &err) != PJ_OK) fail_msg("%s", err.text);
    int64_t count = (int64_t)list.count;
    pj_run_list_fini(&list);
    return count;
}

/* Spools with something in them. An empty one, of a process that was killed before its first write,
 * is kept for a minute: it might belong to a process that lives. */
static int spools_left(void)
{
    char command[200];
    snprintf(command, sizeof command,
             "test -z \"$(find %s-spool -type f -name '*spool*' -size +0)\"", database);
    return system(command);
}

/* The child says when a run has begun; from then on it may be killed. */
static void live_until_killed(int tell)
{
    pj_session *session = open_session("sim:period_ms=1");
    for (;;) {
        pj_run *run;
        pj_error err = {0};
        if (pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE, .prompt = "doomed"},
                         &run, &err) != PJ_OK)
            _exit(1);
        if (write(tell, pj_run_id(run), 36) != 36) _exit(1);
        record(run, 20, 20000);
        pj_run_end(run, PJ_RUN_COMPLETED, NULL, &err);
    }
}

static void no_run_is_lost_by_a_kill(void **state)
{
    pj_random random = {7};
    enum { ROUNDS = 25, MOST = 4096 };
    static char ids[MOST][37];
    int begun = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int told;
        pid_t child = child_start(folder, "live", &told);
        assert_int_equal(read(told, ids[begun], 36), 36);
        begun++;
        struct timespec moment = {.tv_nsec = (long)(pj_random_unit(&random) * 40e6)};
        nanosleep(&moment, NULL); /* of the real clock: the child works meanwhile */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (begun < MOST && read(told, ids[begun], 36) == 36) begun++;
        close(told);
    }
    pj_session *session = open_session("none");
    assert_string_equal(session->warning, "");
    assert_true(pj_session_settle(session, PATIENCE_NS).done);
    for (int i = 0; i < begun; i++) {
        pj_run_data data = {0};
        pj_error err = {0};
        if (pj_store_load(session->store, ids[i], &data, &err) != PJ_OK)
            fail_msg("run %d of %d: %s", i, begun, err.text);
        assert_true(data.info.status == PJ_RUN_COMPLETED || data.info.status == PJ_RUN_INTERRUPTED);
        assert_string_equal(data.info.prompt, "doomed");
        pj_run_data_fini(&data);
    }
    /* how many depends on what else the machine does */
    print_message("%d of %d were interrupted\n", (int)runs_of_status(session, "interrupted"),
                  begun);
    assert_int_equal(spools_left(), 0);
    pj_session_close(session);
    char command[256];
    snprintf(command, sizeof command,
             "command -v sqlite3 >/dev/null || exit 0; "
             "test \"$(sqlite3 %s 'PRAGMA integrity_check')\" = ok",
             database);
    assert_int_equal(system(command), 0);
}

/* Killed during its run, after its last span. */
static void record_and_die(int tell)
{
    pj_session *session = open_session("sim:period_ms=1,idle_mw=10000,low_mw=40000,high_mw=40000");
    pj_run *run;
    pj_error err = {0};
    if (pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE, .prompt = "killed"}, &run,
                     &err) != PJ_OK)
        _exit(1);
    record(run, 40, 200000);
    pj_clock_sleep_until(pj_clock_ns() + 50000000); /* for the collector */
    if (write(tell, pj_run_id(run), 36) != 36) _exit(1);
    kill(getpid(), SIGKILL);
}

static void be_a_child(const char *what, int tell)
{
    name_database();
    virtual_clock_use();
    strcmp(what, "live") == 0 ? live_until_killed(tell) : record_and_die(tell);
}

static void a_killed_run_keeps_its_simulated_energy(void **state)
{
    int told;
    char id[37] = "";
    pid_t child = child_start(folder, "record", &told);
    assert_int_equal(read(told, id, 36), 36);
    close(told);
    waitpid(child, NULL, 0);
    pj_session *session = open_session("none");
    assert_true(pj_session_settle(session, PATIENCE_NS).done);
    pj_run_data data = {0};
    pj_error err = {0};
    if (pj_store_load(session->store, id, &data, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(data.info.status, PJ_RUN_INTERRUPTED);
    assert_int_equal(data.token_count, 40);
    double energy_mj = 0, planted_mj = 0, ms = 0;
    for (uint32_t i = 0; i < data.token_count; i++) {
        energy_mj += pj_mj_of_nj(data.tokens[i].energy.gross_nj);
        planted_mj += pj_mj_of_nj(data.tokens[i].energy.planted_nj);
        ms += data.tokens[i].duration_ms;
    }
    print_message("%.3f J of %.3f J planted, in %.0f ms\n", energy_mj * 1e-3, planted_mj * 1e-3,
                  ms);
    assert_near(planted_mj, 50 * ms, 0.05 * planted_mj); /* of 50 W */
    assert_near(energy_mj, planted_mj, 0.02 * planted_mj);
    pj_run_data_fini(&data);
    pj_session_close(session);
}

static void an_open_run_of_a_closed_session_is_interrupted(void **state)
{
    pj_session *session = open_session("none");
    int64_t before = runs_of_status(session, "interrupted");
    pj_run *run;
    assert_int_equal(pj_run_begin(session, &(pj_run_options){0}, &run, NULL), PJ_OK);
    pj_span_begin(pj_run_lane(run), PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
    pj_session_close(session);
    session = open_session("none");
    assert_int_equal(runs_of_status(session, "interrupted"), before + 1);
    pj_session_close(session);
}

/* ---- places that cannot be written --------------------------------------------------------- */

static void a_run_that_cannot_be_stored_keeps_its_spool(void **state)
{
    pj_session *session = open_session("none");
    pj_run *run;
    pj_error err = {0};
    char moved[160], path[300];
    assert_int_equal(pj_run_begin(session, &(pj_run_options){.prompt = "kept"}, &run, &err), PJ_OK);
    record(run, 2, 1000);
    snprintf(path, sizeof path, "%s-spool/%s.spool", database, pj_run_id(run));
    /* The store is taken away: closed underneath, as if the disk had failed. */
    pj_store *good = session->store;
    snprintf(moved, sizeof moved, "%s/readonly.db", folder);
    pj_store *writable, *bad;
    assert_int_equal(pj_store_open(&(pj_store_options){.path = moved}, &writable, &err), PJ_OK);
    pj_store_close(writable);
    assert_int_equal(
        pj_store_open(&(pj_store_options){.path = moved, .read_only = true}, &bad, &err), PJ_OK);
    session->store = bad;
    assert_int_not_equal(pj_run_end(run, PJ_RUN_COMPLETED, NULL, &err), PJ_OK);
    assert_non_null(strstr(err.text, path));
    assert_null(strchr(err.text, '\n'));
    assert_true(pj_file_exists(path));
    pj_store_close(bad);
    session->store = good;
    pj_session_close(session);
    session = open_session("none"); /* the next start takes it, with the status it had */
    assert_int_equal(pj_session_settle(session, PATIENCE_NS).recovered, 1);
    assert_false(pj_file_exists(path));
    pj_session_close(session);
}

static void places_that_do_not_exist_are_one_sentence(void **state)
{
    pj_session *session = (pj_session *)1;
    pj_error err = {0};
    pj_session_options options = {.power = "none", .database = "/proc/nothing/here.db"};
    assert_int_not_equal(pj_session_open(&options, &session, &err), PJ_OK);
    assert_null(session);
    assert_true(err.text[0] && !strchr(err.text, '\n'));
    options = (pj_session_options){.power = "nonsense", .database = "none"};
    assert_int_not_equal(pj_session_open(&options, &session, &err), PJ_OK);
    assert_true(err.text[0] && !strchr(err.text, '\n'));
}

static void an_environment_that_cannot_be_is_refused(void **state)
{
    const char *kept = getenv("PERJOULE_BASELINE"), *before = kept ? kept : "0.2";
    char baseline[32];
    snprintf(baseline, sizeof baseline, "%s", before);
    pj_session *session;
    pj_error err = {0};
    setenv("PERJOULE_BASELINE", "abc", 1);
    pj_status status =
        pj_session_open(&(pj_session_options){.power = "none", .database = "none"}, &session, &err);
    setenv("PERJOULE_BASELINE", baseline, 1);
    assert_int_equal(status, PJ_E_INVALID);
    assert_non_null(strstr(err.text, "PERJOULE_BASELINE=abc: must be seconds"));
}

static char said[4096]; /* sentences of the recovery, one a line */

static void hear_recovery(void *context, const char *text)
{
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", text);
}

static void garbage_in_the_spool_folder_is_named_and_left(void **state)
{
    char path[200];
    pj_error err;
    snprintf(path, sizeof path, "%s-spool/garbage.spool", database);
    assert_int_equal(pj_file_write(path,
                                   "this is no spool, just some bytes that lie about here......"
                                   "............",
                                   70, &err),
                     PJ_OK);
    pj_session *session = open_session("none");
    assert_true(pj_session_settle(session, PATIENCE_NS).done);
    pj_recovery_on_message(session->recovery, hear_recovery, NULL);
    assert_non_null(strstr(said, "garbage.spool"));
    assert_true(pj_file_exists(path));
    pj_session_close(session);
    unlink(path);
}

static void nth_allocation_may_fail(void **state)
{
    int failures = 0;
    for (int n = 0; n < 400; n += PJ_SANITIZED ? 3 : 2) {
        pj_session *session = NULL;
        pj_run *run = NULL;
        pj_error err = {0};
        pj_session_options options = {
            .power = "sim:period_ms=1", .database = "none", .baseline_seconds = -1};
        pj_memory_fail_after(n);
        pj_status status = pj_session_open(&options, &session, &err);
        if (status == PJ_OK)
            status = pj_run_begin(session, &(pj_run_options){.prompt = "p"}, &run, &err);
        if (status == PJ_OK) {
            record(run, 2, 1000);
            status = pj_run_end(run, PJ_RUN_COMPLETED, NULL, &err);
        }
        pj_memory_fail_after(-1);
        pj_session_close(session);
        failures += status != PJ_OK;
        if (status != PJ_OK) assert_that(err.text[0], !=, 0);
    }
    assert_that(failures, >, 10);
}

int main(int argc, char **argv)
{
    child_or_parent(argc, argv, folder, sizeof folder, be_a_child);
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_that_yield_no_tokens_have_no_joules_per_token),
        cmocka_unit_test(a_run_comes_out_of_the_database_as_it_went_in),
        cmocka_unit_test(what_a_client_says_spoils_nothing),
        cmocka_unit_test(without_a_sensor_only_energy_is_missing),
        cmocka_unit_test(listeners_hear_the_run),
        cmocka_unit_test(a_power_sample_has_the_phase_of_its_time),
        cmocka_unit_test(the_running_layer_is_sampled),
        cmocka_unit_test(the_progress_of_a_load_is_sampled),
        cmocka_unit_test(no_run_is_lost_by_a_kill),
        cmocka_unit_test(a_killed_run_keeps_its_simulated_energy),
        cmocka_unit_test(an_open_run_of_a_closed_session_is_interrupted),
        cmocka_unit_test(a_run_that_cannot_be_stored_keeps_its_spool),
        cmocka_unit_test(places_that_do_not_exist_are_one_sentence),
        cmocka_unit_test(an_environment_that_cannot_be_is_refused),
        cmocka_unit_test(garbage_in_the_spool_folder_is_named_and_left),
        cmocka_unit_test(nth_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

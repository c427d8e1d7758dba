/* Runs and groups of runs side by side, from a database of made runs. */
#include "../assertions.h"
#include "../store/made_run.h"

#include "base/json.h"
#include "insight/advice.h"
#include "insight/insight.h"
#include "insight/laws.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct place {
    char folder[64], path[128];
    pj_store *store;
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    snprintf(p->folder, sizeof p->folder, "/tmp/pj-insight-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof p->path, "%s/runs.db", p->folder);
    assert_int_equal(pj_store_open(&(pj_store_options){.path = p->path}, &p->store, NULL), PJ_OK);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    char command[128];
    pj_store_close(p->store);
    snprintf(command, sizeof command, "rm -rf %s", p->folder);
    assert_int_equal(system(command), 0);
    free(p);
    return 0;
}

typedef struct kind {
    const char *dtype, *machine, *rails, *scope;
    const char *level; /* of an attached engine */
    const char *allocation;
    double factor;
    pj_source_quality quality;
    double disturbed;
    double stalls;   /* factor of the request's energy; 0: none */
    bool no_typical; /* no decode token has an energy */
    const char *engine, *partial;
    const char *devices;
    double rises; /* the last of 120 tokens takes so many times the energy of the first; 0: of 6 */
    bool advisable; /* loads its model, which ran before: something to save */
} kind;

static void save(place *p, uint64_t seed, const kind *k, char id[PJ_UUID_BYTES])
{
    pj_run_data data = {0};
    pj_error err = {0};
    made_run like = {.seed = seed,
                     .tokens = k->rises > 0 ? 120 : 6,
                     .layers = 2,
                     .samples = 8,
                     .depth = PJ_DEPTH_MODULE,
                     .energy_factor = k->factor};
    make_run(&like, &data);
    pj_run_info *i = &data.info;
    i->dtype = k->dtype;
    i->level = k->level;
    i->machine = k->machine ? k->machine : "one";
    i->total_rails = k->rails ? k->rails : "cpu";
    i->scope = k->scope;
    i->allocation = k->allocation;
    i->quality = k->quality ? k->quality : PJ_MEASURED;
    i->disturbed_share = k->disturbed;
    i->repeat_group = NULL;
    i->prompt = "the same";
    /* One level for every run of a kind: the spread is a few thousandths. */
    i->request_mj = 1000 * k->factor * (1 + 0.001 * (double)(seed % 7));
    i->request_sd_mj = i->request_mj * 0.01;
    i->total_sd.gain_mj = (float)(i->total_mj * 0.002);
    i->output_tokens = 10;
    i->typical_token_mj = k->no_typical ? NAN : i->request_mj / 20;
    i->typical_sd_mj = i->typical_token_mj * 0.02;
    i->typical_sd = (pj_sd){(float)i->typical_sd_mj, 0, (float)(i->typical_token_mj * 0.002)};
    if (k->stalls > 0) i->request_mj *= k->stalls;
    if (k->engine) i->engine = k->engine;
    i->partial_rails = k->partial;
    i->devices_json = k->devices;
    for (uint32_t t = 0; k->rises > 0 && t < data.token_count; t++)
        data.tokens[t].energy.gross_nj =
            (int64_t)(1e6 * (1 + (k->rises - 1) * t / data.token_count) * (1 + 0.01 * (t % 3)));
    if (k->advisable) i->total_mj = 2000, i->model_load_mj = 1000;
    assert_int_equal(pj_store_save(p->store, &data, &err), PJ_OK);
    if (id) memcpy(id, i->id, PJ_UUID_BYTES);
    pj_run_data_fini(&data);
}

static void assert_same(double a, double b)
{
    if (isnan(a) && isnan(b)) return;
    assert_near(a, b, 0);
}

static json_t *groups(place *p, const char *by, pj_status expected)
{
    pj_buffer out;
    pj_json json;
    pj_error err = {0};
    pj_buffer_init(&out, 1 << 24);
    pj_json_init(&json, &out);
    pj_group_query query = {.by = by};
    pj_status status = pj_insight_groups(p->store, &query, &json, &err);
    if (status != expected) fail_msg("%s", err.text);
    json_t *tree = status == PJ_OK ? json_loads(pj_buffer_get(&out), 0, NULL) : NULL;
    pj_buffer_fini(&out);
    return tree;
}

static json_t *at(const json_t *tree, const char *list, size_t index)
{
    json_t *item = json_array_get(json_object_get(tree, list), index);
    assert_non_null(item);
    return item;
}

static const char *text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static bool has_caveat(const json_t *tree, const char *code)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(tree, "caveats"), i,
                       c) if (strcmp(text(c, "code"), code) == 0) return true;
    return false;
}

static void groups_are_judged_and_explained(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 8; i++) {
        save(p, 2 * i + 1, &(kind){"bf16", .factor = 1}, NULL);
        save(p, 2 * i + 2, &(kind){"q8_0", .factor = 1.3}, NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK), *v = at(tree, "verdicts", 0), *term;
    assert_string_equal(text(v, "outcome"), "different");
    assert_that(number(v, "ratio_lo"), <=, 1.3);
    assert_that(number(v, "ratio_hi"), >=, 1.3);
    assert_string_equal(text(at(tree, "differences", 0), "setting"), "dtype");
    assert_int_equal((int)number(at(tree, "best", 0), "side"), 0);
    json_t *d = at(tree, "decomposition", 0);
    double sum = 0;
    size_t i;
    json_array_foreach(json_object_get(d, "terms"), i, term) sum += number(term, "difference_mj");
    assert_near(sum, number(d, "difference_mj"), 1e-9 * fabs(sum));
    assert_that(json_array_size(json_object_get(d, "terms")), >, 1);
    /* Table and test are over the same runs, and of the same means. */
    json_t *test, *metric;
    size_t k;
    json_array_foreach(json_object_get(tree, "metrics"), i, metric)
    {
        json_array_foreach(json_object_get(tree, "tests"), k, test)
        {
            if (strcmp(text(metric, "metric"), text(test, "metric")) != 0) continue;
            double ratio =
                json_number_value(json_array_get(json_object_get(metric, "normalised"), 1));
            assert_near(number(test, "ratio"), ratio, 1e-9 * ratio);
            assert_that(number(test, "difference_lo"), <=, number(test, "difference"));
            double difference =
                json_number_value(json_array_get(json_object_get(metric, "difference"), 1));
            assert_near(number(test, "difference"), difference, 1e-9 * fabs(difference));
        }
    }
    json_decref(tree);
}

/* Whether a pair of sides is called different by the only test of joules per token. */
static bool is_significant(const json_t *tree, double a, double b)
{
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(tree, "tests"), i, t)
    {
        if (!json_is_true(json_object_get(t, "primary")) || number(t, "a") != a ||
            number(t, "b") != b)
            continue;
        assert_string_equal(text(t, "metric"), "joules_per_token_typical");
        return json_is_true(json_object_get(t, "significant"));
    }
    fail_msg("%g and %g are not tested", a, b);
    return false;
}

/* Six groups of four runs, of which one needs half more: verdict, table and "most efficient" have
 * the same p, and the pairs that are alike are one sentence. */
static void table_verdict_and_best_agree(void **state)
{
    place *p = *state;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (uint64_t i = 0; i < 24; i++)
        save(p, 7 * (i % 6 + 1) + i / 6, &(kind){names[i % 6], .factor = i % 6 == 3 ? 1.5 : 1},
             NULL);
    json_t *tree = groups(p, "dtype", PJ_OK), *v, *best = at(tree, "best", 0);
    size_t i, different = 0;
    json_array_foreach(json_object_get(tree, "verdicts"), i, v)
    {
        bool planted = number(v, "a") == 3 || number(v, "b") == 3;
        assert_int_equal(strcmp(text(v, "outcome"), "different") == 0, planted);
        assert_int_equal(is_significant(tree, number(v, "a"), number(v, "b")), planted);
        different += planted;
    }
    assert_int_equal(i, 15);
    assert_int_equal(different, 5);
    assert_string_equal(text(best, "metric"), "joules_per_token_typical");
    assert_int_equal(json_array_size(json_object_get(best, "tied_with")), 4);
    json_t *conclusions = json_object_get(tree, "conclusions");
    assert_int_equal(json_array_size(conclusions), 6);
    json_t *ties = json_array_get(conclusions, 5);
    assert_true(json_is_null(json_object_get(ties, "verdict")));
    assert_ptr_equal(
        strstr(text(ties, "text"),
               "a, b, c, e and f are not distinguishable in energy per typical token:"),
        text(ties, "text"));
    json_decref(tree);
}

static void groups_by_a_number_say_of_what(void **state)
{
    place *p = *state;
    save(p, 1, &(kind){"bf16", .factor = 1}, NULL);
    save(p, 2, &(kind){"q8_0", .factor = 1}, NULL);
    json_t *words = groups(p, "dtype", PJ_OK), *numbers = groups(p, "output_tokens", PJ_OK);
    assert_string_equal(text(at(words, "sides", 0), "name"), "bf16");
    assert_string_equal(text(at(numbers, "sides", 0), "name"), "output tokens 10");
    char shown[PJ_SIDE_NAME_BYTES];
    assert_string_equal(pj_group_name("4", "settings.concurrency", shown), "concurrency 4");
    assert_string_equal(pj_group_name("concurrency 4", "settings.concurrency", shown),
                        "concurrency 4");
    json_decref(words);
    json_decref(numbers);
}

static void a_request_that_was_alone_is_judged(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 6; i++) {
        save(p, 2 * i + 1, &(kind){"a", .factor = 1}, NULL);
        save(p, 2 * i + 2, &(kind){"b", .factor = 2, .scope = "request"}, NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK);
    assert_string_equal(text(at(tree, "verdicts", 0), "outcome"), "different");
    assert_false(has_caveat(tree, "scope_differs"));
    json_decref(tree);
}

static void requests_alone_are_compared_with_shares(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 6; i++) {
        save(p, 2 * i + 1, &(kind){"a", .factor = 1, .scope = "request"}, NULL);
        save(p, 2 * i + 2, &(kind){"b", .factor = 2, .scope = "request", .allocation = "tokens"},
             NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK);
    assert_string_equal(text(at(tree, "verdicts", 0), "outcome"), "different");
    assert_true(has_caveat(tree, "scope_differs")); /* by a rule */
    json_decref(tree);
}

static void what_may_not_be_compared_is_not_judged(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 6; i++) {
        save(p, 2 * i + 1, &(kind){"a", .factor = 1}, NULL);
        save(p, 2 * i + 2, &(kind){"b", .factor = 2, .quality = PJ_MODELLED}, NULL);
        save(p, 2 * i + 50, &(kind){"c", .factor = 2, .rails = "cpu,gpu0"}, NULL);
        save(p, 2 * i + 80, &(kind){"d", .factor = 2, .scope = "request", .allocation = "tokens"},
             NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK);
    assert_int_equal(json_array_size(json_object_get(tree, "verdicts")), 6);
    for (size_t i = 0; i < 6; i++) {
        json_t *v = at(tree, "verdicts", i);
        assert_string_equal(text(v, "outcome"), "refused");
        assert_null(strstr(text(v, "text"), ".."));
        assert_true(json_is_null(json_object_get(v, "p")));
        assert_that(number(v, "ratio"), >, 0);
    }
    assert_true(has_caveat(tree, "not_comparable"));
    /* No energy is called different from another, or the least; times are. */
    size_t i, judged = 0;
    json_t *item;
    json_array_foreach(json_object_get(tree, "tests"), i, item)
    {
        bool energy = strchr(text(item, "unit"), 'J') != NULL;
        assert_int_equal(json_is_null(json_object_get(item, "p_adjusted")), energy);
        assert_true(!energy || json_is_false(json_object_get(item, "significant")));
        judged += !energy;
    }
    assert_that(judged, >, 0);
    json_array_foreach(json_object_get(tree, "best"), i, item)
        assert_string_equal(text(item, "title"), "fastest");
    json_decref(tree);
}

static void disturbed_runs_are_left_out_and_counted(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 6; i++) {
        save(p, 2 * i + 1, &(kind){"a", .factor = i < 2 ? 9 : 1, .disturbed = i < 2 ? 0.6 : 0},
             NULL);
        save(p, 2 * i + 2, &(kind){"b", .factor = 1.5}, NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK);
    assert_int_equal((int)number(at(tree, "sides", 0), "left_out"), 2);
    assert_int_equal((int)number(at(tree, "sides", 0), "runs"), 4);
    assert_string_equal(text(at(tree, "verdicts", 0), "outcome"), "different");
    assert_string_equal(text(at(tree, "caveats", 0), "code"), "disturbed_left_out");
    assert_string_equal(text(at(tree, "caveats", 0), "text"),
                        "2 disturbed or throttled runs of a are left out; 4 remain.");
    json_decref(tree);
}

static void other_machines_widen_the_interval(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 6; i++) {
        save(p, 2 * i + 1, &(kind){"a", .factor = 1}, NULL);
        save(p, 2 * i + 2, &(kind){"b", .machine = "two", .factor = 1.2}, NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK);
    assert_true(has_caveat(tree, "machine_differs"));
    json_decref(tree);
}

static bool names_setting(const json_t *tree, const char *setting)
{
    size_t i;
    json_t *d;
    json_array_foreach(json_object_get(tree, "differences"), i,
                       d) if (strcmp(text(d, "setting"), setting) == 0) return true;
    return false;
}

/* What has the same share of the runs on both sides, as in the blocks of an experiment, is no
 * difference. */
static void what_is_mixed_alike_does_not_differ(void **state)
{
    place *p = *state;
    static const char *const machines[] = {"one", "two"};
    for (uint64_t i = 0; i < 4; i++) {
        save(p, 2 * i + 1, &(kind){"a", .machine = machines[i % 2], .factor = 1}, NULL);
        save(p, 2 * i + 2, &(kind){"b", .machine = machines[(i + 1) % 2], .factor = 1.2}, NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK);
    assert_false(names_setting(tree, "machine"));
    assert_false(has_caveat(tree, "machine_differs"));
    json_decref(tree);
    save(p, 9, &(kind){"b", .machine = "two", .factor = 1.2}, NULL);
    tree = groups(p, "dtype", PJ_OK);
    assert_true(names_setting(tree, "machine"));
    assert_true(has_caveat(tree, "machine_differs"));
    json_decref(tree);
}

/* Only attached engines have a level; one that was timed closely is slower than the program's own.
 */
static void levels_are_those_of_attached_engines(void **state)
{
    static const struct {
        const char *a, *b;
        bool differs, warns;
    } cases[] = {{NULL, "fine", false, true},    {NULL, "coarse", false, false},
                 {"coarse", "fine", true, true}, {"fine", "fine", false, false},
                 {NULL, NULL, false, false},     {"fine", NULL, false, true}};
    place *p = *state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (uint64_t i = 0; i < 4; i++) {
            save(p, 100 * c + 2 * i + 1, &(kind){"a", .level = cases[c].a, .factor = 1}, NULL);
            save(p, 100 * c + 2 * i + 2, &(kind){"b", .level = cases[c].b, .factor = 1.2}, NULL);
        }
        json_t *tree = groups(p, "dtype", PJ_OK);
        assert_int_equal(names_setting(tree, "level"), cases[c].differs);
        assert_int_equal(has_caveat(tree, "level_differs"), cases[c].warns);
        json_decref(tree);
        tear_down(state);
        set_up(state);
        p = *state;
    }
}

static void fields_that_runs_lack_are_refused(void **state)
{
    place *p = *state;
    save(p, 1, &(kind){"a", .factor = 1}, NULL);
    groups(p, "colour", PJ_E_INVALID);
    groups(p, "settings.colour", PJ_E_NOT_FOUND);
}

/* A group and a single run: a ratio, and the reason why there is no more. */
static void one_run_of_a_side_tests_nothing(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 3; i++) save(p, i + 1, &(kind){"a", .factor = 1}, NULL);
    save(p, 8, &(kind){"b", .factor = 2}, NULL);
    json_t *tree = groups(p, "dtype", PJ_OK), *v = at(tree, "verdicts", 0);
    assert_string_equal(text(v, "outcome"), "single_runs");
    assert_near(number(v, "ratio"), 2, 0.02);
    assert_true(json_is_null(json_object_get(v, "ratio_lo")));
    assert_non_null(strstr(text(v, "text"), "one run of b says nothing about future ones"));
    json_decref(tree);
}

static json_t *advice(place *p, const kind *k, uint64_t seed)
{
    pj_buffer out;
    pj_json json;
    char id[PJ_UUID_BYTES];
    save(p, seed, k, id);
    pj_buffer_init(&out, 1 << 20);
    pj_json_init(&json, &out);
    assert_int_equal(pj_insight_advice(p->store, id, NULL, &json, NULL), PJ_OK);
    json_t *tree = json_loads(pj_buffer_get(&out), 0, NULL);
    pj_buffer_fini(&out);
    return tree;
}

/* The same run gets advice if it was measured as a whole and its parts are known, and else a
 * reason. */
static void advice_rests_on_measured_whole_runs(void **state)
{
    place *p = *state;
    const kind good = {"bf16", .factor = 1, .engine = "perjoule", .advisable = true};
    kind bad[3] = {good, good, good};
    static const char *const reasons[] = {"modelled", "lacks gpu0", "another engine"};
    bad[0].quality = PJ_MODELLED;
    bad[1].partial = "gpu0";
    bad[2].engine = "vllm";
    save(p, 1, &good, NULL);
    json_t *tree = advice(p, &good, 2);
    assert_true(json_is_null(json_object_get(tree, "refusal")));
    assert_string_equal(text(at(tree, "findings", 0), "rule"), "keep-resident");
    json_decref(tree);
    kind attached = good;
    attached.engine = "pytorch";
    attached.level = "fine";
    save(p, 6, &attached, NULL);
    tree = advice(p, &attached, 7);
    assert_string_equal(text(at(tree, "findings", 0), "rule"), "keep-resident");
    assert_memory_equal(text(at(tree, "findings", 0), "test"), "perjoule compare ", 17);
    json_decref(tree);
    for (size_t i = 0; i < 3; i++) {
        tree = advice(p, &bad[i], 3 + i);
        assert_int_equal(json_array_size(json_object_get(tree, "findings")), 0);
        assert_non_null(strstr(text(tree, "refusal"), reasons[i]));
        json_decref(tree);
    }
}

/* Of parts that were timed in a third of the decode steps, there were three times as many. */
static void advice_knows_steps_that_were_not_timed(void **state)
{
    place *p = *state;
    pj_arena arena;
    pj_advice_facts all, third;
    pj_run_list list;
    const kind k = {"bf16", .factor = 1, .engine = "pytorch", .level = "fine"};
    pj_arena_init(&arena, 0);
    save(p, 1, &k, NULL);
    assert_int_equal(pj_store_list(p->store, &(pj_run_query){0}, &list, NULL), PJ_OK);
    pj_run_info info = list.runs[0];
    info.batch_size = 1; /* 10 tokens: a prompt's and those of 9 steps */
    info.settings_json = NULL;
    assert_int_equal(pj_advice_facts_get(p->store, &info, &arena, &all, NULL), PJ_OK);
    info.settings_json = "{\"steps_without_parts\":6,\"steps_without_layers\":0}";
    assert_int_equal(pj_advice_facts_get(p->store, &info, &arena, &third, NULL), PJ_OK);
    assert_that(all.matrix_mj, >, 0);
    assert_near(third.matrix_mj, 3 * all.matrix_mj, 1e-9 * third.matrix_mj);
    assert_near(third.matrix_sd, all.matrix_sd, 1e-9);
    assert_near(third.weight_bytes, 3 * all.weight_bytes, 1e-9 * third.weight_bytes);
    assert_same(third.head_mj, all.head_mj);
    assert_same(third.prefill_flops, all.prefill_flops);
    pj_run_list_fini(&list);
    pj_arena_fini(&arena);
}

/* The limits are those of what computed. */
static void advice_knows_the_device(void **state)
{
    place *p = *state;
    pj_arena arena;
    pj_advice_facts f;
    pj_run_list list;
    const struct {
        const char *devices, *device;
        double memory_bytes, read_bytes_per_s;
    } cases[] = {
        {NULL, NULL, 1e9, 2e10},
        {"{\"0\":{\"name\":\"cpu\"},\"1\":{\"name\":\"A card\",\"memory_bytes\":3e9,"
         "\"limits\":{\"read_gbytes_per_s\":400}}}",
         "'A card'", 3e9, 4e11},
        {"{\"1\":{\"name\":\"plain\",\"limits\":null}}", "plain", NAN, NAN},
        {"{\"1\":{\"name\":\"a\",\"memory_bytes\":3e9},\"2\":{\"name\":\"b\",\"memory_bytes\":3e9}}",
         "b", NAN, NAN},
    };
    pj_arena_init(&arena, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kind k = {"bf16", .factor = 1, .engine = "perjoule", .advisable = true};
        k.devices = cases[i].devices;
        save(p, 20 + i, &k, NULL);
        assert_int_equal(pj_store_list(p->store, &(pj_run_query){0}, &list, NULL), PJ_OK);
        pj_run_info info = list.runs[0];
        info.devices_json = cases[i].devices;
        info.machine_json =
            "{\"memory_bytes\":1e9,\"cache_bytes\":1e6,\"limits\":{\"read_gbytes_per_s\":20}}";
        assert_int_equal(pj_advice_facts_get(p->store, &info, &arena, &f, NULL), PJ_OK);
        if (cases[i].device)
            assert_string_equal(f.device, cases[i].device);
        else
            assert_null(f.device);
        assert_same(f.memory_bytes, cases[i].memory_bytes);
        assert_same(f.read_bytes_per_s, cases[i].read_bytes_per_s);
        assert_same(f.processor_cache_bytes, cases[i].device ? NAN : 1e6);
        pj_run_list_fini(&list);
    }
    pj_arena_fini(&arena);
}

/* The medians of the thirds of a straight line from 1 to 1.6 are 1.1 and 1.5. */
static void advice_knows_what_becomes_dearer(void **state)
{
    place *p = *state;
    pj_arena arena;
    pj_advice_facts f;
    pj_run_list list;
    const double rises[] = {1, 1.6};
    pj_arena_init(&arena, 0);
    for (int i = 0; i < 2; i++) {
        const kind k = {"bf16", .factor = 1, .engine = "perjoule", .rises = rises[i]};
        save(p, 30 + (uint64_t)i, &k, NULL);
        assert_int_equal(pj_store_list(p->store, &(pj_run_query){0}, &list, NULL), PJ_OK);
        pj_run_info info = list.runs[0];
        info.batch_size = 1;
        assert_int_equal(pj_advice_facts_get(p->store, &info, &arena, &f, NULL), PJ_OK);
        assert_near(f.rise, i ? 1.5 / 1.1 : 1, 0.02);
        assert_that(f.rise_sd, <, 0.05);
        assert_that(f.rise_explained, >=, 1);
        info.batch_size = 4;
        assert_int_equal(pj_advice_facts_get(p->store, &info, &arena, &f, NULL), PJ_OK);
        assert_true(isnan(f.rise));
        pj_run_list_fini(&list);
    }
    pj_arena_fini(&arena);
}

/* Equal typical tokens, but stalls that treble the mean: the typical token decides. Where a run has
 * none, the mean has to. */
static void stalls_do_not_decide(void **state)
{
    place *p = *state;
    for (uint64_t i = 0; i < 6; i++) {
        save(p, 7 + i, &(kind){"a", .factor = 1}, NULL);
        save(p, 14 + i, &(kind){"b", .factor = 1, .stalls = 3}, NULL);
    }
    json_t *tree = groups(p, "dtype", PJ_OK), *v = at(tree, "verdicts", 0);
    assert_string_equal(text(v, "outcome"), "not_distinguishable");
    assert_string_equal(text(v, "metric"), "joules_per_token_typical");
    assert_near(number(v, "ratio"), 1, 0.01);
    json_decref(tree);
    save(p, 99, &(kind){"a", .factor = 1, .no_typical = true}, NULL);
    tree = groups(p, "dtype", PJ_OK), v = at(tree, "verdicts", 0);
    assert_string_equal(text(v, "outcome"), "different");
    assert_string_equal(text(v, "metric"), "joules_per_token");
    assert_string_equal(text(at(tree, "best", 0), "metric"), "joules_per_token");
    json_decref(tree);
}

/* One run per side: figures, and no claim about repeats. */
static void single_runs_are_only_themselves(void **state)
{
    place *p = *state;
    char a[PJ_UUID_BYTES], b[PJ_UUID_BYTES];
    save(p, 1, &(kind){"a", .factor = 1}, a);
    save(p, 8, &(kind){"a", .factor = 2}, b);
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1 << 24);
    pj_json_init(&json, &out);
    const char *ids[] = {a, b};
    assert_int_equal(pj_insight_compare(p->store, ids, 2, NULL, &json, NULL), PJ_OK);
    json_t *tree = json_loads(pj_buffer_get(&out), 0, NULL), *v = at(tree, "verdicts", 0);
    assert_string_equal(text(v, "outcome"), "single_runs");
    assert_near(number(v, "ratio"), 2, 0.01);
    assert_that(number(v, "ratio_lo"), <, 2);
    assert_that(number(v, "ratio_lo"), >, 1.8);
    assert_string_equal(text(at(tree, "tests", 0), "sample"), "token");
    /* Without repeats there is no test, so there is no tie either. */
    json_t *best = at(tree, "best", 0);
    assert_int_equal(json_array_size(json_object_get(best, "tied_with")), 0);
    assert_int_equal((int)json_integer_value(at(best, "untested", 0)), 1);
    json_decref(tree);
    pj_buffer_fini(&out);
}

typedef struct shape {
    double parameters, layers, hidden, width; /* width: of the FFN */
} shape;

/* A run of a model; energy grows as the 0.8th power of its parameters. */
static void save_shape(place *p, uint64_t seed, const shape *of, uint32_t batch,
                       const char *settings, const char *rails, const char *devices)
{
    static char model[256], name[64];
    double parameters = of->parameters;
    pj_run_data data = {0};
    made_run like = {.seed = seed, .tokens = 4, .layers = 1, .samples = 4, .energy_factor = 1};
    make_run(&like, &data);
    pj_run_info *i = &data.info;
    snprintf(name, sizeof name, "model-%.0f", parameters);
    snprintf(model, sizeof model,
             "{\"parameters\":%.0f,\"active_parameters\":%.0f,\"layers\":%.0f,"
             "\"hidden_size\":%.0f,\"intermediate_size\":%.0f,\"attention\":\"%s\"}",
             parameters, parameters, of->layers, of->hidden, of->width,
             parameters > 3e8 ? "gqa" : "mha");
    i->model_name = name;
    i->model_json = model;
    i->settings_json = settings;
    i->machine = "one";
    i->engine = "perjoule";
    i->dtype = "bf16";
    i->quality = PJ_MEASURED;
    i->disturbed_share = 0;
    i->disturbed_tokens = 0;
    i->batch_size = batch;
    i->input_tokens = 8 * batch;
    i->output_tokens = 10 * batch;
    i->request_mj = pow(parameters, 0.8) * 1e-3 * i->output_tokens / sqrt(batch) *
                    (settings ? 50 : 1 + 0.004 * (double)(seed % 5));
    i->total_rails = rails;
    i->devices_json = devices;
    assert_int_equal(pj_store_save(p->store, &data, NULL), PJ_OK);
    pj_run_data_fini(&data);
}

static void save_model_on(place *p, uint64_t seed, double parameters, uint32_t batch,
                          const char *settings, const char *rails, const char *devices)
{
    shape of = {parameters, 2, 64, 256};
    save_shape(p, seed, &of, batch, settings, rails, devices);
}

static void save_model(place *p, uint64_t seed, double parameters, uint32_t batch,
                       const char *settings)
{
    save_model_on(p, seed, parameters, batch, settings, "cpu", NULL);
}

static json_t *law_over(const json_t *tree, const char *name)
{
    size_t i;
    json_t *law;
    json_array_foreach(json_object_get(tree, "laws"), i,
                       law) if (strcmp(text(law, "over"), name) == 0) return law;
    fail_msg("no law over %s", name);
    return NULL;
}

/* What is said of depth is of models of one width, and of width of models of one depth. */
static void laws_of_shapes_hold_the_others(void **state)
{
    static const shape shapes[] = {{1e8, 4, 64, 256},   {2e8, 8, 64, 256},    {4e8, 16, 64, 256},
                                   {3e9, 32, 128, 512}, {2.5e8, 4, 128, 512}, {8e8, 4, 256, 1024},
                                   {1.1e8, 4, 64, 320}};
    place *p = *state;
    pj_buffer out;
    pj_json json;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        save_shape(p, 200 + i, &shapes[i], 1, NULL, "cpu", NULL);
    pj_buffer_init(&out, 1 << 20);
    pj_json_init(&json, &out);
    assert_int_equal(pj_insight_laws(p->store, "one", &json, NULL), PJ_OK);
    json_t *tree = json_loads(pj_buffer_get(&out), 0, NULL);
    json_t *law = law_over(tree, "layers"), *held = json_object_get(law, "held");
    assert_int_equal(json_array_size(json_object_get(law, "points")), 3);
    assert_that(number(held, "hidden_size"), ==, 64);
    assert_that(number(held, "intermediate_size"), ==, 256);
    law = law_over(tree, "hidden_size");
    assert_that(number(json_object_get(law, "held"), "layers"), ==, 4);
    assert_int_equal(json_array_size(json_object_get(law, "points")), 4);
    assert_non_null(text(law_over(tree, "intermediate_size"), "refusal"));
    assert_int_equal(json_array_size(json_object_get(law_over(tree, "parameters"), "points")), 7);
    json_decref(tree);
    pj_buffer_fini(&out);
}

static void laws_hold_all_else_equal(void **state)
{
    place *p = *state;
    pj_buffer out;
    pj_json json;
    uint64_t seed = 100;
    static const double sizes[] = {1e8, 2e8, 4e8, 8e8};
    for (int s = 0; s < 4; s++)
        for (int k = 0; k < 3; k++) save_model(p, ++seed, sizes[s], 1, NULL);
    for (uint32_t batch = 2; batch <= 8; batch *= 2) save_model(p, ++seed, 1e8, batch, NULL);
    /* What leaves a part out is no run of the model. */
    save_model(p, ++seed, 1.6e9, 1, "{\"ablate\":\"mlp\"}");
    /* The energy of other devices is another quantity. */
    save_model_on(p, ++seed, 1e8, 1, NULL, "cpu,gpu0", NULL);
    /* So is that of the same rails where another device computed. */
    save_model_on(p, ++seed, 1e8, 1, NULL, "cpu",
                  "{\"0\":{\"name\":\"x\"},\"1\":{\"name\":\"card\"}}");
    pj_buffer_init(&out, 1 << 20);
    pj_json_init(&json, &out);
    assert_int_equal(pj_insight_laws(p->store, "one", &json, NULL), PJ_OK);
    json_t *tree = json_loads(pj_buffer_get(&out), 0, NULL), *law = law_over(tree, "parameters");
    assert_int_equal(json_array_size(json_object_get(law, "points")), 4);
    assert_int_equal((int)number(at(law, "points", 0), "runs"), 3);
    assert_that(number(law, "exponent_lo"), <=, 0.8);
    assert_that(number(law, "exponent_hi"), >=, 0.8);
    assert_near(number(law, "exponent"), 0.8, 0.01);
    assert_that(number(law, "r2"), >, 0.999);
    assert_int_equal((int)number(json_object_get(law, "held"), "batch"), 1);
    law = law_over(tree, "batch");
    assert_that(fabs(number(law, "exponent") + 0.5), <, 0.02);
    assert_string_equal(text(json_object_get(law, "held"), "model"), "model-100000000");
    assert_non_null(text(law_over(tree, "layers"), "refusal"));
    assert_true(json_is_null(json_object_get(law_over(tree, "input"), "exponent")));
    json_t *attention = json_object_get(tree, "attention");
    assert_null(text(attention, "refusal"));
    assert_int_equal(json_array_size(json_object_get(attention, "kinds")), 2);
    json_decref(tree);
    pj_buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(laws_hold_all_else_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(laws_of_shapes_hold_the_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(groups_are_judged_and_explained, set_up, tear_down),
        cmocka_unit_test_setup_teardown(table_verdict_and_best_agree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(groups_by_a_number_say_of_what, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_was_alone_is_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_alone_are_compared_with_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_may_not_be_compared_is_not_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(disturbed_runs_are_left_out_and_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_machines_widen_the_interval, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_mixed_alike_does_not_differ, set_up, tear_down),
        cmocka_unit_test_setup_teardown(levels_are_those_of_attached_engines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fields_that_runs_lack_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(single_runs_are_only_themselves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stalls_do_not_decide, set_up, tear_down),
        cmocka_unit_test_setup_teardown(advice_rests_on_measured_whole_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(advice_knows_steps_that_were_not_timed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(advice_knows_the_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(advice_knows_what_becomes_dearer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_run_of_a_side_tests_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Views: each is JSON, and its sums are those of the rows. */
#include "../assertions.h"
#include "made_run.h"

#include "base/clock.h"
#include "store/check.h"
#include "store/machines.h"
#include "store/rows.h"
#include "store/store.h"
#include "store/view.h"
#include "store/views.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    char folder[64];
    pj_store *store;
    pj_run_data run;
} fixture;

static int set_up_like(void **state, const made_run *like)
{
    fixture *f = calloc(1, sizeof *f);
    char path[96];
    pj_error err = {0};
    snprintf(f->folder, sizeof f->folder, "/tmp/perjoule-views-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(path, sizeof path, "%s/test.db", f->folder);
    if (pj_store_open(&(pj_store_options){.path = path, .driver = MADE_DRIVER}, &f->store, &err) !=
        PJ_OK)
        return -1;
    make_run(like, &f->run);
    if (pj_store_save(f->store, &f->run, &err) != PJ_OK) return -1;
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_like(
        state,
        &(made_run){.seed = 7, .tokens = 12, .layers = 3, .samples = 5000, .depth = PJ_DEPTH_DEEP});
}

static int set_up_bare(void **state)
{
    return set_up_like(
        state,
        &(made_run){
            .seed = 8, .tokens = 5, .layers = 2, .no_energy = true, .depth = PJ_DEPTH_MODULE});
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[100];
    pj_store_close(f->store);
    pj_run_data_fini(&f->run);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int code = system(command);
    free(f);
    return code;
}

/* The view's answer as a tree. */
#define VIEW(call)                                                                      \
    ({                                                                                  \
        pj_buffer out;                                                                  \
        pj_json json_;                                                                  \
        pj_error err = {0};                                                             \
        pj_buffer_init(&out, 1u << 28);                                                 \
        pj_json_init(&json_, &out);                                                     \
        pj_json *json = &json_;                                                         \
        if ((call) != PJ_OK) fail_msg("%s", err.text);                                  \
        assert_true(pj_json_finish(json));                                              \
        json_error_t where;                                                             \
        json_t *tree = json_loads(pj_buffer_get(&out), JSON_REJECT_DUPLICATES, &where); \
        if (!tree) fail_msg("%s: %.200s", where.text, pj_buffer_get(&out));             \
        pj_buffer_fini(&out);                                                           \
        tree;                                                                           \
    })

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value) fail_msg("%s is missing", key);
    return json_is_null(value) ? NAN : json_number_value(value);
}

static void assert_about(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 * fabs(b))) fail_msg("%.12g is not %.12g", a, b);
}

/* Joules times seconds. */
static void assert_delay(const json_t *row)
{
    double joules = number(row, "energy_mj") / 1e3, seconds = number(row, "duration_ms") / 1e3;
    assert_that(joules * seconds, >, 0);
    assert_about(number(row, "energy_delay_product"), joules * seconds);
}

/* The SQL view has the intervals of the API. */
static void assert_phases_in_sql(pj_store *store, const json_t *phases)
{
    pj_error err = {0};
    size_t i = 0;
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT energy_mj, energy_lo_mj, energy_hi_mj FROM energy_by_phase"
                               " ORDER BY run_id, energy_mj",
                               &err);
    while (pj_sql_step(sql)) {
        double mj = pj_sql_get_double(sql, 0);
        const json_t *phase;
        size_t k;
        json_array_foreach(phases, k, phase)
        {
            if (fabs(number(phase, "energy_mj") - mj) > 1e-9 * mj) continue;
            assert_about(pj_sql_get_double(sql, 1), number(phase, "energy_lo_mj"));
            assert_about(pj_sql_get_double(sql, 2), number(phase, "energy_hi_mj"));
            i++;
        }
    }
    assert_int_equal(pj_sql_end(sql, &err), PJ_OK);
    assert_int_equal(i, json_array_size(phases));
}

static void pipeline_tells_phases_and_sections(void **state)
{
    fixture *f = *state;
    json_t *v = VIEW(pj_view_pipeline(f->store, "last", &(pj_view_window){0}, json, &err));
    json_t *phases = json_object_get(v, "phases");
    assert_int_equal(json_array_size(phases), 4);
    json_t *decode = json_array_get(phases, 2);
    assert_string_equal(json_string_value(json_object_get(decode, "phase")), "decode");
    assert_int_equal(json_array_size(json_object_get(decode, "sections")), 11);
    assert_about(number(decode, "energy_mj"), pj_mj_of_nj(f->run.phases[2].energy.gross_nj));
    assert_that(number(decode, "energy_lo_mj"), <, number(decode, "energy_mj"));
    assert_delay(decode);
    assert_phases_in_sql(f->store, phases);
    assert_int_equal(number(json_array_get(json_object_get(decode, "section_totals"), 0), "count"),
                     11);
    json_decref(v);
    v = VIEW(pj_view_pipeline(f->store, "last", &(pj_view_window){.limit = 3, .phase = "decode"},
                              json, &err));
    decode = json_array_get(json_object_get(v, "phases"), 2);
    assert_int_equal(json_array_size(json_object_get(decode, "sections")), 3);
    assert_null(json_object_get(json_array_get(json_object_get(v, "phases"), 0), "sections"));
    json_decref(v);
}

static void thinned_power_keeps_the_extremes(void **state)
{
    fixture *f = *state;
    json_t *v =
        VIEW(pj_view_power(f->store, "last", &(pj_view_window){.limit = 200}, true, json, &err));
    json_t *cpu = json_object_get(v, "cpu_power_mw");
    size_t n = json_array_size(cpu);
    assert_that(n, <=, 202);
    assert_that(n, >=, 150);
    assert_int_equal(json_array_size(json_object_get(v, "t_ms")), n);
    assert_int_equal(json_array_size(json_object_get(v, "phase")), n);
    assert_true(json_is_null(json_object_get(v, "gpu_power_mw")));
    double low = INFINITY, high = 0, real_low = INFINITY, real_high = 0, last = -1;
    for (size_t i = 0; i < n; i++) {
        double value = json_number_value(json_array_get(cpu, i));
        low = fmin(low, value);
        high = fmax(high, value);
        double t = json_number_value(json_array_get(json_object_get(v, "t_ms"), i));
        assert_that(t, >, last);
        last = t;
    }
    for (uint32_t i = 0; i < f->run.samples.count; i++) {
        real_low = fmin(real_low, f->run.samples.columns[PJ_RAIL_CPU][i]);
        real_high = fmax(real_high, f->run.samples.columns[PJ_RAIL_CPU][i]);
    }
    assert_about(low, real_low);
    assert_about(high, real_high);
    json_t *means = json_object_get(json_object_get(v, "means"), "cpu_power_mw");
    assert_int_equal(json_array_size(means), n / 2);
    assert_null(json_object_get(json_object_get(v, "means"), "gpu_power_mw"));
    uint32_t bucket = (uint32_t)number(v, "bucket_samples");
    double mean = 0;
    for (uint32_t i = 0; i < bucket; i++) mean += f->run.samples.columns[PJ_RAIL_CPU][i] / bucket;
    assert_near(json_number_value(json_array_get(means, 0)) / mean, 1, 1e-6);
    json_t *rail = json_array_get(json_object_get(v, "rails"), 1);
    assert_int_equal(json_array_size(json_object_get(rail, "power_mw")), n);
    json_decref(v);
    v = VIEW(
        pj_view_power(f->store, "last", &(pj_view_window){.limit = 100000}, false, json, &err));
    assert_int_equal(number(v, "bucket_samples"), 1);
    assert_null(json_object_get(v, "means"));
    assert_int_equal(json_array_size(json_object_get(v, "t_ms")), 5000);
    assert_true(json_is_null(json_array_get(json_object_get(v, "dram_power_mw"), 3)));
    json_decref(v);
}

static void tokens_accumulate(void **state)
{
    fixture *f = *state;
    json_t *v = VIEW(pj_view_tokens(f->store, "last", 0, 0, json, &err));
    json_t *tokens = json_object_get(v, "tokens");
    double sum = 0;
    assert_int_equal(json_array_size(tokens), 12);
    for (uint32_t i = 0; i < 12; i++) sum += pj_mj_of_nj(f->run.tokens[i].energy.gross_nj);
    assert_about(number(json_array_get(tokens, 11), "cumulative_energy_mj"), sum);
    assert_delay(json_array_get(tokens, 11));
    json_decref(v);
    v = VIEW(pj_view_tokens(f->store, "last", 11, 5, json, &err));
    tokens = json_object_get(v, "tokens");
    assert_int_equal(json_array_size(tokens), 1);
    assert_about(number(json_array_get(tokens, 0), "cumulative_energy_mj"), sum);
    json_decref(v);
}

static double matrix_sum(const json_t *heatmap)
{
    double sum = 0;
    size_t i, j;
    json_t *row, *cell;
    json_array_foreach(json_object_get(heatmap, "values"), i, row)
        json_array_foreach(row, j, cell) if (json_is_number(cell)) sum += json_number_value(cell);
    return sum;
}

static void heatmaps_sum_to_the_layers(void **state)
{
    fixture *f = *state;
    double all = 0, third = 0;
    for (uint32_t i = 0; i < f->run.component_count; i++) {
        const pj_component_row *c = &f->run.components[i];
        if (c->layer == PJ_NO_PARENT) continue;
        all += pj_mj_of_nj(c->energy.gross_nj);
        if (f->run.layers[c->layer].token == 3) third += pj_mj_of_nj(c->energy.gross_nj);
    }
    pj_view_choice choice = {.metric = PJ_METRIC_ENERGY, .token = PJ_ANY, .layer = PJ_ANY};
    json_t *v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    assert_int_equal(json_array_size(json_object_get(v, "layers")), 3);
    assert_int_equal(json_array_size(json_object_get(v, "components")), 11);
    assert_int_equal(json_array_size(json_object_get(v, "outside")), 1);
    assert_about(matrix_sum(v), all);
    json_decref(v);
    choice.token = 3;
    v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    assert_about(matrix_sum(v), third);
    json_decref(v);
    choice = (pj_view_choice){.metric = PJ_METRIC_ENTROPY, .token = PJ_ANY, .layer = PJ_ANY};
    v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    json_t *row = json_array_get(json_object_get(v, "values"), 0);
    assert_true(json_is_number(json_array_get(row, 4)));
    assert_true(json_is_null(json_array_get(row, 0)));
    json_decref(v);
    pj_buffer cube;
    pj_error err = {0};
    pj_buffer_init(&cube, 1 << 24);
    assert_int_equal(pj_view_cube(f->store, "last", PJ_METRIC_ENERGY, false, &cube, &err), PJ_OK);
    assert_int_equal(cube.length, 24 + 12 * 3 * 11 * 4);
    assert_string_equal(cube.data, "PJCUBE1");
    double sum = 0;
    for (size_t at = 24; at < cube.length; at += 4) {
        float value;
        memcpy(&value, cube.data + at, 4);
        sum += (double)value;
    }
    assert_about(sum, all);
    pj_buffer_clear(&cube);
    assert_int_equal(pj_view_cube(f->store, "last", PJ_METRIC_ENERGY, true, &cube, &err), PJ_OK);
    uint32_t shape[3];
    memcpy(shape, cube.data + 8, sizeof shape);
    assert_int_equal(shape[0], 12);
    assert_int_equal(shape[1], 4); /* one more: what lies outside the layers */
    assert_that(shape[2], >, 11);  /* with the columns that occur only there */
    assert_int_equal(cube.length, 24 + (size_t)shape[0] * shape[1] * shape[2] * 4);
    pj_buffer_fini(&cube);
    choice.token = 12;
    pj_json none;
    pj_json_init(&none, &cube);
    assert_int_equal(pj_view_heatmap(f->store, "last", &choice, &none, &err), PJ_E_NOT_FOUND);
    pj_buffer_fini(&cube);
}

/* What the table says of a statistic, computed here from the rows. */
static double expected_statistic(const pj_run_data *run, pj_statistic statistic)
{
    double sum = 0, largest = -INFINITY;
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->component_count; i++) {
        const pj_component_row *c = &run->components[i];
        if (c->layer == PJ_NO_PARENT || !c->has_stats || strcmp(c->name, "q_proj") != 0 ||
            run->layers[c->layer].layer_index != 1)
            continue;
        double value = pj_statistic_get(&c->stats, statistic);
        sum += value;
        largest = fmax(largest, value);
        count++;
    }
    assert_that(count, >, 0);
    switch (pj_statistics[statistic].aggregate) {
    case PJ_AGGREGATE_MEAN: return sum / count;
    case PJ_AGGREGATE_MAX: return largest;
    case PJ_AGGREGATE_SUM: break;
    }
    return sum;
}

static double column_of(const json_t *heatmap, const char *component)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(heatmap, "components"), i, name)
    {
        if (strcmp(json_string_value(name), component) == 0)
            return json_number_value(
                json_array_get(json_array_get(json_object_get(heatmap, "values"), 1), i));
    }
    fail_msg("no column %s", component);
    return NAN;
}

/* Every line of the table arrives in heatmaps and in answers about components and operations. */
static void every_statistic_is_shown(void **state)
{
    fixture *f = *state;
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++) {
        pj_view_choice choice = {.metric = (pj_metric)pj_metric_parse(pj_statistics[s].activation),
                                 .token = PJ_ANY,
                                 .layer = PJ_ANY};
        json_t *v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
        double wanted = expected_statistic(&f->run, (pj_statistic)s);
        assert_near(column_of(v, "q_proj"), wanted, 1e-6 * fabs(wanted));
        json_decref(v);
        choice = (pj_view_choice){.token = PJ_ANY, .layer = 1, .component = "q_proj"};
        v = VIEW(pj_view_operations(f->store, "last", &choice, json, &err));
        json_t *one = json_array_get(json_object_get(v, "components"), 0);
        double sum = json_number_value(json_object_get(one, pj_statistics[s].activation));
        assert_near(sum, wanted, 1e-6 * fabs(wanted));
        one = json_array_get(json_object_get(v, "operations"), 0);
        assert_non_null(json_object_get(one, pj_statistics[s].tensor));
        json_decref(v);
        choice.token = 3;
        v = VIEW(pj_view_operations(f->store, "last", &choice, json, &err));
        one = json_array_get(json_object_get(v, "components"), 0);
        assert_true(json_is_number(json_object_get(one, pj_statistics[s].activation)));
        json_decref(v);
    }
}

/* The form before the count of statistics was stored: four of them, then the entropies. */
static void sums_of_earlier_versions_are_read(void **state)
{
    (void)state;
    enum { FIXED = offsetof(pj_sum_node, entropy_sum), BYTES = 24 + FIXED + 5 * 8 + 2 };
    pj_sum_node node = {.count = 3, .stats_count = 2, .entropy_count = 4, .operation = PJ_NO_NAME};
    const double tail[5] = {1, 2, 30, 0.5, 8};
    const uint32_t counts[4] = {1, 1, 0, 1}; /* nodes, names, extras, layers */
    char blob[BYTES] = "PJNODE1";
    memcpy(blob + 8, counts, sizeof counts);
    memcpy(blob + 24, &node, FIXED);
    memcpy(blob + 24 + FIXED, tail, sizeof tail);
    memcpy(blob + BYTES - 2, "q", 2);
    pj_arena arena;
    pj_sum_nodes nodes;
    pj_error err = {0};
    pj_arena_init(&arena, 0);
    if (pj_nodes_read(blob, sizeof blob, &arena, &nodes, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_that(nodes.nodes[0].entropy_sum, ==, 8);
    assert_that(pj_node_statistic(&nodes.nodes[0], PJ_STATISTIC_MEAN), ==, 0.5);
    assert_that(pj_node_statistic(&nodes.nodes[0], PJ_STATISTIC_MAX), ==, 30);
    assert_that(pj_node_statistic(&nodes.nodes[0], PJ_STATISTIC_SPARSITY), ==, 0.25);
    for (size_t bytes = 0; bytes < sizeof blob; bytes++)
        assert_int_equal(pj_nodes_read(blob, bytes, &arena, &nodes, NULL), PJ_E_INVALID);
    pj_arena_fini(&arena);
}

/* value = self + sum of the children's values, all the way down. Returns how many nodes. */
static int check_tree(const json_t *node)
{
    int count = 1;
    size_t i;
    json_t *child;
    double sum = number(node, "self");
    json_array_foreach(json_object_get(node, "children"), i, child)
    {
        sum += number(child, "value");
        count += check_tree(child);
    }
    if (!(fabs(sum - number(node, "value")) <= 1e-6 * fabs(sum) + 1e-12))
        fail_msg("%s: %.12g is not %.12g", json_string_value(json_object_get(node, "name")), sum,
                 number(node, "value"));
    return count;
}

static void trees_conserve(void **state)
{
    fixture *f = *state;
    for (int metric = 0; metric < PJ_METRIC_COUNT; metric++) {
        if (metric > PJ_METRIC_ENERGY && metric < PJ_METRIC_FLOPS) continue;
        json_t *v = VIEW(pj_view_tree(f->store, "last", metric, 0, json, &err));
        int nodes = check_tree(json_object_get(v, "root"));
        assert_int_equal(nodes, 1 + 4 + 2 * (3 * (1 + 11 + 18) + 1));
        json_decref(v);
    }
    json_t *v = VIEW(pj_view_tree(f->store, "last", PJ_METRIC_ENERGY, 2, json, &err));
    json_t *phases = json_object_get(json_object_get(v, "root"), "children");
    json_t *layers = json_object_get(json_array_get(phases, 2), "children");
    assert_int_equal(json_array_size(phases), 4);
    assert_int_equal(json_array_size(layers), 3 + 1);
    assert_null(json_object_get(json_array_get(layers, 0), "children"));
    json_decref(v);
}

static void operations_sum_over_tokens(void **state)
{
    fixture *f = *state;
    pj_view_choice choice = {.token = PJ_ANY, .layer = 1, .component = "attention"};
    json_t *v = VIEW(pj_view_operations(f->store, "last", &choice, json, &err));
    json_t *list = json_object_get(v, "operations");
    assert_int_equal(json_array_size(list), 7);
    double softmax = 0, entropy = 0, net_sd = 0;
    for (uint32_t i = 0; i < f->run.operation_count; i++) {
        const pj_operation_row *o = &f->run.operations[i];
        const pj_layer_row *l = &f->run.layers[f->run.components[o->component].layer];
        if (strcmp(o->name, "softmax") != 0 || l->layer_index != 1) continue;
        softmax += pj_mj_of_nj(o->energy.gross_nj);
        net_sd += (double)o->energy.net_sd_mj;
        entropy += f->run.extras[o->extra_begin].value / 12;
    }
    json_t *row = json_array_get(list, 4);
    assert_about(number(row, "energy_mj"), softmax);
    assert_int_equal(number(row, "count"), 12);
    assert_about(number(json_object_get(row, "extra_metrics"), "attention_entropy"), entropy);
    assert_that(number(row, "net_energy_sd_mj"), >=, net_sd);
    assert_that(number(row, "net_energy_sd_mj"), <=, 3 * net_sd);
    json_decref(v);
    choice.token = 2;
    v = VIEW(pj_view_operations(f->store, "last", &choice, json, &err));
    list = json_object_get(v, "operations");
    assert_int_equal(json_array_size(list), 7);
    json_t *heads = json_object_get(json_object_get(json_array_get(list, 4), "extra_metrics"),
                                    "attention_entropy_head");
    assert_int_equal(json_array_size(heads), 8);
    assert_int_equal(json_array_size(json_object_get(v, "components")), 1);
    for (uint32_t i = 0; i < f->run.component_count; i++) {
        const pj_component_row *c = &f->run.components[i];
        const pj_layer_row *l = c->layer == PJ_NO_PARENT ? NULL : &f->run.layers[c->layer];
        if (!l || l->layer_index != 1 || l->token != 2 || strcmp(c->name, "attention") != 0)
            continue;
        assert_about(
            number(json_array_get(json_object_get(v, "components"), 0), "net_energy_sd_mj"),
            (double)c->energy.net_sd_mj);
    }
    json_decref(v);
}

static json_t *summary(pj_store *store)
{
    return VIEW(({
        pj_json_object_begin(json);
        pj_status s = pj_view_summary_members(store, "last", NULL, json, &err);
        pj_json_object_end(json);
        s;
    }));
}

/* A facet lists each value that the runs have, with the number of runs that have it. */
static void assert_facet(const json_t *facets, const char *facet, const json_t *runs,
                         const char *member)
{
    size_t i, j, counted = 0;
    json_t *value, *run;
    json_array_foreach(json_object_get(facets, facet), i, value)
    {
        size_t found = 0;
        json_array_foreach(runs, j, run) found +=
            json_equal(json_object_get(run, member), json_object_get(value, "name"));
        assert_that(found, >, 0);
        assert_int_equal(number(value, "runs"), found);
        counted += found;
    }
    json_array_foreach(runs, j, run) counted += json_is_null(json_object_get(run, member));
    assert_int_equal(counted, json_array_size(runs));
}

static void summaries_are_complete(void **state)
{
    fixture *f = *state;
    json_t *v = summary(f->store);
    assert_int_equal(json_array_size(json_object_get(v, "layers")), 3);
    assert_int_equal(json_array_size(json_object_get(v, "components")), 12);
    assert_int_equal(
        number(json_object_get(json_object_get(v, "token_statistics"), "energy_mj"), "n"), 11);
    assert_that(json_array_size(json_object_get(v, "power_statistics")), >=, 6);
    assert_about(number(v, "energy_per_million_parameters_mj"), f->run.info.total_mj / 1.2);
    assert_int_equal(number(json_object_get(v, "counts"), "operations"), f->run.operation_count);
    json_decref(v);
    v = VIEW(
        pj_view_run(f->store, "last", &(pj_view_page){.limit = 5, .offset = 2}, NULL, json, &err));
    json_t *page = json_object_get(v, "deep_operation_metrics");
    assert_int_equal(number(page, "total"), f->run.operation_count);
    assert_int_equal(json_array_size(json_object_get(page, "rows")), 5);
    assert_int_equal(number(json_array_get(json_object_get(page, "rows"), 0), "id"), 2);
    assert_int_equal(json_array_size(json_object_get(v, "rails")), 2);
    json_decref(v);
    v = VIEW(pj_view_run(f->store, "last", &(pj_view_page){.include = "tokens,run_x"}, NULL, json,
                         &err));
    assert_non_null(json_object_get(v, "tokens"));
    assert_null(json_object_get(v, "power_samples"));
    json_decref(v);
    uint64_t total = 0;
    v = VIEW(pj_view_runs(f->store, &(pj_run_query){0}, NULL, json, &total, &err));
    assert_int_equal(json_array_size(v), total);
    json_t *runs = v;
    v = VIEW(pj_view_facets(f->store, json, &err));
    assert_int_equal(json_array_size(json_object_get(v, "tags")), 1);
    assert_facet(v, "models", runs, "model_name");
    assert_facet(v, "experiments", runs, "experiment_name");
    assert_facet(v, "engines", runs, "engine");
    assert_facet(v, "dtypes", runs, "dtype");
    assert_facet(v, "machines", runs, "machine");
    assert_facet(v, "statuses", runs, "status");
    json_decref(v);
    json_decref(runs);
}

/* No figure of energy may come out as a number. */
static void assert_no_energy(const json_t *value, const char *key)
{
    size_t i;
    json_t *child;
    const char *name;
    if (json_is_number(value) &&
        (strstr(key, "_mj") || strstr(key, "_mw") || strstr(key, "joules")))
        fail_msg("%s is %g without a sensor", key, json_number_value(value));
    if (json_is_array(value)) json_array_foreach(value, i, child) assert_no_energy(child, key);
    if (json_is_object(value))
        json_object_foreach((json_t *)(uintptr_t)value, name, child)
            assert_no_energy(child, strcmp(name, "power_mw") ? name : "x");
}

static void without_sensors_all_else_is_there(void **state)
{
    fixture *f = *state;
    for (uint32_t i = 0; i < f->run.class_count; i++) f->run.classes[i].energy_mj = NAN;
    f->run.class_count = 0;
    pj_error wrong;
    assert_int_equal(pj_store_save(f->store, &f->run, &wrong), PJ_OK);
    json_t *v = summary(f->store);
    assert_no_energy(v, "");
    assert_that(number(json_array_get(json_object_get(v, "components"), 0), "time_ms"), >, 0);
    json_decref(v);
    pj_view_choice choice = {.metric = PJ_METRIC_ENERGY, .token = PJ_ANY, .layer = PJ_ANY};
    v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    assert_that(matrix_sum(v), ==, 0);
    json_decref(v);
    choice.token = 1;
    v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    assert_that(matrix_sum(v), ==, 0);
    json_decref(v);
    choice.metric = PJ_METRIC_MEAN;
    v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    assert_that(matrix_sum(v), >, 0);
    json_decref(v);
    v = VIEW(pj_view_tree(f->store, "last", PJ_METRIC_TIME, 0, json, &err));
    check_tree(json_object_get(v, "root"));
    json_decref(v);
    v = VIEW(pj_view_power(f->store, "last", &(pj_view_window){0}, true, json, &err));
    assert_no_energy(v, "");
    json_decref(v);
    v = VIEW(pj_view_tokens(f->store, "last", 0, 0, json, &err));
    assert_no_energy(v, "");
    json_decref(v);
    v = VIEW(pj_view_pipeline(f->store, "last", &(pj_view_window){0}, json, &err));
    assert_no_energy(v, "");
    json_decref(v);
}

/* ---- machines ---------------------------------------------------------------------------------
 */

static bool is_first(void *context, const char *name)
{
    return strcmp(name, context) == 0;
}

static const json_t *machine_of(const json_t *all, const char *name)
{
    size_t i;
    const json_t *m;
    json_array_foreach(all, i, m) if (strcmp(json_string_value(json_object_get(m, "name")), name) ==
                                      0) return m;
    return NULL;
}

static void count_run(void *context, const char *id)
{
    (void)id;
    ++*(int *)context;
}

/* Without its single operations a run has the same views of the whole, adds up, and can be saved
 * elsewhere; the others keep theirs. */
static void compacting_keeps_the_sums(void **state)
{
    fixture *f = *state;
    pj_prune rule = {.before_ns = INT64_MAX, .dry_run = true, .tagged = true, .operations = true};
    pj_view_choice whole = {.token = PJ_ANY, .layer = PJ_ANY};
    int listed = 0, done = 0, again = 0;
    pj_error said = {0};
    pj_store_check_result check;
    pj_run_data loaded = {0};
    json_t *before = VIEW(pj_view_operations(f->store, "last", &whole, json, &err));
    assert_that(json_array_size(json_object_get(before, "operations")), >, 0);
    assert_int_equal(pj_store_prune(f->store, &rule, count_run, &listed, &said), PJ_OK);
    rule.dry_run = false;
    if (pj_store_prune(f->store, &rule, count_run, &done, &said) != PJ_OK)
        fail_msg("%s", said.text);
    assert_int_equal(pj_store_prune(f->store, &rule, count_run, &again, &said), PJ_OK);
    assert_that(listed, ==, 1);
    assert_that(done, ==, 1);
    assert_that(again, ==, 0);
    json_t *after = VIEW(pj_view_operations(f->store, "last", &whole, json, &err));
    assert_true(json_equal(before, after));
    assert_int_equal(pj_store_check(f->store, NULL, &check, &said), PJ_OK);
    if (check.damaged || check.orphans || check.unbalanced)
        fail_msg("%s %s %s", check.first[0], check.first[1], check.first[2]);
    assert_int_equal(pj_store_load(f->store, f->run.info.id, &loaded, &said), PJ_OK);
    assert_int_equal(loaded.operation_count, 0);
    assert_int_equal(loaded.component_count, f->run.component_count);
    pj_run_data_fini(&loaded);
    json_decref(before);
    json_decref(after);
}

static void machines_are_known_by_runs_and_beats(void **state)
{
    fixture *f = *state;
    pj_error wrong;
    pj_run_data run;
    char first[] = "always-on";
    int64_t now = pj_clock_wall_ns();
    /* Of a machine that never says anything, a run of now, one from last year, and one of now of
     * which the first half shares its time with the first run. */
    for (int i = 0; i < 3; i++) {
        make_run(&(made_run){.seed = 20 + (uint64_t)i, .tokens = 2, .layers = 1}, &run);
        run.info.machine = "o'brien \"quoted\"; --";
        run.info.power_sources = "rapl,nvml";
        run.info.total_mj = 5000;
        run.info.quality = i ? PJ_MEASURED : PJ_MODELLED;
        run.info.created_wall_ns =
            now - (i == 1 ? (int64_t)366 * 86400 * PJ_NS_PER_S : -i * PJ_NS_PER_S);
        run.info.total_ms = 4000;
        assert_int_equal(pj_store_save(f->store, &run, &wrong), PJ_OK);
        pj_run_data_fini(&run);
    }
    pj_machine_beat beat = {.name = "always-on",
                            .version = "9.9",
                            .sensors = "",
                            .quality = PJ_MEASURED,
                            .drawn_mj = NAN,
                            .throttle = NULL};
    assert_int_equal(pj_store_machine_beat(f->store, &beat, &wrong), PJ_OK);
    /* A server there that measures, but has not counted today: the figure stays that of the run. */
    pj_machine_beat theirs = beat;
    theirs.name = "o'brien \"quoted\"; --";
    theirs.sensors = "rapl,nvml";
    assert_int_equal(pj_store_machine_beat(f->store, &theirs, &wrong), PJ_OK);
    json_t *v = VIEW(pj_view_machines(f->store, is_first, first, json, &err));
    const json_t *m = machine_of(v, "always-on");
    assert_true(json_is_null(json_object_get(m, "energy_today_mj"))); /* unknown, not 0 */
    assert_true(json_is_null(json_object_get(m, "throttle")));
    assert_int_equal(json_array_size(json_object_get(m, "sensors")), 0);
    assert_true(json_is_true(json_object_get(m, "live")));
    m = machine_of(v, "o'brien \"quoted\"; --");
    assert_int_equal(number(m, "runs"), 3);
    assert_near(number(m, "energy_today_mj"), 7500, 1e-3); /* shared time counts once */
    pj_energy_today today;
    assert_int_equal(pj_store_energy_today(f->store, theirs.name, &today, &wrong), PJ_OK);
    assert_near(today.mj, 7500, 1e-3);
    assert_string_equal(json_string_value(json_object_get(m, "energy_today_of")), "runs");
    assert_string_equal(json_string_value(json_object_get(m, "energy_source")), "modelled");
    assert_int_equal(json_array_size(json_object_get(m, "sensors")), 2);
    assert_true(json_is_false(json_object_get(m, "live")));
    json_decref(v);
    /* Energy of beats adds up; one without any adds nothing. */
    static const double drawn[] = {1500, NAN, 250};
    beat.throttle = "power,thermal";
    for (int i = 0; i < 3; i++) {
        beat.drawn_mj = drawn[i];
        assert_int_equal(pj_store_machine_beat(f->store, &beat, &wrong), PJ_OK);
    }
    v = VIEW(pj_view_machines(f->store, NULL, NULL, json, &err));
    m = machine_of(v, "always-on");
    assert_that(number(m, "energy_today_mj"), ==, 1750);
    assert_string_equal(json_string_value(json_object_get(m, "energy_today_of")), "meter");
    assert_int_equal(json_array_size(json_object_get(m, "throttle")), 2);
    json_decref(v);
}

/* A screen loads the first rows of a few tables, and nothing of the others. */
static void some_tables_load_alone(void **state)
{
    fixture *f = *state;
    pj_run_data some = {0};
    pj_error err = {0};
    char id[PJ_UUID_BYTES];
    memcpy(id, f->run.info.id, sizeof id);
    if (pj_store_load_tables(f->store, id, 1 << PJ_TABLE_PHASES | 1 << PJ_TABLE_TOKENS, 3, &some,
                             &err) != PJ_OK)
        fail_msg("%s", err.text);
    assert_int_equal(some.phase_count, 3);
    assert_int_equal(some.token_count, 3);
    assert_int_equal(some.layer_count, 0);
    assert_true(some.info.total_mj == f->run.info.total_mj);
    assert_true(some.tokens[2].energy.gross_nj == f->run.tokens[2].energy.gross_nj);
    assert_true(some.phases[1].duration_ms == f->run.phases[1].duration_ms);
    pj_run_data_fini(&some);
}

/* Times of modules that contain waiting for launches give no rates. */
static void waiting_is_no_basis_for_rates(void **state)
{
    fixture *f = *state;
    static const char *const settings[] = {
        "{\"module_times\": \"CUDA events\"}",
        "{\"module_times\": \"CUDA events, which contain waiting for launches\"}"};
    for (int i = 0; i < 2; i++) {
        pj_error wrong = {0};
        pj_run_data run = f->run;
        memcpy(run.info.id, "0190aaaa-0000-7000-8000-00000000000", 35);
        run.info.id[35] = (char)('1' + i);
        run.info.created_wall_ns = pj_clock_wall_ns() + (i + 1) * 3600 * PJ_NS_PER_S;
        run.info.settings_json = settings[i];
        assert_int_equal(pj_store_save(f->store, &run, &wrong), PJ_OK);
        json_t *v = summary(f->store), *all = json_object_get(v, "components");
        bool any = false;
        size_t k;
        const json_t *one;
        json_array_foreach(all, k, one)
        {
            any |= json_is_number(json_object_get(one, "gflops_per_s"));
            any |= json_is_number(json_object_get(one, "gbytes_per_s"));
        }
        assert_int_equal(any, i == 0);
        json_decref(v);
    }
}

static void take_part(void *context, const pj_part_figures *part)
{
    *(double *)context += part->energy_mj;
}

/* Figures as structs are those of the JSON. */
static void structs_hold_what_json_says(void **state)
{
    fixture *f = *state;
    pj_error wrong = {0};
    pj_arena arena;
    pj_layer_sum *layers;
    pj_component_sum *components;
    uint32_t layer_count, component_count;
    pj_arena_init(&arena, 0);
    json_t *v = summary(f->store);
    assert_int_equal(pj_view_layer_sums(f->store, "last", &arena, &layers, &layer_count, &wrong),
                     0);
    assert_int_equal(layer_count, 3);
    const json_t *layer = json_array_get(json_object_get(v, "layers"), 1);
    assert_near(layers[1].energy_mj, number(layer, "energy_mj"), 1e-6 * fabs(layers[1].energy_mj));
    assert_near(layers[1].mlp_mj, number(layer, "mlp_energy_mj"), 1e-6 * fabs(layers[1].mlp_mj));
    assert_true(layers[1].energy_sd_mj > 0 && layers[1].mlp_sd_mj > 0);
    assert_near(layers[1].energy_sd_mj, number(layer, "energy_sd_mj"), 1e-9);
    assert_near(layers[1].mlp_sd_mj, number(layer, "mlp_energy_sd_mj"), 1e-9);
    assert_near(layers[1].attention_sd_mj, number(layer, "attention_energy_sd_mj"), 1e-9);
    for (uint32_t i = 0; i < layer_count; i++)
        assert_near(layers[i].attention_mj + layers[i].mlp_mj + layers[i].other_mj,
                    layers[i].energy_mj, 1e-9 * fabs(layers[i].energy_mj));
    assert_int_equal(
        pj_view_component_sums(f->store, "last", &arena, &components, &component_count, &wrong), 0);
    const json_t *component = json_array_get(json_object_get(v, "components"), 0);
    assert_string_equal(components[0].name,
                        json_string_value(json_object_get(component, "component_name")));
    assert_near(components[0].share, number(component, "share"), 1e-6 * fabs(components[0].share));
    json_decref(v);

    pj_view_choice choice = {
        .metric = PJ_METRIC_ENERGY, .token = 2, .layer = PJ_ANY, .component = "q_proj"};
    double sum = 0, told = 0;
    size_t i;
    const json_t *part;
    v = VIEW(pj_view_operations(f->store, "last", &choice, json, &err));
    json_array_foreach(json_object_get(v, "components"), i, part) told += number(part, "energy_mj");
    assert_int_equal(pj_view_each_part(f->store, "last", &choice, false, take_part, &sum, &wrong),
                     PJ_OK);
    assert_that(sum, >, 0);
    assert_near(sum, told, 1e-6 * fabs(sum));
    json_decref(v);

    pj_heatmap map;
    choice.component = NULL;
    v = VIEW(pj_view_heatmap(f->store, "last", &choice, json, &err));
    assert_int_equal(pj_heatmap_get(f->store, "last", &choice, &map, &wrong), PJ_OK);
    assert_int_equal(map.layers, 3);
    assert_near(map.max, number(v, "max"), 1e-6 * fabs(map.max));
    pj_heatmap_fini(&map);
    json_decref(v);
    pj_arena_fini(&arena);
}

typedef struct kept {
    uint32_t made, items;
} kept;

static pj_status make_numbers(void *context, pj_buffer *items, pj_error *err)
{
    kept *k = context;
    k->made++;
    for (uint32_t i = 0; i < k->items; i++) {
        double number = i + 0.5;
        pj_buffer_append(items, &number, sizeof number);
    }
    return PJ_OK;
}

/* What is expensive is computed once, also where it comes to nothing; another struct of the same
 * name is not read as this one. */
static void expensive_figures_are_kept(void **state)
{
    fixture *f = *state;
    pj_error err = {0};
    pj_arena arena;
    void *items;
    uint32_t count;
    const char *id = f->run.info.id;
    pj_arena_init(&arena, 0);
    for (uint32_t n = 0; n < 4; n += 3) {
        kept k = {.items = n};
        const pj_view_chart chart = {n ? "some" : "none", sizeof(double), make_numbers};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pj_view_kept(f->store, id, &chart, &k, &arena, &items, &count, &err),
                             PJ_OK);
            assert_int_equal(count, n);
            if (n) assert_true(((double *)items)[2] == 2.5);
        }
        assert_int_equal(k.made, 1);
    }
    kept k = {.items = 2};
    const pj_view_chart other = {"some", 2 * sizeof(double), make_numbers};
    assert_int_equal(pj_view_kept(f->store, id, &other, &k, &arena, &items, &count, &err), PJ_OK);
    assert_int_equal(k.made, 1);
    pj_arena_fini(&arena);
}

typedef struct window_sums {
    uint32_t layers, components, operations;
    double operations_mj, net_sd_mj;
} window_sums;

/* What the rows in memory have in a window, found without blocks. */
static window_sums sums_in(const pj_run_data *run, double from, double to)
{
    window_sums sums = {0};
    for (uint32_t i = 0; i < run->layer_count; i++) {
        const pj_layer_row *l = &run->layers[i];
        sums.layers += l->start_ms <= to && l->start_ms + l->duration_ms >= from;
    }
    for (uint32_t i = 0; i < run->component_count; i++) {
        const pj_component_row *c = &run->components[i];
        sums.components += c->start_ms <= to && c->start_ms + c->duration_ms >= from;
    }
    for (uint32_t i = 0; i < run->operation_count; i++) {
        const pj_operation_row *o = &run->operations[i];
        double end = o->start_ms + o->duration_ms;
        double inside = fmin(to, end) - fmax(from, o->start_ms);
        if (o->start_ms > to || end < from) continue;
        double part = o->duration_ms > 0 ? inside / o->duration_ms : 1;
        sums.operations++;
        sums.operations_mj += (double)o->energy.gross_nj * 1e-6 * part;
        sums.net_sd_mj += (double)o->energy.net_sd_mj * part;
    }
    return sums;
}

static const json_t *span_column(const json_t *v, int level, const char *name)
{
    return json_object_get(json_array_get(json_object_get(v, "levels"), (size_t)level), name);
}

static void check_window(pj_store *store, const pj_run_data *run, double from, double to)
{
    pj_span_window window = {.from_ms = from, .to_ms = to, .limit = 20000};
    window_sums want = sums_in(run, from, to);
    json_t *v = VIEW(pj_view_spans(store, "last", &window, json, &err));
    const json_t *starts = span_column(v, 2, "start_ms");
    assert_int_equal(json_integer_value(span_column(v, 0, "total")), want.layers);
    assert_int_equal(json_integer_value(span_column(v, 1, "total")), want.components);
    assert_int_equal(json_integer_value(span_column(v, 2, "total")), want.operations);
    assert_int_equal(json_array_size(starts), want.operations);
    assert_int_equal(json_array_size(span_column(v, 2, "net_energy_sd_mj")), want.operations);
    json_decref(v);
    window.is_grouped = true;
    v = VIEW(pj_view_spans(store, "last", &window, json, &err));
    double sum = 0, net_sd = 0, count = 0;
    size_t i;
    const json_t *g;
    json_array_foreach(json_object_get(v, "groups"), i, g)
    {
        if (strcmp(json_string_value(json_object_get(g, "level")), "operation") != 0) continue;
        assert_true(json_is_string(json_object_get(g, "component")));
        sum += number(g, "energy_mj");
        net_sd += number(g, "net_energy_sd_mj");
        count += number(g, "count");
    }
    assert_int_equal((int)count, want.operations);
    assert_near(sum, want.operations_mj, 1e-6 * fabs(want.operations_mj));
    assert_near(net_sd, want.net_sd_mj, 1e-6 * want.net_sd_mj);
    json_decref(v);
}

/* Any window holds exactly the spans that touch it, also where they are read by blocks, and the
 * sums by name are theirs. */
static void spans_of_a_window(void **state)
{
    fixture *f = *state;
    const pj_run_data *run = &f->run;
    const pj_operation_row *middle = &run->operations[run->operation_count / 2];
    check_window(f->store, run, -1e9, 1e9);
    for (int i = 0; i < 5; i++)
        check_window(f->store, run, middle->start_ms - 3 * i,
                     middle->start_ms + middle->duration_ms / 2 + 7 * i);
    pj_span_window named = {.name = "Q_PR", .deepest = "component", .limit = 4};
    json_t *v = VIEW(pj_view_spans(f->store, "last", &named, json, &err));
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < run->component_count; i++)
        wanted += strcmp(run->components[i].name, "q_proj") == 0;
    assert_int_equal(json_array_size(json_object_get(v, "levels")), 2);
    assert_that(wanted, >, 4);
    assert_int_equal(json_integer_value(span_column(v, 1, "total")), wanted);
    assert_int_equal(json_array_size(span_column(v, 1, "name")), 4);
    for (int i = 0; i < 4; i++) {
        size_t name =
            (size_t)json_integer_value(json_array_get(span_column(v, 1, "name"), (size_t)i));
        assert_string_equal(json_string_value(json_array_get(json_object_get(v, "names"), name)),
                            "q_proj");
        assert_true(json_is_integer(json_array_get(span_column(v, 1, "layer"), (size_t)i)));
        assert_true(json_is_integer(json_array_get(span_column(v, 1, "token"), (size_t)i)));
    }
    json_decref(v);
}

static int set_up_long(void **state)
{
    return set_up_like(
        state,
        &(made_run){.seed = 9, .tokens = 90, .layers = 4, .samples = 10, .depth = PJ_DEPTH_DEEP});
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(compacting_keeps_the_sums),
        TEST(machines_are_known_by_runs_and_beats),
        TEST(pipeline_tells_phases_and_sections),
        TEST(thinned_power_keeps_the_extremes),
        TEST(tokens_accumulate),
        TEST(heatmaps_sum_to_the_layers),
        TEST(every_statistic_is_shown),
        cmocka_unit_test(sums_of_earlier_versions_are_read),
        TEST(trees_conserve),
        TEST(operations_sum_over_tokens),
        TEST(summaries_are_complete),
        TEST(some_tables_load_alone),
        TEST(structs_hold_what_json_says),
        TEST(waiting_is_no_basis_for_rates),
        TEST(expensive_figures_are_kept),
        TEST(spans_of_a_window),
        cmocka_unit_test_setup_teardown(spans_of_a_window, set_up_long, tear_down),
        cmocka_unit_test_setup_teardown(without_sensors_all_else_is_there, set_up_bare, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

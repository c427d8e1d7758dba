/* The forward pass against a plain double-precision reference, for every architecture; conversions;
 * rejections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "../sanitized.h"
#include "base/memory.h"
#include "engine/generation/engine.h"
#include "engine/kernels/kernels.h"
#include "engine/model/facts.h"
#include "record/run.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 40, MAX_VOCAB = 200 };

static void make_ids(int32_t *ids, int count, int vocab)
{
    for (int i = 0; i < count; i++) ids[i] = 2 + (i * 37 + i * i * 11) % (vocab - 2);
}

static pj_engine *open_tiny(const tiny_model *m, const pj_engine_options *base)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = *base;
    options.model = m->folder;
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    return engine;
}

typedef struct difference {
    const double *want;
    int first; /* positions before it are not compared */
    double worst, square, deviation, count;
} difference;

static bool compare_row(void *context, uint32_t position, const float *got, uint32_t vocab)
{
    difference *d = context;
    for (uint32_t i = 0; i < vocab && (int)position >= d->first; i++) {
        double want = d->want[position * vocab + i], off = fabs(got[i] - want);
        d->worst = fmax(d->worst, isnan(off) ? INFINITY : off / (2e-4 + 2e-4 * fabs(want)));
        d->square += off * off;
        d->deviation += want * want;
        d->count++;
    }
    return true;
}

static difference compare(pj_engine *engine, const int32_t *ids, int count, bool whole, int first,
                          const double *want)
{
    pj_error err = {0};
    difference d = {.want = want, .first = first};
    if (pj_engine_logits(engine, ids, (uint32_t)count, whole, compare_row, &d, &err) != PJ_OK)
        fail_msg("%s", err.text);
    assert_that(d.count, >, 0);
    return d;
}

static double rms(difference d)
{
    return sqrt(d.square / d.deviation);
}

/* At once, in pieces that do not divide the prompt, and one by one; one thread and three.
 * Sanitizers see every access in two of these pairs: one thread at once, three in pieces. */
static void check_shape(const tiny_shape *shape, const char *isa)
{
    tiny_model m;
    int32_t ids[TOKENS];
    static double want[TOKENS * MAX_VOCAB];
    tiny_make(&m, shape, 42);
    tiny_write(&m, TINY_F32);
    make_ids(ids, TOKENS, shape->vocab);
    for (int count = 1; count <= TOKENS; count += count == 1 ? 8 : TOKENS - 9) {
        tiny_forward(&m, ids, count, want, NULL, 0);
        for (uint32_t threads = 1; threads <= 3; threads += 2)
            for (uint32_t chunk = 0; chunk <= 7; chunk += 7) {
                if (PJ_SANITIZED && (threads == 1) != (chunk == 0)) continue;
                pj_engine_options o = {.threads = threads, .chunk = chunk, .isa = isa};
                pj_engine *engine = open_tiny(&m, &o);
                for (int whole = 0; whole < 2; whole++) {
                    /* token by token, positions within the original context use its frequencies */
                    bool late = !whole && strcmp(shape->rope, "longrope") == 0;
                    difference d =
                        compare(engine, ids, count, whole, late && count > 16 ? 16 : 0, want);
                    /* where heads of the delta rule nearly cancel, their norm amplifies rounding */
                    if (d.worst > (shape->delta ? 3 : 1))
                        fail_msg("%s %s, %d tokens, %u threads, chunk %u, whole %d: %g times the "
                                 "tolerance",
                                 shape->name, isa, count, threads, chunk, whole, d.worst);
                }
                pj_engine_close(engine);
            }
    }
    tiny_free(&m);
}

static void every_architecture(void **state)
{
    const char *isas[16];
    size_t n = pj_kernels_list(isas, 16);
    for (size_t i = 0; i < tiny_shape_count; i++) {
        check_shape(&tiny_shapes[i], "c");
        check_shape(&tiny_shapes[i], isas[n - 1]);
    }
}

/* What is known of a model before it is loaded, from its config, is what its runs say. */
static void figures_of_the_config(void **state)
{
    for (size_t i = 0; i < tiny_shape_count; i++) {
        tiny_model m;
        pj_model_facts before;
        tiny_make(&m, &tiny_shapes[i], 42);
        tiny_write(&m, TINY_BF16);
        pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 1});
        const pj_engine_facts *loaded = pj_engine_get_facts(engine);
        pj_model_facts_fill(loaded->config, PJ_BF16, &before);
        double bytes = (double)loaded->decode_weight_bytes;
        assert_int_equal(before.parameters, loaded->parameters);
        assert_int_equal(before.active_parameters, loaded->active_parameters);
        assert_int_equal(before.kv_bytes_per_token, loaded->kv_bytes_per_token);
        assert_near((double)before.decode_weight_bytes, bytes, 0.001 * bytes);
        pj_engine_close(engine);
        tiny_free(&m);
    }
}

static void sixteen_bits(void **state)
{
    static double want[TOKENS * MAX_VOCAB];
    int32_t ids[TOKENS];
    for (tiny_type type = TINY_BF16; type <= TINY_F16; type++) {
        tiny_model m;
        tiny_make(&m, tiny_find("wide"), 7);
        tiny_write(&m, type); /* rounds the weights in memory too */
        make_ids(ids, TOKENS, m.shape.vocab);
        tiny_forward(&m, ids, TOKENS, want, NULL, 0);
        pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
        assert_string_equal(pj_engine_get_facts(engine)->dtype, type == TINY_BF16 ? "bf16" : "f16");
        double off = rms(compare(engine, ids, TOKENS, true, 0, want));
        if (off > 0.015) fail_msg("16 bits: rms %g", off);
        pj_engine_close(engine);
        tiny_free(&m);
    }
}

/* Conversion at load time against weights rounded by the test. */
static void conversions(void **state)
{
    static const struct {
        const char *dtype;
        int bits;
        double tolerance;
    } rows[] = {{"q8_0", 8, 0.05}, {"q4_0", 4, 0.05}, {"f16", 0, 0.015}, {"bf16", 0, 0.02}};
    static double want[TOKENS * MAX_VOCAB];
    int32_t ids[TOKENS];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_model m;
        tiny_make(&m, tiny_find("wide"), 9);
        tiny_write(&m, TINY_F32);
        if (rows[i].bits) tiny_quantise(&m, rows[i].bits);
        make_ids(ids, TOKENS, m.shape.vocab);
        tiny_forward(&m, ids, TOKENS, want, NULL, 0);
        pj_engine *engine =
            open_tiny(&m, &(pj_engine_options){.threads = 2, .dtype = rows[i].dtype});
        assert_string_equal(pj_engine_get_facts(engine)->dtype, rows[i].dtype);
        double off = rms(compare(engine, ids, TOKENS, true, 0, want));
        if (off > rows[i].tolerance) fail_msg("%s: rms %g", rows[i].dtype, off);
        pj_engine_close(engine);
        tiny_free(&m);
    }
}

/* ---- statistics --------------------------------------------------------------------------- */

static void record_rows(pj_engine *engine, const int32_t *ids, uint32_t count, uint32_t tokens,
                        pj_depth depth, pj_statistics_rows rows, pj_run_data *data, uint64_t *hash)
{
    pj_error err = {0};
    pj_session *session;
    pj_run *run;
    pj_session_options nothing = {.power = "none", .database = "none", .baseline_seconds = -1};
    if (pj_session_open(&nothing, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_begin(session, &(pj_run_options){.depth = depth}, &run, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_prompt prompt = {.ids = ids, .id_count = count};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .max_tokens = tokens,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .statistics = rows,
                                   .run = run};
    pj_generate_result result = {0};
    if (pj_engine_generate(engine, &request, &result, &err) != PJ_OK) fail_msg("%s", err.text);
    *hash = result.logits_hash;
    pj_generate_result_fini(&result);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, data, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(data->info.spans_lost, 0);
    pj_session_close(session);
}

static void record(pj_engine *engine, const int32_t *ids, uint32_t count, uint32_t tokens,
                   pj_depth depth, pj_run_data *data, uint64_t *hash)
{
    record_rows(engine, ids, count, tokens, depth, PJ_STATISTICS_BY_DEPTH, data, hash);
}

static const pj_component_row *component(const pj_run_data *data, uint32_t layer, const char *name)
{
    for (uint32_t i = 0; i < data->component_count; i++) {
        const pj_component_row *c = &data->components[i];
        if (c->layer != PJ_NO_PARENT && data->layers[c->layer].layer_index == layer &&
            strcmp(c->name, name) == 0)
            return c;
    }
    fail_msg("no component %s", name);
    return NULL;
}

static void assert_same(double got, double want)
{
    if (!(fabs(got - want) <= fmax(1e-6, 1e-4 * fabs(want)))) fail_msg("%g is not %g", got, want);
}

/* Components of layer 0 against the reference's, within a share of their standard deviation. */
static void check_statistics(const pj_run_data *data, const tiny_capture *captures, int count,
                             double room)
{
    for (int i = 0; i < count; i++) {
        const tiny_capture *c = &captures[i];
        const pj_component_row *got = component(data, 0, c->component);
        assert_true(got->has_stats);
        assert_that(c->count, >, 0);
        if (fabs(got->stats.mean_abs - c->mean_abs) > room * c->std ||
            fabs(got->stats.mean - c->mean) > room * c->std ||
            fabs(got->stats.std - c->std) > room * c->std ||
            fabs(got->stats.max_abs - c->max_abs) > 4 * room * c->max_abs ||
            fabs(got->stats.sparsity - c->sparsity) > room)
            fail_msg("%s: %g %g %g %g %g, not %g %g %g %g %g", c->component, got->stats.mean_abs,
                     got->stats.mean, got->stats.std, got->stats.max_abs, got->stats.sparsity,
                     c->mean_abs, c->mean, c->std, c->max_abs, c->sparsity);
    }
}

/* Products that round activations to 8 bits give the statistics of exact ones, but for that. */
static void statistics_of_quantised_weights(void **state)
{
    static double want[TOKENS * MAX_VOCAB];
    static const char *const dtypes[] = {"q8_0", "q4_0"};
    int32_t ids[TOKENS];
    const char *isas[16];
    size_t n = pj_kernels_list(isas, 16);
    for (int i = 0; i < 2; i++) {
        tiny_capture captures[] = {{.component = "q_proj"},    {.component = "v_proj"},
                                   {.component = "attention"}, {.component = "o_proj"},
                                   {.component = "act"},       {.component = "down_proj"}};
        enum { CAPTURES = sizeof captures / sizeof *captures };
        tiny_model m;
        tiny_make(&m, tiny_find("wide"), 9);
        tiny_write(&m, TINY_F32);
        tiny_quantise(&m, i == 0 ? 8 : 4);
        make_ids(ids, TOKENS, m.shape.vocab);
        tiny_forward(&m, ids, TOKENS, want, captures, CAPTURES);
        for (size_t isa = 0; isa < n; isa++) {
            pj_engine *engine = open_tiny(
                &m, &(pj_engine_options){.threads = 2, .dtype = dtypes[i], .isa = isas[isa]});
            for (pj_depth depth = PJ_DEPTH_MODULE; depth <= PJ_DEPTH_DEEP; depth++) {
                pj_run_data data;
                uint64_t hash;
                record(engine, ids, TOKENS, 0, depth, &data, &hash);
                check_statistics(&data, captures, CAPTURES, 0.02);
                pj_run_data_fini(&data);
            }
            pj_engine_close(engine);
        }
        tiny_free(&m);
    }
}

/* Parts of alternating updates: every stream, and the residual of low rank. */
static void statistics_of_streams(void **state)
{
    static double want[TOKENS * MAX_VOCAB];
    int32_t ids[TOKENS];
    tiny_capture captures[] = {
        {.component = "altup_predict"}, {.component = "v_norm"},
        {.component = "attention"},     {.component = "post_laurel_norm"},
        {.component = "laurel"},        {.component = "act"},
        {.component = "altup_correct"}, {.component = "post_per_layer_input_norm"}};
    enum { CAPTURES = sizeof captures / sizeof *captures };
    tiny_model m;
    (void)state;
    tiny_make(&m, tiny_find("gemma3n"), 3);
    tiny_write(&m, TINY_F32);
    make_ids(ids, TOKENS, m.shape.vocab);
    tiny_forward(&m, ids, TOKENS, want, captures, CAPTURES);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
    for (pj_depth depth = PJ_DEPTH_MODULE; depth <= PJ_DEPTH_DEEP; depth++) {
        pj_run_data data;
        uint64_t hash;
        record(engine, ids, TOKENS, 0, depth, &data, &hash);
        check_statistics(&data, captures, CAPTURES, 1e-4);
        pj_run_data_fini(&data);
    }
    pj_engine_close(engine);
    tiny_free(&m);
}

static void statistics(void **state)
{
    static double want[TOKENS * MAX_VOCAB];
    int32_t ids[TOKENS];
    tiny_capture captures[] = {{.component = "input_layernorm"},
                               {.component = "q_proj"},
                               {.component = "v_proj"},
                               {.component = "q_norm"},
                               {.component = "attention"},
                               {.component = "o_proj"},
                               {.component = "act"},
                               {.component = "down_proj"}};
    enum { CAPTURES = sizeof captures / sizeof *captures };
    tiny_model m;
    tiny_make(&m, tiny_find("qwen3"), 3);
    tiny_write(&m, TINY_F32);
    make_ids(ids, TOKENS, m.shape.vocab);
    tiny_forward(&m, ids, TOKENS, want, captures, CAPTURES);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
    for (pj_depth depth = PJ_DEPTH_MODULE; depth <= PJ_DEPTH_DEEP; depth++) {
        pj_run_data data;
        uint64_t hash;
        record(engine, ids, TOKENS, 0, depth, &data, &hash);
        for (int i = 0; i < CAPTURES; i++) {
            const tiny_capture *c = &captures[i];
            const pj_component_row *got = component(&data, 0, c->component);
            assert_true(got->has_stats);
            assert_that(c->count, >, 0);
            assert_same(got->stats.mean_abs, c->mean_abs);
            assert_same(got->stats.mean, c->mean);
            assert_same(got->stats.std, c->std);
            assert_same(got->stats.max_abs, c->max_abs);
            assert_same(got->stats.sparsity, c->sparsity);
            assert_that(got->flops, >, 0);
            assert_that(got->bytes, >, 0);
        }
        pj_run_data_fini(&data);
    }
    pj_engine_close(engine);
    tiny_free(&m);
}

/* FLOPs and bytes by the documented conventions, for shapes small enough to compute by hand. */
static void work(void **state)
{
    tiny_model m;
    int32_t ids[8];
    pj_run_data data;
    uint64_t hash;
    tiny_make(&m, tiny_find("llama"), 3); /* hidden 48, 4 heads of 12, 2 of keys, width 80 */
    tiny_write(&m, TINY_F32);
    make_ids(ids, 8, m.shape.vocab);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 1});
    record(engine, ids, 8, 0, PJ_DEPTH_DEEP, &data, &hash);
    const pj_component_row *q = component(&data, 1, "q_proj");
    assert_same(q->flops, 2.0 * 8 * 48 * 48);
    assert_same(q->bytes, 48 * 48 * 4 + 8 * 48 * 4 + 8 * 48 * 4);
    static const struct {
        const char *name;
        double flops, bytes;
    } rows[] = {
        {"rope", 3 * 12 * 8 * 6, 2 * 8 * 12 * 6 * 4},
        {"kv_append", 0, 2 * 8 * 2 * 12 * 4},
        {"qk_matmul", 2 * 12 * 4 * 36, 2 * 12 * 8 * 4 + 8 * 4 * 12 * 4},
        {"scale", 4 * 36, 2 * 4 * 36 * 4},
        {"softmax", 5 * 4 * 36, 2 * 4 * 36 * 4},
        {"value_matmul", 2 * 12 * 4 * 36, 2 * 12 * 8 * 4 + 8 * 4 * 12 * 4},
    };
    uint32_t attention = (uint32_t)(component(&data, 1, "attention") - data.components), seen = 0;
    for (uint32_t i = 0; i < data.operation_count; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            const pj_operation_row *o = &data.operations[i];
            if (o->component != attention || strcmp(o->name, rows[k].name) != 0) continue;
            assert_same(o->flops, rows[k].flops);
            assert_same(o->bytes, rows[k].bytes);
            seen++;
        }
    assert_int_equal(seen, sizeof rows / sizeof *rows);
    pj_run_data_fini(&data);
    pj_engine_close(engine);
    tiny_free(&m);
}

/* An indexer of 8 heads of 10, of which 8 rotate, keeps 4 of up to 8 keys: 26 pairs are scored. */
static void work_of_an_indexer(void **state)
{
    static const struct {
        const char *name;
        double flops, bytes;
    } rows[] = {
        {"rope", 3 * 8 * 8 * 9, 2 * 8 * 8 * 9 * 4},
        {"kv_append", 0, 8 * 10 * 4},
        {"index_scores", 26 * 8 * (2 * 10 + 3), 8 * 10 * 4 + 8 * 8 * 11 * 4 + 26 * 4},
        {"top_k", 26, 26 * 4 + 4 * 4 * 4},
    };
    tiny_model m;
    int32_t ids[8];
    pj_run_data data;
    uint64_t hash;
    double flops = 0, bytes = 0;
    tiny_make(&m, tiny_find("deepseek-v3.2"), 3);
    tiny_write(&m, TINY_F32);
    make_ids(ids, 8, m.shape.vocab);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
    record(engine, ids, 8, 0, PJ_DEPTH_DEEP, &data, &hash);
    const pj_component_row *indexer = component(&data, 1, "indexer");
    uint32_t at = (uint32_t)(indexer - data.components), seen = 0;
    for (uint32_t i = 0; i < data.operation_count; i++) {
        const pj_operation_row *o = &data.operations[i];
        if (o->component != at) continue;
        assert_that(seen, <, sizeof rows / sizeof *rows);
        assert_string_equal(o->name, rows[seen].name);
        assert_same(o->flops, rows[seen].flops);
        assert_same(o->bytes, rows[seen++].bytes);
        flops += o->flops;
        bytes += o->bytes;
    }
    assert_int_equal(seen, sizeof rows / sizeof *rows);
    assert_same(indexer->flops, flops);
    assert_same(indexer->bytes, bytes);
    /* scores, scale, mask, softmax and values of 1 + 2 + 3 + 4 and 4 times 4 keys */
    assert_same(component(&data, 1, "attention")->flops,
                3 * 8 * 8 * 5 + 26 * 4 * (2 * (24 + 16) + 7));
    /* what is predicted from the configuration is what was counted, in both layers */
    pj_model_facts facts;
    pj_model_facts_fill(pj_engine_get_facts(engine)->config, PJ_F32, &facts);
    assert_that(pj_attention_flops(&facts.attention_work, 0, 8), ==,
                2 * (26 * 4 * (2 * (24 + 16) + 7) + rows[2].flops + rows[3].flops));
    pj_run_data_fini(&data);
    pj_engine_close(engine);
    tiny_free(&m);
}

/* While a sequence is no longer than what is kept, an indexer only stores keys. */
static void short_sequences_have_no_queries(void **state)
{
    tiny_model m;
    int32_t ids[4];
    pj_run_data data;
    uint64_t hash;
    uint32_t queries = 0, keys = 0;
    tiny_make(&m, tiny_find("deepseek-v3.2"), 3);
    tiny_write(&m, TINY_F32);
    make_ids(ids, 4, m.shape.vocab);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 1});
    record(engine, ids, 4, 3, PJ_DEPTH_MODULE, &data, &hash);
    for (uint32_t i = 0; i < data.component_count; i++) {
        queries += strcmp(data.components[i].name, "wq_b") == 0;
        keys += strcmp(data.components[i].name, "wk") == 0;
    }
    assert_int_equal(keys, 3 * 2); /* prefill of 4 tokens, two tokens of decode; two layers */
    assert_int_equal(queries, 2 * 2);
    pj_run_data_fini(&data);
    pj_engine_close(engine);
    tiny_free(&m);
}

/* Neither recording depth nor threads change the results. */
static void recording_changes_nothing(void **state)
{
    int32_t ids[TOKENS];
    for (size_t i = 0; i < tiny_shape_count; i++) {
        tiny_model m;
        uint64_t first = 0;
        tiny_make(&m, &tiny_shapes[i], 5);
        tiny_write(&m, TINY_F32);
        make_ids(ids, TOKENS, m.shape.vocab);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = threads});
            for (pj_depth depth = PJ_DEPTH_OFF; depth <= PJ_DEPTH_DEEP; depth++) {
                pj_run_data data;
                uint64_t hash;
                record(engine, ids, 13, 8, depth, &data, &hash);
                if (!first) first = hash;
                assert_int_equal(hash, first);
                pj_run_data_fini(&data);
            }
            pj_engine_close(engine);
        }
        tiny_free(&m);
    }
}

static bool is_stage_of_attention(const pj_run_data *data, const pj_operation_row *o)
{
    static const char *const stages[] = {"qk_matmul", "scale",        "softcap",     "mask_apply",
                                         "softmax",   "attn_dropout", "value_matmul"};
    if (strcmp(data->components[o->component].name, "attention") != 0) return false;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (strcmp(o->name, stages[i]) == 0) return true;
    return false;
}

static void same_stats(bool known, const pj_stats *x, bool also_known, const pj_stats *y)
{
    assert_int_equal(known, also_known);
    if (!known) return;
    assert_same(y->mean_abs, x->mean_abs);
    assert_same(y->mean, x->mean);
    assert_same(y->std, x->std);
    assert_that(y->max_abs, ==, x->max_abs);
    assert_same(y->sparsity, x->sparsity);
}

static void same_extras(const pj_extra_row *want, uint32_t count, const pj_extra_row *got,
                        uint32_t got_count)
{
    assert_int_equal(count, got_count);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(got[i].name, want[i].name);
        assert_int_equal(got[i].index, want[i].index);
        assert_same(got[i].value, want[i].value);
    }
}

static void same_figures(const pj_run_data *a, const pj_operation_row *x, const pj_run_data *b,
                         const pj_operation_row *y)
{
    assert_string_equal(x->name, y->name);
    same_stats(x->has_stats, &x->stats, y->has_stats, &y->stats);
    same_extras(a->extras + x->extra_begin, x->extra_count, b->extras + y->extra_begin,
                y->extra_count);
}

/* In decode, each thread runs the stages of attention unit by unit and times them: they are
 * recorded one after another all the same, within their component, and the figures do not depend
 * on which thread ran what. */
static void stages_of_attention(void **state)
{
    static const char *const shapes[] = {"llama", "mistral", "gemma2"};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        tiny_model m;
        int32_t ids[13];
        pj_run_data data[2];
        tiny_make(&m, tiny_find(shapes[k]), 5);
        tiny_write(&m, TINY_F32);
        make_ids(ids, 13, m.shape.vocab);
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t hash;
            pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 1 + 2 * i});
            record(engine, ids, 13, 8, PJ_DEPTH_DEEP, &data[i], &hash);
            pj_engine_close(engine);
        }
        assert_int_equal(data[0].operation_count, data[1].operation_count);
        uint32_t stages = 0;
        for (uint32_t i = 0; i < data[1].operation_count; i++) {
            const pj_operation_row *o = &data[1].operations[i], *before = o - 1;
            if (!is_stage_of_attention(&data[1], o)) continue;
            const pj_component_row *c = &data[1].components[o->component];
            stages++;
            same_figures(&data[0], &data[0].operations[i], &data[1], o);
            assert_that(o->duration_ms, >=, 0);
            assert_that(o->start_ms, >=, before->start_ms + before->duration_ms - 1e-6);
            assert_that(o->start_ms + o->duration_ms, <=, c->start_ms + c->duration_ms + 1e-6);
        }
        assert_that(stages, >=, 8 * 6);
        for (int i = 0; i < 2; i++) pj_run_data_fini(&data[i]);
        tiny_free(&m);
    }
}

/* Mean over the operations of layers that have the extra, and their number. */
static double extra_of_layers(const pj_run_data *data, const char *name, uint32_t *count)
{
    double sum = 0;
    *count = 0;
    for (uint32_t i = 0; i < data->operation_count; i++) {
        const pj_operation_row *o = &data->operations[i];
        if (data->components[o->component].layer == PJ_NO_PARENT) continue;
        for (uint32_t k = 0; k < o->extra_count; k++) {
            const pj_extra_row *e = &data->extras[o->extra_begin + k];
            if (strcmp(e->name, name) != 0 || e->index != PJ_EXTRA_SCALAR) continue;
            sum += e->value;
            ++*count;
        }
    }
    return *count ? sum / *count : NAN;
}

/* Asked for all rows, extras are those of all rows of a long pass too: the mean of two passes of
 * half as many, which are short enough to be described whole. */
static void extras_of_all_rows(void **state)
{
    enum { ROWS = 120 };
    static const char *const names[] = {"kill_ratio", "dead_ratio", "variance_ratio",
                                        "mean_square_ratio", "attention_entropy"};
    tiny_model m;
    int32_t ids[ROWS];
    pj_run_data halves, whole;
    uint64_t hash;
    uint32_t n, some;
    tiny_make(&m, tiny_find("llama"), 5);
    tiny_write(&m, TINY_F32);
    make_ids(ids, ROWS, m.shape.vocab);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2, .chunk = ROWS / 2});
    record_rows(engine, ids, ROWS, 1, PJ_DEPTH_DEEP, PJ_STATISTICS_ALL, &halves, &hash);
    pj_engine_close(engine);
    engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
    record_rows(engine, ids, ROWS, 1, PJ_DEPTH_DEEP, PJ_STATISTICS_ALL, &whole, &hash);
    pj_engine_close(engine);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double want = extra_of_layers(&halves, names[i], &some);
        double got = extra_of_layers(&whole, names[i], &n);
        assert_int_equal(some, 2 * n);
        if (fabs(got - want) > 1e-5 * fabs(want)) fail_msg("%s: %g, not %g", names[i], got, want);
    }
    assert_same(extra_of_layers(&whole, "attention_rows", &n), ROWS);
    extra_of_layers(&whole, "rows", &n);
    assert_int_equal(n, 0);
    pj_run_data_fini(&halves);
    pj_run_data_fini(&whole);
    tiny_free(&m);
}

/* A token's experts are distinct even if its scores are not numbers: an expert has room for one row
 * of each token. */
static void experts_of_broken_weights(void **state)
{
    static const char *const names[] = {"qwen2-moe", "glm4-moe",
                                        "phimoe"}; /* each kind of router */
    enum { ROWS = 24 };
    int32_t ids[ROWS];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model m;
        pj_run_data data;
        uint64_t hash;
        uint32_t seen = 0;
        tiny_make(&m, tiny_find(names[i]), 3);
        tiny_tensor *embedding = tiny_get(&m, "model.embed_tokens.weight");
        for (size_t k = 0; k < embedding->count; k++) embedding->values[k] = NAN;
        tiny_write(&m, TINY_F32);
        make_ids(ids, ROWS, m.shape.vocab);
        pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
        record(engine, ids, ROWS, 1, PJ_DEPTH_MODULE, &data, &hash);
        for (uint32_t c = 0; c < data.component_count; c++) {
            const pj_extra_row *e = data.extras + data.components[c].extra_begin, *last = NULL;
            for (const pj_extra_row *end = e + data.components[c].extra_count; e < end; e++) {
                if (strcmp(e->name, "expert") != 0) continue;
                if (last && e->index % (uint32_t)m.shape.chosen != 0 && e->value == last->value)
                    fail_msg("%s: expert %g is choice %u and %u", names[i], e->value, last->index,
                             e->index);
                last = e;
                seen++;
            }
        }
        assert_that(seen, >=, ROWS * (uint32_t)m.shape.chosen);
        pj_run_data_fini(&data);
        pj_engine_close(engine);
        tiny_free(&m);
    }
}

/* ---- sections ----------------------------------------------------------------------------- */

static int count_sections(const pj_run_data *data, pj_phase phase, const char *name, bool in_token)
{
    int n = 0;
    for (uint32_t i = 0; i < data->section_count; i++) {
        const pj_section_row *s = &data->sections[i];
        n += data->phases[s->phase].phase == phase && strcmp(s->name, name) == 0 &&
             (s->token != PJ_NO_PARENT) == in_token;
    }
    return n;
}

static void sections_of_a_run(void **state)
{
    static const char *const steps[] = {
        "embedding", "position_embedding", "layers", "final_norm", "lm_head", "sampling"};
    tiny_model m;
    int32_t ids[9];
    pj_run_data data;
    uint64_t hash;
    int phases = 0;
    tiny_make(&m, tiny_find("llama"), 3);
    tiny_write(&m, TINY_F32);
    make_ids(ids, 9, m.shape.vocab);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){.threads = 2});
    record(engine, ids, 9, 4, PJ_DEPTH_MODULE, &data, &hash);
    for (uint32_t i = 0; i < data.phase_count; i++) phases += data.phases[i].phase != PJ_PHASE_IDLE;
    assert_int_equal(phases, 4);
    assert_int_equal(data.token_count, 4);
    assert_int_equal(count_sections(&data, PJ_PHASE_PRE_INFERENCE, "tokenization", false), 1);
    assert_int_equal(count_sections(&data, PJ_PHASE_PRE_INFERENCE, "kv_cache_init", false), 1);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(count_sections(&data, PJ_PHASE_PREFILL, steps[i], true), 1);
        assert_int_equal(count_sections(&data, PJ_PHASE_DECODE, steps[i], true), 3);
    }
    assert_int_equal(count_sections(&data, PJ_PHASE_PREFILL, "kv_cache_store", true), 1);
    assert_int_equal(count_sections(&data, PJ_PHASE_DECODE, "kv_cache_append", true), 3);
    assert_int_equal(count_sections(&data, PJ_PHASE_POST_INFERENCE, "detokenization", false), 1);
    assert_int_equal(count_sections(&data, PJ_PHASE_POST_INFERENCE, "cleanup", false), 1);
    assert_int_equal(data.layer_count, 4 * 2);
    for (uint32_t i = 0; i < data.layer_count; i++) assert_true(data.layers[i].has_stats);
    assert_int_equal(data.info.input_tokens, 9);
    assert_int_equal(data.info.output_tokens, 4);
    pj_run_data_fini(&data);
    pj_engine_close(engine);
    tiny_free(&m);
}

/* ---- refusals ----------------------------------------------------------------------------- */

static void assert_refused(const tiny_model *m, const char *word)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = {.model = m->folder, .threads = 1};
    assert_int_not_equal(pj_engine_open(&options, &engine, &err), PJ_OK);
    assert_null(engine);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not say %s", err.text, word);
}

static void wrong_tensors(void **state)
{
    tiny_model m;
    tiny_make(&m, tiny_find("llama"), 3);
    strcpy(tiny_get(&m, "model.layers.1.mlp.up_proj.weight")->name, "model.layers.1.mlp.other");
    tiny_write(&m, TINY_F32);
    assert_refused(&m, "model.layers.1.mlp.up_proj.weight");
    tiny_free(&m);
    tiny_make(&m, tiny_find("llama"), 3);
    tiny_tensor *t = tiny_get(&m, "model.layers.0.self_attn.k_proj.weight");
    t->shape[0] = 48;
    t->shape[1] = 24;
    tiny_write(&m, TINY_F32);
    assert_refused(&m, "48"); /* both shapes are named */
    assert_refused(&m, "24");
    tiny_free(&m);
    tiny_make(&m, tiny_find("qwen3-moe-fused"), 3);
    t = tiny_get(&m, "model.layers.0.mlp.experts.down_proj");
    t->shape[1] = 24;
    t->shape[2] = 48;
    tiny_write(&m, TINY_F32);
    assert_refused(&m, "experts.down_proj");
    tiny_free(&m);
}

static void wrong_options(void **state)
{
    static const struct {
        pj_engine_options options;
        const char *word;
    } rows[] = {
        {{.model = "synthetic:llama-9-1b"}, "did you mean synthetic:llama-"},
        {{.model = "synthetic:nothing-alike"}, "known: llama-3.2-1b, "},
        {{.model = "synthetic:llama-3.2-1b,layers=99"}, "layers"},
        {{.model = "synthetic:llama-3.2-1b,q3"}, "q3"},
        {{.model = "synthetic:smollm2-135m,layers=1", .dtype = "q7"}, "q7"},
        {{.model = "synthetic:smollm2-135m,layers=1", .isa = "abacus"}, "abacus"},
        {{.model = "/nowhere/at/all"}, "/nowhere/at/all"},
        {{.model = ""}, "no model"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pj_error err = {0};
        pj_engine *engine;
        assert_int_not_equal(pj_engine_open(&rows[i].options, &engine, &err), PJ_OK);
        assert_null(engine);
        if (!strstr(err.text, rows[i].word))
            fail_msg("\"%s\" does not say %s", err.text, rows[i].word);
    }
}

/* Each allocation of opening a model fails once: an error every time, and nothing left behind. */
static void memory_runs_out_while_opening(void **state)
{
    tiny_model m;
    pj_status status = PJ_E_NO_MEMORY;
    tiny_make(&m, tiny_find("qwen2-moe"), 3);
    tiny_write(&m, TINY_F32);
    for (int64_t n = 0; status != PJ_OK; n++) {
        pj_error err = {0};
        pj_engine *engine;
        pj_engine_options options = {.model = m.folder, .threads = 2, .dtype = "bf16"};
        pj_memory_fail_after(n);
        status = pj_engine_open(&options, &engine, &err);
        pj_memory_fail_after(-1);
        if (status != PJ_OK) assert_null(engine);
        if (status != PJ_OK) assert_that(err.text[0], !=, 0);
        pj_engine_close(engine);
        assert_that(n, <, 100000);
    }
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(figures_of_the_config),
        cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(conversions),
        cmocka_unit_test(statistics),
        cmocka_unit_test(statistics_of_streams),
        cmocka_unit_test(statistics_of_quantised_weights),
        cmocka_unit_test(work),
        cmocka_unit_test(work_of_an_indexer),
        cmocka_unit_test(short_sequences_have_no_queries),
        cmocka_unit_test(recording_changes_nothing),
        cmocka_unit_test(stages_of_attention),
        cmocka_unit_test(extras_of_all_rows),
        cmocka_unit_test(experts_of_broken_weights),
        cmocka_unit_test(sections_of_a_run),
        cmocka_unit_test(wrong_tensors),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(memory_runs_out_while_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

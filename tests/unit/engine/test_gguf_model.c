/* A GGUF copy of a model against the model itself: the same logits for every architecture, weight
 * type and naming variant; rejections by name. */
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
#include "made_gguf.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 40, MAX_VOCAB = 320 };

static void make_ids(int32_t *ids, int count, int vocab)
{
    for (int i = 0; i < count; i++) ids[i] = 2 + (i * 37 + i * i * 11) % (vocab - 2);
}

static pj_engine *open_model(const char *path, const pj_engine_options *base)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = *base;
    options.model = path;
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    return engine;
}

static bool keep_row(void *context, uint32_t position, const float *logits, uint32_t vocab)
{
    memcpy((float *)context + (size_t)position * vocab, logits, vocab * sizeof *logits);
    return true;
}

static void logits_of(const char *path, const pj_engine_options *options, int vocab, float *logits)
{
    int32_t ids[TOKENS];
    pj_error err = {0};
    make_ids(ids, TOKENS, vocab);
    pj_engine *engine = open_model(path, options);
    if (pj_engine_logits(engine, ids, TOKENS, true, keep_row, logits, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_engine_close(engine);
}

/* The largest difference in units of the tolerance, and the relative RMS difference. */
static double worst(const float *got, const float *want, int count, double *rms)
{
    double most = 0, square = 0, all = 0;
    for (int i = 0; i < count; i++) {
        double off = fabs((double)got[i] - (double)want[i]), size = fabs((double)want[i]);
        if (!(off / (2e-4 + 2e-4 * size) <= most)) most = off / (2e-4 + 2e-4 * size);
        square += off * off;
        all += size * size;
    }
    *rms = sqrt(square / all);
    return most;
}

static void write_copy(const char *folder, const char *path, const made_gguf_options *options)
{
    pj_error err = {0};
    pj_checkpoint *checkpoint;
    made_gguf g;
    if (pj_checkpoint_open(folder, &checkpoint, &err) != PJ_OK) fail_msg("%s", err.text);
    made_gguf_init(&g);
    made_gguf_copy(&g, checkpoint, options);
    made_gguf_write(&g, path);
    made_gguf_fini(&g);
    pj_checkpoint_close(checkpoint);
}

static void check_shape(const tiny_shape *shape, const made_gguf_options *options, tiny_type type)
{
    static float want[TOKENS * MAX_VOCAB], got[TOKENS * MAX_VOCAB];
    tiny_model m;
    char path[128];
    double rms;
    tiny_make(&m, shape, 42);
    tiny_write(&m, type);
    snprintf(path, sizeof path, "%s/copy.gguf", m.folder);
    write_copy(m.folder, path, options);
    pj_engine_options o = {.threads = 2};
    logits_of(m.folder, &o, shape->vocab, want);
    logits_of(path, &o, shape->vocab, got);
    double most = worst(got, want, TOKENS * shape->vocab, &rms);
    if (type == TINY_F32 ? most > 1 : rms > 0.015)
        fail_msg("%s: %g times the tolerance, rms %g", shape->name, most, rms);
    unlink(path);
    tiny_free(&m);
}

static void every_architecture(void **state)
{
    (void)state;
    for (size_t i = 0; i < tiny_shape_count; i++)
        if (!tiny_shapes[i].no_gguf)
            check_shape(&tiny_shapes[i], &(made_gguf_options){.type = -1}, TINY_F32);
}

static void sixteen_bits(void **state)
{
    (void)state;
    check_shape(tiny_find("wide"), &(made_gguf_options){.type = -1}, TINY_BF16);
    check_shape(tiny_find("wide"), &(made_gguf_options){.type = -1}, TINY_F16);
}

/* One tensor per expert, and Phi's q, k and v in one tensor. */
static void older_spellings(void **state)
{
    static const char *const names[] = {"mixtral", "qwen3-moe", "phi"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_shape(tiny_find(names[i]), &(made_gguf_options){.type = -1, .old_names = true},
                    TINY_F32);
}

/* Sizes that K types can hold: rows of whole blocks of 256. */
static tiny_shape large_shape(void)
{
    tiny_shape shape = *tiny_find("llama");
    shape.hidden = 256;
    shape.heads = 4;
    shape.head_dim = 64;
    shape.width = 512;
    shape.vocab = 300;
    return shape;
}

/* Block-quantised weights against the same values as floats: only activations are rounded. */
static void blocks(void **state)
{
    static const pj_dtype types[] = {PJ_Q8_0, PJ_Q4_0, PJ_Q4_K,  PJ_Q5_K,   PJ_Q6_K,
                                     PJ_Q4_1, PJ_Q5_0, PJ_Q5_1,  PJ_IQ4_NL, PJ_MXFP4,
                                     PJ_Q2_K, PJ_Q3_K, PJ_IQ4_XS};
    static float want[TOKENS * MAX_VOCAB], got[TOKENS * MAX_VOCAB];
    const char *isas[16];
    size_t n = pj_kernels_list(isas, 16);
    tiny_shape shape = large_shape();
    tiny_model m;
    char path[128], plain[128];
    (void)state;
    tiny_make(&m, &shape, 5);
    tiny_write(&m, TINY_F32);
    snprintf(path, sizeof path, "%s/copy.gguf", m.folder);
    snprintf(plain, sizeof plain, "%s/plain.gguf", m.folder);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        write_copy(m.folder, path, &(made_gguf_options){.type = types[i]});
        write_copy(m.folder, plain, &(made_gguf_options){.type = types[i], .rounded = true});
        logits_of(plain, &(pj_engine_options){.threads = 2}, shape.vocab, want);
        for (size_t isa = 0; isa < n; isa++) {
            double rms;
            if (PJ_SANITIZED && isa != i % n) continue;
            pj_engine_options o = {.threads = 2, .isa = isas[isa]};
            pj_engine *engine = open_model(path, &o);
            assert_string_equal(pj_engine_get_facts(engine)->dtype, pj_dtype_get(types[i])->name);
            pj_engine_close(engine);
            logits_of(path, &o, shape.vocab, got);
            worst(got, want, TOKENS * shape.vocab, &rms);
            if (!(rms > 0 && rms < 0.05))
                fail_msg("%s %s: rms %g", pj_dtype_get(types[i])->name, isas[isa], rms);
        }
        unlink(path);
        unlink(plain);
    }
    tiny_free(&m);
}

/* Q2_0, also of stacked experts, against the same values as floats. */
static void two_bits(void **state)
{
    static const char *const names[] = {"llama", "qwen3-moe"};
    static float want[TOKENS * MAX_VOCAB], got[TOKENS * MAX_VOCAB];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_shape shape = *tiny_find(names[i]);
        tiny_model m;
        char path[128], plain[128];
        double rms;
        shape.hidden = shape.width = shape.expert_width = 64;
        shape.head_dim = 16;
        tiny_make(&m, &shape, 7);
        tiny_write(&m, TINY_F32);
        snprintf(path, sizeof path, "%s/copy.gguf", m.folder);
        snprintf(plain, sizeof plain, "%s/plain.gguf", m.folder);
        write_copy(m.folder, path, &(made_gguf_options){.type = -1, .pairs = true});
        write_copy(m.folder, plain,
                   &(made_gguf_options){.type = -1, .pairs = true, .rounded = true});
        logits_of(plain, &(pj_engine_options){.threads = 2}, shape.vocab, want);
        logits_of(path, &(pj_engine_options){.threads = 2, .dtype = "f32"}, shape.vocab, got);
        assert_that(worst(got, want, TOKENS * shape.vocab, &rms), <=, 1);
        pj_engine *engine = open_model(path, &(pj_engine_options){.threads = 2});
        assert_string_equal(pj_engine_get_facts(engine)->dtype, "q4_0");
        pj_engine_close(engine);
        logits_of(path, &(pj_engine_options){.threads = 2}, shape.vocab, got);
        worst(got, want, TOKENS * shape.vocab, &rms);
        if (!(rms > 0 && rms < 0.05)) fail_msg("%s: rms %g", names[i], rms);
        unlink(path);
        unlink(plain);
        tiny_free(&m);
    }
}

/* Quantised files can be converted too. */
static void converted(void **state)
{
    static float want[TOKENS * MAX_VOCAB], got[TOKENS * MAX_VOCAB];
    tiny_shape shape = large_shape();
    tiny_model m;
    char path[128], plain[128];
    double rms;
    (void)state;
    tiny_make(&m, &shape, 6);
    tiny_write(&m, TINY_F32);
    snprintf(path, sizeof path, "%s/copy.gguf", m.folder);
    snprintf(plain, sizeof plain, "%s/plain.gguf", m.folder);
    write_copy(m.folder, path, &(made_gguf_options){.type = PJ_Q4_K});
    write_copy(m.folder, plain, &(made_gguf_options){.type = PJ_Q4_K, .rounded = true});
    logits_of(plain, &(pj_engine_options){.threads = 2}, shape.vocab, want);
    logits_of(path, &(pj_engine_options){.threads = 2, .dtype = "f32"}, shape.vocab, got);
    assert_that(worst(got, want, TOKENS * shape.vocab, &rms), <=, 1);
    unlink(path);
    unlink(plain);
    tiny_free(&m);
}

/* ---- refusals ----------------------------------------------------------------------------- */

typedef void spoil_fn(made_gguf *g);

static pj_status open_spoilt(spoil_fn *before, spoil_fn *after, pj_error *err)
{
    static const char path[] = "/tmp/perjoule-spoilt.gguf";
    tiny_model m;
    made_gguf g;
    pj_checkpoint *checkpoint;
    pj_engine *engine;
    char own[64];
    snprintf(own, sizeof own, "%s-%d", path, (int)getpid());
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    assert_int_equal(pj_checkpoint_open(m.folder, &checkpoint, err), PJ_OK);
    made_gguf_init(&g);
    if (before) before(&g);
    made_gguf_copy(&g, checkpoint, &(made_gguf_options){.type = -1});
    if (after) after(&g);
    made_gguf_write(&g, own);
    pj_engine_options options = {.model = own, .threads = 1};
    pj_status status = pj_engine_open(&options, &engine, err);
    pj_engine_close(engine);
    made_gguf_fini(&g);
    pj_checkpoint_close(checkpoint);
    unlink(own);
    tiny_free(&m);
    return status;
}

static void unknown_tensor(made_gguf *g)
{
    uint64_t size = 1;
    float value = 0;
    made_gguf_tensor(g, "blk.0.attn_sinks.weight", &size, 1, 0, &value, 4);
}

static void unknown_scale(made_gguf *g)
{
    made_gguf_f32(g, "llama.logit_scale", 0.25f);
}

static void neutral_scale(made_gguf *g)
{
    made_gguf_f32(g, "llama.logit_scale", 1);
}

static void adapter(made_gguf *g)
{
    made_gguf_string(g, "general.type", "adapter");
}

static void layers_that_differ(made_gguf *g)
{
    static const uint32_t values[] = {1, 2};
    made_gguf_u32s(g, "llama.attention.sliding_window", values, 2);
}

static void wrong_vocabulary(made_gguf *g)
{
    made_gguf_u32(g, "llama.vocab_size", 96);
}

static void unknown_rope(made_gguf *g)
{
    made_gguf_string(g, "llama.rope.scaling.type", "spiral");
}

static void wrong_factors(made_gguf *g)
{
    uint64_t size = 3;
    float values[3] = {1, 1, 1};
    made_gguf_tensor(g, "rope_freqs.weight", &size, 1, 0, values, sizeof values);
}

static void negative_width(made_gguf *g)
{
    made_gguf_key(g, "llama.vocab_size", 5);
    made_gguf_bytes(&g->keys, (uint64_t)-5, 4);
}

static void some_tokenizer(made_gguf *g)
{
    made_gguf_string(g, "tokenizer.ggml.model", "t5");
}

static void refusals(void **state)
{
    static const struct {
        spoil_fn *spoil;
        pj_status status;
        const char *part;
    } rows[] = {
        {NULL, PJ_OK, ""},
        {neutral_scale, PJ_OK, ""},
        {unknown_tensor, PJ_E_UNSUPPORTED, "blk.0.attn_sinks.weight"},
        {unknown_scale, PJ_E_UNSUPPORTED, "llama.logit_scale is not supported"},
        {adapter, PJ_E_UNSUPPORTED, "is of type adapter, not a model"},
        {layers_that_differ, PJ_E_UNSUPPORTED, "differs between layers"},
        {wrong_vocabulary, PJ_E_INVALID, "token_embd.weight is F32 [97, 48]"},
        {unknown_rope, PJ_E_UNSUPPORTED, "spiral"},
        {wrong_factors, PJ_E_INVALID, "rope_freqs.weight must contain 6"},
        {negative_width, PJ_E_INVALID, "is -5, must be between"},
        {some_tokenizer, PJ_E_UNSUPPORTED, "of the kind t5"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pj_error err = {0};
        pj_status status = open_spoilt(rows[i].spoil, NULL, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].part))
            fail_msg("row %zu: status %d, \"%s\"", i, (int)status, err.text);
    }
}

/* ---- rope --------------------------------------------------------------------------------- */

static double yarn_factor(const char *shape, double stored)
{
    tiny_model m;
    made_gguf g;
    pj_checkpoint *from, *copy;
    pj_error err = {0};
    char path[80], key[80];
    tiny_make(&m, tiny_find(shape), 42);
    tiny_write(&m, TINY_F32);
    snprintf(path, sizeof path, "%s/yarn.gguf", m.folder);
    assert_int_equal(pj_checkpoint_open(m.folder, &from, &err), PJ_OK);
    made_gguf_init(&g);
    made_gguf_copy(&g, from, &(made_gguf_options){.type = -1});
    snprintf(key, sizeof key, "%s.rope.scaling.type", shape);
    made_gguf_string(&g, key, "yarn");
    snprintf(key, sizeof key, "%s.rope.scaling.factor", shape);
    made_gguf_f32(&g, key, 8);
    snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", shape);
    made_gguf_f32(&g, key, (float)stored);
    made_gguf_write(&g, path);
    made_gguf_fini(&g);
    pj_checkpoint_close(from);
    if (pj_checkpoint_open(path, &copy, &err) != PJ_OK) fail_msg("%s", err.text);
    double factor = pj_checkpoint_config(copy)->rope.attention_factor;
    pj_checkpoint_close(copy);
    unlink(path);
    tiny_free(&m);
    return factor;
}

/* The key multiplies YaRN's own factor; in files of OLMo it is the published factor itself. */
static void yarn_factors(void **state)
{
    double own = 0.1 * log(8) + 1;
    (void)state;
    assert_near(yarn_factor("llama", 1.5), 1.5 * own, 1e-6);
    assert_near(yarn_factor("olmo2", own), own, 1e-6);
}

/* ---- sets of files ------------------------------------------------------------------------ */

/* A model in two files: keys in the first, tensors in both. */
static void write_parts(const char *folder, const char *part[2])
{
    static const char *const numbers[] = {"split.no", "split.count"};
    pj_error err = {0};
    pj_checkpoint *checkpoint;
    made_gguf whole, two[2];
    pj_arena arena;
    pj_gguf read;
    pj_buffer file;
    assert_int_equal(pj_checkpoint_open(folder, &checkpoint, &err), PJ_OK);
    made_gguf_init(&whole);
    made_gguf_copy(&whole, checkpoint, &(made_gguf_options){.type = -1});
    made_gguf_file(&whole, &file);
    pj_arena_init(&arena, 0);
    assert_int_equal(
        pj_gguf_parse((unsigned char *)file.data, file.length, "whole", &arena, &read, &err),
        PJ_OK);
    for (uint32_t p = 0; p < 2; p++) {
        made_gguf_init(&two[p]);
        if (p == 0) {
            pj_buffer_append(&two[0].keys, pj_buffer_get(&whole.keys), whole.keys.length);
            two[0].key_count = whole.key_count;
        }
        made_gguf_u32(&two[p], numbers[0], p);
        made_gguf_u32(&two[p], numbers[1], 2);
        for (uint32_t i = p; i < read.tensor_count; i += 2) {
            const pj_tensor *t = &read.tensors[i];
            uint64_t sizes[PJ_TENSOR_MAX_RANK];
            for (uint32_t d = 0; d < t->rank; d++) sizes[d] = t->shape[t->rank - 1 - d];
            made_gguf_tensor(&two[p], t->name, sizes, t->rank, 0, t->data, t->bytes);
        }
        made_gguf_write(&two[p], part[p]);
        made_gguf_fini(&two[p]);
    }
    pj_arena_fini(&arena);
    pj_buffer_fini(&file);
    made_gguf_fini(&whole);
    pj_checkpoint_close(checkpoint);
}

static void parts(void **state)
{
    static float want[TOKENS * MAX_VOCAB], got[TOKENS * MAX_VOCAB];
    tiny_model m;
    char first[128], second[128], config[128];
    double rms;
    pj_error err = {0};
    pj_checkpoint *checkpoint;
    (void)state;
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    snprintf(first, sizeof first, "%s/x-00001-of-00002.gguf", m.folder);
    snprintf(second, sizeof second, "%s/x-00002-of-00002.gguf", m.folder);
    snprintf(config, sizeof config, "%s/config.json", m.folder);
    write_parts(m.folder, (const char *[]){first, second});
    pj_engine_options o = {.threads = 2};
    logits_of(m.folder, &o, m.shape.vocab, want);
    logits_of(first, &o, m.shape.vocab, got);
    assert_that(worst(got, want, TOKENS * m.shape.vocab, &rms), <=, 1);
    logits_of(second, &o, m.shape.vocab, got);
    assert_that(worst(got, want, TOKENS * m.shape.vocab, &rms), <=, 1);
    /* a folder with a single model can be given as the model */
    assert_int_equal(unlink(config), 0);
    logits_of(m.folder, &o, m.shape.vocab, got);
    assert_that(worst(got, want, TOKENS * m.shape.vocab, &rms), <=, 1);
    assert_int_equal(rename(second, config), 0);
    assert_int_not_equal(pj_checkpoint_open(first, &checkpoint, &err), PJ_OK);
    assert_non_null(strstr(err.text, "x-00002-of-00002.gguf"));
    assert_int_equal(rename(first, second), 0);
    assert_int_equal(pj_checkpoint_open(second, &checkpoint, &err), PJ_E_NOT_FOUND);
    assert_int_equal(rename(second, first), 0);
    unlink(first);
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(older_spellings),
        cmocka_unit_test(blocks),
        cmocka_unit_test(two_bits),
        cmocka_unit_test(converted),
        cmocka_unit_test(refusals),
        cmocka_unit_test(yarn_factors),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

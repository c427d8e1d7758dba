/* The forward pass on a Vulkan device against the plain double-precision reference, for every
 * architecture. */
#include "../../assertions.h"
#include "../deep_parity.h"
#include "../tiny.h"
#include "engine/generation/engine_internal.h"
#include "engine/vulkan/api.h"
#include "engine/vulkan/trace.h"
#include "generate/calibrate.h"
#include "record/run.h"
#include "vulkan_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 40, STEPS = 6, MAX_VOCAB = 200, MOST_DISPATCHES = 256 };

static char device[40]; /* UUID */

/* ---- devices that stay open ---- */

#ifdef KEEPS_DEVICES
/* Engines take turns with devices that stay open, in place of what vk.h defines: a software driver
 * takes longer to make the kernels of a model again than to run it. */
enum { MOST_IDLE = 2 };
static pj_vk *idle_devices[MOST_IDLE];
static int idle_count;

pj_status __real_pj_vk_open(pj_vk **vk, const pj_vk_options *options, pj_error *err);
pj_status __wrap_pj_vk_open(pj_vk **vk, const pj_vk_options *options, pj_error *err);
void __real_pj_vk_close(pj_vk *vk);
void __wrap_pj_vk_close(pj_vk *vk);

pj_status __wrap_pj_vk_open(pj_vk **vk, const pj_vk_options *options, pj_error *err)
{
    if (!idle_count) return __real_pj_vk_open(vk, options, err);
    *vk = idle_devices[--idle_count];
    return PJ_OK;
}

void __wrap_pj_vk_close(pj_vk *vk)
{
    if (vk && !vk->lost && idle_count < MOST_IDLE)
        idle_devices[idle_count++] = vk;
    else
        __real_pj_vk_close(vk);
}

static void close_idle_devices(void)
{
    while (idle_count) __real_pj_vk_close(idle_devices[--idle_count]);
}
#else
static void close_idle_devices(void) {}
#endif

/* ---- logits ---- */

static void make_ids(int32_t *ids, int count, int vocab)
{
    for (int i = 0; i < count; i++) ids[i] = 2 + (i * 37 + i * i * 11) % (vocab - 2);
}

typedef struct difference {
    const double *want;
    int first; /* positions before it are not compared */
    double square, all;
    int alike; /* positions within 1e-4 */
} difference;

static bool compare_row(void *context, uint32_t position, const float *got, uint32_t vocab)
{
    difference *d = context;
    double square = 0, all = 0;
    if ((int)position < d->first) return true;
    for (uint32_t i = 0; i < vocab; i++) {
        double want = d->want[position * vocab + i], off = got[i] - want;
        square += isnan(off) ? INFINITY : off * off;
        all += want * want;
    }
    d->square += square;
    d->all += all;
    d->alike += square <= 1e-8 * all;
    return true;
}

static bool copy_row(void *context, uint32_t position, const float *got, uint32_t vocab)
{
    double *to = context;
    for (uint32_t i = 0; i < vocab; i++) to[position * vocab + i] = got[i];
    return true;
}

static pj_engine *open_tiny(const tiny_model *m, const pj_engine_options *base, pj_error *err)
{
    pj_engine *engine;
    pj_engine_options options = *base;
    options.model = m->folder;
    options.device = device;
    options.threads = 1;
    return pj_engine_open(&options, &engine, err) == PJ_OK ? engine : NULL;
}

static difference difference_of(pj_engine *engine, const int32_t *ids, int count, bool whole,
                                int first, const double *want)
{
    pj_error err = {0};
    difference d = {.want = want, .first = first};
    if (pj_engine_logits(engine, ids, (uint32_t)count, whole, compare_row, &d, &err) != PJ_OK)
        fail_msg("%s", err.text);
    return d;
}

static double error_of(pj_engine *engine, const int32_t *ids, int count, bool whole, int first,
                       const double *want)
{
    difference d = difference_of(engine, ids, count, whole, first, want);
    return sqrt(d.square / d.all);
}

/* At once, one by one, and in pieces that do not divide the prompt. Returns the error at once. */
static double check_shape(const tiny_shape *shape, tiny_type type, bool pieces, double tolerance)
{
    tiny_model m;
    pj_error err = {0};
    int32_t ids[TOKENS];
    static double want[TOKENS * MAX_VOCAB];
    double whole = 0;
    tiny_make(&m, shape, 42);
    tiny_write(&m, type);
    make_ids(ids, TOKENS, shape->vocab);
    tiny_forward(&m, ids, TOKENS, want, NULL, 0);
    for (uint32_t chunk = 0; chunk <= (pieces ? 17 : 0); chunk += 17) {
        pj_engine_options o = {.chunk = chunk};
        pj_engine *engine = open_tiny(&m, &o, &err);
        if (!engine) fail_msg("%s: %s", shape->name, err.text);
        /* token by token within the original context, whose frequencies may be others */
        bool same = strcmp(shape->rope, "longrope") != 0;
        whole = error_of(engine, ids, TOKENS, true, 0, want);
        double steps = chunk || !same ? 0 : error_of(engine, ids, STEPS, false, 0, want);
        if (!(whole < tolerance && steps < tolerance))
            fail_msg("%s, chunk %u: off by %g at once, %g in steps", shape->name, chunk, whole,
                     steps);
        pj_engine_close(engine);
    }
    tiny_free(&m);
    return whole;
}

static void every_architecture(void **state)
{
    for (size_t i = 0; i < tiny_shape_count; i++)
        check_shape(&tiny_shapes[i], TINY_F32, i % 6 == 0, 1e-3);
}

static void sixteen_bits(void **state)
{
    check_shape(tiny_find("llama"), TINY_BF16, false, 1e-2);
    check_shape(tiny_find("llama"), TINY_F16, false, 1e-2);
}

/* Many rows as matrices of 16 bits, in the kernel's form without hardware. */
static void matrices(void **state)
{
    setenv("PERJOULE_VULKAN_MATRIX", "1", 1);
    double rounded = check_shape(tiny_find("mixtral"), TINY_F16, false, 1e-2);
    unsetenv("PERJOULE_VULKAN_MATRIX");
    double exact = check_shape(tiny_find("mixtral"), TINY_F16, false, 1e-2);
    assert_that(rounded, !=, exact);
}

/* Logits of the first tokens one by one, on the CPU. */
static void cpu_logits(const tiny_model *m, const char *dtype, const int32_t *ids, double *logits)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options o = {.model = m->folder,
                           .device = "cpu",
                           .dtype = dtype,
                           .kv = PJ_KV_F32, /* or attention may multiply in bfloat16 */
                           .threads = 1};
    if (pj_engine_open(&o, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_engine_logits(engine, ids, STEPS, false, copy_row, logits, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_engine_close(engine);
}

/* Weights converted while loading, with activations as floats and as 8-bit integers, which are
 * rounded as on the CPU: where no value lies so close to the middle of two codes that the last bit
 * of a sum decides, the logits are those of the CPU. */
static void quantised_weights(void **state)
{
    static const char *const dtypes[] = {"q8_0", "q4_0"};
    static double want[TOKENS * MAX_VOCAB];
    int32_t ids[TOKENS];
    pj_error err = {0};
    for (int i = 0; i < 4; i++) {
        tiny_model m;
        tiny_make(&m, tiny_find("wide"), 9);
        tiny_write(&m, TINY_F32);
        tiny_quantise(&m, i % 2 ? 4 : 8);
        make_ids(ids, TOKENS, m.shape.vocab);
        tiny_forward(&m, ids, TOKENS, want, NULL, 0);
        setenv("PERJOULE_VULKAN_PACKED", i < 2 ? "" : "1", 1);
        setenv("PERJOULE_VULKAN_MATRIX", i < 3 ? "" : "1", 1);
        pj_engine *engine =
            open_tiny(&m, &(pj_engine_options){.dtype = dtypes[i % 2], .kv = PJ_KV_F32}, &err);
        if (!engine) fail_msg("%s", err.text);
        assert_that(error_of(engine, ids, TOKENS, true, 0, want), <, 0.01);
        double rounded = error_of(engine, ids, STEPS, false, 0, want);
        if (i >= 2) {
            assert_that(rounded, >, 1e-3); /* they are integers indeed */
            cpu_logits(&m, dtypes[i % 2], ids, want);
        }
        difference steps = difference_of(engine, ids, STEPS, false, 0, want);
        assert_that(sqrt(steps.square / steps.all), <, 0.01);
        if (i >= 2) assert_that(steps.alike, >, STEPS / 4);
        pj_engine_close(engine);
        tiny_free(&m);
    }
    unsetenv("PERJOULE_VULKAN_PACKED");
    unsetenv("PERJOULE_VULKAN_MATRIX");
}

/* A mixture of experts whose rows are whole blocks of 8-bit weights. */
static void make_experts_in_blocks(tiny_model *m)
{
    tiny_shape shape = *tiny_find("mixtral");
    shape.hidden = 64;
    shape.head_dim = 32;
    shape.expert_width = 96;
    tiny_make(m, &shape, 5);
    tiny_write(m, TINY_F32);
    tiny_quantise(m, 8);
}

/* Experts of few rows: alone, and more, of which those of an expert are computed together. */
static void packed_experts(void **state)
{
    enum { CHUNK = 3 };
    tiny_model m;
    pj_error err = {0};
    int32_t ids[STEPS];
    static double want[STEPS * MAX_VOCAB];
    make_experts_in_blocks(&m);
    make_ids(ids, STEPS, m.shape.vocab);
    cpu_logits(&m, "q8_0", ids, want);
    setenv("PERJOULE_VULKAN_PACKED", "1", 1);
    pj_engine *engine =
        open_tiny(&m, &(pj_engine_options){.dtype = "q8_0", .kv = PJ_KV_F32, .chunk = CHUNK}, &err);
    if (!engine) fail_msg("%s", err.text);
    assert_that(error_of(engine, ids, STEPS, false, 0, want), <, 1e-4);
    assert_that(error_of(engine, ids, STEPS, true, 0, want), <, 1e-4);
    pj_engine_close(engine);
    unsetenv("PERJOULE_VULKAN_PACKED");
    tiny_free(&m);
}

/* ---- generation ---- */

static const char *stored_as; /* of models that generate; NULL: as in their files */

static pj_engine *open_on(const tiny_model *m, const char *where)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = {
        .model = m->folder, .device = where, .dtype = stored_as, .threads = 1};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    return engine;
}

enum { SEQUENCES = 3, NEW_TOKENS = 8 };

/* Prompts of different lengths in one batch, past windows. */
static void generate(const tiny_model *m, const char *where, pj_sampling sampling,
                     pj_generate_result *result, pj_run *run)
{
    pj_error err = {0};
    int32_t ids[TOKENS];
    pj_prompt prompts[SEQUENCES];
    make_ids(ids, TOKENS, m->shape.vocab);
    for (int i = 0; i < SEQUENCES; i++)
        prompts[i] = (pj_prompt){.ids = ids + i, .id_count = (uint32_t)(30 - 12 * i)};
    pj_generate_request request = {.prompts = prompts,
                                   .prompt_count = SEQUENCES,
                                   .max_tokens = NEW_TOKENS,
                                   .ignore_eos = true,
                                   .sampling = sampling,
                                   .run = run};
    pj_engine *engine = open_on(m, where);
    if (pj_engine_generate(engine, &request, result, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_engine_close(engine);
}

static void same_tokens_as_the_cpu(void **state)
{
    for (size_t i = 1; i < tiny_shape_count; i += 6) {
        tiny_model m;
        pj_generate_result cpu = {0}, gpu = {0};
        tiny_make(&m, &tiny_shapes[i], 42);
        tiny_write(&m, TINY_F32);
        generate(&m, "cpu", PJ_SAMPLING_GREEDY, &cpu, NULL);
        generate(&m, device, PJ_SAMPLING_GREEDY, &gpu, NULL);
        for (int s = 0; s < SEQUENCES; s++) {
            assert_int_equal(cpu.sequences[s].count, NEW_TOKENS);
            assert_int_equal(gpu.sequences[s].count, NEW_TOKENS);
            assert_memory_equal(cpu.sequences[s].ids, gpu.sequences[s].ids,
                                NEW_TOKENS * sizeof(int32_t));
        }
        pj_generate_result_fini(&cpu);
        pj_generate_result_fini(&gpu);
        tiny_free(&m);
    }
}

/* The model's own head as draft: the text without one, and the CPU's proposals. */
static void draft(const tiny_model *m, const char *where, const char *head,
                  pj_generate_result *result)
{
    pj_error err = {0};
    int32_t ids[STEPS];
    pj_engine *engine;
    make_ids(ids, STEPS, m->shape.vocab);
    pj_engine_options options = {.model = m->folder, .device = where, .draft = head, .threads = 1};
    pj_generate_request request = {.prompts = &(pj_prompt){.ids = ids, .id_count = STEPS},
                                   .prompt_count = 1,
                                   .max_tokens = 2 * NEW_TOKENS,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .draft_tokens = 2};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_engine_generate(engine, &request, result, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_engine_close(engine);
}

/* A model some of whose proposals the CPU accepts, with its text and theirs. */
static void make_drafting(tiny_model *m, const char *name, pj_generate_result *without,
                          pj_generate_result *cpu)
{
    for (uint64_t seed = 1;; seed++) {
        assert_that(seed, <, 30);
        tiny_make(m, tiny_find(name), seed);
        tiny_write(m, TINY_F32);
        draft(m, "cpu", PJ_DRAFT_HEAD, cpu);
        if (cpu->accepted > 0 && cpu->accepted < cpu->proposed) break;
        pj_generate_result_fini(cpu);
        *cpu = (pj_generate_result){0};
        tiny_free(m);
    }
    draft(m, "cpu", NULL, without);
}

static void drafts_as_on_the_cpu(void **state)
{
    static const char *const names[] = {"glm4-moe", "qwen3.5"}; /* the second one is recurrent */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model m;
        pj_generate_result without = {0}, cpu = {0}, gpu = {0};
        make_drafting(&m, names[i], &without, &cpu);
        draft(&m, device, PJ_DRAFT_HEAD, &gpu);
        assert_memory_equal(gpu.sequences[0].ids, without.sequences[0].ids,
                            2 * NEW_TOKENS * sizeof(int32_t));
        assert_int_equal(gpu.proposed, cpu.proposed);
        assert_int_equal(gpu.accepted, cpu.accepted);
        pj_generate_result_fini(&without);
        pj_generate_result_fini(&cpu);
        pj_generate_result_fini(&gpu);
        tiny_free(&m);
    }
}

/* ---- recording ---- */

/* Of logits on the host, which have a hash. */
static const pj_sampling drawn = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 5};

static uint64_t record(const tiny_model *m, const char *where, pj_depth depth, pj_sampling sampling,
                       pj_run_data *data)
{
    pj_error err = {0};
    pj_session *session;
    pj_run *run;
    pj_generate_result result = {0};
    pj_session_options nothing = {.power = "none", .database = "none", .baseline_seconds = -1};
    if (pj_session_open(&nothing, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_begin(session, &(pj_run_options){.depth = depth}, &run, &err) != PJ_OK)
        fail_msg("%s", err.text);
    generate(m, where, sampling, &result, run);
    uint64_t logits = result.logits_hash;
    pj_generate_result_fini(&result);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, data, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(data->info.spans_lost, 0);
    pj_session_close(session);
    return logits;
}

/* The next component of this name, from `from` on. */
static const pj_component_row *component(const pj_run_data *data, const char *name, uint32_t *from)
{
    while (*from < data->component_count)
        if (strcmp(data->components[(*from)++].name, name) == 0)
            return &data->components[*from - 1];
    return NULL;
}

static void assert_same_figures(const pj_run_data *cpu, const pj_run_data *gpu, const char *name)
{
    uint32_t at = 0, also = 0;
    const pj_component_row *want, *got;
    while ((want = component(cpu, name, &at))) {
        got = component(gpu, name, &also);
        if (!got) fail_msg("there are fewer %s on the device", name);
        assert_near(got->flops, want->flops, 1e-9 * want->flops);
        assert_true(got->has_stats);
        assert_near(got->stats.mean_abs, want->stats.mean_abs, 1e-4 * want->stats.mean_abs + 1e-6);
        assert_near(got->stats.std, want->stats.std, 1e-4 * want->stats.std + 1e-6);
        assert_near(got->stats.max_abs, want->stats.max_abs, 1e-4 * want->stats.max_abs);
        assert_near(got->stats.sparsity, want->stats.sparsity, 0.01);
        assert_int_equal(got->stats.nan_count, 0);
    }
    assert_null(component(gpu, name, &also));
}

/* Layers and components once each, with the CPU's work and statistics; products that overlap are
 * one component. What may be a part of a group is compared at depth deep. */
static void spans_and_statistics(void **state)
{
    static const char *const names[] = {"attention", "o_proj", "down_proj", "norm", "lm_head"};
    tiny_model m;
    pj_run_data cpu, gpu;
    uint32_t from = 0;
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    record(&m, "cpu", PJ_DEPTH_MODULE, PJ_SAMPLING_GREEDY, &cpu);
    record(&m, device, PJ_DEPTH_MODULE, PJ_SAMPLING_GREEDY, &gpu);
    assert_int_equal(gpu.layer_count, cpu.layer_count);
    assert_int_equal(gpu.token_count, cpu.token_count);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_same_figures(&cpu, &gpu, names[i]);
    assert_non_null(component(&gpu, "qkv_proj", &from));
    assert_int_equal(gpu.device_count, 2);
    assert_string_equal(gpu.devices[1].name, pj_vk_device(vulkan_test_vk)->name);
    pj_run_data_fini(&cpu);
    pj_run_data_fini(&gpu);
    tiny_free(&m);
}

/* Single operations with what the CPU says about them: gates, norms, attention weights, routing,
 * in prefill and batches. */
static void operations_as_on_the_cpu(void **state)
{
    static const char *const names[] = {"llama",   "qwen2-moe",     "gemma2",
                                        "mistral", "falcon",        "llama4",
                                        "gemma3n", "deepseek-v3.2", "nemotron-latent"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model m;
        pj_run_data cpu, gpu;
        tiny_make(&m, tiny_find(names[i]), 42);
        tiny_write(&m, TINY_F32);
        record(&m, "cpu", PJ_DEPTH_DEEP, PJ_SAMPLING_GREEDY, &cpu);
        record(&m, device, PJ_DEPTH_DEEP, PJ_SAMPLING_GREEDY, &gpu);
        assert_that(gpu.operation_count, >, gpu.component_count / 2);
        assert_same_at_depth_deep(&cpu, &gpu, names[i]);
        pj_run_data_fini(&cpu);
        pj_run_data_fini(&gpu);
        tiny_free(&m);
    }
}

/* Not by a bit do they differ: what is fused below depth deep gives the same values apart. */
static void assert_same_logits(const tiny_model *m, pj_run_data *deep)
{
    pj_run_data off, module;
    uint64_t logits = record(m, device, PJ_DEPTH_OFF, drawn, &off);
    assert_true(logits != 0);
    assert_true(record(m, device, PJ_DEPTH_MODULE, drawn, &module) == logits);
    assert_true(record(m, device, PJ_DEPTH_DEEP, drawn, deep) == logits);
    pj_run_data_fini(&off);
    pj_run_data_fini(&module);
}

static void logits_at_every_depth(void **state)
{
    static const char *const names[] = {"llama", "qwen2-moe", "glm5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model m;
        pj_run_data deep;
        tiny_make(&m, tiny_find(names[i]), 42);
        tiny_write(&m, TINY_F32);
        assert_same_logits(&m, &deep);
        pj_run_data_fini(&deep);
        tiny_free(&m);
    }
}

/* Experts with activations of 8 bits: so at every depth, and the bytes of those chosen are known.
 */
static void packed_experts_at_every_depth(void **state)
{
    tiny_model m;
    pj_run_data deep;
    uint32_t packs = 0, products = 0;
    make_experts_in_blocks(&m);
    stored_as = "q8_0";
    setenv("PERJOULE_VULKAN_PACKED", "1", 1);
    assert_same_logits(&m, &deep);
    unsetenv("PERJOULE_VULKAN_PACKED");
    stored_as = NULL;
    for (uint32_t i = 0; i < deep.operation_count; i++) {
        const pj_operation_row *o = &deep.operations[i];
        if (strcmp(deep.components[o->component].name, "experts") != 0) continue;
        packs += strcmp(o->name, "pack") == 0;
        if (strcmp(o->name, "matmul") != 0) continue;
        products++;
        assert_true(o->has_stats && o->bytes > 0);
    }
    assert_true(packs > 0 && products > packs);
    pj_run_data_fini(&deep);
    tiny_free(&m);
}

/* FLOPs of all components of these names. */
static double flops_of(const pj_run_data *data, const char *const *names)
{
    double sum = 0;
    for (; *names; names++)
        for (uint32_t i = 0; i < data->component_count; i++)
            if (strcmp(data->components[i].name, *names) == 0) sum += data->components[i].flops;
    return sum;
}

/* Below deep, what shares a dispatch is one component that says so, has the work of all and the
 * statistics of the last. What is computed is the same. */
static void groups_at_depth_module(void **state)
{
    static const char *const grouped[] = {"input_layernorm", "input_layernorm+qkv_proj", "qkv_proj",
                                          NULL};
    static const char *const apart[] = {"input_layernorm", "q_proj", "k_proj", "v_proj", NULL};
    tiny_model m;
    pj_run_data module, deep;
    uint32_t from = 0;
    tiny_make(&m, tiny_find("qwen3"), 42);
    tiny_write(&m, TINY_F32);
    assert_same_logits(&m, &deep);
    record(&m, device, PJ_DEPTH_MODULE, drawn, &module);
    const pj_component_row *attention = component(&module, "input_layernorm+qkv_proj", &from);
    const pj_component_row *mlp =
        component(&module, "post_attention_layernorm+gate_up_proj+act", &from);
    assert_non_null(component(&module, "q_norm+k_norm+attention", &(uint32_t){0}));
    assert_non_null(attention);
    assert_non_null(mlp);
    assert_true(attention->has_stats && mlp->has_stats);
    /* the prompt is too long for it and computed in steps */
    assert_non_null(component(&module, "act", &(uint32_t){0}));
    assert_near(flops_of(&module, grouped), flops_of(&deep, apart), 1);
    pj_run_data_fini(&module);
    pj_run_data_fini(&deep);
    tiny_free(&m);
}

/* An outline, which needs neither weights nor memory, has the dispatches of a pass that is run. */
static void outlines(void **state)
{
    tiny_model m;
    pj_error err = {0};
    pj_gpu_model *outlined;
    static pj_gpu_dispatched run[MOST_DISPATCHES], paper[MOST_DISPATCHES];
    pj_gpu_trace ran = {.list = run, .most = MOST_DISPATCHES}, written = {paper, MOST_DISPATCHES};
    tiny_make(&m, tiny_find("mixtral"), 42);
    tiny_write(&m, TINY_F32);
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){0}, &err);
    if (!engine) fail_msg("%s", err.text);
    assert_int_equal(pj_gpu_trace_decode(engine->loaded.device, PJ_F32, 2, 20, &ran, &err), PJ_OK);
    assert_int_equal(pj_gpu_outline_open(&engine->model, false, &outlined, &err), PJ_OK);
    assert_int_equal(pj_gpu_trace_decode(outlined, PJ_F32, 2, 20, &written, &err), PJ_OK);
    assert_true(ran.count > 0);
    assert_int_equal(ran.count, written.count);
    for (uint32_t i = 0; i < ran.count; i++) {
        assert_string_equal(run[i].kernel, paper[i].kernel);
        assert_true(run[i].bytes == paper[i].bytes && run[i].flops == paper[i].flops);
        assert_true(run[i].bytes > 0 && run[i].seconds >= 0 && isnan(paper[i].seconds));
    }
    pj_gpu_outline_close(outlined);
    pj_engine_close(engine);
    tiny_free(&m);
}

/* A token takes at most seven dispatches a layer, and as many for all that is around the layers.
 * Their pipelines were made when the model was opened. */
static void few_dispatches_per_token(void **state)
{
    enum { MOST = 7 };
    tiny_model m;
    pj_error err = {0};
    int32_t ids[STEPS];
    static double want[STEPS * MAX_VOCAB];
    static pj_gpu_dispatched list[MOST_DISPATCHES];
    pj_gpu_trace trace = {.list = list, .most = MOST_DISPATCHES};
    tiny_make(&m, tiny_find("qwen3"), 42);
    tiny_write(&m, TINY_F32);
    make_ids(ids, STEPS, m.shape.vocab);
    close_idle_devices();
    pj_engine *engine = open_tiny(&m, &(pj_engine_options){0}, &err);
    if (!engine) fail_msg("%s", err.text);
    pj_gpu_model *on = engine->loaded.device;
    uint64_t pipelines = on->vk->pipeline_count;
    error_of(engine, ids, STEPS, false, 0, want);
    assert_int_equal(on->vk->pipeline_count, pipelines);
    assert_int_equal(pj_gpu_trace_decode(on, PJ_F32, 1, 20, &trace, &err), PJ_OK);
    assert_that(trace.count, >, engine->model.config.layers);
    assert_that(trace.count, <=, MOST * (engine->model.config.layers + 1));
    pj_engine_close(engine);
    tiny_free(&m);
}

/* Peak and bandwidth are measured, where there are enough weights that no cache holds them. */
static void limits(void **state)
{
    pj_error err = {0};
    pj_vk_buffer weights = {0};
    assert_int_equal(pj_vk_buffer_make(vulkan_test_vk, PJ_VK_DEVICE, PJ_LEAST_READ_BYTES, "weights",
                                       &weights, &err),
                     PJ_OK);
    pj_vk_fill(vulkan_test_vk, &weights, 0, weights.bytes, 0);
    pj_gpu_model m = {.vk = vulkan_test_vk,
                      .weights = {.chunks = &weights, .chunk_count = 1, .bytes = weights.bytes}};
    double peak = pj_gpu_peak(&m, 1000), read = pj_gpu_read_pass(&m, 2, UINT64_MAX);
    assert_true(isfinite(peak) && peak > 0);
    assert_true(isfinite(read) && read > 0);
    assert_true(isnan(pj_gpu_read_pass(&m, 2, PJ_LEAST_READ_BYTES - 1)));
    double copied = pj_gpu_copy_speed(&m);
    assert_true(isfinite(copied) && copied > 0);
    pj_vk_buffer_free(vulkan_test_vk, &weights);
}

static void unknown_devices(void **state)
{
    tiny_model m;
    pj_engine *engine;
    pj_error err = {0};
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    pj_engine_options o = {.model = m.folder, .device = "gpu:77", .threads = 1};
    assert_int_equal(pj_engine_open(&o, &engine, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "\"gpu:77\""));
    if (pj_vk_device(vulkan_test_vk)->kind == PJ_VK_SOFTWARE)
        assert_non_null(strstr(err.text, "only if named"));
    o.device = "auto"; /* a software driver is never taken by itself */
    assert_int_equal(pj_engine_open(&o, &engine, &err), PJ_OK);
    if (pj_vk_device(vulkan_test_vk)->kind == PJ_VK_SOFTWARE)
        assert_string_not_equal(pj_engine_get_facts(engine)->isa, "vulkan");
    pj_engine_close(engine);
    tiny_free(&m);
}

/* What was measured on one device is nothing that runs on another, or on the host, go by. */
static void calibrations_are_of_a_device(void **state)
{
    tiny_model m;
    pj_session session = {0};
    char on_device[4096], on_host[4096];
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    pj_engine *engine = open_on(&m, device);
    pj_calibration_key(&session, engine, on_device, sizeof on_device);
    pj_engine_close(engine);
    engine = open_on(&m, "cpu");
    pj_calibration_key(&session, engine, on_host, sizeof on_host);
    pj_engine_close(engine);
    assert_non_null(strstr(on_device, device));
    assert_null(strstr(on_host, device));
    tiny_free(&m);
}

static void write_uuid(const uint8_t uuid[16])
{
    for (int i = 0; i < 16; i++) snprintf(device + 2 * i, 3, "%02x", uuid[i]);
}

/* Argument: one of the groups; all without. */
int main(int argc, char **argv)
{
    const struct CMUnitTest architectures[] = {vulkan_test(every_architecture)};
    const struct CMUnitTest weights[] = {
        vulkan_test(sixteen_bits),   vulkan_test(matrices), vulkan_test(quantised_weights),
        vulkan_test(packed_experts), vulkan_test(limits),   vulkan_test(unknown_devices),
    };
    const struct CMUnitTest passes[] = {
        vulkan_test(same_tokens_as_the_cpu),       vulkan_test(drafts_as_on_the_cpu),
        vulkan_test(few_dispatches_per_token),     vulkan_test(outlines),
        vulkan_test(calibrations_are_of_a_device),
    };
    const struct CMUnitTest depths[] = {
        vulkan_test(packed_experts_at_every_depth), vulkan_test(spans_and_statistics),
        vulkan_test(operations_as_on_the_cpu),      vulkan_test(logits_at_every_depth),
        vulkan_test(groups_at_depth_module),
    };
    int failed = 0;
    if (!vulkan_test_open()) return VULKAN_TEST_SKIPPED;
    write_uuid(pj_vk_device(vulkan_test_vk)->uuid);
    setenv("PERJOULE_VULKAN_VALIDATE", "1", 1);
#define RUN(group)                                \
    if (argc < 2 || strcmp(argv[1], #group) == 0) \
    failed += cmocka_run_group_tests(group, NULL, NULL)
    RUN(architectures);
    RUN(weights);
    RUN(passes);
    RUN(depths);
    pj_vk_close(vulkan_test_vk);
    close_idle_devices();
    return failed;
}

/* perjoule bench kernels: products and other kernels in isolation, by kernel set, weight type and
 * shape, as a share of the machine's limit: multiply-adds from registers for many tokens, memory
 * bandwidth for one. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/kernels_device.h"
#include "bench/limits_save.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/files/pages.h"
#include "engine/kernels/limits.h"
#include "power/source.h"
#include "record/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 4096, MAX_SAMPLES = 200, MAX_SETS = 9, LIMIT_NS = 20000000 };

typedef struct settings {
    const char *sets, *types, *tokens;
    int64_t threads, milliseconds, megabytes;
    bool json;
} settings;

/* Shapes of a 1B model with hidden size 2048: attention output, gate or up, down; rows x cols. */
static const size_t shapes[][2] = {{2048, 2048}, {8192, 2048}, {2048, 8192}};

typedef struct row {
    const char *set;
    char kernel[16], shape[32];
    unsigned tokens;
    double ns;         /* median of the calls */
    double best_ns;    /* least */
    double operations; /* per call */
    double bytes;      /* per call: of weights, or of values read and written */
    double share;      /* of the binding limit, by the median; NAN: none */
    const char *limit; /* "peak", "memory" */
} row;

typedef struct bench {
    const settings *s;
    pj_team *team;
    char *weights; /* larger than the caches: consecutive calls use different parts */
    size_t weight_bytes;
    float *x, *y;
    size_t x_floats, y_floats;
    void *packed;
    double read_bytes_s;
    pj_machine_limits limits;
    row *rows;
    int count;
} bench;

typedef struct call {
    bench *b;
    const pj_kernels *kernels;
    pj_matrix matrix;
    size_t tokens, n;
    size_t at; /* in the weights */
    pj_packed input;
    void (*run)(struct call *c);
} call;

/* Repeats the call for about the requested time, after one warm-up call. */
static void time_call(call *c, row *r)
{
    static double samples[MAX_SAMPLES];
    int n = 0;
    c->run(c);
    int64_t end = pj_clock_ns() + c->b->s->milliseconds * PJ_NS_PER_MS;
    while (n < MAX_SAMPLES && (n < 3 || pj_clock_ns() < end)) {
        int64_t begin = pj_clock_ns();
        c->run(c);
        samples[n++] = (double)(pj_clock_ns() - begin);
    }
    pj_sort_doubles(samples, (size_t)n);
    r->ns = samples[n / 2];
    r->best_ns = samples[0];
}

/* ---- products ---- */

static void run_product(call *c)
{
    size_t bytes = c->matrix.rows * c->matrix.row_bytes;
    if (c->at + bytes > c->b->weight_bytes) c->at = 0;
    c->matrix.data = c->b->weights + c->at;
    c->at += bytes;
    pj_linear_job job = {&c->matrix, NULL, c->b->y, c->matrix.rows};
    pj_linear_run(c->kernels, c->b->team, &c->input, &job, 1);
}

static void add_product(bench *b, const pj_kernels *k, pj_dtype type, const size_t shape[2],
                        size_t tokens, double peak)
{
    call c = {.b = b, .kernels = k, .tokens = tokens, .run = run_product};
    c.matrix = (pj_matrix){.type = type, .rows = shape[0], .cols = shape[1]};
    c.matrix.row_bytes = pj_dtype_row_bytes(type, shape[1]);
    row *r = &b->rows[b->count];
    *r = (row){.set = k->name, .tokens = (unsigned)tokens};
    r->operations = 2.0 * (double)(shape[0] * shape[1] * tokens);
    r->bytes = (double)(shape[0] * c.matrix.row_bytes);
    if (shape[0] * c.matrix.row_bytes > b->weight_bytes || b->count == MAX_ROWS) return;
    snprintf(r->kernel, sizeof r->kernel, "%s", pj_dtype_get(type)->name);
    snprintf(r->shape, sizeof r->shape, "%zux%zu", shape[0], shape[1]);
    pj_linear_pack(k, b->team, type, b->x, shape[1], tokens, shape[1], b->packed, &c.input);
    time_call(&c, r);
    double by_peak = r->operations / r->ns * 1e9 / peak;
    double by_memory = r->bytes / r->ns * 1e9 / b->read_bytes_s;
    r->share = fmax(by_peak, by_memory);
    r->limit = by_peak > by_memory ? "peak" : "memory";
    b->count++;
}

/* ---- rows ---- */

static void run_rmsnorm(call *c)
{
    c->kernels->rmsnorm(c->b->y, c->b->x, c->b->x + c->n, c->n, 1e-5f);
}

static void run_softmax(call *c)
{
    memcpy(c->b->y, c->b->x, c->n * sizeof(float));
    c->kernels->softmax(c->b->y, c->n);
}

static void run_silu(call *c)
{
    c->kernels->silu_multiply(c->b->y, c->b->x, c->b->x + c->n, c->n);
}

static void run_gelu(call *c)
{
    c->kernels->gelu(c->b->y, c->b->x, c->n);
}

static void run_sums(call *c)
{
    pj_value_sums sums = {0};
    c->kernels->value_sums(c->b->x, 1, c->n, c->n, 0.01f, &sums);
}

static void run_pack(call *c)
{
    pj_linear_pack(c->kernels, c->b->team, c->matrix.type, c->b->x, c->n, c->tokens, c->n,
                   c->b->packed, &c->input);
}

/* One head of 64 values: 64 queries against n keys, then the values. */
enum { HEAD = 64, QUERIES = 64 };

static void run_attention(call *c)
{
    pj_kv_rows keys = {.data = c->b->weights, .row_bytes = HEAD * 2, .type = PJ_F16};
    c->kernels->attention_scores(c->b->y, c->n, c->b->x, HEAD, c->tokens, &keys, c->n, HEAD,
                                 pj_team_scratch(c->b->team, 0));
    c->kernels->attention_softmax(c->b->y, c->n, c->tokens, c->n);
    c->kernels->attention_values(c->b->y + QUERIES * c->n, HEAD, c->b->y, c->n, c->tokens, &keys,
                                 c->n, HEAD, false, pj_team_scratch(c->b->team, 0));
}

static void kernels_add_row(bench *b, const pj_kernels *k, const char *name, void (*run)(call *c),
                            size_t tokens, size_t n, double operations, double bytes)
{
    call c = {.b = b, .kernels = k, .tokens = tokens, .n = n, .run = run};
    c.matrix.type = strstr(name, "q8") ? PJ_Q8_0 : strstr(name, "bf16") ? PJ_BF16 : PJ_F32;
    if (b->count == MAX_ROWS) return;
    row *r = &b->rows[b->count++];
    *r = (row){.set = k->name, .tokens = (unsigned)tokens, .share = NAN};
    r->operations = operations;
    r->bytes = bytes;
    snprintf(r->kernel, sizeof r->kernel, "%s", name);
    snprintf(r->shape, sizeof r->shape, "%zu", n);
    time_call(&c, r);
}

static void add_rows(bench *b, const pj_kernels *k)
{
    const double n = 8192;
    kernels_add_row(b, k, "rmsnorm", run_rmsnorm, 1, 2048, NAN, 3 * 2048 * 4);
    kernels_add_row(b, k, "softmax", run_softmax, 1, 2048, NAN, 2 * 2048 * 4);
    kernels_add_row(b, k, "silu_mul", run_silu, 1, 8192, NAN, 3 * n * 4);
    kernels_add_row(b, k, "gelu", run_gelu, 1, 8192, NAN, 2 * n * 4);
    kernels_add_row(b, k, "value_sums", run_sums, 1, 8192, NAN, n * 4);
    kernels_add_row(b, k, "attention", run_attention, 4, 512, 4.0 * 4 * 512 * HEAD,
                    2 * 512 * HEAD * 2);
    kernels_add_row(b, k, "attention", run_attention, QUERIES, 512, 4.0 * QUERIES * 512 * HEAD,
                    NAN);
    kernels_add_row(b, k, "pack_f32", run_pack, 512, 2048, NAN, 512 * 2048 * 4);
    kernels_add_row(b, k, "pack_bf16", run_pack, 512, 2048, NAN, 512 * 2048 * 4);
    kernels_add_row(b, k, "pack_q8", run_pack, 512, 2048, NAN, 512 * 2048 * 4);
}

/* ---- the run ---- */

/* Random bytes that are valid for every weight type: small exponents, small codes. */
static void kernels_fill(bench *b)
{
    pj_random random = {1};
    for (size_t i = 0; i < b->weight_bytes; i += 8) {
        uint64_t word = pj_random_u64(&random) & 0x1f3f1f3f1f3f1f3fu;
        memcpy(b->weights + i, &word, 8);
    }
    for (size_t i = 0; i < b->x_floats; i++) b->x[i] = (float)pj_random_unit(&random) - 0.5f;
}

/* Scales of MXFP4 as models have them: those of small exponents above make products subnormal,
 * which processors take long for. */
static void kernels_fill_mxfp4(bench *b)
{
    enum { BLOCK_BYTES = 17, POWER = 122 };
    for (size_t i = 0; i < b->weight_bytes; i += BLOCK_BYTES) b->weights[i] = POWER;
}

/* Next item of a comma-separated list; false at its end. */
static bool kernels_next_word(const char **list, char *word, size_t bytes)
{
    *list += strspn(*list, ", ");
    size_t length = strcspn(*list, ", ");
    snprintf(word, bytes, "%.*s", (int)length, *list);
    *list += length;
    return length > 0;
}

static pj_status kernels_rule_types(const char *list, pj_error *err)
{
    char word[32];
    int count = 0;
    for (; kernels_next_word(&list, word, sizeof word); count++)
        if (pj_dtype_parse(word) < 0)
            return pj_fail(err, PJ_E_INVALID, "unknown weight type %s", word);
    return count ? PJ_OK : pj_fail(err, PJ_E_INVALID, "contains no weight type");
}

static double peak_of(const bench *b, const pj_kernels *k, pj_form form)
{
    double peak = 0;
    for (int i = 0; i < 5; i++) peak = fmax(peak, pj_limits_peak(k, b->team, form, LIMIT_NS));
    return peak;
}

static int run_set(bench *b, const pj_command *command, const pj_kernels *k)
{
    const char *types = b->s->types;
    char word[32], count[32];
    while (kernels_next_word(&types, word, sizeof word)) {
        int type = pj_dtype_parse(word);
        pj_form few = pj_linear_form(k, (pj_dtype)type, 1);
        pj_form many = pj_linear_form(k, (pj_dtype)type, SIZE_MAX);
        double few_peak = peak_of(b, k, few),
               many_peak = many == few ? few_peak : peak_of(b, k, many);
        if (type == PJ_MXFP4) kernels_fill_mxfp4(b);
        if (k == pj_kernels_get()) b->limits.operations_s[type] = many_peak;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const char *tokens = b->s->tokens;
            while (kernels_next_word(&tokens, count, sizeof count)) {
                long n = strtol(count, NULL, 10);
                if (n < 1 || n > 512) return pj_command_usage(command, "tokens must be 1 to 512");
                bool is_few = pj_linear_form(k, (pj_dtype)type, (size_t)n) == few;
                add_product(b, k, (pj_dtype)type, shapes[s], (size_t)n,
                            is_few ? few_peak : many_peak);
            }
        }
    }
    add_rows(b, k);
    return PJ_EXIT_OK;
}

static int run_sets(bench *b, const pj_command *command)
{
    const char *names[MAX_SETS], *list = b->s->sets;
    size_t count = pj_kernels_list(names, MAX_SETS);
    char word[32];
    if (!list) return run_set(b, command, pj_kernels_get());
    if (strcmp(list, "all") == 0) {
        for (size_t i = 0; i < count; i++) {
            int code = run_set(b, command, pj_kernels_find(names[i]));
            if (code) return code;
        }
        return PJ_EXIT_OK;
    }
    while (kernels_next_word(&list, word, sizeof word)) {
        const pj_kernels *k = pj_kernels_find(word);
        if (!k) return pj_command_usage(command, "unknown kernel set %s", word);
        int code = run_set(b, command, k);
        if (code) return code;
    }
    return PJ_EXIT_OK;
}

static void kernels_print_table(const bench *b)
{
    printf("%u threads, memory read %.1f GB/s; medians\n\n", pj_team_threads(b->team),
           b->read_bytes_s * 1e-9);
    printf("%-6s %-9s %-10s %6s %11s %8s %7s  %s\n", "set", "kernel", "shape", "tokens", "µs",
           "GFLOP/s", "GB/s", "share");
    for (int i = 0; i < b->count; i++) {
        const row *r = &b->rows[i];
        printf("%-6s %-9s %-10s %6u %10.2f", r->set, r->kernel, r->shape, r->tokens, r->ns * 1e-3);
        if (isnan(r->operations))
            printf(" %8s", "");
        else
            printf(" %8.1f", r->operations / r->ns);
        if (isnan(r->bytes))
            printf(" %7s", "");
        else
            printf(" %7.1f", r->bytes / r->ns);
        if (!isnan(r->share)) printf("  %3.0f %% of %s", r->share * 100, r->limit);
        printf("\n");
    }
}

static void kernels_print_json(const bench *b)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 16 << 20);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_uint(&json, "threads", pj_team_threads(b->team));
    pj_json_kv_double(&json, "read_gb_per_second", b->read_bytes_s * 1e-9);
    pj_json_key(&json, "rows");
    pj_json_array_begin(&json);
    for (int i = 0; i < b->count; i++) {
        const row *r = &b->rows[i];
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "set", r->set);
        pj_json_kv_string(&json, "kernel", r->kernel);
        pj_json_kv_string(&json, "shape", r->shape);
        pj_json_kv_uint(&json, "tokens", r->tokens);
        pj_json_kv_double(&json, "median_us", r->ns * 1e-3);
        pj_json_kv_double(&json, "best_us", r->best_ns * 1e-3);
        pj_json_kv_double(&json, "gflop_per_second", r->operations / r->ns);
        pj_json_kv_double(&json, "gb_per_second", r->bytes / r->ns);
        pj_json_kv_double(&json, "share", r->share);
        pj_json_kv_string(&json, "limit", r->limit);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    printf("%s\n", pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

static pj_status bench_open(bench *b, const settings *s, pj_error *err)
{
    *b = (bench){.s = s,
                 .weight_bytes = (size_t)s->megabytes << 20,
                 .x_floats = (size_t)512 * 8192,
                 .y_floats = (size_t)512 * 8192};
    pj_status status = pj_team_new((unsigned)s->threads, true, &b->team, err);
    if (status) return status;
    b->weights = pj_pages_alloc(b->weight_bytes);
    b->x = pj_alloc_aligned(64, b->x_floats, sizeof *b->x);
    b->y = pj_alloc_aligned(64, b->y_floats, sizeof *b->y);
    b->packed = pj_alloc_aligned(64, 1, pj_linear_pack_bytes(512, 8192));
    b->rows = pj_alloc(MAX_ROWS, sizeof *b->rows);
    if (!b->weights || !b->x || !b->y || !b->packed || !b->rows)
        return pj_fail_memory(err, "the benchmark's matrices (reduce --size)");
    kernels_fill(b);
    for (unsigned streams = 1; streams <= 8; streams *= 2)
        for (int i = 0; i < PJ_AHEAD_DISTANCES; i++)
            b->read_bytes_s =
                fmax(b->read_bytes_s, pj_limits_read(b->team, b->weights, b->weight_bytes, streams,
                                                     pj_ahead_distances[i]));
    pj_ahead_begin(pj_team_ahead(b->team), b->weight_bytes);
    return PJ_OK;
}

static void bench_close(bench *b)
{
    pj_pages_free(b->weights, b->weight_bytes);
    pj_free(b->x);
    pj_free(b->y);
    pj_free(b->packed);
    pj_free(b->rows);
    pj_team_free(b->team);
}

/* Stores the limits of all threads, for the rooflines of later runs. Best effort: the figures were
 * printed anyway. */
static void keep_limits(bench *b)
{
    char cpu[PJ_CPU_NAME_BYTES];
    pj_power_env env;
    if (b->s->threads > 0) return;
    pj_power_env_get(&env);
    pj_machine_cpu(env.procfs_root, cpu);
    b->limits.threads = pj_team_threads(b->team);
    b->limits.read_bytes_s = b->read_bytes_s;
    pj_error err;
    if (pj_machine_limits_save(cpu, &b->limits, &err) != PJ_OK)
        pj_say("perjoule bench kernels: %s", err.text);
}

static int run_bench_kernels(const pj_command *command, int argc, char **argv)
{
    settings s = {.types = "f32,f16,bf16,q8_0,q4_0",
                  .tokens = "1,4,16,512",
                  .milliseconds = 60,
                  .megabytes = 512};
    int positional;
    bool outline = false;
    pj_bench_device on = {.model = "synthetic:llama-3.2-1b", .context = 512, .batch = 1};
    const pj_option options[] = {
        {"sets", 0, PJ_OPTION_TEXT, &s.sets, "LIST", "kernel sets, or all; default: the best",
         .excludes = "device outline"},
        {"dtypes", 0, PJ_OPTION_TEXT, &s.types, "LIST", "weight types, e.g. bf16,q8_0,q4_k",
         .rule = kernels_rule_types, .excludes = "device outline"},
        {"tokens", 0, PJ_OPTION_TEXT, &s.tokens, "LIST", "tokens per call (1,4,16,512)",
         .rule = pj_rule_counts, .excludes = "device outline"},
        {"threads", 't', PJ_OPTION_INT, &s.threads, "N", "threads; 0: one per core", 0, 256,
         .excludes = "device outline"},
        {"time", 0, PJ_OPTION_INT, &s.milliseconds, "MS", "milliseconds per line (60)", 1, 60000,
         .excludes = "device outline"},
        {"size", 0, PJ_OPTION_INT, &s.megabytes, "MB", "megabytes of weights to use (512)", 64,
         1 << 16, .excludes = "device outline"},
        {"device", 0, PJ_OPTION_TEXT, &on.device, "DEVICE",
         "the kernels of a GPU instead, as a decode step dispatches them"},
        {"outline", 0, PJ_OPTION_FLAG, &outline, NULL,
         "the same, computed and not run; with layers=1 the model's full number of layers"},
        {"packed", 0, PJ_OPTION_FLAG, &on.packs, NULL,
         "with --outline: 8-bit activations for quantised weights", .needs = "outline"},
        {"model", 'm', PJ_OPTION_TEXT, &on.model, "MODEL",
         "with --device or --outline: the model (synthetic:llama-3.2-1b)",
         .needs = "device outline"},
        {"dtype", 0, PJ_OPTION_TEXT, &on.dtype, "TYPE", "likewise: convert its weights",
         .needs = "device outline"},
        {"context", 0, PJ_OPTION_INT, &on.context, "N", "likewise: tokens before (512)", 0, 1 << 20,
         .needs = "device outline"},
        {"batch", 'b', PJ_OPTION_INT, &on.batch, "N", "likewise: sequences (1)", 1, 64,
         .needs = "device outline"},
        {"json", 0, PJ_OPTION_FLAG, &s.json, NULL, "print one JSON object"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_error err = {0};
    if (outline) on.device = NULL;
    on.json = s.json;
    if (outline || on.device)
        return pj_bench_device_kernels(&on, &err) == PJ_OK ? PJ_EXIT_OK
                                                           : pj_command_failed(command, &err);
    bench b;
    if (bench_open(&b, &s, &err)) {
        bench_close(&b);
        return pj_command_failed(command, &err);
    }
    code = run_sets(&b, command);
    if (code == PJ_EXIT_OK) {
        if (s.json)
            kernels_print_json(&b);
        else
            kernels_print_table(&b);
        keep_limits(&b);
    }
    bench_close(&b);
    return code;
}

const pj_command pj_bench_kernels = {
    .name = "bench kernels",
    .summary = "matrix products and other kernels by set, type and shape",
    .run = run_bench_kernels,
    .usage = "[options]",
    .text =
        "Times each kernel alone: products of one, a few and many tokens with the matrices of a "
        "1B model, walking through more weights than the caches hold, and the operations on "
        "rows. The share is that of the limit that binds: multiply-adds from registers by the "
        "same instruction, or the memory read bandwidth, both measured at the start. Those limits "
        "of all threads are kept for this machine: later runs carry them, as the roof of their "
        "roofline. With --device, every kernel that one decode step dispatches on a GPU, with "
        "the bytes it reads, its FLOPs, its time there, and the times that follow from the "
        "bandwidth and the peak of an H100 and a base M4.",
    .examples = "perjoule bench kernels --dtypes q8_0,q4_0 --tokens 1,512\n"
                "perjoule bench kernels --sets all --json\n"
                "perjoule bench kernels --outline -m synthetic:llama-3.1-8b,q8_0,layers=1\n",
};

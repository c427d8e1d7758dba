/* perjoule bench engine: speed of prefill and decode by weight type and threads. */
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "llm/engine.h"
#include "profile/find_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 64 };

typedef struct settings {
    const char *model, *dtypes, *threads, *kv;
    int64_t prompt, decode, batch, repeat, chunk;
    bool json;
} settings;

/* One line of the table: the fastest of the repeats. */
typedef struct row {
    char dtype[16], isa[32];
    uint32_t threads;
    double load_ms, prefill, decode; /* tokens per second */
    double decode_gb_s;              /* bytes of weights and cache read, per second */
    double read_gb_s; /* what the threads read of the same weights at best, in turn */
    double prefill_gflop_s;
    double cpu_s;  /* least processor time of a repeat, all threads, prompt and decode */
    uint64_t hash; /* of the logits */
} row;

/* Of a token of the prompt: all products, attention's too. The head is for the last token alone. */
static double prefill_flops(const settings *s, const pj_engine_facts *facts)
{
    const pj_model_config *c = facts->config;
    double head = 2.0 * c->vocab * c->hidden, tokens = (double)s->prompt;
    double window = c->window ? c->window : tokens;
    double seen = tokens <= window ? (tokens + 1) / 2 : window - window * (window - 1) / 2 / tokens;
    double attention = 4.0 * c->heads * c->head_dim * c->layers * seen;
    return (double)facts->flops_per_token - head + head / tokens + attention;
}

static pj_status measure_once(pj_engine *engine, const settings *s, const int32_t *ids, row *r,
                              pj_error *err)
{
    const pj_engine_facts *facts = pj_engine_get_facts(engine);
    pj_prompt prompt = {.ids = ids, .id_count = (uint32_t)s->prompt};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .sequences = (uint32_t)s->batch,
                                   .max_tokens = (uint32_t)s->decode + 1,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY};
    pj_generate_result result = {0};
    int64_t cpu_begin = pj_clock_process_cpu_ns();
    pj_status status = pj_engine_generate(engine, &request, &result, err);
    if (!status) {
        double cpu_s = (double)(pj_clock_process_cpu_ns() - cpu_begin) / PJ_NS_PER_S;
        if (!(r->cpu_s <= cpu_s)) r->cpu_s = cpu_s;
        double prefill_s = (double)result.prefill_ns / PJ_NS_PER_S;
        double decode_s = (double)result.decode_ns / PJ_NS_PER_S;
        double steps = result.decode_steps, batch = (double)s->batch;
        double context = (double)s->prompt + steps / 2; /* mean over the steps */
        double bytes = (double)facts->decode_weight_bytes +
                       batch * context * (double)facts->kv_bytes_per_token;
        double prefill = (double)result.input_tokens / prefill_s;
        double decode = steps > 0 ? batch * steps / decode_s : NAN;
        if (!(r->prefill >= prefill)) r->prefill = prefill;
        if (steps > 0 && !(r->decode >= decode)) {
            r->decode = decode;
            r->decode_gb_s = bytes * steps / decode_s * 1e-9;
        }
        r->prefill_gflop_s = r->prefill * prefill_flops(s, facts) * 1e-9;
        r->hash = result.logits_hash;
    }
    pj_generate_result_fini(&result);
    return status;
}

static pj_status measure(const settings *s, const char *dtype, uint32_t threads, row *r,
                         pj_error *err)
{
    pj_kv_type kv = !s->kv ? PJ_KV_AUTO : strcmp(s->kv, "f32") == 0 ? PJ_KV_F32 : PJ_KV_F16;
    char path[4096];
    pj_engine_options options = {.model = path,
                                 .dtype = strcmp(dtype, "stored") == 0 ? NULL : dtype,
                                 .threads = threads,
                                 .chunk = (uint32_t)s->chunk,
                                 .kv = kv,
                                 .no_tokenizer = true};
    pj_engine *engine;
    int32_t *ids = pj_alloc((size_t)s->prompt, sizeof *ids);
    if (!ids) return pj_fail_memory(err, "the prompt");
    pj_status status = pj_model_find(s->model, NULL, path, sizeof path, err);
    int64_t begin = pj_clock_ns();
    if (!status) status = pj_engine_open(&options, &engine, err);
    if (status) goto done;
    const pj_engine_facts *facts = pj_engine_get_facts(engine);
    *r = (row){.threads = facts->threads,
               .load_ms = (double)(pj_clock_ns() - begin) / PJ_NS_PER_MS,
               .prefill = NAN,
               .decode = NAN,
               .decode_gb_s = NAN,
               .read_gb_s = NAN,
               .cpu_s = NAN};
    snprintf(r->dtype, sizeof r->dtype, "%s", facts->dtype);
    snprintf(r->isa, sizeof r->isa, "%s", facts->isa);
    for (int64_t i = 0; i < s->prompt; i++)
        ids[i] = (int32_t)((uint64_t)i * 2654435761u % facts->config->vocab);
    for (int64_t i = 0; i < s->repeat && !status; i++) {
        status = measure_once(engine, s, ids, r, err);
        if (!status)
            r->read_gb_s = fmax(r->read_gb_s, pj_engine_read_speed(engine, UINT64_MAX) * 1e-9);
    }
    pj_engine_close(engine);
done:
    pj_free(ids);
    return status;
}

static void print_table(const settings *s, const row *rows, int count)
{
    printf("%s: prompt %lld, decode %lld, batch %lld, best of %lld\n\n", s->model,
           (long long)s->prompt, (long long)s->decode, (long long)s->batch, (long long)s->repeat);
    printf("%-6s %-8s %7s %9s %14s %12s %13s %7s %8s %8s  %s\n", "dtype", "kernels", "threads",
           "load ms", "prefill tok/s", "GFLOP/s", "decode tok/s", "GB/s", "of read", "cpu s",
           "logits");
    for (int i = 0; i < count; i++) {
        const row *r = &rows[i];
        printf("%-6s %-8s %7u %9.1f %14.1f %12.1f %13.2f %7.2f %7.0f%% %8.3f  %016llx\n", r->dtype,
               r->isa, r->threads, r->load_ms, r->prefill, r->prefill_gflop_s, r->decode,
               r->decode_gb_s, 100 * r->decode_gb_s / r->read_gb_s, r->cpu_s,
               (unsigned long long)r->hash);
    }
}

static void print_json(const settings *s, const row *rows, int count)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "model", s->model);
    pj_json_kv_int(&json, "prompt_tokens", s->prompt);
    pj_json_kv_int(&json, "decode_tokens", s->decode);
    pj_json_kv_int(&json, "batch", s->batch);
    pj_json_kv_int(&json, "repeat", s->repeat);
    pj_json_key(&json, "rows");
    pj_json_array_begin(&json);
    for (int i = 0; i < count; i++) {
        const row *r = &rows[i];
        char hash[32];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "dtype", r->dtype);
        pj_json_kv_string(&json, "isa", r->isa);
        pj_json_kv_uint(&json, "threads", r->threads);
        pj_json_kv_double(&json, "load_ms", r->load_ms);
        pj_json_kv_double(&json, "prefill_tokens_per_second", r->prefill);
        pj_json_kv_double(&json, "prefill_gflop_per_second", r->prefill_gflop_s);
        pj_json_kv_double(&json, "cpu_seconds", r->cpu_s);
        pj_json_kv_double(&json, "decode_tokens_per_second", r->decode);
        pj_json_kv_double(&json, "decode_gb_per_second", r->decode_gb_s);
        pj_json_kv_double(&json, "read_gb_per_second", r->read_gb_s);
        pj_json_kv_double(&json, "share_of_read_bandwidth", r->decode_gb_s / r->read_gb_s);
        pj_json_kv_string(&json, "logits_hash", hash);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    printf("%s\n", pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

/* The next word of a list with commas; false at its end. */
static bool next_word(const char **list, char *word, size_t bytes)
{
    *list += strspn(*list, ", ");
    size_t length = strcspn(*list, ", ");
    if (length == 0) return false;
    snprintf(word, bytes, "%.*s", (int)length, *list);
    *list += length;
    return true;
}

static int run_bench_engine(const pj_command *command, int argc, char **argv)
{
    settings s = {.model = "synthetic:llama-3.2-1b",
                  .dtypes = "stored",
                  .threads = "0",
                  .prompt = 512,
                  .decode = 128,
                  .batch = 1,
                  .repeat = 2};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &s.model, "MODEL",
         "model folder, GGUF file, or synthetic:SHAPE"},
        {"dtypes", 0, PJ_OPTION_TEXT, &s.dtypes, "LIST", "weight types, e.g. bf16,q8_0,q4_0"},
        {"threads", 't', PJ_OPTION_TEXT, &s.threads, "LIST", "thread counts, e.g. 1,2; 0: all"},
        {"kv", 0, PJ_OPTION_TEXT, &s.kv, "TYPE", "keys and values in f32 or f16"},
        {"prompt", 'p', PJ_OPTION_INT, &s.prompt, "N", "prompt tokens (512)", 1, 1 << 20},
        {"decode", 'n', PJ_OPTION_INT, &s.decode, "N", "decoded tokens (128); 0: the prompt alone",
         0, 1 << 20},
        {"batch", 'b', PJ_OPTION_INT, &s.batch, "N", "sequences at once (1)", 1, 1024},
        {"repeat", 0, PJ_OPTION_INT, &s.repeat, "N", "the best of N counts (2)", 1, 1000},
        {"chunk", 0, PJ_OPTION_INT, &s.chunk, "N", "prompt tokens in one pass (512)", 1, 8192},
        {"json", 0, PJ_OPTION_FLAG, &s.json, NULL, "print one JSON object"},
        {0}};
    int positional, count = 0;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    static row rows[MAX_ROWS];
    pj_error err = {0};
    char dtype[32], threads[32];
    pj_status status = PJ_OK;
    for (const char *d = s.dtypes; !status && next_word(&d, dtype, sizeof dtype);)
        for (const char *t = s.threads; !status && next_word(&t, threads, sizeof threads);)
            if (count == MAX_ROWS)
                status = pj_fail(&err, PJ_E_INVALID, "there are more than %d rows", MAX_ROWS);
            else
                status =
                    measure(&s, dtype, (uint32_t)strtoul(threads, NULL, 10), &rows[count++], &err);
    if (status) return pj_command_failed(command, &err);
    if (s.json)
        print_json(&s, rows, count);
    else
        print_table(&s, rows, count);
    return PJ_EXIT_OK;
}

const pj_command pj_bench_engine = {
    .name = "bench engine",
    .summary = "prefill and decode by weight type and threads",
    .run = run_bench_engine,
    .usage = "[-m MODEL] [options]",
    .text =
        "Runs a prompt and a decode with recording off, for each weight type and number of "
        "threads, and prints tokens per second, the arithmetic rate of the prefill's products and "
        "the "
        "bytes that decode reads per second (weights and cache) with their share of what the same "
        "threads read of the same weights when they do nothing else, measured in turn, the least "
        "processor time of a repeat (all threads, prompt and decode), and a hash of the logits.",
    .examples = "perjoule bench engine -m synthetic:llama-3.2-1b --dtypes bf16,q8_0,q4_0 -t 1,2\n"
                "perjoule bench engine -m synthetic:llama-3.1-8b,layers=4 --json\n",
};

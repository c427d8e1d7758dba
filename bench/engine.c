/* perjoule bench engine: speed of prefill and decode by weight type and threads, each compared with
 * what the machine can do at that moment: the peak of the instruction right before and after a
 * prompt, a read of the weights between any two tokens. Shared machines change speed within a
 * second; a ratio of measurements taken seconds apart would be about the machine rather than the
 * engine. */
#include "engine/generation/engine.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "bench/ratio.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "generate/find_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_PROMPT = 512, MAX_ROWS = 64, PEAK_NS = 40 * PJ_NS_PER_MS };

typedef struct settings {
    const char *model, *dtypes, *threads, *kv, *device;
    bool no_mmap;
    int64_t prompt, decode, batch, repeat, chunk;
    bool json;
} settings;

/* One line of the table. Speeds are those of the fastest repeat, ratios medians over all. */
typedef struct row {
    char dtype[16], isa[32];
    uint32_t threads;
    double load_ms, prefill, decode; /* tokens per second */
    double prefill_gflop_s, peak_gflop_s;
    double decode_gb_s; /* bytes of weights and cache read, per second */
    double read_gb_s;   /* read bandwidth of the same threads on the same weights, median */
    pj_bench_ratio of_peak, of_read;
    double cpu_s;  /* minimum CPU time of a repeat, all threads, prompt and decode */
    uint64_t hash; /* of the logits; 0: they stayed on the device */
} row;

/* Measured work and its reference, in pairs, in units per second. */
typedef struct turns {
    double work[PJ_BENCH_ROUNDS_MAX], limit[PJ_BENCH_ROUNDS_MAX];
    int64_t count;
} turns;

typedef struct measuring {
    const settings *s;
    pj_engine *engine;
    row *row;
    turns prefill, decode;
    unsigned streams; /* number of streams with the highest read bandwidth */
    /* of the current repeat */
    int64_t left_ns;   /* end of the last token's callback */
    int64_t step_ns;   /* all steps so far */
    int64_t aside_cpu; /* CPU time of other than the engine's work */
    double read_speed; /* before the current step; NAN: not measured */
    double peak;       /* after the prompt */
} measuring;

static void add_turn(turns *t, double work, double limit)
{
    if (t->count == PJ_BENCH_ROUNDS_MAX || !isfinite(work / limit)) return;
    t->work[t->count] = work;
    t->limit[t->count++] = limit;
}

static pj_bench_ratio share(const turns *t)
{
    return t->count ? pj_bench_compare(t->work, t->limit, t->count)
                    : (pj_bench_ratio){NAN, NAN, NAN};
}

/* FLOPs per prompt token: all products, including attention's. The head is for the last token
 * only. */
static double prefill_flops(const settings *s, const pj_engine_facts *facts)
{
    const pj_model_config *c = facts->config;
    double head = 2.0 * c->vocab * c->hidden, tokens = (double)s->prompt;
    double window = c->window ? c->window : tokens;
    double seen = tokens <= window ? (tokens + 1) / 2 : window - window * (window - 1) / 2 / tokens;
    double attention = 4.0 * c->heads * c->head_dim * c->layers * seen;
    return (double)facts->flops_per_token - head + head / tokens + attention;
}

static double step_bytes(const measuring *m, double context)
{
    const pj_engine_facts *facts = pj_engine_get_facts(m->engine);
    return (double)facts->decode_weight_bytes +
           (double)m->s->batch * context * (double)facts->kv_bytes_per_token;
}

/* Combines two speeds of equal amounts of work (harmonic mean). */
static double engine_between(double a, double b)
{
    return 2 / (1 / a + 1 / b);
}

/* The first sequence's token ends a step, which lasted since the previous one. */
static void token_done(void *context, const pj_generated *token)
{
    measuring *m = context;
    if (token->sequence != 0) return;
    int64_t step = pj_clock_ns() - m->left_ns;
    int64_t cpu = pj_clock_process_cpu_ns();
    double before = m->read_speed;
    if (token->position == 0) m->peak = pj_engine_peak(m->engine, PEAK_NS);
    m->read_speed = m->decode.count == PJ_BENCH_ROUNDS_MAX
                        ? NAN
                        : pj_engine_read_pass(m->engine, m->streams, UINT64_MAX);
    if (token->position > 0) {
        m->step_ns += step;
        double bytes = step_bytes(m, (double)m->s->prompt + token->position);
        add_turn(&m->decode, bytes * PJ_NS_PER_S / (double)step,
                 engine_between(before, m->read_speed));
    }
    m->aside_cpu += pj_clock_process_cpu_ns() - cpu;
    m->left_ns = pj_clock_ns();
}

static void note_speeds(measuring *m, const pj_generate_result *result, double cpu_s)
{
    row *r = m->row;
    if (!(r->cpu_s <= cpu_s)) r->cpu_s = cpu_s;
    double prefill_s = (double)result->prefill_ns / PJ_NS_PER_S;
    r->prefill = fmax(r->prefill, (double)result->input_tokens / prefill_s);
    r->hash = result->logits_hash;
    double steps = result->decode_steps, step_s = (double)m->step_ns / PJ_NS_PER_S;
    double decode = (double)m->s->batch * steps / step_s;
    if (steps == 0 || r->decode >= decode) return;
    r->decode = decode;
    r->decode_gb_s = step_bytes(m, (double)m->s->prompt + steps / 2) * steps / step_s * 1e-9;
}

static pj_status measure_once(measuring *m, const int32_t *ids, pj_error *err)
{
    const settings *s = m->s;
    pj_prompt prompt = {.ids = ids, .id_count = (uint32_t)s->prompt};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .sequences = (uint32_t)s->batch,
                                   .max_tokens = (uint32_t)s->decode + 1,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .on_token = token_done,
                                   .context = m};
    pj_generate_result result = {0};
    m->step_ns = m->aside_cpu = 0;
    double peak = pj_engine_peak(m->engine, PEAK_NS);
    int64_t cpu_begin = pj_clock_process_cpu_ns();
    pj_status status = pj_engine_generate(m->engine, &request, &result, err);
    if (!status) {
        int64_t cpu = pj_clock_process_cpu_ns() - cpu_begin - m->aside_cpu;
        note_speeds(m, &result, (double)cpu / PJ_NS_PER_S);
        double flops = prefill_flops(s, pj_engine_get_facts(m->engine));
        double tokens_s = (double)result.input_tokens * PJ_NS_PER_S / (double)result.prefill_ns;
        add_turn(&m->prefill, tokens_s * flops, engine_between(peak, m->peak));
    }
    pj_generate_result_fini(&result);
    return status;
}

/* The number of streams with which one thread reads fastest: 1 on most CPUs, 4 or 8 where a core
 * prefetches few streams by itself. */
static unsigned find_streams(pj_engine *engine)
{
    double best = 0, speed;
    unsigned streams = 1;
    for (int i = 0; i < 3; i++)
        for (unsigned n = 1; n <= PJ_ENGINE_READ_STREAMS; n *= 2)
            if ((speed = pj_engine_read_pass(engine, n, UINT64_MAX)) > best)
                best = speed, streams = n;
    return streams;
}

static void begin_row(row *r, const pj_engine_facts *facts, const char *dtype, int64_t load_ns)
{
    *r = (row){.threads = facts->threads,
               .load_ms = (double)load_ns / PJ_NS_PER_MS,
               .prefill = NAN,
               .decode = NAN,
               .decode_gb_s = NAN,
               .cpu_s = NAN};
    snprintf(r->dtype, sizeof r->dtype, "%s", dtype);
    snprintf(r->isa, sizeof r->isa, "%s", facts->isa);
}

static void end_row(measuring *m)
{
    row *r = m->row;
    r->prefill_gflop_s = r->prefill * prefill_flops(m->s, pj_engine_get_facts(m->engine)) * 1e-9;
    r->of_peak = share(&m->prefill);
    r->of_read = share(&m->decode);
    r->peak_gflop_s = r->read_gb_s = NAN;
    if (m->prefill.count)
        r->peak_gflop_s = pj_bench_median(m->prefill.limit, m->prefill.count) * 1e-9;
    if (m->decode.count) r->read_gb_s = pj_bench_median(m->decode.limit, m->decode.count) * 1e-9;
}

/* The usual prompt, or what the model's context leaves for it. */
static int64_t fitting_prompt(const settings *s, uint32_t context)
{
    int64_t left = (int64_t)context - s->decode - 1;
    return context == 0 || left >= USUAL_PROMPT ? USUAL_PROMPT : left > 0 ? left : 1;
}

static pj_status engine_measure(settings *s, const char *dtype, uint32_t threads, row *r,
                                pj_error *err)
{
    pj_kv_type kv = !s->kv ? PJ_KV_AUTO : strcmp(s->kv, "f32") == 0 ? PJ_KV_F32 : PJ_KV_F16;
    char path[4096];
    pj_engine_options options = {.model = path,
                                 .dtype = strcmp(dtype, "stored") == 0 ? NULL : dtype,
                                 .threads = threads,
                                 .chunk = (uint32_t)s->chunk,
                                 .kv = kv,
                                 .no_mmap = s->no_mmap,
                                 .device = s->device,
                                 .no_tokenizer = true};
    static measuring m;
    m = (measuring){.s = s, .row = r};
    int32_t *ids = NULL;
    pj_status status = pj_model_find(s->model, NULL, path, sizeof path, err);
    int64_t begin = pj_clock_ns();
    if (!status) status = pj_engine_open(&options, &m.engine, err);
    if (status) goto done;
    const pj_engine_facts *facts = pj_engine_get_facts(m.engine);
    if (!s->prompt) s->prompt = fitting_prompt(s, facts->config->context);
    ids = pj_alloc((size_t)s->prompt, sizeof *ids);
    if (!ids) {
        status = pj_fail_memory(err, "the prompt");
        goto close;
    }
    begin_row(r, facts, facts->dtype, pj_clock_ns() - begin);
    for (int64_t i = 0; i < s->prompt; i++)
        ids[i] = (int32_t)((uint64_t)i * 2654435761u % facts->config->vocab);
    m.streams = find_streams(m.engine);
    for (int64_t i = 0; i < s->repeat && !status; i++) status = measure_once(&m, ids, err);
    end_row(&m);
close:
    pj_engine_close(m.engine);
done:
    pj_free(ids);
    return status;
}

/* "91 (88 to 94)", in per cent. */
static void print_share(pj_bench_ratio share)
{
    char text[64] = "-";
    if (isfinite(share.median))
        snprintf(text, sizeof text, "%.0f (%.0f to %.0f)", 100 * share.median, 100 * share.low,
                 100 * share.high);
    printf(" %17s", text);
}

static void print_value(const char *format, double value)
{
    char text[32] = "-";
    if (isfinite(value)) snprintf(text, sizeof text, format, value);
    printf(" %9s", text);
}

/* Prompt and decode of a row are lines of their own, so that a terminal has room for them. */
static void engine_print_table(const settings *s, const row *rows, int count)
{
    printf("%s\nprompt %lld, decode %lld, batch %lld, best of %lld; shares: median (95 %%)\n\n",
           s->model, (long long)s->prompt, (long long)s->decode, (long long)s->batch,
           (long long)s->repeat);
    printf("%-6s %-8s %7s %-7s %9s %9s %-7s %17s\n", "dtype", "kernels", "threads", "test",
           "tokens/s", "rate", "", "% of the limit");
    for (int i = 0; i < count; i++) {
        const row *r = &rows[i];
        printf("%-6s %-8s %7u %-7s", r->dtype, r->isa, r->threads, "prefill");
        print_value("%.1f", r->prefill);
        print_value("%.1f", r->prefill_gflop_s);
        printf(" %-7s", "GFLOP/s");
        print_share(r->of_peak);
        printf("\n%-6s %-8s %7s %-7s", "", "", "", "decode");
        print_value("%.2f", r->decode);
        print_value("%.2f", isfinite(r->decode) ? r->decode_gb_s : NAN);
        printf(" %-7s", "GB/s");
        print_share(r->of_read);
        printf("\n%-23s load %.1f ms, CPU %.3f s", "", r->load_ms, r->cpu_s);
        if (r->hash) printf(", logits %016llx", (unsigned long long)r->hash);
        printf("\n");
    }
}

static void engine_print_json(const settings *s, const row *rows, int count)
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
    pj_json_kv_string(&json, "device", s->device);
    pj_json_kv_string(&json, "kv", s->kv);
    pj_json_kv_bool(&json, "no_mmap", s->no_mmap);
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
        pj_json_kv_double(&json, "peak_gflop_per_second", r->peak_gflop_s);
        pj_bench_write_ratio(&json, "share_of_peak", r->of_peak);
        pj_json_kv_double(&json, "cpu_seconds", r->cpu_s);
        pj_json_kv_double(&json, "decode_tokens_per_second", r->decode);
        pj_json_kv_double(&json, "decode_gb_per_second", r->decode_gb_s);
        pj_json_kv_double(&json, "read_gb_per_second", r->read_gb_s);
        pj_bench_write_ratio(&json, "share_of_read_bandwidth", r->of_read);
        pj_json_kv_string(&json, "logits_hash", r->hash ? hash : NULL);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    printf("%s\n", pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

/* The next item of a comma-separated list; false at its end. */
static bool engine_next_word(const char **list, char *word, size_t bytes)
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
                  .decode = 128,
                  .batch = 1,
                  .repeat = 2};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &s.model, "MODEL",
         "model folder, GGUF file, or synthetic:SHAPE"},
        {"dtypes", 0, PJ_OPTION_CHOICES, &s.dtypes, "LIST",
         "weight types: stored (default), q8_0, q4_0, bf16, f16, f32",
         .choices = "stored " PJ_REQUEST_DTYPES},
        {"threads", 't', PJ_OPTION_TEXT, &s.threads, "LIST",
         "thread counts, e.g. 1,2; 0: one per core", .rule = pj_rule_counts},
        PJ_OPTION_KV(&s.kv),
        {"no-mmap", 0, PJ_OPTION_FLAG, &s.no_mmap, NULL,
         "copy the weights into memory on huge pages instead of mapping their files"},
        PJ_OPTION_DEVICE(&s.device),
        {"prompt", 'p', PJ_OPTION_INT, &s.prompt, "N",
         "prompt tokens (512, or what the model's context leaves)", 1, 1 << 20},
        {"decode", 0, PJ_OPTION_INT, &s.decode, "N", "decoded tokens (128); 0: prompt only", 0,
         1 << 20, .old_letter = 'n'},
        {"batch", 'b', PJ_OPTION_INT, &s.batch, "N", "batch size (1)", 1, 1024},
        {"repeat", 0, PJ_OPTION_INT, &s.repeat, "N", "take the best of N repeats (2)", 1, 1000},
        {"chunk", 0, PJ_OPTION_INT, &s.chunk, "N", "prompt tokens per pass (512)", 1, 8192},
        {"json", 0, PJ_OPTION_FLAG, &s.json, NULL, "print one JSON object"},
        {0}};
    int positional, count = 0;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    static row rows[MAX_ROWS];
    pj_error err = {0};
    char dtype[32], threads[32];
    pj_status status = PJ_OK;
    for (const char *d = s.dtypes; !status && engine_next_word(&d, dtype, sizeof dtype);)
        for (const char *t = s.threads; !status && engine_next_word(&t, threads, sizeof threads);)
            if (count == MAX_ROWS)
                status = pj_fail(&err, PJ_E_INVALID, "there are more than %d rows", MAX_ROWS);
            else
                status = engine_measure(&s, dtype, (uint32_t)strtoul(threads, NULL, 10),
                                        &rows[count++], &err);
    if (status) return pj_command_failed(command, &err);
    if (s.json)
        engine_print_json(&s, rows, count);
    else
        engine_print_table(&s, rows, count);
    return PJ_EXIT_OK;
}

const pj_command pj_bench_engine = {
    .name = "bench engine",
    .summary = "prefill and decode by weight type and threads",
    .run = run_bench_engine,
    .usage = "[-m MODEL] [options]",
    .text =
        "Runs a prompt and a decode with recording off, for each weight type and number of "
        "threads. "
        "Prints tokens per second; the arithmetic rate of the prefill's products, and its share of "
        "what the same threads multiply from registers with the instruction that those products "
        "use, taken right before and after each prompt; the bytes that decode reads per second "
        "(weights and cache), and their share of the speed at which the same threads read the same "
        "weights when they do nothing else, taken before and after each token; the least processor "
        "time of a repeat (all threads, prompt and decode); and a hash of the logits, where they come to the host. Shares are "
        "medians with a 95 % interval.",
    .examples = "perjoule bench engine -m synthetic:llama-3.2-1b --dtypes bf16,q8_0,q4_0 -t 1,2\n"
                "perjoule bench engine -m synthetic:llama-3.1-8b,layers=4 --json\n",
};

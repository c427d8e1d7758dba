/* perjoule eval: how well a model predicts a text, or its logits. */
#include "cli/inputs.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "experiment/loss.h"
#include "generate/find_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 256 << 20 };

typedef struct eval {
    const char *model, *file, *ids, *logits, *dtype, *kv, *device;
    int64_t threads, chunk;
    bool json, one_by_one;
} eval;

typedef struct tally {
    const int32_t *ids;
    uint32_t count;
    uint32_t begin;  /* first position of the current window */
    uint32_t done;   /* positions evaluated in earlier windows */
    uint32_t window; /* window length; 0: one window suffices */
    FILE *out;       /* logits, or NULL */
    double loss;     /* sum of -ln p over predicted tokens */
    bool written;    /* false: a write failed */
} tally;

static bool eval_take_row(void *context, uint32_t position, const float *logits, uint32_t vocab)
{
    tally *t = context;
    position += t->begin;
    if (position < t->done) return true;
    if (t->out && fwrite(logits, sizeof *logits, vocab, t->out) != vocab) {
        t->written = false;
        return false;
    }
    if (position + 1 < t->count) t->loss += pj_cross_entropy(logits, vocab, t->ids[position + 1]);
    return true;
}

static pj_status eval_print_result(const eval *e, const pj_engine_facts *facts, const tally *t,
                                   pj_error *err)
{
    double predicted = t->count - 1, loss = predicted > 0 ? t->loss / predicted : NAN;
    if (!(predicted > 0) && !t->out)
        return pj_fail(err, PJ_E_INVALID, "one token has none after it to predict: give more text");
    if (predicted > 0 && !isfinite(loss))
        return pj_fail(
            err, PJ_E_INVALID,
            "the model's logits are not finite, so that there is no loss: its weights may "
            "have NaN or infinite values");
    if (!e->json) {
        pj_print(stdout, "model       %s (%s, %s)\ntokens      %u\n", facts->model_name,
                 facts->dtype, facts->isa, t->count);
        if (t->window)
            pj_print(stdout, "window      %u tokens, half of them overlapping the previous one\n",
                     t->window);
        if (predicted > 0)
            pj_print(stdout, "mean loss   %.6f nats per token\nperplexity  %.4f\n", loss,
                     exp(loss));
        return PJ_OK;
    }
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_run_report_write_engine(json, facts);
    pj_json_kv_uint(json, "tokens", t->count);
    pj_json_kv_uint(json, "predicted_tokens", t->count - 1);
    pj_json_kv_optional(json, "window", t->window > 0, t->window);
    pj_json_kv_double(json, "mean_loss", loss);
    pj_json_kv_double(json, "perplexity", exp(loss));
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

/* Token ids to evaluate: as given, or from the text. The caller frees *ids. */
static pj_status eval_read_ids(const eval *e, const pj_engine *engine, int32_t **ids,
                               uint32_t *count, pj_error *err)
{
    if (e->ids) return pj_ids_parse(e->ids, ids, count, err);
    char *text;
    size_t bytes;
    pj_status status = pj_input_read(e->file, MAX_TEXT_BYTES, &text, &bytes, err);
    if (status) return status;
    status = pj_engine_encode(engine, text, bytes, ids, count, err);
    pj_free(text);
    return status;
}

/* Sliding window for a text longer than the context: each window begins half a window before the
 * end of the previous one, and only the tokens after that end count. So every token is predicted
 * once, and all but the first ones from at least half a context. */
static pj_status slide(const eval *e, pj_engine *engine, tally *t, pj_error *err)
{
    uint32_t context = pj_engine_get_facts(engine)->context;
    if (t->count > context) t->window = context;
    for (pj_status status; t->done < t->count;) {
        uint32_t left = t->count - t->begin, n = left < context ? left : context;
        status =
            pj_engine_logits(engine, t->ids + t->begin, n, !e->one_by_one, eval_take_row, t, err);
        if (status || !t->written) return status;
        t->done = t->begin + n;
        t->begin = t->done - (context > 1 ? context / 2 : 0);
    }
    return PJ_OK;
}

static pj_status eval_evaluate(const eval *e, pj_engine *engine, pj_error *err)
{
    tally t = {.written = true};
    int32_t *ids = NULL;
    const char *declined = pj_engine_get_facts(engine)->declined;
    if (declined) pj_say("perjoule eval: the CPU computes: %s", declined);
    pj_status status = eval_read_ids(e, engine, &ids, &t.count, err);
    if (status) return status;
    t.ids = ids;
    if (e->logits && !(t.out = fopen(e->logits, "wb")))
        status = pj_fail_errno(err, errno, "cannot write %s", e->logits);
    if (!status) status = slide(e, engine, &t, err);
    if (t.out && (fclose(t.out) != 0 || !t.written) && !status)
        status = pj_fail(err, PJ_E_IO, "cannot write %s: is the disk full?", e->logits);
    if (!status) status = eval_print_result(e, pj_engine_get_facts(engine), &t, err);
    pj_free(ids);
    return status;
}

static int run_eval(const pj_command *command, int argc, char **argv)
{
    eval e = {0};
    const pj_option options[] = {
        PJ_OPTION_MODEL(&e.model),
        {"file", 'f', PJ_OPTION_TEXT, &e.file, "FILE", "text to predict; - is standard input",
         .rule = pj_rule_file_or_input},
        {"ids", 0, PJ_OPTION_TEXT, &e.ids, "1,2,3", "token ids instead of a text",
         .rule = pj_rule_ids},
        {"logits", 0, PJ_OPTION_TEXT, &e.logits, "FILE",
         "write the logits of every position, little-endian floats", .rule = pj_rule_new_file},
        PJ_OPTION_DTYPE(&e.dtype),
        PJ_OPTION_KV(&e.kv),
        PJ_OPTION_DEVICE(&e.device),
        {"threads", 't', PJ_OPTION_INT, &e.threads, "N", "threads (one per core)", 1, 256},
        {"chunk", 0, PJ_OPTION_INT, &e.chunk, "N", "tokens per pass (512)", 1, 8192,
         .excludes = "one-by-one"},
        {"one-by-one", 0, PJ_OPTION_FLAG, &e.one_by_one, NULL,
         "feed one token per pass, as in decoding"},
        {"json", 0, PJ_OPTION_FLAG, &e.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (!e.model) return pj_command_usage(command, "-m MODEL is required");
    if (!e.file == !e.ids) return pj_command_usage(command, "give either -f FILE or --ids");
    pj_error err = {0};
    pj_engine *engine = NULL;
    char path[4096];
    pj_engine_options engine_options = {.model = path,
                                        .dtype = e.dtype,
                                        .device = e.device,
                                        .threads = (uint32_t)e.threads,
                                        .chunk = (uint32_t)e.chunk,
                                        .kv = !e.kv                      ? PJ_KV_AUTO
                                              : strcmp(e.kv, "f16") == 0 ? PJ_KV_F16
                                                                         : PJ_KV_F32,
                                        .no_tokenizer = e.ids != NULL};
    pj_status status = pj_model_find(e.model, NULL, path, sizeof path, &err);
    if (!status) status = pj_engine_open(&engine_options, &engine, &err);
    if (!status) status = eval_evaluate(&e, engine, &err);
    pj_engine_close(engine);
    return status ? pj_command_failed(command, &err) : PJ_EXIT_OK;
}

const pj_command pj_command_eval = {
    .name = "eval",
    .summary = "how well a model predicts a text: loss, perplexity, logits",
    .run = run_eval,
    .usage = "-m MODEL (-f FILE | --ids LIST)",
    .text =
        "Prints the mean loss (nats per token) and the perplexity of a text: what a quantisation "
        "costs in quality, to weigh against the energy it saves. With --logits the logits of every "
        "position are written as raw little-endian 32-bit floats. A text longer than the model's "
        "context is evaluated in sliding windows of that length, each of which begins half a "
        "window before the end of the previous one.",
    .examples = "perjoule eval -m models/demo -f book.txt\n"
                "perjoule eval -m models/demo -f book.txt --dtype q4_0\n"
                "perjoule eval -m models/demo --ids 1,2,3 --logits logits.f32\n",
};

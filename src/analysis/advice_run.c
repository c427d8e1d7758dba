/* Rules about how a model is run. */
#include "analysis/advice_rules.h"

#include "base/estimate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ENERGY = PJ_ADVICE_OF_ENERGY };

/* A saving that neighbouring runs show: 1 - the ratio of joules per token. */
static const char *observed(const pj_advice_facts *f, pj_advice *a, const pj_advice_neighbour *n)
{
    pj_advice_evidence(a, "neighbour_runs", "", n->n, "runs in the store that show it");
    return pj_advice_saves(f, a, "request", f->request_mj, 1 - n->hi, 1 - n->ratio, 1 - n->lo,
                           "observed");
}

static const char *advice_run_keep_resident(const pj_advice_facts *f, pj_advice *a)
{
    double share = f->load_mj / f->total_mj, sd = hypot(f->load_sd, f->relative_sd);
    if (!(f->load_mj > 0)) return "the run did not load its model";
    if (!(share > 0.05)) return "loading the model took less than 5 % of the energy";
    if (!f->same_model_last_hour) return "the model did not run in the hour before";
    pj_advice_evidence(a, "load_share", "share", share,
                       "of the run's energy went into loading the model");
    pj_advice_evidence(a, "runs_last_hour", "", f->same_model_last_hour,
                       "runs of this model in the hour before");
    a->memory = "the weights stay in memory";
    snprintf(a->text, sizeof a->text,
             "Loading the model took %.0f %% of this run's energy, and the same model ran %u "
             "time%s in the hour before: keep it in memory.",
             100 * share, f->same_model_last_hour, f->same_model_last_hour == 1 ? "" : "s");
    pj_advice_command(f, a, "perjoule serve");
    pj_bounds saved = pj_bounds_of(share, PJ_Z95 * sd * share);
    return pj_advice_saves(f, a, "total", f->total_mj, saved.lo, share, saved.hi, "observed");
}

/* ---- batches ---- */

static bool has_room_for(const pj_advice_facts *f, double batch)
{
    double tokens = (double)(f->input_tokens + f->output_tokens) / (f->batch ? f->batch : 1);
    double cache = f->kv_bytes_per_token * tokens * batch;
    return f->memory_bytes > 0 && f->model_bytes + cache < 0.8 * f->memory_bytes;
}

static const char *batch_up(const pj_advice_facts *f, pj_advice *a)
{
    uint32_t now = f->batch ? f->batch : 1, next = 2 * now;
    double reading = f->matrix_mj / f->request_mj;
    /* Each read of the weights from memory serves twice as many sequences, and so does at best
     * whatever else a step does but for reading its sequences' caches. */
    double share = 0.5 * reading * pj_advice_uncached(f);
    double most =
        0.5 * (f->decode_mj - (f->attention_mj > 0 ? f->attention_mj : 0)) / f->request_mj;
    if (!(f->matrix_mj > 0 && f->decode_mj > 0))
        return "the bytes read by decode are unknown (depth off, or no decoding)";
    if (pj_advice_not_bytes_bound(f)) return pj_advice_not_bytes_bound(f);
    if (isnan(f->memory_bytes) || isnan(f->model_bytes) || isnan(f->kv_bytes_per_token))
        return "how much memory a larger batch needs is unknown";
    if (!has_room_for(f, next)) return "there is not enough memory for a larger batch";
    pj_advice_evidence(a, "weights_energy_share", "share", reading,
                       "of the request reads weights in decode");
    pj_advice_evidence(a, "flops_per_byte", "FLOP/B", f->decode_flops / f->decode_bytes,
                       "in decode");
    a->latency = "each sequence waits for its batch, and a step takes a little longer";
    a->memory = "one more cache per sequence";
    snprintf(a->text, sizeof a->text,
             "Decode is memory-bound: reading the weights took %.0f %% of the request. Decoding "
             "%u sequences at once reads them once for all.",
             100 * reading, next);
    pj_advice_experiment(f, a, "--batches %u,%u,%u", now, next, 2 * next);
    const pj_advice_neighbour *n = pj_advice_neighbour_of(f, 0, next, NULL);
    return n ? observed(f, a, n)
             : pj_advice_predicts(f, a, 0.4 * share, 0.7 * share, most, f->matrix_sd);
}

static const char *advice_run_batch_down(const pj_advice_facts *f, pj_advice *a)
{
    const pj_advice_neighbour *best = NULL;
    if (f->batch <= 1) return "the batch is already one sequence";
    for (uint32_t b = f->batch / 2; b >= 1; b /= 2) {
        const pj_advice_neighbour *n = pj_advice_neighbour_of(f, 0, b, NULL);
        if (n && (!best || n->ratio < best->ratio)) best = n;
    }
    if (!best) return "no runs with smaller batches to compare with";
    a->latency = "fewer sequences at once";
    snprintf(a->text, sizeof a->text,
             "A batch of %u took %.0f %% less energy per token than one of %u: this batch is "
             "beyond the knee.",
             best->batch, 100 * (1 - best->ratio), f->batch);
    pj_advice_experiment(f, a, "--batches %u,%u", best->batch, f->batch);
    return observed(f, a, best) ? "smaller batches did not take less energy per token" : NULL;
}

/* ---- weights ---- */

/* The next smaller type, and its bytes per weight relative to the present ones. */
static const struct narrower {
    const char *from, *to;
    double ratio;
    const char *quality;
} narrower[] = {
    {"f32", "bf16", 0.5, "negligible: the loss changes in the third digit"},
    {"bf16", "q8_0", 1.0625 / 2, "small: measure the loss with perjoule eval"},
    {"f16", "q8_0", 1.0625 / 2, "small: measure the loss with perjoule eval"},
    {"q8_0", "q4_0", 0.5625 / 1.0625, "noticeable: measure the loss with perjoule eval"},
};

static const struct narrower *narrower_than(const char *dtype)
{
    for (size_t i = 0; dtype && i < sizeof narrower / sizeof *narrower; i++)
        if (strcmp(narrower[i].from, dtype) == 0) return &narrower[i];
    return NULL;
}

static const char *dtype(const pj_advice_facts *f, pj_advice *a)
{
    const struct narrower *to = narrower_than(f->dtype);
    double weights = f->weight_bytes / f->decode_bytes, reading = f->matrix_mj / f->request_mj;
    if (!to) return "the weights already have the smallest type that is recommended";
    if (!(f->decode_bytes > 0 && f->matrix_mj > 0)) return "the bytes read by decode are unknown";
    if (!(weights > 0.6)) return "weights are less than 60 % of the bytes that decode reads";
    if (pj_advice_not_bytes_bound(f)) return pj_advice_not_bytes_bound(f);
    double share = (1 - to->ratio) * reading * pj_advice_uncached(f);
    /* Of a short prompt, too. */
    double most = (1 - to->ratio) * (f->matrix_mj + f->prefill_matrix_mj) / f->request_mj;
    pj_advice_evidence(a, "weight_byte_share", "share", weights,
                       "of the bytes that decode reads are weights");
    pj_advice_evidence(a, "weights_energy_share", "share", reading,
                       "of the request reads weights in decode");
    pj_advice_evidence(a, "bytes_ratio", "", to->ratio,
                       "bytes per weight, relative to the present type");
    a->quality = to->quality;
    a->memory = "less";
    snprintf(a->text, sizeof a->text,
             "%.0f %% of the bytes that decode reads are weights in %s; %s needs %.0f %% of them.",
             100 * weights, f->dtype, to->to, 100 * to->ratio);
    pj_advice_experiment(f, a, "--dtypes %s,%s", f->dtype, to->to);
    const pj_advice_neighbour *n = pj_advice_neighbour_of(f, 0, 0, to->to);
    return n ? observed(f, a, n)
             : pj_advice_predicts(f, a, 0.4 * share, 0.8 * share, most, f->matrix_sd);
}

static const char *advice_run_head(const pj_advice_facts *f, pj_advice *a)
{
    double share = f->head_mj / f->decode_mj;
    if (!(f->head_mj > 0 && f->decode_mj > 0)) return "the head's energy is unknown";
    if (!(share > 0.25)) return "head and embedding took less than 25 % of decode";
    if (!narrower_than(f->dtype) || strcmp(f->dtype, "q8_0") == 0)
        return "the head is already stored in 8 bits or less";
    if (!(pj_advice_uncached(f) > 0)) return pj_advice_not_bytes_bound(f);
    double ratio = strcmp(f->dtype, "f32") == 0 ? 1.0625 / 4 : 1.0625 / 2;
    double saved = (1 - ratio) * f->head_mj / f->request_mj * pj_advice_uncached(f);
    double most = (1 - ratio) * (f->head_mj + f->prefill_head_mj) / f->request_mj;
    pj_advice_evidence(a, "head_share", "share", share, "of decode is head and embedding");
    a->quality = "small: 8 bits with a scale for each block";
    a->memory = "less";
    snprintf(a->text, sizeof a->text,
             "Head and embedding took %.0f %% of decode: the vocabulary is large for this model. "
             "In Q8_0 they read %.0f %% of the bytes. The test stores the other weights so, too.",
             100 * share, 100 * ratio);
    pj_advice_experiment(f, a, "--dtypes %s,q8_0", f->dtype);
    return pj_advice_predicts(f, a, 0.4 * saved, 0.8 * saved, most, f->head_sd);
}

static const char *advice_run_kv_precision(const pj_advice_facts *f, pj_advice *a)
{
    double share = f->cache_bytes / f->decode_bytes;
    double saved = 0.5 * f->attention_mj / f->request_mj;
    double most = saved + 0.5 * f->prefill_attention_mj / f->request_mj;
    if (!(f->decode_bytes > 0 && f->cache_bytes > 0)) return "the bytes read by decode are unknown";
    if (!(share > 0.3)) return "the cache is less than 30 % of the bytes that decode reads";
    if (!f->kv_type) return "the type of cached keys and values is unknown";
    if (strcmp(f->kv_type, "f32") != 0) return "keys and values are already stored in 16 bits";
    pj_advice_evidence(a, "cache_byte_share", "share", share,
                       "of the bytes that decode reads are cached keys and values");
    a->quality = "negligible";
    a->memory = "half the cache";
    snprintf(a->text, sizeof a->text,
             "Cached keys and values are %.0f %% of the bytes that decode reads, and kept in 32 "
             "bits.",
             100 * share);
    pj_advice_run(f, a, "--kv f16");
    return pj_advice_predicts(f, a, 0.4 * saved, 0.8 * saved, most, f->attention_sd);
}

/* ---- threads, prompts, drafts ---- */

static const char *threads(const pj_advice_facts *f, pj_advice *a)
{
    const pj_advice_neighbour *best = NULL;
    if (f->device) return "a device computed, not threads";
    for (uint32_t i = 0; i < f->neighbour_count; i++) {
        const pj_advice_neighbour *n = &f->neighbours[i];
        if (n != pj_advice_neighbour_of(f, n->threads, 0, NULL) || n->threads >= f->threads)
            continue;
        /* Memory-bound: fewer threads lose less than proportional speed and draw less power. */
        bool beyond = n->speed > (double)n->threads / f->threads && n->power < 1;
        if (beyond && (!best || n->ratio < best->ratio)) best = n;
    }
    if (!best) return "no runs show that fewer threads suffice";
    pj_advice_evidence(a, "speed", "ratio", best->speed, "of the speed with fewer threads");
    pj_advice_evidence(a, "power", "ratio", best->power, "of the power with fewer threads");
    a->latency = best->speed < 0.98 ? "a little slower" : "none";
    snprintf(a->text, sizeof a->text,
             "%u threads gave %.0f %% of the speed of %u at %.0f %% of the power: memory "
             "bandwidth is saturated before the cores.",
             best->threads, 100 * best->speed, f->threads, 100 * best->power);
    pj_advice_experiment(f, a, "--threads %u,%u", best->threads, f->threads);
    return observed(f, a, best);
}

static const char *prompt(const pj_advice_facts *f, pj_advice *a)
{
    double share = f->prefill_mj / f->request_mj, saved = share * f->prefix_share;
    if (!(share > 0.7)) return "prefill took less than 70 % of the request";
    if (!f->prefix_runs || !(f->prefix_share > 0.1))
        return "no other prompt in the store begins like this one";
    pj_advice_evidence(a, "prefill_share", "share", share, "of the request is prefill");
    pj_advice_evidence(a, "prefix_share", "share", f->prefix_share,
                       "of the prompt begins other prompts too");
    pj_advice_evidence(a, "prefix_runs", "", f->prefix_runs, "runs whose prompts begin with it");
    a->memory = "the cached prefix";
    snprintf(a->text, sizeof a->text,
             "Prefill took %.0f %% of the request, and %.0f %% of the prompt begins %u other "
             "prompt%s too: a server that caches prompts computes it once. Put what repeats first.",
             100 * share, 100 * f->prefix_share, f->prefix_runs, f->prefix_runs == 1 ? "" : "s");
    pj_advice_run(f, a, "");
    return pj_advice_predicts(f, a, 0.7 * saved, 0.9 * saved, saved, NAN);
}

static const char *advice_run_speculate(const pj_advice_facts *f, pj_advice *a)
{
    enum { DRAFTS = 4 }; /* per step, of which 50 to 80 % are accepted */
    double size = f->smaller_parameters / f->parameters, cost = 1 + DRAFTS * size;
    double few = (1 - pow(0.5, DRAFTS + 1)) / 0.5, many = (1 - pow(0.8, DRAFTS + 1)) / 0.2;
    double weights = f->matrix_mj / f->request_mj * pj_advice_uncached(f);
    double lo = weights * (1 - cost / few), hi = weights * (1 - cost / many);
    if (f->batch > 1) return "a batch already shares the reading of weights";
    if (pj_advice_not_bytes_bound(f)) return pj_advice_not_bytes_bound(f);
    if (!f->smaller_model || !(f->smaller_parameters < 0.25 * f->parameters))
        return "no model of the same vocabulary and a quarter of the size is known here";
    pj_advice_evidence(a, "draft_size", "ratio", size,
                       "parameters of the smaller model, relative to this one");
    a->quality = "none: every token is checked by this model";
    a->memory = "the smaller model too";
    snprintf(a->text, sizeof a->text,
             "Decode of one sequence is memory-bound, and %s has the same vocabulary at %.0f %% "
             "of the size: let it draft tokens in a server that supports it (attach measures it).",
             f->smaller_model, 100 * size);
    char test[PJ_ADVICE_TEXT_BYTES];
    snprintf(test, sizeof test, "perjoule attach --url http://127.0.0.1:8080/v1 %s",
             f->prompt && !f->prompt_is_ids ? f->prompt : "-f prompt.txt");
    pj_advice_command(f, a, test);
    return pj_advice_predicts(f, a, lo, (lo + hi) / 2, hi, f->matrix_sd);
}

const pj_advice_rule pj_advice_run_rules[] = {
    {"keep-resident", "Keep the model in memory", ENERGY, advice_run_keep_resident},
    {"batch-up", "Decode more sequences at once", ENERGY, batch_up},
    {"batch-down", "Use a smaller batch", ENERGY, advice_run_batch_down},
    {"dtype", "Store the weights in fewer bits", ENERGY, dtype},
    {"head", "Store head and embedding in fewer bits", ENERGY, advice_run_head},
    {"threads", "Use fewer threads", ENERGY, threads},
    {"prompt", "Cache the beginning of the prompt", ENERGY, prompt},
    {"kv-precision", "Keep keys and values in fewer bits", ENERGY, advice_run_kv_precision},
    {"speculate", "Let a smaller model draft", ENERGY, advice_run_speculate},
    {0},
};

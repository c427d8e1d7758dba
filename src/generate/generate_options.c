/* From a request to generate to the options of its run: the one place where defaults that depend on
 * each other are resolved. */
#include "generate/generate.h"

#include "trace/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)PJ_LOGIT_BIASES >= (int)PJ_LIST_MAX, "all biases of a request fit");

/* Parses "ID=BIAS"; malformed text becomes a bias that pj_sampling_check rejects. */
static pj_logit_bias bias_of(const char *text)
{
    char *end, *last;
    long id = strtol(text, &end, 10);
    bool ok = end > text && *end == '=' && end[1] && id >= 0 && id <= INT32_MAX;
    float bias = ok ? strtof(end + 1, &last) : NAN;
    return (pj_logit_bias){ok ? (int32_t)id : -1, ok && !*last ? bias : NAN};
}

/* Greedy unless the request sets a sampling parameter: equal requests then give equal texts. */
static pj_sampling sampling_of(const pj_generate_ask *ask)
{
    pj_sampling s = PJ_SAMPLING_GREEDY;
    bool samples = ask->top_k > 0 || ask->top_p < 1 || ask->min_p > 0 || ask->typical_p < 1;
    s.temperature = !isnan(ask->temperature) ? ask->temperature : samples ? 1 : 0;
    if (ask->top_k >= 0) s.top_k = (uint32_t)ask->top_k;
    if (!isnan(ask->top_p)) s.top_p = ask->top_p;
    if (!isnan(ask->min_p)) s.min_p = ask->min_p;
    if (!isnan(ask->typical_p)) s.typical_p = ask->typical_p;
    if (!isnan(ask->frequency_penalty)) s.frequency_penalty = ask->frequency_penalty;
    if (!isnan(ask->presence_penalty)) s.presence_penalty = ask->presence_penalty;
    for (int i = 0; i < ask->logit_bias.count; i++)
        s.biases[s.bias_count++] = bias_of(ask->logit_bias.items[i]);
    if (!isnan(ask->repetition_penalty)) s.repetition_penalty = ask->repetition_penalty;
    if (ask->seed >= 0) s.seed = (uint64_t)ask->seed;
    return s;
}

static pj_kv_type kv_of(const char *name)
{
    if (!name) return PJ_KV_AUTO;
    return strcmp(name, "f16") == 0 ? PJ_KV_F16 : PJ_KV_F32;
}

static pj_statistics_rows statistics_of(const char *name)
{
    if (!name) return PJ_STATISTICS_BY_DEPTH;
    return strcmp(name, "all") == 0       ? PJ_STATISTICS_ALL
           : strcmp(name, "sampled") == 0 ? PJ_STATISTICS_SAMPLED
                                          : PJ_STATISTICS_OFF;
}

void pj_profile_options_set(pj_profile_options *o, const pj_generate_ask *ask)
{
    o->engine.model = ask->model;
    o->engine.dtype = ask->dtype;
    o->engine.kv = kv_of(ask->kv);
    o->request.sequences = (uint32_t)ask->batch;
    o->batch_rule =
        ask->batch_rule ? (pj_batch_rule)pj_batch_rule_parse(ask->batch_rule) : PJ_BATCH_BYTES;
    o->request.max_tokens = (uint32_t)ask->max_tokens;
    o->request.chat = ask->chat || ask->system;
    o->request.system = ask->system;
    o->request.ignore_eos = ask->ignore_eos;
    o->request.sampling = sampling_of(ask);
    o->request.stop = ask->stop.count ? ask->stop.items : NULL;
    o->engine.draft = ask->draft;
    o->request.draft_tokens = ask->draft_tokens > 0 ? (uint32_t)ask->draft_tokens : 0;
    o->request.statistics = statistics_of(ask->statistics);
    o->depth = (pj_depth)pj_depth_parse(ask->depth);
    o->tags = ask->tags.count ? ask->tags.items : NULL;
    o->experiment_name = ask->experiment;
}

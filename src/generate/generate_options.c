/* Turns a request to generate into the options of its run, and resolves all defaults that depend on
 * each other. */
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
static pj_sampling sampling_of(const pj_generation_request *request)
{
    pj_sampling s = PJ_SAMPLING_GREEDY;
    bool samples =
        request->top_k > 0 || request->top_p < 1 || request->min_p > 0 || request->typical_p < 1;
    s.temperature = !isnan(request->temperature) ? request->temperature : samples ? 1 : 0;
    if (request->top_k >= 0) s.top_k = (uint32_t)request->top_k;
    if (!isnan(request->top_p)) s.top_p = request->top_p;
    if (!isnan(request->min_p)) s.min_p = request->min_p;
    if (!isnan(request->typical_p)) s.typical_p = request->typical_p;
    if (!isnan(request->frequency_penalty)) s.frequency_penalty = request->frequency_penalty;
    if (!isnan(request->presence_penalty)) s.presence_penalty = request->presence_penalty;
    for (int i = 0; i < request->logit_bias.count; i++)
        s.biases[s.bias_count++] = bias_of(request->logit_bias.items[i]);
    if (!isnan(request->repetition_penalty)) s.repetition_penalty = request->repetition_penalty;
    if (request->seed >= 0) s.seed = (uint64_t)request->seed;
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

void pj_profile_options_set(pj_profile_options *o, const pj_generation_request *request)
{
    o->engine.model = request->model;
    o->engine.dtype = request->dtype;
    o->engine.kv = kv_of(request->kv);
    o->engine.no_mmap = request->no_mmap;
    o->request.sequences = (uint32_t)request->batch;
    o->batch_rule = request->batch_rule ? (pj_batch_rule)pj_batch_rule_parse(request->batch_rule)
                                        : PJ_BATCH_BYTES;
    o->request.max_tokens = (uint32_t)request->max_tokens;
    o->request.chat = request->chat || request->system;
    o->request.system = request->system;
    o->request.ignore_eos = request->ignore_eos;
    o->request.sampling = sampling_of(request);
    o->request.stop = request->stop.count ? request->stop.items : NULL;
    o->engine.draft = request->draft;
    o->engine.device = request->device;
    o->request.draft_tokens = request->draft_tokens > 0 ? (uint32_t)request->draft_tokens : 0;
    o->request.statistics = statistics_of(request->statistics);
    o->depth = (pj_depth)pj_depth_parse(request->depth);
    o->tags = request->tags.count ? request->tags.items : NULL;
    o->experiment_name = request->experiment;
}

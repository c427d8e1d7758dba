/* The table, and what differs between a figure of it and a run. */
#include "analysis/published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ML_ENERGY                                           \
    "The ML.ENERGY Leaderboard (vLLM, energy of the GPUs)", \
        "https://github.com/ml-energy/leaderboard"
#define WORDS_TO_WATTS                                             \
    "Samsi et al. 2023, From Words to Watts (energy of the GPUs)", \
        "https://arxiv.org/abs/2310.03003"

const pj_published pj_published_figures[] = {
    {"Llama-3.1-8B", "bf16", "1 H100", 8.03e9, 8.03e9, 8, 0.455, 0.455, ML_ENERGY},
    {"Llama-3.1-8B", "bf16", "1 H100", 8.03e9, 8.03e9, 64, 0.119, 0.119, ML_ENERGY},
    {"Llama-3.1-8B", "bf16", "1 H100", 8.03e9, 8.03e9, 512, 0.0702, 0.0702, ML_ENERGY},
    {"Qwen3-8B", "bf16", "1 H100", 8.19e9, 8.19e9, 8, 0.444, 0.444, ML_ENERGY},
    {"Qwen3-14B", "bf16", "1 H100", 14.8e9, 14.8e9, 8, 0.706, 0.706, ML_ENERGY},
    {"Qwen3-32B", "bf16", "1 H100", 32.8e9, 32.8e9, 8, 1.726, 1.726, ML_ENERGY},
    {"Qwen3-30B-A3B", "bf16", "1 H100", 30.5e9, 3.3e9, 8, 0.653, 0.653, ML_ENERGY},
    {"Qwen3-30B-A3B", "bf16", "1 H100", 30.5e9, 3.3e9, 64, 0.222, 0.222, ML_ENERGY},
    {"Llama-3.1-70B", "bf16", "4 H100", 70.6e9, 70.6e9, 8, 3.76, 3.76, ML_ENERGY},
    {"Llama-3.1-70B", "bf16", "4 H100", 70.6e9, 70.6e9, 128, 0.563, 0.563, ML_ENERGY},
    {"Llama-3.1-70B", "bf16", "4 H100", 70.6e9, 70.6e9, 1024, 0.373, 0.373, ML_ENERGY},
    {"LLaMA-65B", "f16", "8 or more V100 or A100", 65.2e9, 65.2e9, 0, 3, 4, WORDS_TO_WATTS},
};
const size_t pj_published_count = sizeof pj_published_figures / sizeof *pj_published_figures;

/* Models whose sizes differ by more than this are not compared at all. */
static const double farthest = 20;

static double published_distance(const pj_published *f, const pj_published_query *request)
{
    double size = fabs(log(f->active_parameters / request->active_parameters));
    double batch =
        f->batch ? fabs(log((double)f->batch / (request->batch ? request->batch : 1))) : 3;
    return size + batch / 4;
}

static char *next_caveat(pj_published_beside *b)
{
    return b->caveats[b->caveat_count++];
}

static void note_differences(const pj_published_query *request, pj_published_beside *b)
{
    const pj_published *f = b->figure;
    double times = f->active_parameters / request->active_parameters;
    enum { SIZE = PJ_PUBLISHED_CAVEAT_BYTES };
    if (strcmp(request->scope, PJ_PUBLISHED_SCOPE) != 0)
        snprintf(next_caveat(b), SIZE,
                 "another scope: the figure covers the GPUs only, this run %.60s", request->scope);
    if (request->is_modelled)
        snprintf(next_caveat(b), SIZE, "this run's energy is modelled, the figure was measured");
    snprintf(next_caveat(b), SIZE, "other hardware and engine: %.60s", f->hardware);
    if (times > 1.25 || times < 0.8)
        snprintf(next_caveat(b), SIZE, "a model with %.2g times the active parameters", times);
    if (f->batch != request->batch)
        snprintf(next_caveat(b), SIZE,
                 f->batch ? "batch %u, not %u" : "several batches (%u), not %u", f->batch,
                 request->batch);
    if (!request->dtype || strcmp(request->dtype, f->dtype) != 0)
        snprintf(next_caveat(b), SIZE, "weights in %s, not %.16s", f->dtype,
                 request->dtype ? request->dtype : "a known type");
}

static void set_beside(const pj_published_query *request, const pj_published *f,
                       pj_published_beside *b)
{
    *b = (pj_published_beside){.figure = f, .ratio = NAN};
    note_differences(request, b);
    if (strcmp(request->scope, PJ_PUBLISHED_SCOPE) == 0 && !request->is_modelled)
        b->ratio = request->joules_per_token / ((f->joules_per_token + f->joules_hi) / 2);
}

uint32_t pj_published_near(const pj_published_query *request,
                           pj_published_beside beside[PJ_PUBLISHED_NEAREST])
{
    const pj_published *nearest[PJ_PUBLISHED_NEAREST];
    uint32_t count = 0;
    if (!(request->active_parameters > 0)) return 0;
    for (size_t i = 0; i < pj_published_count; i++) {
        const pj_published *f = &pj_published_figures[i];
        if (fabs(log(f->active_parameters / request->active_parameters)) > log(farthest)) continue;
        uint32_t at = count < PJ_PUBLISHED_NEAREST ? count++ : PJ_PUBLISHED_NEAREST;
        for (; at > 0 &&
               published_distance(f, request) < published_distance(nearest[at - 1], request);
             at--)
            if (at < PJ_PUBLISHED_NEAREST) nearest[at] = nearest[at - 1];
        if (at < PJ_PUBLISHED_NEAREST) nearest[at] = f;
    }
    for (uint32_t i = 0; i < count; i++) set_beside(request, nearest[i], &beside[i]);
    return count;
}

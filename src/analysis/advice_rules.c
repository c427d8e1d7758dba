/* Shared by the rules: evidence, savings, whether decode is memory-bound, commands. */
#include "analysis/advice_rules.h"

#include "base/estimate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pj_advice_evidence(pj_advice *a, const char *name, const char *unit, double value,
                        const char *says)
{
    if (a->evidence_count == PJ_ADVICE_EVIDENCE) return;
    a->evidence[a->evidence_count++] = (pj_evidence){name, unit, says, value};
}

const char *pj_advice_saves(const pj_advice_facts *f, pj_advice *a, const char *of, double mj,
                            double lo, double share, double hi, const char *basis)
{
    a->of = of;
    a->mj = mj;
    a->lo = lo;
    a->share = share;
    a->hi = hi > 1 ? 1 : hi; /* nothing saves more than there is */
    a->basis = basis;
    bool enough = f->request_mj > 0 && lo * mj > PJ_ADVICE_LEAST * f->request_mj;
    return enough ? NULL : "its saving is not reliably above 2 % of the request";
}

const char *pj_advice_predicts(const pj_advice_facts *f, pj_advice *a, double lo, double share,
                               double hi, double sd)
{
    double half = PJ_Z95 * (sd > 0 ? sd : f->relative_sd);
    return pj_advice_saves(f, a, "request", f->request_mj, pj_bounds_of(lo, half * lo).lo, share,
                           pj_bounds_of(hi, half * hi).hi, "predicted");
}

double pj_advice_uncached(const pj_advice_facts *f)
{
    if (!(f->processor_cache_bytes > 0) || !(f->model_bytes > 0)) return 1;
    return fmax(1 - f->processor_cache_bytes / f->model_bytes, 0);
}

/* Bytes of decode per second, relative to the measured bandwidth; NAN: not measured. */
static double bandwidth_share(const pj_advice_facts *f)
{
    return f->decode_bytes / (f->decode_ms / 1e3) / f->read_bytes_per_s;
}

/* Whether decode is memory-bound: reading its bytes takes more than twice as long as its FLOPs at
 * the speed of prefill, or its arithmetic intensity is very low, and it reads at a third of the
 * measured bandwidth or more. */
static bool is_bytes_bound(const pj_advice_facts *f)
{
    if (!(f->decode_bytes > 0) || !(f->decode_flops > 0)) return false;
    if (bandwidth_share(f) < 0.33) return false;
    /* Prefill of a few tokens reads weights too and is no measure of FLOPs. */
    if (f->input_tokens >= 16 && f->prefill_flops > 0 && f->prefill_ms > 0 && f->decode_ms > 0)
        return f->decode_ms > 2 * f->decode_flops * f->prefill_ms / f->prefill_flops;
    return f->decode_flops / f->decode_bytes < 4;
}

const char *pj_advice_not_bytes_bound(const pj_advice_facts *f)
{
    if (!(pj_advice_uncached(f) > 0)) return "the processor's cache holds all weights";
    return is_bytes_bound(f) ? NULL : "decode is not memory-bound";
}

const pj_advice_neighbour *pj_advice_neighbour_of(const pj_advice_facts *f, uint32_t threads,
                                                  uint32_t batch, const char *dtype)
{
    if (!threads) threads = f->threads;
    if (!batch) batch = f->batch;
    if (!dtype) dtype = f->dtype ? f->dtype : "";
    for (uint32_t i = 0; i < f->neighbour_count; i++) {
        const pj_advice_neighbour *n = &f->neighbours[i];
        if (n->threads == threads && n->batch == batch && strcmp(n->dtype, dtype) == 0) return n;
    }
    return NULL;
}

static unsigned long long each(const pj_advice_facts *f, uint64_t tokens)
{
    return tokens / (f->batch ? f->batch : 1);
}

/* The user changes and repeats the program; the command compares what comes of it. */
static bool compares_elsewhere(const pj_advice_facts *f, pj_advice *a)
{
    if (f->is_elsewhere)
        snprintf(a->test, sizeof a->test,
                 "perjoule compare %s last  # after running the program again as advised",
                 f->run_id);
    return f->is_elsewhere;
}

void pj_advice_command(const pj_advice_facts *f, pj_advice *a, const char *command)
{
    if (!compares_elsewhere(f, a)) snprintf(a->test, sizeof a->test, "%s", command);
}

void pj_advice_experiment(const pj_advice_facts *f, pj_advice *a, const char *settings, ...)
{
    char others[64];
    va_list args;
    if (compares_elsewhere(f, a)) return;
    va_start(args, settings);
    vsnprintf(others, sizeof others, settings, args);
    va_end(args);
    snprintf(a->test, sizeof a->test,
             "perjoule experiment --models %s%s%s --inputs %llu --outputs %llu --repeat 5 %s",
             f->model, f->device ? " --device " : "", f->device ? f->device : "",
             each(f, f->input_tokens), each(f, f->output_tokens), others);
}

void pj_advice_run(const pj_advice_facts *f, pj_advice *a, const char *options)
{
    if (compares_elsewhere(f, a)) return;
    snprintf(a->test, sizeof a->test,
             "perjoule run -m %s%s%s -n %llu --repeat 5 --warmup 1 %s%s%s%s", f->model,
             f->device ? " --device " : "", f->device ? f->device : "", each(f, f->output_tokens),
             options, *options ? " " : "", f->prompt && f->prompt_is_ids ? "--ids " : "",
             f->prompt ? f->prompt : "-f prompt.txt");
}

/* Shared by the rules: evidence, savings, whether decode is memory-bound, commands. */
#include "analysis/advice_rules.h"

#include <stdio.h>
#include <string.h>

void pj_advice_silent(pj_advice *a, const char *why)
{
    a->speaks = false;
    snprintf(a->text, sizeof a->text, "%s", why);
}

void pj_advice_evidence(pj_advice *a, const char *name, const char *unit, double value,
                        const char *says)
{
    if (a->evidence_count == PJ_ADVICE_EVIDENCE) return;
    a->evidence[a->evidence_count++] = (pj_evidence){name, unit, says, value};
}

void pj_advice_saves(const pj_advice_facts *f, pj_advice *a, const char *of, double mj, double lo,
                     double share, double hi, const char *basis)
{
    a->of = of;
    a->mj = mj;
    a->lo = lo;
    a->share = share;
    a->hi = hi > 1 ? 1 : hi; /* nothing saves more than there is */
    a->basis = basis;
    a->speaks = f->request_mj > 0 && lo * mj > PJ_ADVICE_LEAST * f->request_mj;
    if (!a->speaks) pj_advice_silent(a, "its saving is not reliably above 2 % of the request");
}

bool pj_advice_is_bytes_bound(const pj_advice_facts *f)
{
    if (!(f->decode_bytes > 0) || !(f->decode_flops > 0)) return false;
    /* Prefill of a few tokens reads weights too and is no measure of FLOPs. */
    if (f->input_tokens >= 16 && f->prefill_flops > 0 && f->prefill_ms > 0 && f->decode_ms > 0)
        return f->decode_ms > 2 * f->decode_flops * f->prefill_ms / f->prefill_flops;
    return f->decode_flops / f->decode_bytes < 4;
}

const pj_advice_neighbour *pj_advice_neighbour_of(const pj_advice_facts *f, uint32_t threads,
                                                  uint32_t batch, const char *dtype)
{
    for (uint32_t i = 0; i < f->neighbour_count; i++) {
        const pj_advice_neighbour *n = &f->neighbours[i];
        if (n->threads == (threads ? threads : f->threads) &&
            n->batch == (batch ? batch : f->batch) &&
            strcmp(n->dtype, dtype      ? dtype
                             : f->dtype ? f->dtype
                                        : "") == 0)
            return n;
    }
    return NULL;
}

void pj_advice_experiment(const pj_advice_facts *f, pj_advice *a, const char *settings)
{
    snprintf(a->test, sizeof a->test,
             "perjoule experiment --models %s --inputs %llu --outputs %llu --repeat 5 %s", f->model,
             (unsigned long long)f->input_tokens / (f->batch ? f->batch : 1),
             (unsigned long long)f->output_tokens / (f->batch ? f->batch : 1), settings);
}

void pj_advice_run(const pj_advice_facts *f, pj_advice *a, const char *options)
{
    snprintf(a->test, sizeof a->test, "perjoule run -m %s -n %llu --repeat 5 --warmup 1 %s%s%s%s",
             f->model, (unsigned long long)f->output_tokens / (f->batch ? f->batch : 1), options,
             *options ? " " : "", f->prompt && f->prompt_is_ids ? "--ids " : "",
             f->prompt ? f->prompt : "-f prompt.txt");
}

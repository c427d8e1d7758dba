/* Evaluates every rule and sorts the results by saving. */
#include "analysis/advice_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t advice_count(const pj_advice_rule *rules)
{
    size_t n = 0;
    while (rules[n].id) n++;
    return n;
}

size_t pj_advice_rules(void)
{
    return advice_count(pj_advice_run_rules) + advice_count(pj_advice_machine_rules);
}

/* Recommendations first; of these reliability warnings, then savings, the largest first. */
static int by_weight(const void *x, const void *y)
{
    const pj_advice *a = x, *b = y;
    if (a->speaks != b->speaks) return a->speaks ? -1 : 1;
    if (a->limits != b->limits) return a->limits ? -1 : 1;
    double sa = isnan(a->share) ? -1 : a->share * a->mj,
           sb = isnan(b->share) ? -1 : b->share * b->mj;
    if (sa != sb) return sa > sb ? -1 : 1;
    return strcmp(a->rule, b->rule);
}

static const char *advice_look(const pj_advice_rule *rule, const pj_advice_facts *f, pj_advice *a)
{
    if (f->refusal) return f->refusal;
    if (rule->needs & PJ_ADVICE_OF_ENERGY && !(f->has_energy && f->request_mj > 0))
        return "the run's energy is unavailable";
    return rule->look(f, a);
}

static size_t advice_request(const pj_advice_facts *f, const pj_advice_rule *rules, pj_advice *out)
{
    size_t n = 0;
    for (; rules[n].id; n++) {
        pj_advice *a = &out[n];
        *a = (pj_advice){.rule = rules[n].id,
                         .title = rules[n].title,
                         .share = NAN,
                         .lo = NAN,
                         .hi = NAN,
                         .mj = NAN,
                         .of = "request",
                         .basis = "none",
                         .quality = "none",
                         .latency = "none",
                         .memory = "none"};
        const char *reason = advice_look(&rules[n], f, a);
        a->speaks = !reason;
        if (!reason) continue;
        snprintf(a->text, sizeof a->text, "%s", reason);
        a->test[0] = 0;
    }
    return n;
}

size_t pj_advise(const pj_advice_facts *f, pj_advice *out, size_t *speaking)
{
    size_t n = advice_request(f, pj_advice_run_rules, out);
    n += advice_request(f, pj_advice_machine_rules, out + n);
    qsort(out, n, sizeof *out, by_weight);
    *speaking = 0;
    while (*speaking < n && out[*speaking].speaks) ++*speaking;
    return n;
}

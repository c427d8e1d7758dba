/* Splits the energy of a batch's steps between its sequences. */
#include "attribution/batch.h"

#include <math.h>
#include <string.h>

/* Attention energy of a step, which the rule `bytes` splits by context length. */
typedef struct context_energy {
    int64_t shared_nj; /* net, or gross where idle power is not known: as the views compute it */
    int64_t net_nj;
    double planted_nj;
} context_energy;

typedef struct sharing {
    pj_run_data *d;
    pj_batch_rule rule;
    double planted_idle_mw;
    context_energy *context;   /* [token_count] by first row of the step */
    double *weight, *attended; /* [token_count] of the rows of a step, each summing to 1 */
    bool by_context;           /* some step was split by context */
    bool any;                  /* some step was shared */
} sharing;

/* ---- weights ---- */

static void batch_normalise(double *weights, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += weights[i];
    for (uint32_t i = 0; i < count; i++) weights[i] = sum > 0 ? weights[i] / sum : 1.0 / count;
}

/* A sequence may have several tokens in a step: they divide its share. */
static void weigh_sequences(const pj_token_row *rows, uint32_t count, double *weights)
{
    bool distinct = true;
    for (uint32_t i = 0; i < count; i++) {
        weights[i] = 1;
        distinct &= i == 0 || rows[i].sequence > rows[i - 1].sequence;
    }
    for (uint32_t i = 0; i < count && !distinct; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < count; k++) same += rows[k].sequence == rows[i].sequence;
        weights[i] = 1.0 / same;
    }
}

static bool lengths_known(const pj_token_row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!rows[i].context_tokens) return false;
    return true;
}

static void batch_weigh(sharing *s, uint32_t first, uint32_t count)
{
    const pj_token_row *rows = s->d->tokens + first;
    bool prefill = s->d->phases[rows->phase].phase == PJ_PHASE_PREFILL;
    bool known = lengths_known(rows, count);
    weigh_sequences(rows, count, s->weight);
    for (uint32_t i = 0; i < count; i++) {
        if (s->rule == PJ_BATCH_TOKENS) s->weight[i] = 1;
        if (prefill && known) s->weight[i] = rows[i].context_tokens;
    }
    batch_normalise(s->weight, count);
    bool attend = !prefill && known && s->rule == PJ_BATCH_BYTES;
    for (uint32_t i = 0; i < count; i++)
        s->attended[i] = attend ? rows[i].context_tokens : s->weight[i];
    batch_normalise(s->attended, count);
    s->by_context |= attend && s->context[first].shared_nj;
}

/* ---- amounts ---- */

/* Divides an energy of a step, which is in its first row, among the rows: `context_nj` of it by the
 * second weight, the rest by the first, into integer nanojoules that add up exactly, since parts
 * are differences of rounded running sums. An unknown whole gives unknown parts. */
static void batch_divide(const sharing *s, uint32_t count, double context_nj, int64_t *first)
{
    double sum = 0;
    int64_t given = 0, whole_nj = *first;
    /* without idle power the context's part is unknown: split everything by the first weight */
    if (!isfinite(context_nj) || context_nj == (double)PJ_NJ_UNKNOWN) context_nj = 0;
    for (uint32_t i = 0; i < count && whole_nj != PJ_NJ_UNKNOWN; i++) {
        sum += ((double)whole_nj - context_nj) * s->weight[i] + context_nj * s->attended[i];
        int64_t upto = i + 1 < count ? llround(sum) : whole_nj;
        *(int64_t *)(void *)((char *)first + i * sizeof(pj_token_row)) = upto - given;
        given = upto;
    }
}

/* Sets the rows' shares so that the parts of the step, as views split them, add up to each row. */
static void batch_set_shares(const sharing *s, pj_token_row *rows, uint32_t count,
                             const pj_energy *step, int64_t context_nj)
{
    bool known = step->gross_nj != PJ_NJ_UNKNOWN && step->self_nj != PJ_NJ_UNKNOWN;
    double rest = known ? (double)(step->gross_nj - step->self_nj - context_nj) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const pj_energy *e = &rows[i].energy;
        rows[i].share = s->weight[i];
        rows[i].context_share = s->attended[i];
        if (!known || e->gross_nj == PJ_NJ_UNKNOWN || e->self_nj == PJ_NJ_UNKNOWN) continue;
        double parts = (double)(e->gross_nj - e->self_nj);
        if (rest > 0)
            rows[i].share = (parts - (double)context_nj * s->attended[i]) / rest;
        else if (context_nj)
            rows[i].context_share = parts / (double)context_nj;
    }
}

static void share_step(sharing *s, uint32_t first, uint32_t count)
{
    pj_token_row *rows = s->d->tokens + first;
    const pj_energy step = rows->energy;
    const context_energy *context = &s->context[first];
    s->any = true;
    batch_weigh(s, first, count);
    for (uint32_t i = 0; i < count; i++) {
        rows[i].energy = step;
        if (step.method != PJ_METHOD_NONE) rows[i].energy.method = PJ_METHOD_ALLOCATED;
    }
    batch_divide(s, count, (double)context->shared_nj, &rows->energy.gross_nj);
    batch_divide(s, count, (double)context->net_nj, &rows->energy.net_nj);
    batch_divide(s, count, 0, &rows->energy.self_nj);
    batch_divide(s, count, context->planted_nj, &rows->energy.planted_nj);
    batch_set_shares(s, rows, count, &step, context->shared_nj);
    for (uint32_t i = 0; i < count; i++) {
        pj_energy *e = &rows[i].energy;
        double part = step.gross_nj > 0 && step.gross_nj != PJ_NJ_UNKNOWN
                          ? (double)e->gross_nj / (double)step.gross_nj
                          : s->weight[i];
        pj_energy_scale_sd(e, part);
    }
}

/* ---- all steps ---- */

static void batch_add_known(int64_t *sum, int64_t nj)
{
    if (nj != PJ_NJ_UNKNOWN) *sum += nj;
}

static void collect_context(sharing *s)
{
    const pj_run_data *d = s->d;
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        uint32_t step = pj_step_of_component(d, c);
        if (step >= d->token_count || strcmp(c->name, PJ_CONTEXT_COMPONENT) != 0) continue;
        context_energy *to = &s->context[step];
        bool net = c->energy.net_nj != PJ_NJ_UNKNOWN;
        batch_add_known(&to->shared_nj, net ? c->energy.net_nj : c->energy.gross_nj);
        batch_add_known(&to->net_nj, c->energy.net_nj);
        if (c->energy.planted_nj != PJ_NJ_UNKNOWN) /* mW x ms = uJ */
            to->planted_nj +=
                (double)c->energy.planted_nj - s->planted_idle_mw * c->duration_ms * 1e3;
    }
}

static void set_contexts(pj_run_data *d)
{
    for (uint32_t i = 0; i < d->token_count; i++) {
        pj_token_row *t = &d->tokens[i];
        if (t->sequence < d->info.prompt_count && d->info.prompt_tokens[t->sequence])
            t->context_tokens = d->info.prompt_tokens[t->sequence] + t->position;
    }
}

static void set_rule(const sharing *s)
{
    pj_batch_rule applied = s->rule == PJ_BATCH_BYTES && !s->by_context ? PJ_BATCH_EQUAL : s->rule;
    s->d->info.batch_rule = s->any ? pj_batch_rule_name(applied) : NULL;
}

pj_status pj_batch_share(pj_run_data *d, double planted_idle_mw, pj_error *err)
{
    int rule = d->info.batch_rule ? pj_batch_rule_parse(d->info.batch_rule) : PJ_BATCH_BYTES;
    sharing s = {.d = d,
                 .rule = rule < 0 ? PJ_BATCH_BYTES : (pj_batch_rule)rule,
                 .planted_idle_mw = planted_idle_mw};
    bool shared = false;
    set_contexts(d);
    for (uint32_t i = 0; i < d->token_count; i++) shared |= d->tokens[i].step != PJ_NO_PARENT;
    if (shared) {
        s.context = pj_arena_alloc(&d->arena, d->token_count, sizeof *s.context);
        s.weight = pj_arena_alloc(&d->arena, d->token_count, sizeof *s.weight);
        s.attended = pj_arena_alloc(&d->arena, d->token_count, sizeof *s.attended);
        if (!s.context || !s.weight || !s.attended)
            return pj_fail_memory(err, "the shares of a batch");
        collect_context(&s);
    }
    for (uint32_t i = 0, end; shared && i < d->token_count; i = end) {
        end = d->tokens[i].step == i ? pj_shared_step_end(d, i) : i + 1;
        if (end > i + 1) share_step(&s, i, end - i);
    }
    set_rule(&s);
    return PJ_OK;
}

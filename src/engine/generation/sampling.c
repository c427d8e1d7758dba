/* Sampling. Candidates are kept in a heap ordered by logit (lower id first on ties) and popped only
 * as far as a filter needs, so that top-k of 40 costs one pass and 40 pops instead of sorting the
 * vocabulary. One owner at a time; no allocation after init. */
#include "engine/generation/sampling.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

typedef struct pj_ranked_token {
    float logit;
    float weight; /* e^(logit - largest) */
    int32_t id;
} pj_ranked_token;

pj_status pj_sampling_check(const pj_sampling *s, pj_error *err)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return pj_fail(err, PJ_E_INVALID, "temperature must be 0 to 100, not %g", s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return pj_fail(err, PJ_E_INVALID, "top_p must be above 0 and at most 1, not %g", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return pj_fail(err, PJ_E_INVALID, "min_p must be 0 to 1, not %g", s->min_p);
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 100))
        return pj_fail(err, PJ_E_INVALID,
                       "repetition penalty must be above 0 and at most 100, not %g",
                       s->repetition_penalty);
    if (!(s->typical_p >= 0 && s->typical_p <= 1))
        return pj_fail(err, PJ_E_INVALID, "typical_p must be 0 to 1, not %g", s->typical_p);
    if (!(fabs(s->frequency_penalty) <= 2))
        return pj_fail(err, PJ_E_INVALID, "frequency penalty must be -2 to 2, not %g",
                       s->frequency_penalty);
    if (!(fabs(s->presence_penalty) <= 2))
        return pj_fail(err, PJ_E_INVALID, "presence penalty must be -2 to 2, not %g",
                       s->presence_penalty);
    for (uint32_t i = 0; i < s->bias_count; i++)
        if (s->biases[i].id < 0 || !(fabsf(s->biases[i].bias) <= 100))
            return pj_fail(
                err, PJ_E_INVALID,
                "a logit bias must be ID=BIAS: a token id and a number from -100 to 100");
    return PJ_OK;
}

static pj_status check_biases(const pj_sampling *s, uint32_t vocab, pj_error *err)
{
    for (uint32_t i = 0; i < s->bias_count; i++)
        if ((uint32_t)s->biases[i].id >= vocab)
            return pj_fail(err, PJ_E_INVALID,
                           "the logit bias is for token %d, but the model has tokens 0 to %u",
                           (int)s->biases[i].id, vocab - 1);
    return PJ_OK;
}

bool pj_sampling_is_argmax(const pj_sampling *s)
{
    return s->temperature == 0 && s->repetition_penalty == 1 && s->frequency_penalty == 0 &&
           s->presence_penalty == 0 && s->bias_count == 0;
}

pj_status pj_sampler_init(pj_sampler *sampler, const pj_sampling *settings, uint32_t vocab,
                          pj_error *err)
{
    *sampler = (pj_sampler){.settings = *settings, .vocab = vocab};
    pj_status status = pj_sampling_check(settings, err);
    if (!status) status = check_biases(settings, vocab, err);
    if (status) return status;
    sampler->random.state = settings->seed;
    bool draws = settings->temperature > 0, repeats = settings->repetition_penalty != 1;
    bool counts = settings->frequency_penalty != 0 || settings->presence_penalty != 0;
    if (draws) sampler->order = pj_alloc(vocab, sizeof *sampler->order);
    if (repeats) sampler->seen = pj_alloc(vocab, 1);
    if (counts) sampler->generated = pj_alloc(vocab, sizeof *sampler->generated);
    if ((!draws || sampler->order) && (!repeats || sampler->seen) &&
        (!counts || sampler->generated))
        return PJ_OK;
    pj_sampler_fini(sampler);
    return pj_fail_memory(err, "the sampler");
}

void pj_sampler_fini(pj_sampler *sampler)
{
    pj_free(sampler->order);
    pj_free(sampler->seen);
    pj_free(sampler->generated);
    sampler->order = NULL;
    sampler->seen = NULL;
    sampler->generated = NULL;
}

void pj_sampler_accept(pj_sampler *sampler, int32_t id, bool generated)
{
    if (id < 0 || (uint32_t)id >= sampler->vocab) return;
    if (sampler->seen) sampler->seen[id] = 1;
    if (sampler->generated && generated) sampler->generated[id]++;
}

static void add_biases(const pj_sampling *s, float *logits)
{
    for (uint32_t i = 0; i < s->bias_count; i++) logits[s->biases[i].id] += s->biases[i].bias;
}

static void penalise_generated(const pj_sampler *sampler, float *logits)
{
    float each = (float)sampler->settings.frequency_penalty;
    float once = (float)sampler->settings.presence_penalty;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (sampler->generated[i]) logits[i] -= each * (float)sampler->generated[i] + once;
}

/* Lowers a logit, whatever its sign. */
static void penalise(const pj_sampler *sampler, float *logits)
{
    float penalty = (float)sampler->settings.repetition_penalty;
    for (uint32_t i = 0; i < sampler->vocab; i++)
        if (sampler->seen[i]) logits[i] = logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty;
}

static int32_t argmax(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best] || isnan(logits[best])) best = i;
    return (int32_t)best;
}

static bool sampling_before(const pj_ranked_token *a, const pj_ranked_token *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(pj_ranked_token *heap, uint32_t count, uint32_t i)
{
    pj_ranked_token moved = heap[i];
    for (uint32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && sampling_before(&heap[child + 1], &heap[child])) child++;
        if (!sampling_before(&heap[child], &moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Pops the first `wanted` from a heap of `count`; they end up at the end of the array, the best one
 * last. */
static void sampling_pop(pj_ranked_token *heap, uint32_t count, uint32_t wanted)
{
    for (; wanted > 0; wanted--) {
        pj_ranked_token best = heap[0];
        heap[0] = heap[--count];
        sift_down(heap, count, 0);
        heap[count] = best;
    }
}

/* The candidates that pass the filters, best first at kept[0], kept[-1], ...; returns their
 * number. */
static uint32_t filter(const pj_sampler *sampler, uint32_t count, pj_ranked_token **kept)
{
    const pj_sampling *s = &sampler->settings;
    pj_ranked_token *heap = sampler->order;
    for (uint32_t i = count / 2; i-- > 0;) sift_down(heap, count, i);
    uint32_t taken = 0;
    double total = 0;
    if (s->top_k > 0 && s->top_k < count) {
        sampling_pop(heap, count, taken = s->top_k);
        for (uint32_t i = 0; i < taken; i++) total += heap[count - 1 - i].weight;
    } else {
        for (uint32_t i = 0; i < count; i++) total += heap[i].weight;
    }
    bool limited = taken > 0;
    uint32_t n = 0;
    for (double sum = 0; n < (limited ? taken : count) && (n == 0 || sum < s->top_p * total); n++) {
        if (!limited) sampling_pop(heap, count - n, 1);
        const pj_ranked_token *next = &heap[count - 1 - n];
        /* weights are relative to the best one's */
        if (n > 0 && next->weight < s->min_p) break;
        sum += next->weight;
    }
    *kept = &heap[count - 1];
    return n;
}

/* Keeps the tokens whose surprise -ln p is nearest to its mean, up to a share of the probability:
 * locally typical sampling. The kept ones are at the end of the array, the nearest last. */
static uint32_t keep_typical(pj_ranked_token *tokens, uint32_t count, double share)
{
    double total = 0, entropy = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) total += tokens[i].weight;
    for (uint32_t i = 0; i < count; i++) {
        double p = tokens[i].weight / total;
        if (p > 0) entropy -= p * log(p);
    }
    for (uint32_t i = 0; i < count; i++) {
        double p = tokens[i].weight / total;
        tokens[i].logit = p > 0 ? (float)-fabs(-log(p) - entropy) : -INFINITY;
    }
    for (uint32_t i = count / 2; i-- > 0;) sift_down(tokens, count, i);
    uint32_t n = 0;
    while (n < count && (n == 0 || sum < share * total || /* ties are kept together */
                         tokens[0].logit == tokens[count - n].logit)) {
        sampling_pop(tokens, count - n, 1);
        sum += tokens[count - 1 - n++].weight;
    }
    return n;
}

static int32_t draw_from(pj_random *random, const pj_ranked_token *first, int step, uint32_t count)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) total += first[(ptrdiff_t)i * step].weight;
    double mark = pj_random_unit(random) * total;
    const pj_ranked_token *c = first;
    for (uint32_t i = 0; i < count; i++) {
        const pj_ranked_token *next = &first[(ptrdiff_t)i * step];
        if (next->weight <= 0) continue;
        c = next;
        sum += c->weight;
        if (sum > mark) break;
    }
    return c->id;
}

int32_t pj_sampler_draw(pj_sampler *sampler, float *logits)
{
    const pj_sampling *s = &sampler->settings;
    add_biases(s, logits);
    if (sampler->seen) penalise(sampler, logits);
    if (sampler->generated) penalise_generated(sampler, logits);
    int32_t best = argmax(logits, sampler->vocab);
    if (s->temperature == 0) return best;
    float inverse = (float)(1 / s->temperature), largest = logits[best];
    uint32_t count = 0;
    for (uint32_t i = 0; i < sampler->vocab; i++) {
        float x = logits[i];
        if (isnan(x)) continue;
        float weight = x == largest ? 1 : expf((x - largest) * inverse);
        sampler->order[count++] = (pj_ranked_token){x, weight, (int32_t)i};
    }
    if (count == 0) return best;
    pj_ranked_token *kept = sampler->order;
    bool filtered = (s->top_k > 0 && s->top_k < count) || s->top_p < 1 || s->min_p > 0;
    if (filtered) count = filter(sampler, count, &kept);
    if (s->typical_p > 0 && s->typical_p < 1) {
        pj_ranked_token *all = filtered ? kept - (count - 1) : kept;
        uint32_t typical = keep_typical(all, count, s->typical_p);
        return draw_from(&sampler->random, &all[count - 1], -1, typical);
    }
    return draw_from(&sampler->random, kept, filtered ? -1 : 1, count);
}

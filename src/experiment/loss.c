/* The loss of a text in one window. */
#include "experiment/loss.h"

#include "base/memory.h"

#include <math.h>

enum { MOST_TOKENS = 2048 };

double pj_cross_entropy(const float *logits, uint32_t vocab, int32_t id)
{
    double largest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++) largest = fmax(largest, (double)logits[i]);
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - largest);
    return log(sum) + largest - (double)logits[id];
}

typedef struct tally {
    const int32_t *ids;
    uint32_t count;
    double loss;
} tally;

static bool loss_take_row(void *context, uint32_t position, const float *logits, uint32_t vocab)
{
    tally *t = context;
    if (position + 1 >= t->count) return true;
    t->loss += pj_cross_entropy(logits, vocab, t->ids[position + 1]);
    return true;
}

pj_status pj_profile_loss(pj_engine *engine, const char *text, size_t bytes, double *loss,
                          pj_error *err)
{
    int32_t *ids = NULL;
    uint32_t count = 0, context = pj_engine_get_facts(engine)->context;
    pj_status status = pj_engine_encode(engine, text, bytes, &ids, &count, err);
    if (status != PJ_OK) return status;
    if (count > context) count = context;
    if (count > MOST_TOKENS) count = MOST_TOKENS;
    tally t = {ids, count, 0};
    if (count < 2)
        status = pj_fail(err, PJ_E_INVALID, "the text to evaluate has fewer than two tokens");
    else
        status = pj_engine_logits(engine, ids, count, true, loss_take_row, &t, err);
    *loss = t.loss / (count > 1 ? count - 1 : 1);
    pj_free(ids);
    return status;
}

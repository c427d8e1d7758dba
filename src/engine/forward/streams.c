/* Alternating updates as steps: several residual streams, predicted before a layer and corrected
 * after it, and the residual of low rank beside attention. */
#include "engine/model/streams.h"
#include "engine/forward/steps.h"

#include <math.h>

pj_slice pj_steps_streams(const pj_steps *s)
{
    const pj_model_config *c = &s->model->config;
    return pj_steps_slice(s, PJ_BUFFER_STREAMS, c->streams.count * c->hidden);
}

static pj_slice one_stream(const pj_steps *s, uint32_t index)
{
    uint32_t hidden = s->model->config.hidden;
    return pj_slice_cols(pj_steps_streams(s), index * hidden, hidden);
}

static double values_of(pj_slice x)
{
    return (double)x.rows * x.cols;
}

/* Adds the work of a projection of `rows` rows whose result gets another row's magnitude. */
static void add_matched(pj_done *done, const pj_projection *p, uint32_t rows)
{
    double values = (double)rows * (double)p->w.rows;
    done->flops += pj_product_flops(p, rows) + 5 * values;
    done->bytes += pj_product_bytes(p, rows) + 12 * values;
}

void pj_steps_widen(const pj_steps *s)
{
    const pj_model *m = s->model;
    uint32_t hidden = m->config.hidden, count = m->config.streams.count;
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X);
    pj_slice others = pj_slice_cols(pj_steps_streams(s), hidden, (count - 1) * hidden);
    pj_done done = {.bytes = 8 * values_of(x), .out = others};
    if (!pj_steps_want(s, PJ_N_ALTUP_PROJECTIONS)) return;
    pj_steps_component(s, PJ_N_ALTUP_PROJECTIONS);
    s->ops->copy_heads(s->state, 1, x, hidden, one_stream(s, 0), hidden);
    for (uint32_t i = 1; i < count; i++) {
        pj_steps_product(s, x, &m->streams_in[i - 1], one_stream(s, i), pj_no_slice);
        s->ops->match_magnitude(s->state, one_stream(s, i), x);
        add_matched(&done, &m->streams_in[i - 1], s->rows);
    }
    pj_steps_end(s, &done);
}

/* The coefficients of a stream's rows, from the tanh of the router's output. */
static pj_slice find_coefficients(const pj_steps *s, const struct pj_streams *l, pj_slice x,
                                  const pj_projection *of)
{
    uint32_t hidden = s->model->config.hidden, count = s->model->config.streams.count;
    pj_slice normed = pj_steps_hidden(s, PJ_BUFFER_NORMED);
    pj_slice routed = pj_steps_slice(s, PJ_BUFFER_ROUTING, count);
    pj_slice coefficients = pj_steps_slice(s, PJ_BUFFER_COEFFICIENTS, (uint32_t)of->w.rows);
    pj_norm_step norm = {.norm = &l->router_norm, .heads = 1, .x = x, .y = normed};
    pj_done done = {.flops = 7 * values_of(routed), .bytes = 8 * values_of(routed), .out = routed};
    pj_steps_norm(s, &norm);
    pj_steps_product(s, normed, &l->router, routed, pj_no_slice);
    if (pj_steps_want(s, PJ_N_MODALITIES)) {
        pj_steps_component(s, PJ_N_MODALITIES);
        s->ops->bound(s->state, routed, 1 / (float)hidden, 1);
        pj_steps_end(s, &done);
    }
    pj_steps_product(s, routed, of, coefficients, pj_no_slice);
    return coefficients;
}

void pj_steps_predict(const pj_steps *s, const pj_layer *l)
{
    const pj_model_config *c = &s->model->config;
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X), streams = pj_steps_streams(s);
    pj_slice coefficients =
        find_coefficients(s, l->streams, one_stream(s, c->streams.active), &l->streams->predict);
    if (!pj_steps_want(s, PJ_N_ALTUP_PREDICT)) return;
    pj_steps_component(s, PJ_N_ALTUP_PREDICT);
    s->ops->predict_streams(s->state, coefficients, streams, x);
    pj_steps_end(s, &(pj_done){.flops = 2.0 * c->streams.count * values_of(streams),
                               .bytes = 8 * values_of(streams) + 4 * values_of(x),
                               .out = streams});
}

void pj_steps_correct(const pj_steps *s, const pj_layer *l)
{
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X), streams = pj_steps_streams(s);
    pj_slice coefficients = find_coefficients(s, l->streams, x, &l->streams->correct);
    if (!pj_steps_want(s, PJ_N_ALTUP_CORRECT)) return;
    pj_steps_component(s, PJ_N_ALTUP_CORRECT);
    s->ops->correct_streams(s->state, coefficients, l->streams->scale, streams, x);
    pj_steps_end(s, &(pj_done){.flops = 2 * values_of(streams) + 2 * values_of(x),
                               .bytes = 8 * (values_of(streams) + values_of(x)),
                               .out = streams});
}

void pj_steps_add_to_others(const pj_steps *s, const pj_norm *norm)
{
    pj_slice y = pj_steps_hidden(s, PJ_BUFFER_Y);
    pj_norm_step step = {.norm = norm, .heads = 1, .x = y, .y = y};
    pj_done done = pj_norm_work(&step);
    double others = s->model->config.streams.count - 1;
    if (!pj_steps_want(s, norm->name)) return;
    pj_steps_component(s, norm->name);
    s->ops->norm(s->state, &step);
    for (uint32_t i = 1; i < s->model->config.streams.count; i++)
        s->ops->add(s->state, one_stream(s, i), y);
    done.flops += others * values_of(y);
    done.bytes += 12 * others * values_of(y);
    pj_steps_end(s, &done);
}

void pj_steps_low_rank(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    const struct pj_streams *streams = l->streams;
    pj_slice low = pj_steps_slice(s, PJ_BUFFER_MIXED, (uint32_t)streams->left.w.rows);
    pj_slice y = pj_steps_hidden(s, PJ_BUFFER_Y2);
    pj_norm_step norm = {.norm = &streams->residual_norm,
                         .heads = 1,
                         .x = y,
                         .y = y,
                         .residual = pj_steps_hidden(s, PJ_BUFFER_X)};
    pj_steps_product(s, x, &streams->left, low, pj_no_slice);
    pj_steps_product(s, low, &streams->right, y, pj_no_slice);
    pj_steps_norm(s, &norm);
}

void pj_steps_join_low_rank(const pj_steps *s, pj_slice x)
{
    pj_slice sum = pj_steps_hidden(s, PJ_BUFFER_X);
    if (!pj_steps_want(s, PJ_N_LAUREL)) return;
    pj_steps_component(s, PJ_N_LAUREL);
    s->ops->add(s->state, sum, x);
    s->ops->scale(s->state, sum, sqrtf(0.5f));
    pj_steps_end(s, &(pj_done){2 * values_of(sum), 20 * values_of(sum), sum, false});
}

/* The mean of the first stream and the projections of the others, each of the first one's
 * magnitude. Overwrites X, which the head does not read. */
void pj_steps_narrow(const pj_steps *s, const uint32_t *rows, uint32_t count)
{
    const pj_model *m = s->model;
    uint32_t hidden = m->config.hidden, streams = m->config.streams.count;
    pj_slice first = pj_slice_of(PJ_BUFFER_X, count, hidden, hidden), mean = first, own = first;
    pj_slice projected = first;
    mean.buffer = PJ_BUFFER_Y;
    own.buffer = PJ_BUFFER_Y2;
    projected.buffer = PJ_BUFFER_BRANCH;
    double values = values_of(mean);
    pj_done done = {.flops = streams * values, .bytes = 20.0 * streams * values, .out = mean};
    if (!pj_steps_want(s, PJ_N_ALTUP_UNEMBED_PROJECTIONS)) return;
    pj_steps_component(s, PJ_N_ALTUP_UNEMBED_PROJECTIONS);
    s->ops->take_rows(s->state, one_stream(s, 0), rows, first);
    s->ops->take_rows(s->state, one_stream(s, 0), rows, mean);
    for (uint32_t i = 1; i < streams; i++) {
        s->ops->take_rows(s->state, one_stream(s, i), rows, own);
        pj_steps_product(s, own, &m->streams_out[i - 1], projected, pj_no_slice);
        s->ops->match_magnitude(s->state, projected, first);
        s->ops->add(s->state, mean, projected);
        add_matched(&done, &m->streams_out[i - 1], count);
    }
    s->ops->scale(s->state, mean, 1 / (float)streams);
    pj_steps_end(s, &done);
}

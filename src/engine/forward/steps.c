/* Norms and products: the building blocks of every layer. */
#include "engine/forward/steps.h"

void pj_steps_norm(const pj_steps *s, const pj_norm_step *step)
{
    if (!step->norm->w || !pj_steps_want(s, step->norm->name)) return;
    pj_steps_component(s, step->norm->name);
    s->ops->norm(s->state, step);
    if (!s->instrument->module) return;
    pj_done done = pj_norm_work(step);
    pj_steps_end(s, &done);
}

void pj_steps_products(const pj_steps *s, pj_slice x, const pj_product *products, uint32_t count)
{
    pj_product present[PJ_MAX_PRODUCTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (products[i].projection->w.data && pj_steps_want(s, products[i].projection->name))
            present[n++] = products[i];
    if (n > 0) s->ops->products(s->state, x, present, n);
}

void pj_steps_product(const pj_steps *s, pj_slice x, const pj_projection *projection, pj_slice y,
                      pj_slice residual)
{
    pj_product product = {projection, y, residual};
    pj_steps_products(s, x, &product, 1);
}

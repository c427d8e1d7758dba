/* What all formats say in words: model, task, boundary. */
#include "report/disclosure_forms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *pj_disclosure_model(const pj_disclosure_item *item)
{
    return item->first->model_name ? item->first->model_name : "unnamed model";
}

bool pj_disclosure_same_model(const pj_disclosure_item *a, const pj_disclosure_item *b)
{
    return strcmp(pj_disclosure_model(a), pj_disclosure_model(b)) == 0;
}

bool pj_disclosure_is_known_model(const pj_disclosure *x, uint32_t item)
{
    for (uint32_t i = 0; i < item; i++)
        if (pj_disclosure_same_model(&x->items[i], &x->items[item])) return true;
    return false;
}

void pj_disclosure_boundary(const pj_disclosure_item *item, const pj_disclosure_terms *t,
                            char *text, size_t bytes)
{
    const pj_run_info *run = item->first;
    bool is_shared = strcmp(pj_run_scope(run), "request") == 0;
    size_t n = (size_t)snprintf(
        text, bytes,
        "%s energy of the %s while it computes the request (rails: %s%s%s), without "
        "loading the model and idle time before and after; ",
        pj_quality_name(run->quality),
        is_shared ? "machine, divided among its requests," : pj_run_scope(run),
        run->total_rails ? run->total_rails : "unknown", run->partial_rails ? "; missing: " : "",
        run->partial_rails ? run->partial_rails : "");
    if (n >= bytes) return;
    if (isnan(t->pue))
        snprintf(text + n, bytes - n,
                 "cooling and power supply of the facility are not included "
                 "(PUE unknown)");
    else
        snprintf(text + n, bytes - n, "times a PUE of %.3g", t->pue);
}

void pj_disclosure_task(const pj_disclosure_item *i, char *text, size_t bytes)
{
    const pj_run_info *run = i->first;
    size_t n =
        (size_t)snprintf(text, bytes, "text generation: %.4g input tokens, %.4g output tokens",
                         i->input_tokens, i->output_tokens);
    if (run->batch_size > 1 && n < bytes)
        n += (size_t)snprintf(text + n, bytes - n, ", in a batch of %u", run->batch_size);
    uint32_t at_a_time = pj_run_at_a_time(run);
    if (at_a_time > 1 && n < bytes)
        n += (size_t)snprintf(text + n, bytes - n, ", %u requests at a time", at_a_time);
    if (at_a_time == 0 && n < bytes)
        n += (size_t)snprintf(text + n, bytes - n, ", several requests at a time");
    if (run->dtype && n < bytes) snprintf(text + n, bytes - n, ", %s weights", run->dtype);
}

/* Collects the runs that predictions are fitted to. */
#include "insight/known_runs.h"

#include "insight/sides.h"
#include "trace/model_figures.h"
#include "trace/rail.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

enum { MOST_RUNS = 400, MOST_LISTED = 2000 };

/* Of runs whose model states no work of attention, as those of other programs. */
static pj_attention_work assumed_attention(const pj_model_figures *model)
{
    double flops = 4 * model->layers * model->heads * model->head_dim;
    double bytes = model->kv_bytes_per_token, windowed = model->kv_window_bytes_per_token;
    double share = model->window > 0 && bytes > 0 && windowed > 0 ? windowed / bytes : 0;
    return (pj_attention_work){.flops = {(1 - share) * flops, share * flops},
                               .bytes = {(1 - share) * bytes, share * bytes},
                               .window = share > 0 ? model->window : 0};
}

bool pj_known_run_of(const pj_run_info *info, pj_known_run *run)
{
    if (pj_run_is_ablated(info)) return false; /* a different model */
    pj_model_figures model;
    pj_model_figures_read(info->model_json, &model);
    double batch = info->batch_size ? info->batch_size : 1;
    pj_attention_work attention =
        model.knows_attention ? model.attention_work : assumed_attention(&model);
    run->work = (pj_request_work){model.decode_weight_bytes,
                                  model.flops_per_token,
                                  attention,
                                  (double)info->input_tokens / batch,
                                  (double)info->output_tokens / batch,
                                  batch};
    memcpy(run->id, info->id, sizeof run->id);
    run->joules = pj_typical_request_mj(info) / 1e3;
    run->seconds = info->request_ms / 1e3;
    return run->joules > 0 && run->seconds > 0 && run->work.weight_bytes > 0 &&
           run->work.flops_per_token > 0 && isfinite(attention.flops[PJ_ATTENTION_FULL]) &&
           isfinite(attention.bytes[PJ_ATTENTION_FULL]) && run->work.output >= 1;
}

static bool known_runs_same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* Totals over other devices or another scope are a different quantity. */
static bool known_runs_is_comparable(pj_likeness *all, const pj_run_info *info)
{
    pj_likeness with = *all;
    pj_likeness_add(&with, info);
    if (pj_likeness_refusal(&with)) return false;
    *all = with;
    return true;
}

/* Two models of power may differ by any factor, unlike two measurements of the same devices. */
static bool of_another_model(const pj_run_info *first, const pj_run_info *info)
{
    return first && info->quality == PJ_MODELLED &&
           !known_runs_same(first->power_sources, info->power_sources);
}

static size_t known_runs_choose(const pj_run_list *list, const pj_known_query *query,
                                pj_source_quality quality, pj_known_run *runs)
{
    size_t n = 0;
    uint32_t threads = query->threads;
    pj_likeness all = {.first = query->like};
    const pj_run_info *first = query->like;
    for (uint32_t i = 0; i < list->count && n < MOST_RUNS; i++) {
        const pj_run_info *info = &list->runs[i];
        if (info->quality != quality || !known_runs_same(info->engine, "perjoule") ||
            !known_runs_same(info->machine, query->machine) || pj_run_is_disturbed(info))
            continue;
        if (threads && info->threads != threads) continue;
        if (of_another_model(first, info)) continue;
        if (first && !pj_run_same_devices(first, info)) continue;
        if (!pj_known_run_of(info, &runs[n]) || !known_runs_is_comparable(&all, info)) continue;
        threads = info->threads;
        first = first ? first : info;
        n++;
    }
    return n;
}

/* Of all that were chosen, which are alike in it. */
static void known_runs_note_partial(const pj_run_list *list, pj_known_runs *known)
{
    const pj_run_info *run = list->runs;
    while (strcmp(run->id, known->runs[0].id) != 0) run++;
    if (run->partial_rails)
        pj_partial_text(run->total_rails ? run->total_rails : "", run->partial_rails,
                        known->partial, sizeof known->partial);
}

pj_status pj_known_runs_load(pj_store *store, const pj_known_query *query, pj_known_runs *known,
                             pj_error *err)
{
    pj_run_list list = {0};
    pj_run_query wanted = {.status = "completed",
                           .machine = query->machine,
                           .engine = "perjoule",
                           .to = query->before,
                           .limit = MOST_LISTED};
    *known = (pj_known_runs){.quality = query->like ? query->like->quality : PJ_MEASURED};
    pj_status status = pj_store_list(store, &wanted, &list, err);
    if (status == PJ_OK) {
        known->runs = pj_alloc(MOST_RUNS, sizeof *known->runs);
        if (!known->runs) status = pj_fail_memory(err, "a prediction");
    }
    if (status == PJ_OK)
        known->count = known_runs_choose(&list, query, known->quality, known->runs);
    if (status == PJ_OK && !query->like && known->count < PJ_PREDICT_LEAST)
        known->count = known_runs_choose(&list, query, known->quality = PJ_MODELLED, known->runs);
    if (known->count) known_runs_note_partial(&list, known);
    pj_run_list_fini(&list);
    return status;
}

void pj_known_runs_fini(pj_known_runs *known)
{
    pj_free(known->runs);
    *known = (pj_known_runs){0};
}

/* Experts and context of a run. */
#include "insight/model_use.h"

#include "store/aggregate.h"
#include "store/views.h"
#include "trace/model_figures.h"

#include <math.h>
#include <string.h>

enum { MOST_SEQUENCES = 4096, MOST_EXPERTS = 65536 };

/* ---- context -------------------------------------------------------------------------------- */

/* Cached positions of each sequence: no step follows the last token, so it is not cached. */
static pj_status read_positions(pj_store *store, const pj_run_info *info, uint32_t *positions,
                                uint32_t *count, pj_error *err)
{
    *count = 0;
    if (info->batch_size > 1)
        return pj_store_contexts(store, info->id, positions, MOST_SEQUENCES, count, err);
    if (info->input_tokens == 0 || info->output_tokens == 0) return PJ_OK;
    positions[0] = (uint32_t)(info->input_tokens + info->output_tokens - 1);
    *count = 1;
    return PJ_OK;
}

/* Layers with a sliding window keep that window only. */
static double model_use_cached_bytes(const pj_model_figures *model, double positions)
{
    double all = model->kv_bytes_per_token, window = model->window;
    double windowed = window > 0 ? model->kv_window_bytes_per_token : 0;
    return (all - windowed) * positions + (window > 0 ? windowed * fmin(positions, window) : 0);
}

static void use_context(const pj_model_figures *model, const uint32_t *positions, uint32_t count,
                        pj_context_use *use)
{
    use->limit = model->context;
    use->kv_bytes_per_token = model->kv_bytes_per_token;
    if (!count) return;
    use->longest = use->kv_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        use->longest = fmax(use->longest, positions[i] + 1.0);
        use->kv_bytes += model_use_cached_bytes(model, positions[i]);
    }
    if (use->limit > 0) use->share = use->longest / use->limit;
}

pj_status pj_context_use_get(pj_store *store, const pj_run_info *info, pj_context_use *use,
                             pj_error *err)
{
    uint32_t count = 0, *positions = pj_alloc(MOST_SEQUENCES, sizeof *positions);
    pj_model_figures model;
    pj_model_figures_read(info->model_json, &model);
    *use = (pj_context_use){NAN, NAN, NAN, NAN, NAN};
    pj_status status = PJ_OK;
    if (!positions) status = pj_fail_memory(err, "the context of a run");
    if (status == PJ_OK && info->model_json)
        status = read_positions(store, info, positions, &count, err);
    if (status == PJ_OK) use_context(&model, positions, count, use);
    pj_free(positions);
    return status;
}

/* ---- experts -------------------------------------------------------------------------------- */

/* Mean of an extra figure of the routers over the rows of a phase, or of all phases (-1). */
static double router_mean(const pj_sum_nodes *nodes, const char *name, int phase)
{
    double sum = 0, count = 0;
    for (uint32_t i = 0; i < nodes->node_count; i++) {
        const pj_sum_node *n = &nodes->nodes[i];
        if (n->component == PJ_NO_NAME || n->operation != PJ_NO_NAME ||
            strcmp(nodes->names[n->component], "router") != 0 || (phase >= 0 && n->phase != phase))
            continue;
        for (uint32_t e = n->first_extra; e; e = nodes->extras[e - 1].next) {
            if (strcmp(nodes->names[nodes->extras[e - 1].name], name) != 0) continue;
            sum += nodes->extras[e - 1].sum;
            count += nodes->extras[e - 1].count;
        }
    }
    return count > 0 ? sum / count : NAN;
}

pj_status pj_expert_use_get(pj_store *store, const pj_run_info *info, pj_expert_use *use,
                            pj_error *err)
{
    pj_arena arena;
    pj_sum_nodes nodes = {0};
    pj_model_figures model;
    pj_model_figures_read(info->model_json, &model);
    *use = (pj_expert_use){model.experts, model.experts_per_token, NAN, NAN, NAN, NAN, NAN};
    if (!(use->experts > 0)) return PJ_OK;
    pj_arena_init(&arena, 0);
    pj_status status = pj_store_nodes(store, info->id, &arena, &nodes, err);
    if (status == PJ_OK) {
        double batch = info->batch_size ? info->batch_size : 1;
        use->per_step = router_mean(&nodes, "unique_experts", PJ_PHASE_DECODE);
        use->per_step_even = use->experts * (1 - pow(1 - use->per_token / use->experts, batch));
        use->per_prefill = router_mean(&nodes, "unique_experts", PJ_PHASE_PREFILL);
        use->entropy = router_mean(&nodes, "routing_entropy_normalised", PJ_PHASE_DECODE);
        use->balance = router_mean(&nodes, "load_balance", -1);
    }
    pj_arena_fini(&arena);
    return status;
}

/* Standard deviation over mean, and the largest share; of one layer's experts. */
static double variation_of(const double *share, uint32_t experts)
{
    double squares = 0, mean = 1.0 / experts;
    for (uint32_t e = 0; e < experts; e++) squares += (share[e] - mean) * (share[e] - mean);
    return sqrt(squares / experts) / mean;
}

static void summarise_load(pj_model_use *use)
{
    const pj_expert_load *load = &use->load;
    double variation = 0, unused = 0, layers = 0;
    for (uint32_t l = 0; l < load->layers; l++) {
        const double *share = load->share + (size_t)l * load->experts;
        if (isnan(share[0])) continue;
        variation += variation_of(share, load->experts);
        layers++;
        for (uint32_t e = 0; e < load->experts; e++) unused += share[e] == 0;
    }
    use->variation = layers > 0 ? variation / layers : NAN;
    use->unused = layers > 0 ? unused / (layers * load->experts) : NAN;
}

typedef struct question {
    pj_store *store;
    const pj_run_info *info;
    uint32_t experts;
} question;

static pj_status make_load(void *context, pj_buffer *items, pj_error *err)
{
    const question *q = context;
    pj_expert_load load;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_status status = pj_store_expert_load(q->store, q->info->id, q->experts, &arena, &load, err);
    if (status == PJ_OK)
        pj_buffer_append(items, load.share, (size_t)load.layers * load.experts * sizeof(double));
    pj_arena_fini(&arena);
    return status;
}

/* Reading the rows of every router takes a while. */
static pj_status get_load(pj_store *store, const pj_run_info *info, pj_arena *arena,
                          pj_model_use *use, pj_error *err)
{
    static const pj_view_chart chart = {"expert_load-1", sizeof(double), make_load};
    void *shares;
    uint32_t count, experts = (uint32_t)use->experts.experts;
    question q = {store, info, experts};
    pj_status status = pj_view_kept(store, info->id, &chart, &q, arena, &shares, &count, err);
    if (status == PJ_OK) use->load = (pj_expert_load){count / experts, experts, shares};
    return status;
}

pj_status pj_model_use_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                           pj_model_use *use, pj_error *err)
{
    *use = (pj_model_use){0};
    pj_status status = pj_context_use_get(store, info, &use->context, err);
    if (status == PJ_OK) status = pj_expert_use_get(store, info, &use->experts, err);
    if (use->experts.experts > MOST_EXPERTS) use->experts.experts = NAN;
    if (status == PJ_OK && pj_model_use_has_experts(use))
        status = get_load(store, info, arena, use, err);
    summarise_load(use);
    return status;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void write_context(pj_json *json, const pj_context_use *use)
{
    pj_json_key(json, "context");
    if (!(use->limit > 0)) {
        pj_json_null(json);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_double(json, "limit", use->limit);
    pj_json_kv_double(json, "longest", use->longest);
    pj_json_kv_double(json, "share", use->share);
    pj_json_kv_double(json, "kv_megabytes", use->kv_bytes / 1e6);
    pj_json_kv_double(json, "kv_bytes_per_token", use->kv_bytes_per_token);
    pj_json_kv_bool(json, "nearly_full", use->share >= PJ_CONTEXT_NEARLY_FULL);
    pj_json_object_end(json);
}

static void write_load(pj_json *json, const pj_expert_load *load)
{
    pj_json_kv_array_begin(json, "load");
    for (uint32_t l = 0; l < load->layers; l++) {
        const double *share = load->share + (size_t)l * load->experts;
        pj_json_array_begin(json);
        for (uint32_t e = 0; e < load->experts && !isnan(share[0]); e++)
            pj_json_float(json, (float)share[e]);
        pj_json_array_end(json);
    }
    pj_json_array_end(json);
}

static void write_experts(pj_json *json, const pj_model_use *use)
{
    const pj_expert_use *e = &use->experts;
    pj_json_key(json, "experts");
    if (!pj_model_use_has_experts(use)) {
        pj_json_null(json);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_double(json, "experts", e->experts);
    pj_json_kv_double(json, "per_token", e->per_token);
    pj_json_kv_double(json, "per_step", e->per_step);
    pj_json_kv_double(json, "per_step_even", e->per_step_even);
    pj_json_kv_double(json, "per_prefill", e->per_prefill);
    pj_json_kv_double(json, "routing_entropy_normalised", e->entropy);
    pj_json_kv_double(json, "load_balance", e->balance);
    write_load(json, &use->load);
    pj_json_kv_double(json, "load_variation", use->variation);
    pj_json_kv_double(json, "unused_share", use->unused);
    pj_json_object_end(json);
}

void pj_model_use_write(const pj_model_use *use, pj_json *json)
{
    pj_json_object_begin(json);
    write_experts(json, use);
    write_context(json, &use->context);
    pj_json_object_end(json);
}

/* Experts and context of a run. */
#include "insight/model_use.h"

#include "store/aggregate.h"
#include "store/model_use.h"
#include "store/views.h"
#include "trace/json_member.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { MOST_SEQUENCES = 4096, MOST_EXPERTS = 65536 };

static json_t *model_of(const pj_run_info *info)
{
    return info->model_json ? json_loads(info->model_json, 0, NULL) : NULL;
}

/* ---- context -------------------------------------------------------------------------------- */

/* Cached positions of each sequence. The last generated token is in no cache: nothing followed. */
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
static double cached_bytes(const json_t *model, double positions)
{
    double all = pj_member_number(model, "kv_bytes_per_token"),
           window = pj_member_number(model, "window");
    double windowed = window > 0 ? pj_member_number(model, "kv_window_bytes_per_token") : 0;
    return (all - windowed) * positions + (window > 0 ? windowed * fmin(positions, window) : 0);
}

static void use_context(const json_t *model, const uint32_t *positions, uint32_t count,
                        pj_context_use *use)
{
    use->limit = pj_member_number(model, "context");
    use->kv_bytes_per_token = pj_member_number(model, "kv_bytes_per_token");
    if (!count) return;
    use->longest = use->kv_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        use->longest = fmax(use->longest, positions[i] + 1.0);
        use->kv_bytes += cached_bytes(model, positions[i]);
    }
    if (use->limit > 0) use->share = use->longest / use->limit;
}

pj_status pj_context_use_get(pj_store *store, const pj_run_info *info, pj_context_use *use,
                             pj_error *err)
{
    uint32_t count = 0, *positions = pj_alloc(MOST_SEQUENCES, sizeof *positions);
    json_t *model = model_of(info);
    *use = (pj_context_use){NAN, NAN, NAN, NAN, NAN};
    pj_status status = PJ_OK;
    if (!positions) status = pj_fail_memory(err, "the context of a run");
    if (status == PJ_OK && model) status = read_positions(store, info, positions, &count, err);
    if (status == PJ_OK) use_context(model, positions, count, use);
    json_decref(model);
    pj_free(positions);
    return status;
}

static pj_status write_context(pj_store *store, const pj_run_info *info, pj_json *json,
                               pj_error *err)
{
    pj_context_use use;
    pj_status status = pj_context_use_get(store, info, &use, err);
    pj_json_key(json, "context");
    if (status != PJ_OK || !(use.limit > 0)) {
        pj_json_null(json);
        return status;
    }
    pj_json_object_begin(json);
    pj_json_kv_double(json, "limit", use.limit);
    pj_json_kv_double(json, "longest", use.longest);
    pj_json_kv_double(json, "share", use.share);
    pj_json_kv_double(json, "kv_megabytes", use.kv_bytes / 1e6);
    pj_json_kv_double(json, "kv_bytes_per_token", use.kv_bytes_per_token);
    pj_json_kv_bool(json, "nearly_full", use.share >= PJ_CONTEXT_NEARLY_FULL);
    pj_json_object_end(json);
    return PJ_OK;
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
    json_t *model = model_of(info);
    *use = (pj_expert_use){pj_member_number(model, "experts"),
                           pj_member_number(model, "experts_per_token"),
                           NAN,
                           NAN,
                           NAN,
                           NAN,
                           NAN};
    json_decref(model);
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

static void write_load(pj_json *json, const pj_expert_load *load)
{
    double variation = 0, unused = 0, layers = 0;
    pj_json_key(json, "load");
    pj_json_array_begin(json);
    for (uint32_t l = 0; l < load->layers; l++) {
        const double *share = load->share + (size_t)l * load->experts;
        bool known = load->experts > 0 && !isnan(share[0]);
        if (known) {
            variation += variation_of(share, load->experts);
            layers++;
        }
        pj_json_array_begin(json);
        for (uint32_t e = 0; known && e < load->experts; e++) {
            unused += share[e] == 0;
            pj_json_float(json, (float)share[e]);
        }
        pj_json_array_end(json);
    }
    pj_json_array_end(json);
    pj_json_kv_double(json, "load_variation", layers > 0 ? variation / layers : NAN);
    pj_json_kv_double(json, "unused_share", layers > 0 ? unused / (layers * load->experts) : NAN);
}

static pj_status write_experts(pj_store *store, const pj_run_info *info, pj_json *json,
                               pj_error *err)
{
    pj_expert_use use;
    pj_expert_load load;
    pj_arena arena;
    pj_status status = pj_expert_use_get(store, info, &use, err);
    pj_json_key(json, "experts");
    if (status != PJ_OK || !(use.experts > 0) || use.experts > MOST_EXPERTS) {
        pj_json_null(json);
        return status;
    }
    pj_arena_init(&arena, 0);
    status = pj_store_expert_load(store, info->id, (uint32_t)use.experts, &arena, &load, err);
    pj_json_object_begin(json);
    pj_json_kv_double(json, "experts", use.experts);
    pj_json_kv_double(json, "per_token", use.per_token);
    pj_json_kv_double(json, "per_step", use.per_step);
    pj_json_kv_double(json, "per_step_even", use.per_step_even);
    pj_json_kv_double(json, "per_prefill", use.per_prefill);
    pj_json_kv_double(json, "routing_entropy_normalised", use.entropy);
    pj_json_kv_double(json, "load_balance", use.balance);
    if (status == PJ_OK) write_load(json, &load);
    pj_json_object_end(json);
    pj_arena_fini(&arena);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

typedef struct question {
    pj_store *store;
    const pj_run_info *info;
} question;

static pj_status make_use(void *context, pj_json *json, pj_error *err)
{
    const question *q = context;
    pj_json_object_begin(json);
    pj_status status = write_experts(q->store, q->info, json, err);
    if (status == PJ_OK) status = write_context(q->store, q->info, json, err);
    pj_json_object_end(json);
    return status;
}

pj_status pj_model_use_write(pj_store *store, const char *id, pj_json *json, pj_error *err)
{
    pj_run_list one = {0};
    pj_status status = pj_store_info(store, id, &one, err);
    pj_json_key(json, "model_use");
    if (status == PJ_OK)
        status = pj_view_kept(store, id, "model_use-1", make_use, &(question){store, &one.runs[0]},
                              json, err);
    pj_run_list_fini(&one);
    return status;
}

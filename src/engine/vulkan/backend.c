/* The table of a Vulkan device's operations, and a model on it. */
#include "engine/vulkan/gpu.h"

#include "base/memory.h"
#include "engine/forward/work.h"

#include <stdlib.h>

/* ---- a model on a device ---- */

static pj_status gpu_find(const char *name, pj_vk_info *found, pj_error *err)
{
    pj_vk_info devices[PJ_VK_MAX_DEVICES];
    uint32_t count;
    pj_status status = pj_vk_list(devices, &count, err);
    if (status != PJ_OK) return status;
    int chosen = pj_vk_select(devices, count, name ? name : "gpu");
    if (chosen < 0)
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no device \"%.60s\": see perjoule devices",
                       name ? name : "gpu");
    *found = devices[chosen];
    return PJ_OK;
}

static bool gpu_has(const char *device)
{
    pj_vk_info found;
    return gpu_find(device, &found, NULL) == PJ_OK;
}

/* For tests: software drivers have no fast paths. */
static bool gpu_is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static pj_vk_kernel gpu_choose_many(const pj_gpu_model *m)
{
    enum { SHARED_BYTES = 28 << 10, SUBGROUPS = 8 }; /* of the kernel, at most */
    const pj_vk_info *info = pj_vk_device(m->vk);
    if (gpu_is_set("PERJOULE_VULKAN_MATRIX")) return PJ_VK_PRODUCT_MATRIX_PLAIN;
    bool fits = info->cooperative_matrix && info->shared_bytes >= SHARED_BYTES &&
                info->max_threads >= SUBGROUPS * info->subgroup_size;
    return fits && pj_gpu_matrices_are_real(m) ? PJ_VK_PRODUCT_MATRIX : PJ_VK_PRODUCT_TILED;
}

static pj_status gpu_take(pj_gpu_model *m, const pj_load_request *request, pj_error *err)
{
    pj_vk_info found;
    pj_status status = gpu_find(request->device, &found, err);
    if (status != PJ_OK) return status;
    pj_vk_options options = {.uuid = found.uuid,
                             .namesakes = found.namesakes,
                             .validate = gpu_is_set("PERJOULE_VULKAN_VALIDATE")};
    status = pj_vk_open(&m->vk, &options, err);
    if (status != PJ_OK) return status;
    m->packs = pj_vk_device(m->vk)->packed_dot || gpu_is_set("PERJOULE_VULKAN_PACKED");
    m->many = gpu_choose_many(m);
    status = pj_gpu_weights_load(&m->weights, m->vk, request, err);
    return status == PJ_OK ? pj_gpu_prepare_model(m, request, err) : status;
}

static void gpu_unload(void *loaded)
{
    pj_gpu_model *m = loaded;
    if (m->vk) pj_gpu_weights_free(&m->weights, m->vk);
    pj_vk_close(m->vk);
    pj_free(m);
}

static pj_status gpu_load(const pj_load_request *request, void **loaded, pj_error *err)
{
    pj_gpu_model *m = pj_alloc(1, sizeof *m);
    if (!m) return pj_fail_memory(err, "the engine");
    m->model = request->model;
    m->backend = &pj_backend_vulkan;
    pj_status status = gpu_take(m, request, err);
    if (status == PJ_OK)
        *loaded = m;
    else
        gpu_unload(m);
    return status;
}

static void gpu_facts(void *loaded, pj_compute_facts *facts)
{
    const pj_gpu_model *m = loaded;
    *facts = (pj_compute_facts){.name = pj_vk_device(m->vk)->name,
                                .key = pj_vk_device(m->vk)->key,
                                .isa = "vulkan",
                                .upload_bytes = m->weights.bytes,
                                .upload_begin_ns = m->weights.begin_ns,
                                .upload_end_ns = m->weights.end_ns};
}

const pj_backend pj_backend_vulkan = {.version = PJ_BACKEND_VERSION,
                                      .name = "vulkan",
                                      .has = gpu_has,
                                      .load = gpu_load,
                                      .unload = gpu_unload,
                                      .facts = gpu_facts,
                                      .peak = pj_gpu_peak,
                                      .read_pass = pj_gpu_read_pass,
                                      .open = pj_gpu_open,
                                      .close = pj_gpu_close,
                                      .ops = {.begin_pass = pj_gpu_begin_pass,
                                              .end_pass = pj_gpu_end_pass,
                                              .section = pj_gpu_section,
                                              .end_section = pj_gpu_end_section,
                                              .layer = pj_gpu_layer,
                                              .component = pj_gpu_component,
                                              .end = pj_gpu_end,
                                              .gather = pj_gpu_gather,
                                              .scale = pj_gpu_scale,
                                              .join_vectors = pj_gpu_join_vectors,
                                              .angles = pj_gpu_angles,
                                              .norm = pj_gpu_norm,
                                              .products = pj_gpu_products,
                                              .add = pj_gpu_add,
                                              .take_queries = pj_gpu_take_queries,
                                              .project_heads = pj_gpu_project_heads,
                                              .copy_heads = pj_gpu_copy_heads,
                                              .gate_heads = pj_gpu_gate_heads,
                                              .rotate = pj_gpu_rotate,
                                              .rotate_and_store = pj_gpu_rotate_and_store,
                                              .choose_keys = pj_gpu_choose_keys,
                                              .attend = pj_gpu_attend,
                                              .activate = pj_gpu_activate,
                                              .route = pj_gpu_route,
                                              .experts = pj_gpu_experts,
                                              .add_gated = pj_gpu_add_gated,
                                              .convolve = pj_gpu_convolve,
                                              .delta_rule = pj_gpu_delta_rule,
                                              .gated_norm = pj_gpu_gated_norm,
                                              .predict_streams = pj_gpu_predict_streams,
                                              .correct_streams = pj_gpu_correct_streams,
                                              .match_magnitude = pj_gpu_match_magnitude,
                                              .take_rows = pj_gpu_take_rows,
                                              .bound = pj_gpu_bound,
                                              .argmax = pj_gpu_argmax,
                                              .give = pj_gpu_give,
                                              .rows = pj_gpu_rows,
                                              .logits = pj_gpu_logits,
                                              .ids = pj_gpu_ids,
                                              .reset = pj_gpu_reset,
                                              .rewind = pj_gpu_rewind,
                                              .slide = pj_gpu_slide}};

/* Compute pipelines, made at their first use, and their cache on disk: a pipeline takes up to a
 * quarter of a second to compile on a real driver. */
#include "engine/vulkan/api.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

/* Drivers differ in how well they check a cache, so it is stored after a checksum of ours. */
enum { PIPELINES_MAX_CACHE_BYTES = 256 << 20 };
static const char pipelines_magic[] = "perjoule vulkan pipelines 1\n";
enum { PIPELINES_HEAD_BYTES = sizeof pipelines_magic - 1 + PJ_SHA256_TEXT_BYTES };

/* One file for each driver of each device. */
static void pipelines_find_cache(pj_vk *vk)
{
    char folder[900], name[48], digits[2 * VK_UUID_SIZE + 1];
    const char *wanted = vk->options.cache_dir;
    for (int i = 0; i < VK_UUID_SIZE; i++)
        snprintf(digits + 2 * i, 3, "%02x", vk->physical.cache_uuid[i] ^ vk->physical.info.uuid[i]);
    snprintf(name, sizeof name, "vulkan-%s", digits);
    vk->cache_path[0] = 0;
    if (wanted ? !*wanted : !pj_path_user_cache(folder, sizeof folder)) return;
    if (!pj_path_join(vk->cache_path, sizeof vk->cache_path, wanted ? wanted : folder, name))
        vk->cache_path[0] = 0;
}

/* The data after the head, if it is whole. */
static const char *pipelines_check(const char *file, size_t bytes, size_t *data_bytes)
{
    const size_t magic = sizeof pipelines_magic - 1;
    char sum[PJ_SHA256_TEXT_BYTES];
    if (bytes < PIPELINES_HEAD_BYTES || memcmp(file, pipelines_magic, magic) != 0) return NULL;
    *data_bytes = bytes - PIPELINES_HEAD_BYTES;
    pj_sha256_text(file + PIPELINES_HEAD_BYTES, *data_bytes, sum);
    return memcmp(file + magic, sum, sizeof sum - 1) == 0 ? file + PIPELINES_HEAD_BYTES : NULL;
}

static VkResult pipelines_make_cache(pj_vk *vk, const void *data, size_t bytes)
{
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = bytes,
                                      .pInitialData = data};
    return vk->instance.fn.CreatePipelineCache(vk->device, &info, NULL, &vk->cache);
}

static VkResult pipelines_load_cache(pj_vk *vk)
{
    char *file = NULL;
    size_t bytes = 0, data_bytes = 0;
    const char *data = NULL;
    if (vk->cache_path[0] && pj_file_exists(vk->cache_path) &&
        pj_file_read(vk->cache_path, PIPELINES_MAX_CACHE_BYTES, &file, &bytes, NULL) == PJ_OK)
        data = pipelines_check(file, bytes, &data_bytes);
    VkResult result = pipelines_make_cache(vk, data, data ? data_bytes : 0);
    if (result != VK_SUCCESS && data) result = pipelines_make_cache(vk, NULL, 0);
    pj_free(file);
    return result;
}

/* Best effort: without the file, the next process compiles again. */
static void pipelines_save_cache(pj_vk *vk)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    const size_t magic = sizeof pipelines_magic - 1;
    size_t bytes = 0;
    char folder[1024];
    if (!vk->cache_path[0] || !vk->cache_changed || vk->lost) return;
    if (fn->GetPipelineCacheData(vk->device, vk->cache, &bytes, NULL) < 0 || bytes == 0) return;
    char *file = pj_alloc(1, PIPELINES_HEAD_BYTES + bytes);
    if (!file) return;
    if (fn->GetPipelineCacheData(vk->device, vk->cache, &bytes, file + PIPELINES_HEAD_BYTES) ==
        VK_SUCCESS) {
        memcpy(file, pipelines_magic, magic);
        pj_sha256_text(file + PIPELINES_HEAD_BYTES, bytes, file + magic);
        file[PIPELINES_HEAD_BYTES - 1] = '\n';
        snprintf(folder, sizeof folder, "%.*s",
                 (int)(pj_path_name(vk->cache_path) - vk->cache_path), vk->cache_path);
        if (pj_dir_make(folder, NULL) == PJ_OK)
            pj_file_write(vk->cache_path, file, PIPELINES_HEAD_BYTES + bytes, NULL);
    }
    pj_free(file);
}

pj_status pj_vk_pipelines_open(pj_vk *vk, pj_error *err)
{
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PJ_VK_PUSH_BYTES};
    VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &range};
    VkResult result = vk->instance.fn.CreatePipelineLayout(vk->device, &info, NULL, &vk->layout);
    pipelines_find_cache(vk);
    if (result == VK_SUCCESS) result = pipelines_load_cache(vk);
    return result == VK_SUCCESS ? PJ_OK : pj_vk_fail(vk, result, err, "its pipelines");
}

void pj_vk_pipelines_close(pj_vk *vk)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    pipelines_save_cache(vk);
    for (size_t i = 0; i < vk->pipeline_count; i++) {
        fn->DestroyPipeline(vk->device, vk->pipelines[i]->handle, NULL);
        pj_free(vk->pipelines[i]);
    }
    pj_free(vk->pipelines);
    if (vk->cache) fn->DestroyPipelineCache(vk->device, vk->cache, NULL);
    if (vk->layout) fn->DestroyPipelineLayout(vk->device, vk->layout, NULL);
}

static VkResult pipelines_compile(pj_vk *vk, pj_vk_pipeline *p)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    VkSpecializationMapEntry entries[PJ_VK_MAX_CONSTANTS];
    for (uint32_t i = 0; i < p->count; i++)
        entries[i] =
            (VkSpecializationMapEntry){i, i * (uint32_t)sizeof(uint32_t), sizeof(uint32_t)};
    VkSpecializationInfo special = {p->count, entries, p->count * sizeof(uint32_t), p->constants};
    VkShaderModuleCreateInfo module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                       .codeSize = p->shader->code_bytes,
                                       .pCode = p->shader->code};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .pName = "main",
                  .pSpecializationInfo = p->count ? &special : NULL},
        .layout = vk->layout,
        .basePipelineIndex = -1};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroups = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
    if (p->shader->subgroup_constant && vk->physical.info.subgroup_control) {
        subgroups.requiredSubgroupSize = p->constants[p->shader->subgroup_constant - 1];
        info.stage.pNext = &subgroups;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    VkResult result = fn->CreateShaderModule(vk->device, &module, NULL, &info.stage.module);
    if (result != VK_SUCCESS) return result;
    result = fn->CreateComputePipelines(vk->device, vk->cache, 1, &info, NULL, &p->handle);
    fn->DestroyShaderModule(vk->device, info.stage.module, NULL);
    return result;
}

static pj_vk_pipeline *pipelines_find(const pj_vk *vk, const pj_vk_shader *shader,
                                      const uint32_t *constants, uint32_t count)
{
    for (size_t i = 0; i < vk->pipeline_count; i++) {
        pj_vk_pipeline *p = vk->pipelines[i];
        if (p->shader == shader && p->count == count &&
            (count == 0 || memcmp(p->constants, constants, count * sizeof *constants) == 0))
            return p;
    }
    return NULL;
}

static pj_status pipelines_add(pj_vk *vk, pj_vk_pipeline *p, pj_error *err)
{
    char what[100];
    pj_vk_pipeline **grown = pj_grow(vk->pipelines, vk->pipeline_count, &vk->pipeline_capacity,
                                     sizeof(pj_vk_pipeline *));
    if (!grown) return pj_fail_memory(err, "pipelines");
    vk->pipelines = grown;
    VkResult result = pipelines_compile(vk, p);
    snprintf(what, sizeof what, "shader %.80s", p->shader->name);
    if (result != VK_SUCCESS) return pj_vk_fail(vk, result, err, what);
    vk->pipelines[vk->pipeline_count++] = p;
    vk->cache_changed = true;
    return PJ_OK;
}

const pj_vk_pipeline *pj_vk_pipeline_get(pj_vk *vk, const pj_vk_shader *shader,
                                         const uint32_t *constants, uint32_t count, pj_error *err)
{
    pj_vk_pipeline *p = pipelines_find(vk, shader, constants, count);
    if (p) return p;
    if (count > PJ_VK_MAX_CONSTANTS || shader->push_bytes > PJ_VK_PUSH_BYTES) {
        pj_fail(err, PJ_E_INVALID, "shader %s has too many constants", shader->name);
        return NULL;
    }
    p = pj_alloc(1, sizeof *p);
    if (!p) {
        pj_fail_memory(err, "a pipeline");
        return NULL;
    }
    p->shader = shader;
    p->count = count;
    if (count) memcpy(p->constants, constants, count * sizeof *constants);
    if (pipelines_add(vk, p, err) == PJ_OK) return p;
    pj_free(p);
    return NULL;
}

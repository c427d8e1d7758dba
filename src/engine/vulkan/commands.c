/* Recording and submission. Command buffers are used in turn; a timeline semaphore counts the
 * submissions that are done. Barriers are recorded late, before the first command that needs them,
 * so that they order no more stages than must be. */
#include "engine/vulkan/api.h"

#include "base/clock.h"

#include <string.h>

/* A submission of more bytes or commands is sent off: drivers kill long ones, and the device starts
 * while the host still records. */
static const uint64_t commands_max_work = 256 << 20;
enum { COMMANDS_MAX = 400 };

pj_status pj_vk_recordings_open(pj_vk *vk, pj_error *err)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    VkCommandBuffer commands[PJ_VK_RECORDINGS];
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = vk->physical.family};
    VkSemaphoreTypeCreateInfo timeline = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                       .pNext = &timeline};
    VkResult result = fn->CreateSemaphore(vk->device, &semaphore, NULL, &vk->semaphore);
    if (result == VK_SUCCESS) result = fn->CreateCommandPool(vk->device, &pool, NULL, &vk->pool);
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = vk->pool,
                                        .commandBufferCount = PJ_VK_RECORDINGS};
    if (result == VK_SUCCESS) result = fn->AllocateCommandBuffers(vk->device, &info, commands);
    if (result != VK_SUCCESS) return pj_vk_fail(vk, result, err, "its command buffers");
    for (int i = 0; i < PJ_VK_RECORDINGS; i++) vk->recordings[i].commands = commands[i];
    return PJ_OK;
}

void pj_vk_recordings_close(pj_vk *vk)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    if (vk->pool) fn->DestroyCommandPool(vk->device, vk->pool, NULL);
    if (vk->semaphore) fn->DestroySemaphore(vk->device, vk->semaphore, NULL);
}

void pj_vk_fail_recording(pj_vk *vk, VkResult result, const char *what)
{
    if (result == VK_ERROR_DEVICE_LOST || result == VK_TIMEOUT) vk->lost = true;
    if (vk->failure.status == PJ_OK) pj_vk_fail(vk, result, &vk->failure, what);
}

void pj_vk_refuse(pj_vk *vk, const pj_error *reason)
{
    if (vk->failure.status == PJ_OK) vk->failure = *reason;
}

static VkResult commands_wait(pj_vk *vk, uint64_t value, int64_t timeout_ns)
{
    VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &vk->semaphore,
                                .pValues = &value};
    return vk->instance.fn.WaitSemaphores(vk->device, &info, (uint64_t)timeout_ns);
}

/* Waiting for an idle device would have no bound. */
bool pj_vk_is_stuck(pj_vk *vk)
{
    enum { LAST_WAIT_S = 10 };
    if (!vk->stuck && vk->semaphore)
        vk->stuck = commands_wait(vk, vk->submitted, LAST_WAIT_S * PJ_NS_PER_S) == VK_TIMEOUT;
    return vk->stuck;
}

pj_status pj_vk_wait_for(pj_vk *vk, uint64_t value, pj_error *err)
{
    if (value == 0) return PJ_OK;
    VkResult result = commands_wait(vk, value, vk->options.timeout_ns);
    if (result == VK_SUCCESS) return PJ_OK;
    pj_vk_fail_recording(vk, result, result == VK_TIMEOUT ? "it hangs" : "it failed");
    if (err) *err = vk->failure;
    return vk->failure.status;
}

static void commands_begin(pj_vk *vk)
{
    pj_vk_recording *next = &vk->recordings[vk->submitted % PJ_VK_RECORDINGS];
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    if (pj_vk_wait_for(vk, next->value, NULL) != PJ_OK) return;
    VkResult result = vk->instance.fn.BeginCommandBuffer(next->commands, &info);
    if (result != VK_SUCCESS) {
        pj_vk_fail_recording(vk, result, "recording");
        return;
    }
    vk->recording = next;
    vk->bound = NULL;
    vk->work = vk->commands = 0;
}

/* A failed recording is thrown away: the buffer is begun anew later. */
static void commands_submit(pj_vk *vk, pj_vk_recording *recording)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    uint64_t value = vk->submitted + 1;
    VkResult result = fn->EndCommandBuffer(recording->commands);
    if (result != VK_SUCCESS || vk->failure.status != PJ_OK) {
        if (result != VK_SUCCESS) pj_vk_fail_recording(vk, result, "recording");
        return;
    }
    VkTimelineSemaphoreSubmitInfo timeline = {.sType =
                                                  VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                              .signalSemaphoreValueCount = 1,
                                              .pSignalSemaphoreValues = &value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &timeline,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &recording->commands,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &vk->semaphore};
    result = fn->QueueSubmit(vk->queue, 1, &info, VK_NULL_HANDLE);
    if (result != VK_SUCCESS) {
        pj_vk_fail_recording(vk, result, "submission");
        return;
    }
    recording->value = vk->submitted = value;
}

void pj_vk_flush(pj_vk *vk)
{
    pj_vk_recording *recording = vk->recording;
    if (!recording) return;
    vk->recording = NULL;
    commands_submit(vk, recording);
}

pj_status pj_vk_wait(pj_vk *vk, pj_error *err)
{
    pj_vk_barrier(vk);
    if (vk->unordered[PJ_VK_HOST_READS]) pj_vk_command_after(vk, PJ_VK_HOST_READS);
    pj_vk_flush(vk);
    if (!vk->lost) pj_vk_wait_for(vk, vk->submitted, NULL);
    vk->staging.used = 0;
    pj_status status = vk->failure.status;
    if (status != PJ_OK && err) *err = vk->failure;
    if (!vk->lost) vk->failure = (pj_error){0};
    return status;
}

void pj_vk_barrier(pj_vk *vk)
{
    for (int i = 0; i < PJ_VK_STAGES; i++) vk->unordered[i] |= vk->recorded;
    vk->recorded = 0;
}

static VkPipelineStageFlags commands_stages(uint32_t bits)
{
    return (bits >> PJ_VK_COMPUTES & 1 ? VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT : 0) |
           (bits >> PJ_VK_TRANSFERS & 1 ? VK_PIPELINE_STAGE_TRANSFER_BIT : 0) |
           (bits >> PJ_VK_HOST_READS & 1 ? VK_PIPELINE_STAGE_HOST_BIT : 0);
}

static VkAccessFlags commands_writes(uint32_t bits)
{
    return (bits >> PJ_VK_COMPUTES & 1 ? VK_ACCESS_SHADER_WRITE_BIT : 0) |
           (bits >> PJ_VK_TRANSFERS & 1 ? VK_ACCESS_TRANSFER_WRITE_BIT : 0);
}

static VkAccessFlags commands_accesses(pj_vk_stage stage)
{
    static const VkAccessFlags accesses[PJ_VK_STAGES] = {
        [PJ_VK_COMPUTES] = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
        [PJ_VK_TRANSFERS] = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        [PJ_VK_HOST_READS] = VK_ACCESS_HOST_READ_BIT,
    };
    return accesses[stage];
}

static void commands_order(pj_vk *vk, pj_vk_stage stage)
{
    uint32_t before = vk->unordered[stage];
    if (!before) return;
    VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                              .srcAccessMask = commands_writes(before),
                              .dstAccessMask = commands_accesses(stage)};
    vk->instance.fn.CmdPipelineBarrier(vk->recording->commands, commands_stages(before),
                                       commands_stages(1u << stage), 0, 1, &memory, 0, NULL, 0,
                                       NULL);
    vk->unordered[stage] = 0;
}

VkCommandBuffer pj_vk_command_after(pj_vk *vk, pj_vk_stage stage)
{
    if (vk->failure.status != PJ_OK) return NULL;
    if (vk->recording && (vk->work >= commands_max_work || vk->commands >= COMMANDS_MAX))
        pj_vk_flush(vk);
    if (!vk->recording) commands_begin(vk);
    if (!vk->recording) return NULL;
    commands_order(vk, stage);
    vk->commands++;
    return vk->recording->commands;
}

VkCommandBuffer pj_vk_command(pj_vk *vk, pj_vk_stage stage)
{
    VkCommandBuffer commands = pj_vk_command_after(vk, stage);
    if (!commands) return NULL;
    vk->recorded |= 1u << stage;
    return commands;
}

/* Command buffer with pipeline and constants set. */
static VkCommandBuffer commands_prepare(pj_vk *vk, const pj_vk_pipeline *pipeline, const void *push)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    if (!pipeline) pj_vk_fail_recording(vk, VK_ERROR_UNKNOWN, "a dispatch without a pipeline");
    VkCommandBuffer commands = pj_vk_command(vk, PJ_VK_COMPUTES);
    if (!commands) return NULL;
    if (vk->bound != pipeline)
        fn->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->handle);
    vk->bound = pipeline;
    if (pipeline->shader->push_bytes)
        fn->CmdPushConstants(commands, vk->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                             pipeline->shader->push_bytes, push);
    return commands;
}

void pj_vk_dispatch(pj_vk *vk, const pj_vk_pipeline *pipeline, const void *push, uint32_t x,
                    uint32_t y, uint32_t z, uint64_t work)
{
    if (x == 0 || y == 0 || z == 0) return;
    if (x > vk->physical.info.max_groups_x || y > 65535 || z > 65535) {
        pj_vk_fail_recording(vk, VK_ERROR_UNKNOWN, "a dispatch has too many workgroups");
        return;
    }
    VkCommandBuffer commands = commands_prepare(vk, pipeline, push);
    if (!commands) return;
    vk->instance.fn.CmdDispatch(commands, x, y, z);
    vk->work += work;
}

/* Buffers with an address, and copies between host and device. Each buffer has an allocation of its
 * own: there are few, since weights and activations are parts of large ones. */
#include "engine/vulkan/api.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { MEMORY_ANY = -1 };

/* Wanted properties in order of preference; what a place needs comes last. */
static int memory_find_type(const pj_vk *vk, uint32_t allowed, VkMemoryPropertyFlags wanted,
                            VkMemoryPropertyFlags unwanted)
{
    const VkPhysicalDeviceMemoryProperties *m = &vk->physical.memory;
    for (uint32_t i = 0; i < m->memoryTypeCount; i++) {
        VkMemoryPropertyFlags has = m->memoryTypes[i].propertyFlags;
        if (allowed >> i & 1 && (has & wanted) == wanted && !(has & unwanted)) return (int)i;
    }
    return MEMORY_ANY;
}

static int memory_type(const pj_vk *vk, pj_vk_place place, uint32_t allowed)
{
    const VkMemoryPropertyFlags device = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                       VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                cached = host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    int type;
    switch (place) {
    case PJ_VK_DEVICE:
        type = memory_find_type(vk, allowed, device, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
        return type >= 0 ? type : memory_find_type(vk, allowed, device, 0);
    case PJ_VK_UPLOAD:
        type = memory_find_type(vk, allowed, host, device);
        return type >= 0 ? type : memory_find_type(vk, allowed, host, 0);
    default:
        type = memory_find_type(vk, allowed, cached, 0);
        return type >= 0 ? type : memory_find_type(vk, allowed, host, 0);
    }
}

static void memory_size_text(uint64_t bytes, char text[32])
{
    if (bytes >= 1000000000)
        snprintf(text, 32, "%.2f GB", (double)bytes / 1e9);
    else if (bytes >= 1000000)
        snprintf(text, 32, "%.1f MB", (double)bytes / 1e6);
    else
        snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
}

static pj_status memory_fail_full(const pj_vk *vk, uint64_t bytes, uint64_t free, const char *what,
                                  pj_error *err)
{
    char needed[32], left[32], total[32];
    uint64_t limit =
        vk->options.memory_limit ? vk->options.memory_limit : vk->physical.info.memory_bytes;
    memory_size_text(bytes, needed);
    memory_size_text(free, left);
    memory_size_text(limit, total);
    return pj_fail(err, PJ_E_NO_MEMORY, "%s: %s needs %s, and %s of %s are free",
                   vk->physical.info.name, what, needed, left, total);
}

/* More at once than the driver grants, or more than is free and it does not say so. */
static pj_status memory_fail_refused(const pj_vk *vk, const pj_vk_buffer *b, const char *what,
                                     pj_error *err)
{
    char needed[32], promised[32];
    memory_size_text(b->bytes, needed);
    memory_size_text(vk->physical.info.allocation_bytes, promised);
    return pj_fail(err, PJ_E_NO_MEMORY,
                   "%s: the driver refuses %s for %s; it promises up to %s at once if so much is "
                   "free",
                   vk->physical.info.name, needed, what, promised);
}

/* Beyond its limit a driver may truncate sizes without a word. */
static pj_status memory_fail_large(const pj_vk *vk, uint64_t bytes, const char *what, pj_error *err)
{
    char needed[32], most[32];
    memory_size_text(bytes, needed);
    memory_size_text(vk->physical.info.buffer_bytes, most);
    return pj_fail(err, PJ_E_NO_MEMORY,
                   "%s: %s needs %s in one piece, and the driver's buffers have at most %s",
                   vk->physical.info.name, what, needed, most);
}

static bool memory_is_refused(VkResult result)
{
    return result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
}

/* Some drivers grant more than there is and page it, or fail much later. */
static uint64_t memory_free_bytes(const pj_vk *vk, uint32_t heap)
{
    uint64_t limit = vk->physical.memory.memoryHeaps[heap].size;
    if (vk->options.memory_limit && vk->options.memory_limit < limit)
        limit = vk->options.memory_limit;
    uint64_t left = limit > vk->used_bytes ? limit - vk->used_bytes : 0;
    uint64_t reported = pj_vk_heap_free(vk, heap);
    return reported < left ? reported : left;
}

uint64_t pj_vk_memory_free(const pj_vk *vk)
{
    int type = memory_type(vk, PJ_VK_DEVICE, UINT32_MAX);
    return type < 0 ? 0 : memory_free_bytes(vk, vk->physical.memory.memoryTypes[type].heapIndex);
}

static pj_status memory_allocate(pj_vk *vk, pj_vk_buffer *b, const char *what, pj_error *err)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    VkMemoryRequirements needs;
    fn->GetBufferMemoryRequirements(vk->device, b->block->buffer, &needs);
    int type = memory_type(vk, b->place, needs.memoryTypeBits);
    if (type < 0) return pj_vk_fail(vk, VK_ERROR_FEATURE_NOT_PRESENT, err, what);
    uint32_t heap = vk->physical.memory.memoryTypes[type].heapIndex;
    uint64_t free = memory_free_bytes(vk, heap);
    if (b->place == PJ_VK_DEVICE && needs.size > free)
        return memory_fail_full(vk, b->bytes, free, what, err);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &flags,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = (uint32_t)type};
    VkResult result = fn->AllocateMemory(vk->device, &info, NULL, &b->block->memory);
    if (memory_is_refused(result)) return memory_fail_refused(vk, b, what, err);
    if (result == VK_SUCCESS)
        result = fn->BindBufferMemory(vk->device, b->block->buffer, b->block->memory, 0);
    if (result == VK_SUCCESS && b->place != PJ_VK_DEVICE)
        result = fn->MapMemory(vk->device, b->block->memory, 0, VK_WHOLE_SIZE, 0, &b->mapped);
    return result == VK_SUCCESS ? PJ_OK : pj_vk_fail(vk, result, err, what);
}

static pj_status memory_make(pj_vk *vk, pj_vk_buffer *b, const char *what, pj_error *err)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = (b->bytes + 3) / 4 * 4,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    VkResult result = fn->CreateBuffer(vk->device, &info, NULL, &b->block->buffer);
    if (memory_is_refused(result)) return memory_fail_refused(vk, b, what, err);
    if (result != VK_SUCCESS) return pj_vk_fail(vk, result, err, what);
    pj_status status = memory_allocate(vk, b, what, err);
    if (status != PJ_OK) return status;
    VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                         .buffer = b->block->buffer};
    b->address = fn->GetBufferDeviceAddress(vk->device, &address);
    return PJ_OK;
}

pj_status pj_vk_need(const pj_vk *vk, uint64_t bytes, const char *what, pj_error *err)
{
    uint64_t free = pj_vk_memory_free(vk);
    return bytes <= free ? PJ_OK : memory_fail_full(vk, bytes, free, what, err);
}

pj_status pj_vk_buffer_make(pj_vk *vk, pj_vk_place place, uint64_t bytes, const char *what,
                            pj_vk_buffer *buffer, pj_error *err)
{
    *buffer = (pj_vk_buffer){.place = place, .bytes = bytes};
    if (bytes == 0)
        return pj_fail(err, PJ_E_INVALID, "%s: %s of no bytes", vk->physical.info.name, what);
    if (vk->physical.info.buffer_bytes && bytes > vk->physical.info.buffer_bytes)
        return memory_fail_large(vk, bytes, what, err);
    buffer->block = pj_alloc(1, sizeof *buffer->block);
    if (!buffer->block) return pj_fail_memory(err, what);
    pj_status status = memory_make(vk, buffer, what, err);
    if (status == PJ_OK && place == PJ_VK_DEVICE) vk->used_bytes += bytes;
    if (status != PJ_OK) {
        buffer->place = PJ_VK_UPLOAD; /* it was not counted */
        pj_vk_buffer_free(vk, buffer);
    }
    return status;
}

void pj_vk_buffer_free(pj_vk *vk, pj_vk_buffer *buffer)
{
    if (!buffer->block) return;
    const pj_vk_functions *fn = &vk->instance.fn;
    if (vk->lost && pj_vk_is_stuck(vk)) { /* it is in use: left as it is */
        *buffer = (pj_vk_buffer){0};
        return;
    }
    if (buffer->block->buffer) fn->DestroyBuffer(vk->device, buffer->block->buffer, NULL);
    if (buffer->block->memory) fn->FreeMemory(vk->device, buffer->block->memory, NULL);
    if (buffer->place == PJ_VK_DEVICE) vk->used_bytes -= buffer->bytes;
    pj_free(buffer->block);
    *buffer = (pj_vk_buffer){0};
}

uint64_t pj_vk_memory_used(const pj_vk *vk)
{
    return vk->used_bytes;
}

static bool memory_in_range(uint64_t all, uint64_t offset, uint64_t bytes)
{
    return offset <= all && bytes <= all - offset;
}

/* A range that ends with the buffer may be rounded up, since a buffer's size is. */
static uint64_t memory_whole_words(uint64_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

void pj_vk_copy(pj_vk *vk, const pj_vk_buffer *to, uint64_t to_offset, const pj_vk_buffer *from,
                uint64_t from_offset, uint64_t bytes)
{
    VkBufferCopy range = {from_offset, to_offset, bytes};
    if (!memory_in_range(memory_whole_words(to->bytes), to_offset, bytes) ||
        !memory_in_range(memory_whole_words(from->bytes), from_offset, bytes)) {
        pj_vk_fail_recording(vk, VK_ERROR_UNKNOWN, "a copy exceeds its buffer");
        return;
    }
    VkCommandBuffer commands = pj_vk_command(vk, PJ_VK_TRANSFERS);
    if (commands)
        vk->instance.fn.CmdCopyBuffer(commands, from->block->buffer, to->block->buffer, 1, &range);
}

void pj_vk_fill(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, uint64_t bytes, uint32_t value)
{
    if (!memory_in_range(memory_whole_words(to->bytes), offset, bytes)) {
        pj_vk_fail_recording(vk, VK_ERROR_UNKNOWN, "a fill exceeds its buffer");
        return;
    }
    VkCommandBuffer commands = pj_vk_command(vk, PJ_VK_TRANSFERS);
    if (commands) vk->instance.fn.CmdFillBuffer(commands, to->block->buffer, offset, bytes, value);
}

static pj_status memory_need_staging(pj_vk *vk, pj_error *err)
{
    for (int i = 0; i < 2; i++) {
        if (vk->staging.buffers[i].block) continue;
        pj_status status = pj_vk_buffer_make(vk, PJ_VK_READBACK, PJ_VK_STAGING_BYTES,
                                             "a buffer for copies", &vk->staging.buffers[i], err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

static pj_status memory_check(pj_vk *vk, const pj_vk_buffer *b, uint64_t offset, uint64_t bytes,
                              pj_error *err)
{
    if (memory_in_range(b->bytes, offset, bytes) && offset % 4 == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "%s: a copy of %llu bytes at %llu exceeds a buffer of %llu",
                   vk->physical.info.name, (unsigned long long)bytes, (unsigned long long)offset,
                   (unsigned long long)b->bytes);
}

/* Sends off what the staging buffer in turn holds, and takes the other one. */
static pj_status memory_next_staging(pj_vk *vk, pj_error *err)
{
    pj_vk_staging *s = &vk->staging;
    pj_vk_flush(vk);
    s->values[s->turn] = vk->submitted;
    s->turn = !s->turn;
    s->used = 0;
    return pj_vk_wait_for(vk, s->values[s->turn], err);
}

static pj_status memory_stage(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const char *data,
                              uint64_t bytes, pj_error *err)
{
    pj_vk_staging *s = &vk->staging;
    pj_status status = memory_need_staging(vk, err);
    for (uint64_t done = 0; done < bytes && status == PJ_OK;) {
        uint64_t room = PJ_VK_STAGING_BYTES - s->used;
        uint64_t count = bytes - done < room ? bytes - done : room;
        uint64_t whole = memory_whole_words(count);
        char *staged = (char *)s->buffers[s->turn].mapped + s->used;
        memcpy(staged, data + done, count);
        memset(staged + count, 0, whole - count);
        pj_vk_copy(vk, to, offset + done, &s->buffers[s->turn], s->used, whole);
        s->used += whole;
        done += count;
        if (s->used == PJ_VK_STAGING_BYTES) status = memory_next_staging(vk, err);
    }
    return status;
}

pj_status pj_vk_upload_part(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const void *data,
                            uint64_t bytes, pj_error *err)
{
    pj_status status = memory_check(vk, to, offset, bytes, err);
    if (status != PJ_OK) return status;
    if (!to->mapped) return memory_stage(vk, to, offset, data, bytes, err);
    memcpy((char *)to->mapped + offset, data, bytes);
    return PJ_OK;
}

pj_status pj_vk_upload(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const void *data,
                       uint64_t bytes, pj_error *err)
{
    pj_status status = pj_vk_wait(vk, err);
    if (status == PJ_OK) status = pj_vk_upload_part(vk, to, offset, data, bytes, err);
    pj_status end = pj_vk_wait(vk, status == PJ_OK ? err : NULL);
    return status == PJ_OK ? end : status;
}

pj_status pj_vk_download(pj_vk *vk, const pj_vk_buffer *from, uint64_t offset, void *data,
                         uint64_t bytes, pj_error *err)
{
    pj_status status = memory_check(vk, from, offset, bytes, err);
    if (status == PJ_OK) status = pj_vk_wait(vk, err);
    if (status == PJ_OK && from->mapped) {
        memcpy(data, (const char *)from->mapped + offset, bytes);
        return PJ_OK;
    }
    if (status == PJ_OK) status = memory_need_staging(vk, err);
    for (uint64_t done = 0; done < bytes && status == PJ_OK;) {
        uint64_t count = bytes - done < PJ_VK_STAGING_BYTES ? bytes - done : PJ_VK_STAGING_BYTES;
        pj_vk_barrier(vk);
        pj_vk_copy(vk, &vk->staging.buffers[0], 0, from, offset + done, memory_whole_words(count));
        status = pj_vk_wait(vk, err);
        if (status == PJ_OK) memcpy((char *)data + done, vk->staging.buffers[0].mapped, count);
        done += count;
    }
    return status;
}

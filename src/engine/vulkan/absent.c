/* The functions of a program built without Vulkan's headers: they say so. */
#include "engine/vulkan/vk.h"

static pj_status absent_fail(pj_error *err)
{
    return pj_fail(err, PJ_E_UNAVAILABLE, "this program was built without Vulkan's headers");
}

pj_status pj_vk_list(pj_vk_info devices[PJ_VK_MAX_DEVICES], uint32_t *count, pj_error *err)
{
    *count = 0;
    return absent_fail(err);
}

pj_status pj_vk_open(pj_vk **vk, const pj_vk_options *options, pj_error *err)
{
    *vk = NULL;
    return absent_fail(err);
}

/* No device can be open, so the others are never called. */
void pj_vk_close(pj_vk *vk) {}

const pj_vk_info *pj_vk_device(const pj_vk *vk)
{
    return NULL;
}

bool pj_vk_is_validated(const pj_vk *vk)
{
    return false;
}

uint32_t pj_vk_validation_messages(const pj_vk *vk, const char **last)
{
    if (last) *last = "";
    return 0;
}

pj_status pj_vk_buffer_make(pj_vk *vk, pj_vk_place place, uint64_t bytes, const char *what,
                            pj_vk_buffer *buffer, pj_error *err)
{
    *buffer = (pj_vk_buffer){0};
    return absent_fail(err);
}

void pj_vk_buffer_free(pj_vk *vk, pj_vk_buffer *buffer) {}

pj_status pj_vk_need(const pj_vk *vk, uint64_t bytes, const char *what, pj_error *err)
{
    return absent_fail(err);
}

uint64_t pj_vk_memory_used(const pj_vk *vk)
{
    return 0;
}

pj_status pj_vk_upload(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const void *data,
                       uint64_t bytes, pj_error *err)
{
    return absent_fail(err);
}

pj_status pj_vk_download(pj_vk *vk, const pj_vk_buffer *from, uint64_t offset, void *data,
                         uint64_t bytes, pj_error *err)
{
    return absent_fail(err);
}

const pj_vk_pipeline *pj_vk_pipeline_get(pj_vk *vk, const pj_vk_shader *shader,
                                         const uint32_t *constants, uint32_t count, pj_error *err)
{
    absent_fail(err);
    return NULL;
}

void pj_vk_dispatch(pj_vk *vk, const pj_vk_pipeline *pipeline, const void *push, uint32_t x,
                    uint32_t y, uint32_t z, uint64_t work)
{
}

void pj_vk_barrier(pj_vk *vk) {}

void pj_vk_copy(pj_vk *vk, const pj_vk_buffer *to, uint64_t to_offset, const pj_vk_buffer *from,
                uint64_t from_offset, uint64_t bytes)
{
}

void pj_vk_fill(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, uint64_t bytes, uint32_t value)
{
}

void pj_vk_refuse(pj_vk *vk, const pj_error *reason) {}

uint64_t pj_vk_memory_free(const pj_vk *vk)
{
    return 0;
}

pj_status pj_vk_upload_part(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const void *data,
                            uint64_t bytes, pj_error *err)
{
    return absent_fail(err);
}

void pj_vk_flush(pj_vk *vk) {}

pj_status pj_vk_wait(pj_vk *vk, pj_error *err)
{
    return absent_fail(err);
}

uint32_t pj_vk_stamp(pj_vk *vk)
{
    return UINT32_MAX;
}

pj_status pj_vk_stamps_read(pj_vk *vk, uint32_t first, uint32_t count, int64_t *times_ns,
                            pj_error *err)
{
    return absent_fail(err);
}

uint32_t pj_vk_stamps(const pj_vk *vk)
{
    return 0;
}

void pj_vk_stamps_clear(pj_vk *vk) {}

pj_status pj_vk_clock_update(pj_vk *vk, int64_t age_ns, pj_error *err)
{
    return absent_fail(err);
}

double pj_vk_clock_error_ns(const pj_vk *vk)
{
    return 0;
}

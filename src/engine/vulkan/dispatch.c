/* Dispatches of kernels, and the barriers between them. */
#include "engine/vulkan/gpu.h"

#include <string.h>

static void dispatch_refuse(pj_gpu *s, const char *what)
{
    pj_error err;
    pj_fail(&err, PJ_E_UNSUPPORTED, "the GPU cannot compute %s yet", what);
    pj_vk_refuse(s->vk, &err);
}

void pj_gpu_touch(pj_gpu *s, uint32_t reads, uint32_t writes)
{
    s->settle(s);
    if ((reads & s->writes) | (writes & (s->writes | s->reads))) {
        pj_vk_barrier(s->vk);
        s->reads = s->writes = 0;
    }
    s->reads |= reads;
    s->writes |= writes;
}

void pj_gpu_run_3d(pj_gpu *s, pj_vk_kernel kernel, const void *constants, size_t constant_bytes,
                   const void *args, uint32_t x, uint32_t y, uint32_t z, uint64_t work)
{
    pj_error err;
    const pj_vk_pipeline *pipeline =
        pj_vk_pipeline_get(s->vk, &pj_vk_kernels[kernel], constants,
                           (uint32_t)(constant_bytes / sizeof(uint32_t)), &err);
    if (!pipeline)
        pj_vk_refuse(s->vk, &err);
    else if (!s->dry)
        pj_vk_dispatch(s->vk, pipeline, args, x, y, z, work);
    if (s->on->note) s->on->note(s, &(pj_gpu_call){kernel, constants, args, y, work});
}

void pj_gpu_run(pj_gpu *s, pj_vk_kernel kernel, const void *constants, size_t constant_bytes,
                const void *args, uint32_t x, uint32_t y, uint64_t work)
{
    pj_gpu_run_3d(s, kernel, constants, constant_bytes, args, x, y, 1, work);
}

uint64_t pj_gpu_list(pj_gpu *s, const uint32_t *rows, uint32_t count)
{
    pj_gpu_inputs *in = &s->inputs;
    uint64_t at = in->lists + in->lists_used, bytes = 4ull * count;
    if (s->dry) return 0;
    if (at + bytes > in->host.bytes) {
        dispatch_refuse(s, "so many lists of rows");
        return in->host.address + in->lists;
    }
    memcpy((char *)in->host.mapped + at, rows, bytes);
    in->lists_used += bytes;
    return in->host.address + at;
}

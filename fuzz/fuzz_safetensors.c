/* Any bytes as a safetensors file: accepted tensors must lie inside the file. */
#include "engine/files/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_arena arena;
    pj_tensor *tensors;
    uint32_t count;
    pj_error err;
    volatile unsigned char sink = 0;
    pj_arena_init(&arena, 0);
    if (pj_safetensors_parse(data, size, "fuzz", &arena, &tensors, &count, &err) == PJ_OK)
        for (uint32_t i = 0; i < count; i++) {
            if (tensors[i].data < data || tensors[i].data + tensors[i].bytes > data + size) abort();
            if (tensors[i].bytes) sink ^= tensors[i].data[tensors[i].bytes - 1];
        }
    (void)sink;
    pj_arena_fini(&arena);
    return 0;
}

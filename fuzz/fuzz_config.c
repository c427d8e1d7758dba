/* Any text as config.json and generation_config.json: what is accepted must be consistent. */
#include "engine/model/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Heads divide among the layer's keys and values, and no more is rotated than a head has. */
static bool layer_is_fine(const pj_model_config *c, uint32_t layer)
{
    bool windowed = c->layer_is_windowed && c->layer_is_windowed[layer];
    bool rotates = !c->layer_rotates || c->layer_rotates[layer];
    uint32_t kv_heads = pj_config_kv_heads(c, layer);
    uint32_t dims = windowed && c->window_rope.dims ? c->window_rope.dims : c->rope.dims;
    return kv_heads > 0 && c->heads % kv_heads == 0 && dims % 2 == 0 &&
           (!rotates || dims <= pj_config_head_dim(c, layer));
}

static void check(const pj_model_config *c)
{
    bool fine = c->layers > 0 && c->hidden > 0 && c->vocab > 0 &&
                c->experts_per_token <= c->experts && c->eos_count <= PJ_MAX_EOS && c->norm_eps > 0;
    for (uint32_t i = 0; i < c->layers; i++) fine &= layer_is_fine(c, i);
    bool any = c->window > 0 && !c->layer_is_windowed;
    for (uint32_t i = 0; c->layer_is_windowed && i < c->layers; i++) any |= c->layer_is_windowed[i];
    if (c->window > 0 && !any) fine = false;
    if (!fine) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_arena arena;
    pj_model_config config;
    pj_generation_config generation;
    pj_error err;
    const char *text = size ? (const char *)data : "";
    pj_arena_init(&arena, 64 << 20);
    if (pj_config_parse(text, size, "fuzz", &arena, &config, &err) == PJ_OK) check(&config);
    pj_generation_config_parse(text, size, "fuzz", &config, &generation, &err);
    pj_arena_fini(&arena);
    return 0;
}

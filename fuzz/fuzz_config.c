/* Any text as config.json and generation_config.json: what is accepted must be consistent. */
#include "llm/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const pj_model_config *c)
{
    bool fine = c->layers > 0 && c->hidden > 0 && c->kv_heads > 0 && c->vocab > 0 &&
                c->heads % c->kv_heads == 0 && c->rope.dims % 2 == 0 &&
                c->rope.dims <= c->head_dim && c->experts_per_token <= c->experts &&
                c->eos_count <= PJ_MAX_EOS && c->norm_eps > 0;
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

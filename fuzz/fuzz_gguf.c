/* Any bytes as a GGUF file: accepted tensors must lie inside the file, and deriving a configuration
 * and a tokenizer from any metadata must terminate. */
#include "engine/model/checkpoint.h"
#include "engine/model/gguf_config.h"
#include "engine/text/tokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensors(const pj_gguf *gguf, const uint8_t *data, size_t size)
{
    volatile unsigned char sink = 0;
    for (uint32_t i = 0; i < gguf->tensor_count; i++) {
        const pj_tensor *t = &gguf->tensors[i];
        if (t->data < data || t->data + t->bytes > data + size) abort();
        if (t->bytes) sink ^= t->data[t->bytes - 1];
    }
    (void)sink;
}

static void check_config(const pj_gguf *gguf, pj_arena *arena)
{
    pj_model_config c;
    pj_error err;
    if (pj_gguf_config(gguf, "fuzz", arena, &c, &err) != PJ_OK) return;
    bool fine = c.layers > 0 && c.hidden > 0 && c.kv_heads > 0 && c.vocab > 0 &&
                c.heads % c.kv_heads == 0 && c.rope.dims % 2 == 0 && c.rope.dims <= c.head_dim &&
                c.experts_per_token <= c.experts && c.eos_count <= PJ_MAX_EOS && c.norm_eps > 0;
    if (!fine) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_arena arena;
    pj_gguf gguf;
    pj_error err;
    pj_arena_init(&arena, 0);
    if (pj_gguf_parse(data, size, "fuzz", &arena, &gguf, &err) == PJ_OK) {
        pj_tokenizer *tokenizer;
        check_tensors(&gguf, data, size);
        check_config(&gguf, &arena);
        if (pj_tokenizer_from_gguf(&gguf, "fuzz", &tokenizer, &err) == PJ_OK) {
            static const char text[] = "Hello \xc3\xa9 12 <s>\n";
            pj_ids ids = {0};
            pj_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &ids, &err);
            pj_ids_fini(&ids);
            pj_tokenizer_close(tokenizer);
        }
    }
    pj_arena_fini(&arena);
    return 0;
}

/* A program as llama.cpp's are: warms up, reads a prompt of seven tokens in two batches, generates
 * five, pauses, then serves two sequences at once (one reads four tokens while the other
 * generates). Prints its logits. */
#include "fake_llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void decode(struct llama_context *c, int32_t first, int32_t count)
{
    int32_t tokens[16];
    llama_batch b = {.n_tokens = count, .token = tokens};
    for (int32_t i = 0; i < count; i++) tokens[i] = first + i;
    if (llama_decode(c, b) != 0) puts("failed");
    printf("%.9g\n", (double)*llama_get_logits_ith(c, -1));
}

/* Sequence 1 generates; sequence 2 reads `count` - 1 tokens. */
static void decode_two(struct llama_context *c, int32_t count)
{
    llama_batch b = llama_batch_init(count, 0, 1);
    b.n_tokens = count;
    for (int32_t i = 0; i < count; i++) {
        b.token[i] = 10 * i;
        b.pos[i] = i;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = i ? 2 : 1;
        b.logits[i] = i == 0 || i == count - 1;
    }
    if (llama_decode(c, b) != 0) puts("failed");
    printf("%.9g\n", (double)*llama_get_logits_ith(c, -1));
    llama_batch_free(b);
}

#ifdef STATIC
/* What a statically linked program has in its messages. */
const char *const messages[] = {"llama_model_load: error loading model", "ggml_backend_load"};
#endif

int main(int argc, char **argv)
{
    int generated = argc > 1 ? atoi(argv[1]) : 5;
    struct llama_context *c = llama_init();
    llama_set_warmup(c, true);
    decode(c, 1, 2);
    llama_set_warmup(c, false);
    decode(c, 5, 4);
    decode(c, 9, 3);
    for (int i = 0; i < generated; i++) decode(c, 20 + i, 1);
    usleep(400000);
    decode_two(c, 5);
    decode_two(c, 2);
    llama_free(c);
    return 3;
}

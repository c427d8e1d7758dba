/* A program like those of llama.cpp: warms up, decodes a prompt of seven tokens in two batches,
 * generates five, pauses, then serves two sequences at once (one has a prompt of four tokens while
 * the other generates). Prints its logits.
 *
 * Usage: llama_client [GENERATED [decode|encode|process|reset]]
 * encode: the prompt goes through llama_encode. process: llama_batch_ext. reset: the warm-up is a
 * plain step followed by a reset of the performance counters, as always with process and in OLD
 * versions.
 * FAKE_RESULT=logits|synchronize: how to wait for the last result before the pause. It prints
 * "generated" to standard error when it pauses. FAKE_BATCHES=1: many other batches are filled and
 * freed first.
 * FAKE_CONTEXTS=1: a second context at the same time, and a third afterwards. */
#include "fake_llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *api = "decode";

static bool is(const char *name)
{
    return strcmp(api, name) == 0;
}

#ifndef OLD
static struct llama_batch_ext *extended;

/* The first tokens use each of the existing ways to fill a batch. */
static int32_t add(int32_t index, int32_t sequence, int32_t token)
{
    static const float numbers[] = {0.5f, 1, 2, 4};
    struct llama_embd e = {.data = numbers, .rows = 2, .size = 2};
    if (index == 1) return llama_batch_ext_add_embd(extended, sequence, e);
    if (index == 2) return llama_batch_ext_add(extended, sequence);
    return llama_batch_ext_add_token(extended, sequence, token);
}

static int process(struct llama_context *c, int32_t first, int32_t count)
{
    llama_batch_ext_clear(extended);
    for (int32_t i = 0; i < count; i++) {
        int32_t index = add(i, 0, first + i);
        llama_batch_ext_set_output_logits(extended, index, true);
        if (i < count - 1) llama_batch_ext_set_output_logits(extended, index, false);
    }
    return llama_process(c, 1, extended) - 1;
}

static int process_two(struct llama_context *c, int32_t count)
{
    llama_batch_ext_clear(extended);
    for (int32_t i = 0; i < count; i++) {
        int32_t index = add(i, i ? 2 : 1, 10 * i);
        if (i == 0 || i == count - 1) llama_batch_ext_set_output_logits(extended, index, true);
    }
    return llama_process(c, 1, extended) - 1;
}

static void use_other_batches(struct llama_context *c)
{
    enum { OTHERS = 40 };
    struct llama_batch_ext *others[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = llama_batch_ext_init(c);
        llama_batch_ext_add_token(others[i], 0, i);
    }
    for (int i = 0; i < OTHERS; i++) llama_batch_ext_free(others[i]);
}
#else
static int process(struct llama_context *c, int32_t first, int32_t count)
{
    (void)c, (void)first, (void)count;
    return -1;
}

static int process_two(struct llama_context *c, int32_t count)
{
    return process(c, 0, count);
}
#endif

static void step(struct llama_context *c, int32_t first, int32_t count)
{
    int32_t tokens[16];
    llama_batch b = {.n_tokens = count, .token = tokens};
#ifdef OLD
    b.all_pos_0 = first, b.all_pos_1 = 1, b.all_seq_id = 2;
#endif
    for (int32_t i = 0; i < count; i++) tokens[i] = first + i;
    int failed = is("process")               ? process(c, first, count)
                 : is("encode") && count > 1 ? llama_encode(c, b)
                                             : llama_decode(c, b);
    if (failed) puts("failed");
}

static void show(const float *logits)
{
    printf("%.9g\n", (double)*logits);
}

static void decode(struct llama_context *c, int32_t first, int32_t count)
{
    step(c, first, count);
    show(llama_get_logits_ith(c, -1));
}

static void decode_last(struct llama_context *c, int32_t token)
{
    const char *how = getenv("FAKE_RESULT");
    step(c, token, 1);
    if (how && !strcmp(how, "synchronize"))
        llama_synchronize(c);
    else if (how && !strcmp(how, "logits"))
        show(llama_get_logits(c));
    else
        show(llama_get_logits_ith(c, -1));
}

/* Sequence 1 generates; sequence 2 has a prompt of `count` - 1 tokens. */
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
    if (is("process") ? process_two(c, count) : llama_decode(c, b)) puts("failed");
    show(llama_get_logits_ith(c, -1));
    llama_batch_free(b);
}

static void warm_up(struct llama_context *c)
{
#ifndef OLD
    if (!is("process") && !is("reset")) {
        llama_set_warmup(c, true);
        decode(c, 1, 2);
        llama_set_warmup(c, false);
        return;
    }
#endif
    step(c, 1, 2);
    llama_synchronize(c);
    llama_perf_context_reset(c);
}

static void use_other_contexts(struct llama_context *first)
{
    struct llama_context *beside = llama_init(), *after;
    decode(beside, 30, 1);
    llama_free(beside);
    llama_free(first);
    after = llama_init();
    decode(after, 40, 2);
    decode(after, 50, 1);
    llama_free(after);
}

#ifdef STATIC
/* A string by which statically linked programs are recognised. */
const char *const messages[] = {"llama_model_load: error loading model", "ggml_backend_load"};
#endif

int main(int argc, char **argv)
{
    int generated = argc > 1 ? atoi(argv[1]) : 5;
    if (argc > 2) api = argv[2];
    struct llama_context *c = llama_init();
#ifndef OLD
    extended = llama_batch_ext_init(c);
    if (getenv("FAKE_BATCHES")) use_other_batches(c);
#endif
    warm_up(c);
    decode(c, 5, 4);
    decode(c, 9, 3);
    for (int i = 0; i < generated - 1; i++) decode(c, 20 + i, 1);
    decode_last(c, 19 + generated);
    fputs("generated\n", stderr);
    usleep(1000000);
    decode_two(c, 5);
    decode_two(c, 2);
#ifndef OLD
    llama_batch_ext_free(extended);
    extended = llama_batch_ext_init(c);
#endif
    if (getenv("FAKE_CONTEXTS"))
        use_other_contexts(c);
    else
        llama_free(c);
#ifndef OLD
    llama_batch_ext_free(extended);
#endif
    return 3;
}

/* A stand-in for libggml-base: the functions that libperjoule-llama.so uses or interposes, and a
 * scheduler that, like ggml's, computes a graph in groups that end where the eval callback asks for
 * it. FAKE_QUICK=1: no computation. */
#include "fake_llama.h"

#include <stdlib.h>
#include <string.h>

const char *ggml_get_name(const struct ggml_tensor *t)
{
    return t->name;
}

const char *ggml_op_desc(const struct ggml_tensor *t)
{
    return t->operation;
}

void ggml_backend_sched_set_eval_callback(struct ggml_scheduler *s, fake_callback callback,
                                          void *context)
{
    s->callback = callback;
    s->context = context;
}

static double work(const struct ggml_tensor *t, double value)
{
    int rounds = strcmp(t->operation, "RESHAPE") && !getenv("FAKE_QUICK") ? 20000 : 0;
    for (int i = 0; i < rounds; i++) value += value * 1e-9 + 1e-7;
    return value;
}

double ggml_compute(struct ggml_scheduler *s, struct ggml_tensor *nodes, int count, double value)
{
    for (int first = 0; first < count; first++) {
        int last = first;
        bool wanted = s->callback && s->callback(&nodes[first], true, s->context);
        while (s->callback && !wanted && last < count - 1)
            wanted = s->callback(&nodes[++last], true, s->context);
        for (int i = first; i <= last; i++) value = work(&nodes[i], value);
        if (wanted && !s->callback(&nodes[last], false, s->context)) return value;
        first = last;
    }
    return value;
}

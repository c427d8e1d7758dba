/* A stand-in for libggml-base: the functions that libperjoule-llama.so uses or interposes, and a
 * scheduler that, like ggml's, computes a graph in groups that end where the eval callback asks for
 * it. FAKE_QUICK=1: no computation. */
#include "fake_llama.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

struct ggml_tensor *ggml_graph_get_tensor(const struct ggml_cgraph *graph, const char *name)
{
    for (int i = 0; i < graph->count; i++)
        if (!strcmp(graph->nodes[i].name, name)) return &graph->nodes[i];
    return NULL;
}

int64_t ggml_nrows(const struct ggml_tensor *t)
{
    return t->rows;
}

void ggml_backend_sched_synchronize(struct ggml_scheduler *s)
{
    (void)s;
    if (getenv("FAKE_LAG")) usleep(20000);
}

void ggml_backend_sched_free(struct ggml_scheduler *s)
{
    s->callback = NULL;
}

static double compute(struct ggml_scheduler *s, struct ggml_tensor *nodes, int count, double value)
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

int ggml_backend_sched_graph_compute_async(struct ggml_scheduler *s, struct ggml_cgraph *graph)
{
    graph->value = compute(s, graph->nodes, graph->count, graph->value);
    return 0;
}

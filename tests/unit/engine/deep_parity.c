#include "deep_parity.h"

#include "../assertions.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_OPERATIONS = 256 };

/* The operations of a component, at most so many of them; `count`: all. */
typedef struct found {
    const pj_run_data *data;
    const pj_component_row *component;
    const pj_operation_row *operations[MOST_OPERATIONS];
    uint32_t count;
} found;

static found operations_of(const pj_run_data *data, uint32_t component)
{
    found f = {.data = data, .component = &data->components[component]};
    for (uint32_t i = 0; i < data->operation_count; i++)
        if (data->operations[i].component == component && f.count < MOST_OPERATIONS)
            f.operations[f.count++] = &data->operations[i];
    return f;
}

/* The only one of this name; NULL: there is none, or there are several. */
static const pj_operation_row *only(const found *f, const char *name)
{
    const pj_operation_row *it = NULL;
    for (uint32_t i = 0; i < f->count; i++) {
        if (strcmp(f->operations[i]->name, name) != 0) continue;
        if (it) return NULL;
        it = f->operations[i];
    }
    return it;
}

static bool has(const found *f, const char *name)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (strcmp(f->operations[i]->name, name) == 0) return true;
    return false;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

/* What only the CPU has apart: the rest is part of the device's operation before it. */
static bool only_the_cpus(const char *component, const char *name)
{
    static const char *const anywhere[] = {"pack", "bias_add", "residual_add", NULL};
    static const char *const attention[] = {
        "query_scale", "kv_append", "qk_matmul",    "scale",        "softcap",
        "mask_apply",  "softmax",   "attn_dropout", "value_matmul", NULL};
    static const char *const indexer[] = {"kv_append", NULL};
    static const char *const experts[] = {"gather", "scatter_add", NULL};
    return is_one_of(name, anywhere) ||
           (strcmp(component, "attention") == 0 && is_one_of(name, attention)) ||
           (strcmp(component, "indexer") == 0 && is_one_of(name, indexer)) ||
           (strcmp(component, "experts") == 0 && is_one_of(name, experts));
}

static bool only_the_devices(const char *component, const char *name)
{
    return (strcmp(component, "attention") == 0 && strcmp(name, "fused_attention") == 0) ||
           strcmp(name, "pack") == 0;
}

static void same_names(const found *cpu, const found *gpu, const char *where)
{
    const char *component = cpu->component->name;
    for (uint32_t i = 0; i < cpu->count; i++)
        if (!has(gpu, cpu->operations[i]->name) &&
            !only_the_cpus(component, cpu->operations[i]->name))
            fail_msg("%s: %s lacks %s on the device", where, component, cpu->operations[i]->name);
    for (uint32_t i = 0; i < gpu->count; i++)
        if (!has(cpu, gpu->operations[i]->name) &&
            !only_the_devices(component, gpu->operations[i]->name))
            fail_msg("%s: %s has %s on the device alone", where, component,
                     gpu->operations[i]->name);
}

static void close_to(const char *where, const char *of, const char *what, double got, double want,
                     double room)
{
    if (!(fabs(got - want) <= room))
        fail_msg("%s: %s of %s is %.9g, on the CPU %.9g", where, what, of, got, want);
}

static void same_stats(const pj_stats *cpu, const pj_stats *gpu, const char *of, const char *where)
{
    double std = (double)cpu->std;
    close_to(where, of, "mean", gpu->mean_abs, cpu->mean_abs, 2e-4 * std + 1e-6);
    close_to(where, of, "signed mean", gpu->mean, cpu->mean, 2e-4 * std + 1e-6);
    close_to(where, of, "deviation", gpu->std, cpu->std, 2e-4 * std + 1e-6);
    close_to(where, of, "maximum", gpu->max_abs, cpu->max_abs, 2e-4 * cpu->max_abs + 1e-6);
    close_to(where, of, "sparsity", gpu->sparsity, cpu->sparsity, 0.01);
    assert_int_equal(gpu->nan_count, cpu->nan_count);
    assert_int_equal(gpu->inf_count, cpu->inf_count);
}

/* A bias and the scale of queries are part of the device's operation. */
static bool comparable(const found *cpu, const char *name)
{
    return !(strcmp(name, "matmul") == 0 && has(cpu, "bias_add")) &&
           !(strcmp(name, "rope") == 0 && has(cpu, "query_scale"));
}

static void same_operations(const found *cpu, const found *gpu, const char *where)
{
    char of[120];
    for (uint32_t i = 0; i < gpu->count; i++) {
        const char *name = gpu->operations[i]->name;
        const pj_operation_row *a = only(cpu, name), *b = only(gpu, name);
        if (!a || !b || !comparable(cpu, name)) continue;
        snprintf(of, sizeof of, "%s/%s", cpu->component->name, name);
        if (a->has_stats != b->has_stats) fail_msg("%s: statistics of %s", where, of);
        if (a->has_stats) same_stats(&a->stats, &b->stats, of, where);
        if (strcmp(name, "rope") == 0 || strcmp(name, "query_scale") == 0)
            continue; /* includes the cache's bytes */
        close_to(where, of, "FLOPs", b->flops, a->flops, 1e-9 * a->flops);
        close_to(where, of, "bytes", b->bytes, a->bytes, 1e-9 * a->bytes);
    }
    const pj_operation_row *fused = only(gpu, "fused_attention"), *last = only(cpu, "value_matmul");
    if (fused && last) same_stats(&last->stats, &fused->stats, "fused_attention", where);
}

/* ---- extras ------------------------------------------------------------------------------- */

static double extra_in(const pj_run_data *data, uint32_t begin, uint32_t count, const char *name,
                       uint32_t index)
{
    for (uint32_t i = begin; i < begin + count; i++)
        if (data->extras[i].index == index && strcmp(data->extras[i].name, name) == 0)
            return data->extras[i].value;
    return NAN;
}

/* Of the component, else of one of its operations. */
static double extra_of(const found *f, const char *name, uint32_t index)
{
    const pj_component_row *c = f->component;
    double value = extra_in(f->data, c->extra_begin, c->extra_count, name, index);
    for (uint32_t i = 0; i < f->count && isnan(value); i++)
        value = extra_in(f->data, f->operations[i]->extra_begin, f->operations[i]->extra_count,
                         name, index);
    return value;
}

/* Shares of counted values may differ by one that is close to the threshold. */
static double room_of(const char *name, double value)
{
    return strstr(name, "sparsity") || strstr(name, "_ratio") ? 0.01 + 1e-3 * fabs(value)
                                                              : 1e-3 * fabs(value) + 1e-6;
}

static void same_extras(const found *cpu, const found *gpu, uint32_t begin, uint32_t count,
                        const char *where)
{
    for (uint32_t i = begin; i < begin + count; i++) {
        const pj_extra_row *e = &cpu->data->extras[i];
        close_to(where, cpu->component->name, e->name, extra_of(gpu, e->name, e->index), e->value,
                 room_of(e->name, e->value));
    }
}

static void same_component(const found *cpu, const found *gpu, const char *where)
{
    const pj_component_row *a = cpu->component, *b = gpu->component;
    assert_string_equal(b->name, a->name);
    close_to(where, a->name, "FLOPs", b->flops, a->flops, 1e-9 * a->flops);
    close_to(where, a->name, "bytes", b->bytes, a->bytes, 1e-9 * a->bytes);
    if (a->has_stats != b->has_stats) fail_msg("%s: statistics of %s", where, a->name);
    if (a->has_stats) same_stats(&a->stats, &b->stats, a->name, where);
    same_names(cpu, gpu, where);
    same_extras(cpu, gpu, a->extra_begin, a->extra_count, where);
    if (strcmp(a->name, "experts") == 0) return; /* the CPU has operations for each of them */
    same_operations(cpu, gpu, where);
    for (uint32_t i = 0; i < cpu->count; i++)
        same_extras(cpu, gpu, cpu->operations[i]->extra_begin, cpu->operations[i]->extra_count,
                    where);
}

void assert_same_at_depth_deep(const pj_run_data *cpu, const pj_run_data *gpu, const char *where)
{
    assert_int_equal(gpu->info.spans_lost, 0);
    assert_int_equal(gpu->layer_count, cpu->layer_count);
    assert_int_equal(gpu->component_count, cpu->component_count);
    for (uint32_t i = 0; i < cpu->component_count; i++) {
        found a = operations_of(cpu, i), b = operations_of(gpu, i);
        same_component(&a, &b, where);
    }
}

/* Activations of feed-forward blocks, with counts of the gate at depth deep. */
#include "engine/cpu/cpu.h"
#include "engine/kernels/stats_timer.h"

#include <math.h>
#include <string.h>

typedef struct activation_task {
    pj_cpu *s;
    const pj_activation *a;
} activation_task;

static bool has_up(const pj_activation *a)
{
    return a->up.buffer != PJ_NO_BUFFER;
}

/* g sigmoid(alpha g) = silu(alpha g) / alpha, for gates clamped to the limit. */
static void activate_clamped(const activation_task *t, const float *gate, float *act)
{
    const pj_activation *a = t->a;
    size_t f = a->act.cols;
    for (size_t i = 0; i < f; i++) act[i] = (gate[i] > a->limit ? a->limit : gate[i]) * a->alpha;
    t->s->kernels->silu(act, act, f);
    for (size_t i = 0; i < f; i++) act[i] *= 1 / a->alpha;
}

static void multiply_clamped(const pj_activation *a, const float *up, float *act)
{
    for (size_t i = 0; i < a->act.cols; i++) {
        float u = up[i] > a->limit ? a->limit : up[i];
        act[i] *= (u < -a->limit ? -a->limit : u) + 1;
    }
}

static void activate_relu2(const float *gate, float *act, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i] > 0 ? gate[i] : 0;
        act[i] = g * g;
    }
}

static void activate_xielu(const float *p, const float *gate, float *act, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i];
        act[i] =
            g > 0 ? p[0] * g * g + p[2] * g : (expm1f(g < p[3] ? g : p[3]) - g) * p[1] + p[2] * g;
    }
}

/* act = what of the gates exceeds their mean by `cutoff` standard deviations. */
static void cut_gates(const float *gate, float *act, size_t n, float cutoff)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++) sum += gate[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) square += (gate[i] - mean) * (gate[i] - mean);
    float from = (float)(mean + (double)cutoff * sqrt(square / (double)n));
    for (size_t i = 0; i < n; i++) act[i] = gate[i] > from ? gate[i] - from : 0;
}

static void activate_row(void *context, size_t row)
{
    const activation_task *t = context;
    const pj_kernels *k = t->s->kernels;
    const float *gate = pj_cpu_row(t->s, t->a->gate, row);
    float *act = pj_cpu_row(t->s, t->a->act, row);
    if (t->a->cuts) {
        cut_gates(gate, act, t->a->act.cols, t->a->cutoff);
        gate = act;
    }
    switch (t->a->kind) {
    case PJ_ACT_NONE:
        if (act != gate) memcpy(act, gate, t->a->act.cols * sizeof *act);
        break;
    case PJ_ACT_RELU2: activate_relu2(gate, act, t->a->act.cols); break;
    case PJ_ACT_XIELU: activate_xielu(t->a->xielu, gate, act, t->a->act.cols); break;
    case PJ_ACT_CLAMPED: activate_clamped(t, gate, act); break;
    case PJ_ACT_GELU: k->gelu(act, gate, t->a->act.cols); break;
    case PJ_ACT_SILU: k->silu(act, gate, t->a->act.cols); break;
    }
}

static void multiply_row(void *context, size_t row)
{
    const activation_task *t = context;
    const float *up = pj_cpu_row(t->s, t->a->up, row);
    float *act = pj_cpu_row(t->s, t->a->act, row);
    if (t->a->kind == PJ_ACT_CLAMPED)
        multiply_clamped(t->a, up, act);
    else
        t->s->kernels->multiply(act, up, t->a->act.cols);
}

static void activate_and_multiply_row(void *context, size_t row)
{
    const activation_task *t = context;
    const pj_activation *a = t->a;
    if (a->kind != PJ_ACT_SILU || a->cuts || !has_up(a)) {
        activate_row(context, row);
        if (has_up(a)) multiply_row(context, row);
    } else {
        t->s->kernels->silu_multiply(pj_cpu_row(t->s, a->act, row), pj_cpu_row(t->s, a->gate, row),
                                     pj_cpu_row(t->s, a->up, row), a->act.cols);
    }
}

typedef struct thread_counts {
    _Alignas(64) pj_gate_counts counts;
} thread_counts;

/* Every thread counts its share of the rows. */
typedef struct count_task {
    activation_task *t;
    const pj_cpu_done *done;
    thread_counts *thread;
} count_task;

/* Statistics of some rows, each while it is in L1. */
static void activate_and_count_rows(const count_task *t, size_t begin, size_t end, unsigned thread)
{
    const pj_activation *a = t->t->a;
    pj_cpu *s = t->t->s;
    size_t rows = a->act.rows, step = pj_instrument_extras_step(s->instrument, rows);
    for (size_t row = begin; row < end; row++) {
        activate_row(t->t, row);
        if (!s->instrument->statistics) continue;
        pj_cpu_sample(s, t->done, row, row + 1, pj_cpu_sums(s, thread));
        if (!pj_sample_has_row(row, rows, step)) continue;
        int64_t timed_from = pj_stats_timer_begin();
        s->kernels->gate_counts(pj_cpu_row(s, a->gate, row), pj_cpu_row(s, a->act, row),
                                has_up(a) ? pj_cpu_row(s, a->up, row) : NULL, a->act.cols,
                                PJ_SPARSITY_TAU, &t->thread[thread].counts);
        pj_stats_timer_end(timed_from);
    }
}

static void activate_and_count_share(void *context, unsigned thread)
{
    const count_task *t = context;
    size_t begin, end;
    pj_team_share(t->t->s->team, thread, t->t->a->act.rows, 1, &begin, &end);
    activate_and_count_rows(t, begin, end, thread);
}

static void record_counts(const activation_task *t, const thread_counts *counts)
{
    pj_gate_counts all = {0};
    pj_instrument *r = t->s->instrument;
    for (unsigned i = 0; i < pj_team_threads(t->s->team); i++) {
        all.count += counts[i].counts.count;
        all.killed += counts[i].counts.killed;
        all.dead += counts[i].counts.dead;
        all.gated += counts[i].counts.gated;
    }
    if (all.count == 0) return;
    double n = (double)all.count;
    pj_cpu_record_rows(t->s, t->a->act.rows);
    pj_instrument_extra(r, PJ_N_X_KILL_RATIO, PJ_EXTRA_SCALAR, (double)all.killed / n);
    pj_instrument_extra(r, PJ_N_X_DEAD_RATIO, PJ_EXTRA_SCALAR, (double)all.dead / n);
    if (has_up(t->a))
        pj_instrument_extra(r, PJ_N_X_GATED_SPARSITY, PJ_EXTRA_SCALAR, (double)all.gated / n);
}

static void activate_and_count(activation_task *t, const pj_cpu_done *done)
{
    pj_cpu *s = t->s;
    thread_counts counts[PJ_TEAM_MAX_THREADS];
    count_task task = {.t = t, .done = done, .thread = counts};
    pj_value_sums sums;
    memset(counts, 0, pj_team_threads(s->team) * sizeof *counts);
    if (t->a->act.rows == 1)
        activate_and_count_rows(&task, 0, 1, 0);
    else
        pj_team_run(s->team, activate_and_count_share, &task);
    if (!s->instrument->statistics) return;
    pj_cpu_take_sums(s, 0, &sums);
    pj_cpu_keep(s, done, &sums);
    record_counts(t, counts);
}

/* Activation and multiplication as operations of their own. */
static void activate_apart(activation_task *t, size_t work)
{
    pj_cpu *s = t->s;
    double values = (double)t->a->act.rows * t->a->act.cols;
    pj_cpu_done half = pj_cpu_work(s, t->a->act, 4 * values, 8 * values);
    bool gates = t->a->kind != PJ_ACT_NONE; /* else they are factors as they are */
    if (gates) {
        pj_instrument_operation(s->instrument, PJ_N_OP_ACTIVATION);
        activate_and_count(t, &half);
        pj_cpu_operation_end(s, &half);
    }
    if (!has_up(t->a)) return;
    half.flops = values;
    half.bytes = 12 * values;
    pj_instrument_operation(s->instrument, PJ_N_OP_GATE_MUL);
    pj_cpu_rows_summed(s, t->a->act.rows, work, gates ? multiply_row : activate_and_multiply_row, t,
                       &half);
    pj_cpu_operation_end(s, &half);
}

void pj_cpu_activate(void *state, const pj_activation *a)
{
    pj_cpu *s = state;
    activation_task t = {s, a};
    size_t work = (size_t)a->act.rows * a->act.cols * 4;
    pj_cpu_done done = pj_cpu_work(s, a->act, 0, 0);
    if (s->instrument->deep)
        activate_apart(&t, work);
    else if (a->inner)
        pj_cpu_rows(s, a->act.rows, work, activate_and_multiply_row, &t);
    else
        pj_cpu_rows_summed(s, a->act.rows, work, activate_and_multiply_row, &t, &done);
}

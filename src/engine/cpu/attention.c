/* Attention. A *unit* of work is a set of query rows that read the same keys: the heads that share
 * a KV head, at one position in decode, at a tile of positions in prefill. Keys and values are
 * therefore converted to the kernels' form once for all of them. Threads take units dynamically;
 * each runs the stages (scores, scale, mask, softmax, values) over a tile of weights that stays in
 * its cache. A deep profile runs the same stages over the same units, but one stage at a time over
 * as many units as the score buffer holds, so that each stage is a span and the results are
 * identical; if the stages are shorter than a dispatch (decode with few keys), each thread runs and
 * times them unit by unit. */
#include "engine/cpu/cpu.h"
#include "engine/kernels/stats_timer.h"

#include <math.h>
#include <string.h>

/* In a deep profile, stages exchange WAVE_FLOATS of weights per thread: half of an L2 cache. */
enum {
    UNIT_ROWS = 64,
    TILE_POSITIONS = 32, /* per unit: half of the last tile's square is masked */
    WAVE_FLOATS = 1 << 17,
    FEW_FLOATS = 1 << 13
};

_Static_assert(PJ_ATTENTION_SCRATCH_BYTES + PJ_MAX_HEAD_DIM * 4 <= PJ_TEAM_SCRATCH_BYTES,
               "a row must fit after the kernels' scratch");

typedef struct unit {
    const pj_pass_segment *segment;
    uint32_t head, heads;     /* query heads */
    uint32_t first;           /* row in the pass */
    uint32_t position;        /* of that row in the sequence */
    uint32_t positions;       /* number of positions from there on */
    uint32_t rows;            /* heads x positions, heads of a position adjacent */
    uint32_t key_begin, keys; /* positions [key_begin, key_begin + keys) are read */
    const uint32_t *chosen;   /* [keys] positions that are read instead; NULL: none were chosen */
} unit;

typedef struct attention {
    pj_cpu *s;
    const pj_layer *layer;
    const pj_rounded_attention *rounded; /* NULL: products in float32 */
    uint32_t group;                      /* query heads per KV head */
    uint32_t units;                      /* of the pass */
    uint32_t unit_floats;                /* of the largest unit's scores */
    pj_slice qkv, y;
    bool sums_units; /* statistics of the output unit by unit, not afterwards */
    /* deep profile: the current stage, over units [begin, end) */
    uint32_t begin, end;
    const struct stage_row *stage;
    uint32_t number; /* of this component among all that were run apart */
} attention;

/* ---- units -------------------------------------------------------------------------------- */

static uint32_t score_stride(uint32_t keys)
{
    return (keys + 15) / 16 * 16;
}

/* Distance between rows of weights: with an attention sink, one more than the number of keys. */
static uint32_t row_floats(const attention *a, uint32_t keys)
{
    return score_stride(keys + (a->layer->sinks != NULL));
}

/* How a segment is split into units: smaller units when rows of weights are so long, or heads so
 * wide, that they would not fit a thread's buffers. */
typedef struct cut {
    uint32_t heads, positions; /* of a unit */
} cut;

static cut cut_of(const attention *a, const pj_pass_segment *g)
{
    uint32_t last = a->s->rows.sequences[g->sequence].length + g->count;
    bool chooses = pj_segment_chooses(a->layer, a->s->rows.sequences, g);
    /* rows that choose their keys share none */
    uint32_t most = chooses ? 1 : TILE_POSITIONS, tile = g->count < most ? g->count : most;
    uint32_t widest = chooses                          ? a->layer->indexer->kept
                      : a->layer->window < last - tile ? a->layer->window + tile
                                                       : last;
    size_t rows = a->s->score_floats / row_floats(a, widest);
    size_t fit =
        (PJ_TEAM_SCRATCH_BYTES - PJ_ATTENTION_SCRATCH_BYTES) / sizeof(float) / a->layer->head_dim;
    if (rows > fit) rows = fit;
    if (rows > UNIT_ROWS) rows = UNIT_ROWS;
    cut c = {.heads = a->group};
    while (c.heads > rows || a->group % c.heads) c.heads--;
    c.positions = rows / c.heads < tile ? (uint32_t)rows / c.heads : tile;
    return c;
}

static uint32_t segment_units(const attention *a, const pj_pass_segment *g)
{
    cut c = cut_of(a, g);
    return a->layer->heads / c.heads * ((g->count + c.positions - 1) / c.positions);
}

static const pj_pass_segment *segment_of_unit(const pj_pass *pass, uint32_t index)
{
    uint32_t low = 0, high = pass->segment_count - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (pass->segments[middle].unit_begin <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return &pass->segments[low];
}

static unit unit_at(const attention *a, uint32_t index)
{
    const pj_pass_segment *g = segment_of_unit(a->s->rows.pass, index);
    uint32_t cached = a->s->rows.sequences[g->sequence].length;
    cut c = cut_of(a, g);
    index -= g->unit_begin;
    /* long tiles first, so that threads finish at about the same time */
    uint32_t tiles = (g->count + c.positions - 1) / c.positions;
    uint32_t begin = (tiles - 1 - index % tiles) * c.positions;
    unit u = {.segment = g,
              .head = index / tiles * c.heads,
              .heads = c.heads,
              .first = g->row + begin,
              .position = cached + begin,
              .positions = g->count - begin < c.positions ? g->count - begin : c.positions};
    u.rows = u.heads * u.positions;
    u.key_begin = pj_layer_first_key(a->layer, u.position);
    u.keys = u.position + u.positions - u.key_begin;
    uint32_t seen = pj_layer_seen_keys(a->layer, u.position);
    if (u.positions == 1 && seen < u.keys) {
        u.chosen = pj_cpu_seen_keys(a->s, u.first);
        u.keys = seen;
    }
    return u;
}

/* Keys visible to row i of a unit, relative to the unit's first key. */
static pj_visible visible(const attention *a, const unit *u, uint32_t i)
{
    if (u->chosen) return (pj_visible){0, u->keys};
    uint32_t position = u->position + i / u->heads;
    return (pj_visible){pj_layer_first_key(a->layer, position) - u->key_begin,
                        position + 1 - u->key_begin};
}

/* ---- stages ------------------------------------------------------------------------------- */

static pj_kv_rows unit_kv(const attention *a, const unit *u, uint32_t which)
{
    if (a->layer->values_in_keys) which = 0;
    return pj_cpu_kv(a->s, a->layer->kv_source, u->segment->sequence, which, u->head / a->group,
                     u->key_begin);
}

/* The keys that a unit reads, which are also its values, where they were chosen. */
static pj_kv_rows gather_chosen(const attention *a, const unit *u, unsigned thread)
{
    pj_kv_rows all =
        pj_cpu_kv(a->s, a->layer->kv_source, u->segment->sequence, 0, u->head / a->group, 0);
    unsigned char *to = a->s->gathered + thread * a->s->gathered_bytes;
    for (uint32_t i = 0; i < u->keys; i++)
        memcpy(to + i * all.row_bytes,
               (const unsigned char *)all.data + u->chosen[i] * all.row_bytes, all.row_bytes);
    all.data = to;
    return all;
}

/* The thread's buffer for a unit's queries or results, [rows][head_dim]: contiguous rows avoid the
 * cache set conflicts of a pass's rows, and a second stride. */
static float *attention_unit_rows(const attention *a, unsigned thread)
{
    char *scratch = pj_team_scratch(a->s->team, thread);
    return (float *)(void *)(scratch + PJ_ATTENTION_SCRATCH_BYTES);
}

static void stage_scores(const attention *a, const unit *u, float *scores, unsigned thread)
{
    size_t dim = a->layer->head_dim, position_floats = u->heads * dim;
    const float *from = pj_cpu_row(a->s, a->qkv, u->first) + u->head * dim;
    float *q = attention_unit_rows(a, thread);
    pj_kv_rows keys = u->chosen ? gather_chosen(a, u, thread) : unit_kv(a, u, 0);
    for (uint32_t i = 0; i < u->positions; i++)
        memcpy(q + i * position_floats, from + (size_t)i * a->qkv.stride,
               position_floats * sizeof *q);
    (a->rounded ? a->rounded->scores : a->s->kernels->attention_scores)(
        scores, row_floats(a, u->keys), q, dim, u->rows, &keys, u->keys, dim,
        pj_team_scratch(a->s->team, thread));
}

static void stage_scale(const attention *a, const unit *u, float *scores, unsigned thread)
{
    a->s->kernels->attention_scale(scores, row_floats(a, u->keys), u->rows, u->keys,
                                   a->layer->score_scale);
}

static void stage_softcap(const attention *a, const unit *u, float *scores, unsigned thread)
{
    float cap = (float)a->s->model->config.attention_softcap;
    for (uint32_t i = 0; i < u->rows; i++)
        a->s->kernels->softcap(scores + (size_t)i * row_floats(a, u->keys), u->keys, cap);
}

static void stage_mask(const attention *a, const unit *u, float *scores, unsigned thread)
{
    pj_visible seen[UNIT_ROWS];
    if (u->positions == 1) return; /* every key read is visible */
    for (uint32_t i = 0; i < u->rows; i++) seen[i] = visible(a, u, i);
    a->s->kernels->attention_mask(scores, row_floats(a, u->keys), u->rows, u->keys, seen);
}

/* A head's sink follows its scores: it takes part in the softmax, but contributes no value. */
static void stage_softmax(const attention *a, const unit *u, float *scores, unsigned thread)
{
    const float *sinks = a->layer->sinks;
    size_t stride = row_floats(a, u->keys);
    for (uint32_t i = 0; sinks && i < u->rows; i++)
        scores[i * stride + u->keys] = sinks[u->head + i % u->heads];
    a->s->kernels->attention_softmax(scores, stride, u->rows, u->keys + (sinks != NULL));
}

/* Destination of a unit's results: positions are a row of y apart. */
static float *unit_output(const attention *a, const unit *u)
{
    return pj_cpu_row(a->s, a->y, u->first) + (size_t)u->head * a->layer->value_dim;
}

static void stage_values(const attention *a, const unit *u, float *scores, unsigned thread)
{
    size_t dim = a->layer->value_dim, position_floats = u->heads * dim;
    float *y = attention_unit_rows(a, thread);
    pj_kv_rows values = u->chosen ? gather_chosen(a, u, thread) : unit_kv(a, u, 1);
    (a->rounded ? a->rounded->values : a->s->kernels->attention_values)(
        y, dim, scores, row_floats(a, u->keys), u->rows, &values, u->keys, dim, false,
        pj_team_scratch(a->s->team, thread));
    for (uint32_t i = 0; i < u->positions; i++)
        memcpy(unit_output(a, u) + (size_t)i * a->y.stride, y + i * position_floats,
               position_floats * sizeof *y);
}

/* ---- all stages of a unit at once --------------------------------------------------------- */

/* Statistics of a unit's output. */
static void sum_attended(const attention *a, const unit *u, pj_value_sums *sums)
{
    a->s->kernels->value_sums(unit_output(a, u), u->positions,
                              (size_t)u->heads * a->layer->value_dim, a->y.stride, PJ_SPARSITY_TAU,
                              sums);
}

static void run_units(void *context, unsigned thread)
{
    const attention *a = context;
    float *scores = a->s->scores + thread * a->s->score_floats;
    bool capped = a->s->model->config.attention_softcap > 0;
    size_t begin, end;
    while (pj_team_take(a->s->team, a->units, 1, &begin, &end)) {
        unit u = unit_at(a, (uint32_t)begin);
        stage_scores(a, &u, scores, thread);
        stage_scale(a, &u, scores, thread);
        if (capped) stage_softcap(a, &u, scores, thread);
        stage_mask(a, &u, scores, thread);
        stage_softmax(a, &u, scores, thread);
        stage_values(a, &u, scores, thread);
        if (!a->sums_units) continue;
        int64_t timed_from = pj_stats_timer_begin();
        sum_attended(a, &u, pj_cpu_sums(a->s, thread));
        pj_stats_timer_end(timed_from);
    }
}

/* ---- separate stages with statistics ------------------------------------------------------ */

/* Every step-th row of a segment, always including the last. */
static bool row_is_sampled(const unit *u, uint32_t i, size_t step)
{
    uint32_t row = u->first + i / u->heads - u->segment->row;
    return pj_sample_has_row(row, u->segment->count, step);
}

/* Statistics of the visible scores, before and after scaling, and of weights: sums of sampled rows,
 * or of all, and bounds of all. */
static void sum_rows(const attention *a, const unit *u, const float *scores, pj_value_sums *sums)
{
    const pj_kernels *k = a->s->kernels;
    size_t step = pj_instrument_step(a->s->instrument, u->segment->count);
    if (u->positions == 1 && row_is_sampled(u, 0, step)) { /* every key read is visible */
        k->value_sums(scores, u->rows, u->keys, row_floats(a, u->keys), PJ_SPARSITY_TAU, sums);
        return;
    }
    for (uint32_t i = 0; i < u->rows; i++) {
        pj_visible v = visible(a, u, i);
        uint32_t keys = v.end - v.begin;
        const float *row = scores + i * row_floats(a, u->keys) + v.begin;
        if (row_is_sampled(u, i, step))
            k->value_sums(row, 1, keys, keys, PJ_SPARSITY_TAU, sums);
        else
            k->value_bounds(row, 1, keys, keys, sums);
    }
}

static double attention_larger(double a, double b)
{
    return a > b ? a : b;
}

static void look_at_row(const pj_kernels *kernels, const float *p, uint32_t keys, double log_keys,
                        pj_head_figures *to)
{
    pj_attention_figures f = {0};
    kernels->attention_figures(p, keys, PJ_SPARSITY_TAU, 0.1f / (float)keys, &f);
    to->rows++;
    to->entropy += f.entropy;
    to->entropy_normalised += keys > 1 ? f.entropy / log_keys : 0;
    to->largest += f.max;
    to->largest_of_all = attention_larger(to->largest_of_all, f.max);
    to->visible += keys;
    to->below += (double)f.below;
    to->below_relative += (double)f.below_relative;
}

/* The head's figures, zeroed by the thread that works on them: if the driving thread did that, all
 * of their cache lines would move to and fro. */
static pj_head_figures *figures_of(const attention *a, unsigned thread, uint32_t head)
{
    pj_head_figures *f = &a->s->figures[thread * a->layer->heads + head];
    if (f->number != a->number) *f = (pj_head_figures){.number = a->number};
    return f;
}

static void look_at_unit(const attention *a, const unit *u, const float *scores, unsigned thread)
{
    size_t step = pj_instrument_extras_step(a->s->instrument, u->segment->count);
    uint32_t keys = 0;
    double log_keys = 0;
    for (uint32_t i = 0; i < u->rows; i++) {
        if (!row_is_sampled(u, i, step)) continue;
        pj_visible v = visible(a, u, i);
        if (v.end - v.begin != keys) log_keys = log(keys = v.end - v.begin);
        look_at_row(a->s->kernels, scores + i * row_floats(a, u->keys) + v.begin, keys, log_keys,
                    figures_of(a, thread, u->head + i % u->heads));
    }
}

/* ---- stages apart ------------------------------------------------------------------------- */

typedef enum summed { NOTHING, SCORES, OUTPUT } summed;

typedef struct stage_row {
    pj_instrument_name name;
    void (*run)(const attention *a, const unit *u, float *scores, unsigned thread);
    double flops_per_pair;  /* for products: with head_dim 1 */
    bool product;           /* reads keys or values */
    double floats_per_pair; /* of scores read and written */
    summed summed;          /* what has statistics */
    uint8_t sums;           /* their index */
} stage_row;

static const stage_row stages[PJ_ATTENTION_STAGES] = {
    {PJ_N_OP_QK_MATMUL, stage_scores, 2, true, 0, SCORES, 0},
    {PJ_N_OP_SCALE, stage_scale, 1, false, 2, SCORES, 1},
    {PJ_N_OP_SOFTCAP, stage_softcap, 6, false, 2, SCORES, 4},
    {PJ_N_OP_MASK_APPLY, stage_mask, 1, false, 2, NOTHING},
    {PJ_N_OP_SOFTMAX, stage_softmax, 5, false, 2, SCORES, 2},
    {PJ_N_OP_ATTN_DROPOUT, NULL, 0, false, 0, NOTHING},
    {PJ_N_OP_VALUE_MATMUL, stage_values, 2, true, 0, OUTPUT, 3},
};

static bool has_stage(const attention *a, const stage_row *stage)
{
    return stage->run != stage_softcap || a->s->model->config.attention_softcap > 0;
}

static bool has_sums(const attention *a, const stage_row *stage)
{
    return stage->summed != NOTHING && has_stage(a, stage);
}

/* The thread's times and sums, which it zeroes itself when it begins. */
static pj_attention_part *thread_part(const attention *a, unsigned thread)
{
    pj_attention_part *part = &a->s->attention_parts[thread];
    if (part->number == a->number) return part;
    part->number = a->number;
    memset(part->ns, 0, sizeof part->ns);
    for (size_t i = 0; i < PJ_ATTENTION_STAGES; i++)
        if (has_sums(a, &stages[i])) part->sums[stages[i].sums] = (pj_value_sums){0};
    return part;
}

/* One stage of a unit and its statistics. */
static void run_stage_unit(const attention *a, const stage_row *stage, const unit *u, float *scores,
                           unsigned thread, pj_value_sums *sums)
{
    if (stage->run) stage->run(a, u, scores, thread);
    if (!a->s->instrument->statistics || stage->summed == NOTHING) return;
    int64_t timed_from = pj_stats_timer_begin();
    if (stage->summed == OUTPUT)
        sum_attended(a, u, sums);
    else
        sum_rows(a, u, scores, sums);
    if (stage->run == stage_softmax) look_at_unit(a, u, scores, thread);
    pj_stats_timer_end(timed_from);
}

static void run_stage_share(void *context, unsigned thread)
{
    const attention *a = context;
    pj_value_sums *sums = pj_cpu_sums(a->s, thread);
    size_t begin, end;
    pj_team_share(a->s->team, thread, a->end - a->begin, 1, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        unit u = unit_at(a, a->begin + (uint32_t)i);
        run_stage_unit(a, a->stage, &u, a->s->scores + i * a->unit_floats, thread, sums);
    }
}

/* All stages of a unit in turn, with the time of each. */
static void run_units_apart(void *context, unsigned thread)
{
    const attention *a = context;
    float *scores = a->s->scores + thread * a->s->score_floats;
    size_t begin, end;
    while (pj_team_take(a->s->team, a->end - a->begin, 1, &begin, &end)) {
        pj_attention_part *part = thread_part(a, thread);
        unit u = unit_at(a, a->begin + (uint32_t)begin);
        int64_t began = pj_clock_ns();
        for (size_t i = 0; i < PJ_ATTENTION_STAGES; i++) {
            if (!has_stage(a, &stages[i])) continue;
            run_stage_unit(a, &stages[i], &u, scores, thread, &part->sums[stages[i].sums]);
            int64_t now = pj_clock_ns();
            part->ns[i] += now - began;
            began = now;
        }
    }
}

static void add_figures(pj_head_figures *to, const pj_head_figures *part)
{
    to->rows += part->rows;
    to->entropy += part->entropy;
    to->entropy_normalised += part->entropy_normalised;
    to->largest += part->largest;
    to->largest_of_all = attention_larger(to->largest_of_all, part->largest_of_all);
    to->visible += part->visible;
    to->below += part->below;
    to->below_relative += part->below_relative;
}

/* Extra figures of the whole layer. */
static void record_figures(const attention *a)
{
    pj_cpu *s = a->s;
    pj_instrument *r = s->instrument;
    uint32_t heads = a->layer->heads;
    pj_head_figures *figures = s->figures, all = {0};
    for (uint32_t h = 0; h < heads; h++) {
        pj_head_figures *of_head = figures_of(a, 0, h);
        for (unsigned t = 1; t < pj_team_threads(s->team); t++)
            if (figures[t * heads + h].number == a->number)
                add_figures(of_head, &figures[t * heads + h]);
        add_figures(&all, of_head);
    }
    if (all.rows == 0) return;
    const uint32_t scalar = PJ_EXTRA_SCALAR;
    pj_instrument_extra(r, PJ_N_X_ENTROPY, scalar, all.entropy / all.rows);
    pj_instrument_extra(r, PJ_N_X_ENTROPY_NORMALISED, scalar, all.entropy_normalised / all.rows);
    pj_instrument_extra(r, PJ_N_X_LARGEST, scalar, all.largest / all.rows);
    pj_instrument_extra(r, PJ_N_X_LARGEST_OF_ALL, scalar, all.largest_of_all);
    pj_instrument_extra(r, PJ_N_X_ATTENTION_SPARSITY, scalar, all.below / all.visible);
    pj_instrument_extra(r, PJ_N_X_ATTENTION_SPARSITY_RELATIVE, scalar,
                        all.below_relative / all.visible);
    pj_instrument_extra(r, PJ_N_X_ATTENTION_ROWS, scalar, (double)all.rows / heads);
    for (uint32_t h = 0; h < heads; h++) {
        const pj_head_figures *f = &figures[h];
        pj_instrument_extra(r, PJ_N_X_ENTROPY_HEAD, h, f->entropy / f->rows);
        pj_instrument_extra(r, PJ_N_X_LARGEST_HEAD, h, f->largest / f->rows);
        pj_instrument_extra(r, PJ_N_X_ATTENTION_SPARSITY_HEAD, h, f->below / f->visible);
    }
}

/* Extra figures of a stage's last part: number of sampled rows per head, and statistics of the
 * weights. */
static void record_extras(const attention *a, pj_instrument_name stage)
{
    pj_cpu *s = a->s;
    size_t rows = 0;
    if (stage == PJ_N_OP_SOFTMAX) record_figures(a);
    if (stage != PJ_N_OP_QK_MATMUL && stage != PJ_N_OP_SCALE && stage != PJ_N_OP_SOFTCAP) return;
    for (uint32_t i = 0; i < s->rows.pass->segment_count; i++) {
        size_t count = s->rows.pass->segments[i].count,
               step = pj_instrument_step(s->instrument, count);
        rows += (count + step - 1) / step;
    }
    pj_instrument_extra(s->instrument, PJ_N_X_ATTENTION_ROWS, PJ_EXTRA_SCALAR, (double)rows);
}

/* Work of units [begin, end) of all. */
static pj_attention_extent extent_of(const attention *a, uint32_t begin, uint32_t end,
                                     const pj_attention_extent *of_all)
{
    pj_attention_extent e = {0};
    uint32_t dim = a->layer->head_dim;
    for (uint32_t i = begin; i < end; i++) {
        unit u = unit_at(a, i);
        const pj_pass_segment *g = u.segment;
        e.q_floats += (double)u.rows * dim;
        for (uint32_t row = 0; row < u.rows; row++) {
            pj_visible v = visible(a, &u, row);
            e.pairs += v.end - v.begin;
        }
        /* a group's keys count once, with the unit that sees the last of them */
        if (u.head % a->group || u.first + u.positions < g->row + g->count) continue;
        uint32_t first = pj_layer_first_key(a->layer, a->s->rows.sequences[g->sequence].length);
        e.kv_floats += (double)(u.key_begin + u.keys - first) * dim;
    }
    /* which rows chose the same keys is not known: a share of all */
    if (pj_pass_chooses(a->layer, a->s->rows.sequences, a->s->rows.pass))
        e.kv_floats = of_all->kv_floats * e.pairs / of_all->pairs;
    return e;
}

static double kv_value_bytes(pj_cpu *s)
{
    return (double)pj_dtype_row_bytes(s->options.kv_type, 1);
}

/* Ends the open operation: a stage of units [a->begin, a->end). */
static void attention_end_stage(const attention *a, const stage_row *stage,
                                const pj_attention_extent *e, const pj_value_sums *sums,
                                int64_t now_ns)
{
    pj_instrument *r = a->s->instrument;
    pj_stats stats;
    int64_t timed_from = pj_stats_timer_begin();
    if (r->statistics && a->end == a->units) record_extras(a, stage->name);
    pj_stats_timer_end(timed_from);
    uint32_t dim = stage->summed == OUTPUT ? a->layer->value_dim : a->layer->head_dim;
    double share = (double)dim / a->layer->head_dim;
    pj_work work = {
        .flops = stage->flops_per_pair * e->pairs * (stage->product ? dim : 1),
        .bytes = stage->product ? share * (e->kv_floats * kv_value_bytes(a->s) + 4 * e->q_floats)
                                : 4 * stage->floats_per_pair * e->pairs,
    };
    if (sums->count > 0) {
        stats = pj_stats_of_sums(sums);
        work.stats = &stats;
    }
    pj_instrument_end_work(r, &work, now_ns);
}

/* One dispatch per stage. */
static void run_stages_in_turn(attention *a, const pj_attention_extent *e, pj_value_sums *attended)
{
    pj_cpu *s = a->s;
    for (size_t i = 0; i < PJ_ATTENTION_STAGES; i++) {
        pj_value_sums sums = {0};
        a->stage = &stages[i];
        if (!has_stage(a, a->stage)) continue;
        pj_instrument_operation(s->instrument, a->stage->name);
        if (a->stage->run) {
            pj_team_run(s->team, run_stage_share, a);
            pj_cpu_take_sums(s, 0, &sums);
        }
        if (a->stage->summed == OUTPUT) pj_value_sums_add(attended, &sums);
        attention_end_stage(a, a->stage, e, &sums, 0);
    }
}

/* Stages shorter than a dispatch: one for all of them. Each stage is recorded with its share of the
 * dispatch, in proportion to the time that all threads spent in it. */
static void run_stages_together(attention *a, const pj_attention_extent *e, pj_value_sums *attended)
{
    pj_cpu *s = a->s;
    pj_instrument *r = s->instrument;
    pj_attention_part all = {0};
    const pj_value_sums none = {0};
    int64_t begun_ns = r->ended_ns, spent_ns = 0, passed_ns = 0;
    pj_team_offer(s->team, run_units_apart, a);
    int64_t took_ns = pj_clock_ns() - begun_ns;
    for (unsigned t = 0; t < pj_team_threads(s->team); t++) {
        const pj_attention_part *part = &s->attention_parts[t];
        if (part->number != a->number) continue;
        for (size_t i = 0; i < PJ_ATTENTION_STAGES; i++) {
            all.ns[i] += part->ns[i];
            spent_ns += part->ns[i];
            size_t sums = stages[i].sums;
            if (has_sums(a, &stages[i])) pj_value_sums_add(&all.sums[sums], &part->sums[sums]);
        }
    }
    double scale = spent_ns > 0 ? (double)took_ns / (double)spent_ns : 0;
    for (size_t i = 0; i < PJ_ATTENTION_STAGES; i++) {
        if (!has_stage(a, &stages[i])) continue;
        passed_ns += all.ns[i];
        bool last = i + 1 == PJ_ATTENTION_STAGES;
        pj_instrument_operation(r, stages[i].name);
        attention_end_stage(a, &stages[i], e,
                            has_sums(a, &stages[i]) ? &all.sums[stages[i].sums] : &none,
                            begun_ns + (last ? took_ns : (int64_t)(scale * (double)passed_ns)));
    }
    pj_value_sums_add(attended, &all.sums[stages[PJ_ATTENTION_STAGES - 1].sums]);
}

/* `of_all`: of all units. */
static void run_stages_apart(attention *a, const pj_attention_extent *of_all,
                             pj_value_sums *attended)
{
    pj_cpu *s = a->s;
    size_t wave = a->unit_floats > WAVE_FLOATS ? a->unit_floats : WAVE_FLOATS;
    size_t fit = pj_team_threads(s->team) * wave / a->unit_floats;
    a->number = ++s->attention_number;
    for (a->begin = 0; a->begin < a->units; a->begin = a->end) {
        a->end = a->units - a->begin < fit ? a->units : a->begin + (uint32_t)fit;
        pj_attention_extent e = fit < a->units ? extent_of(a, a->begin, a->end, of_all) : *of_all;
        s->instrument->ended_ns = pj_clock_ns();
        if ((size_t)(a->end - a->begin) * a->unit_floats < FEW_FLOATS)
            run_stages_together(a, &e, attended);
        else
            run_stages_in_turn(a, &e, attended);
    }
}

/* ---- the component ------------------------------------------------------------------------ */

static void cut_units(attention *a)
{
    const pj_pass *pass = a->s->rows.pass;
    for (uint32_t i = 0; i < pass->segment_count; i++) {
        pass->segments[i].unit_begin = a->units;
        a->units += segment_units(a, &pass->segments[i]);
    }
    for (uint32_t i = 0; a->s->instrument->deep && i < a->units; i++) {
        unit u = unit_at(a, i);
        uint32_t floats = u.rows * row_floats(a, u.keys);
        if (floats > a->unit_floats) a->unit_floats = floats;
    }
}

/* Scores, softmax and values of all units, with statistics of the output. */
static void attention_run(attention *a, const pj_attention_extent *e, const pj_cpu_done *output)
{
    pj_cpu *s = a->s;
    pj_value_sums attended = {0};
    if (s->instrument->deep) {
        run_stages_apart(a, e, &attended);
    } else {
        a->sums_units = s->instrument->statistics && !pj_cpu_short(output->rows, output->cols);
        pj_team_offer(s->team, run_units, a);
        if (!a->sums_units) return; /* computed at the component's end */
        pj_cpu_take_sums(s, 0, &attended);
    }
    if (s->instrument->statistics) pj_cpu_keep(s, output, &attended);
}

/* Whether the products may round to bfloat16: where the weights' products already round their
 * activations to codes of eight bits, which loses so much more that the difference in the logits
 * cannot be measured. With weights in BF16 it would be a quarter of the whole loss or more. */
static const pj_rounded_attention *rounded_products(const attention *a)
{
    const pj_rounded_attention *r = a->s->kernels->rounded_attention;
    uint32_t key_dim = a->layer->head_dim, value_dim = a->layer->value_dim;
    if (!r || a->s->options.kv_type != PJ_F16) return NULL;
    if (key_dim % r->dim_multiple || value_dim % r->dim_multiple) return NULL;
    if (key_dim > r->max_dim || value_dim > r->max_dim) return NULL;
    pj_form form = pj_linear_form(a->s->kernels, a->s->model->counts.dtype, 1);
    bool codes = form == PJ_FORM_Q8 || form == PJ_FORM_Q8_WIDE || form == PJ_FORM_Q8_PLANES;
    return codes ? r : NULL;
}

void pj_cpu_attend(void *state, const pj_layer *layer, pj_slice qkv, pj_slice y,
                   const pj_attention_extent *extent)
{
    attention a = {
        .s = state, .layer = layer, .group = layer->heads / layer->kv_heads, .qkv = qkv, .y = y};
    pj_cpu_done output = pj_cpu_work(state, y, 0, 0);
    a.rounded = rounded_products(&a);
    cut_units(&a);
    attention_run(&a, extent, &output);
}

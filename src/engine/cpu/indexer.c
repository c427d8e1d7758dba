/* The indexer of sparse attention (engine/model/latent.h): its rotation and cache of keys, the
 * scores of all keys of a row's past, and the choice of the largest. Some rows are scored at a
 * time, so that their scores stay small. A unit of scoring is a block of keys of one row, so that a
 * single row of decode keeps all threads busy. */
#include "engine/cpu/cpu.h"
#include "engine/model/latent.h"

#include <string.h>

enum { BLOCK_KEYS = 512, BLOCK_HEADS = 64, BINS = 256 };

typedef struct indexing {
    pj_cpu *s;
    const pj_layer *l;
    const struct pj_indexer *m;
    pj_slice index;
    bool chooses;
    uint32_t begin, rows; /* rows of the pass that are scored now */
    uint32_t blocks;      /* of each row's keys */
} indexing;

/* ---- rotation and the cache --------------------------------------------------------------- */

static void index_rope_row(void *context, size_t row)
{
    const indexing *t = context;
    const pj_cpu *s = t->s;
    uint32_t rope = t->l->rope, queries = t->m->heads;
    size_t pairs = s->model->ropes[rope].pairs;
    float *index = pj_cpu_row(s, t->index, row);
    /* the key follows the queries */
    if (!t->chooses) index += (size_t)queries * t->m->dim;
    s->kernels->rope(index, t->chooses ? queries + 1 : 1, t->m->dim, s->cosine[rope] + row * pairs,
                     s->sine[rope] + row * pairs, 2 * pairs, t->m->neighbours);
}

static void index_append_row(void *context, size_t row)
{
    const indexing *t = context;
    const pj_cpu *s = t->s;
    pj_kv_rows keys = pj_cpu_index_keys(s, t->l->index, s->rows.sequence[row]);
    const float *from = pj_cpu_row(s, t->index, row) + (size_t)t->m->heads * t->m->dim;
    unsigned char *to = (unsigned char *)(uintptr_t)keys.data;
    s->kernels->quantise(keys.type, from, to + s->rows.position[row] * keys.row_bytes, t->m->dim);
}

static void rotate_and_append(indexing *t, const pj_index_work *work)
{
    pj_cpu *s = t->s;
    uint32_t queries = t->m->heads * t->m->dim, rows = t->index.rows;
    pj_slice turned = t->index;
    turned.first += t->chooses ? 0 : queries;
    turned.cols = (t->chooses ? queries : 0) + t->m->dim;
    pj_cpu_done done = pj_cpu_work(s, turned, 3 * work->rotated, 8 * work->rotated);
    if (t->l->rope != PJ_NO_ROPE) {
        pj_instrument_operation(s->instrument, PJ_N_OP_ROPE);
        pj_cpu_rows(s, rows, (size_t)rows * turned.cols, index_rope_row, t);
        pj_cpu_operation_end(s, &done);
    }
    pj_instrument_operation(s->instrument, PJ_N_OP_KV_APPEND);
    pj_cpu_rows(s, rows, (size_t)rows * t->m->dim, index_append_row, t);
    pj_cpu_operation_end(s, &(pj_cpu_done){.bytes = work->stored});
}

/* ---- scores ------------------------------------------------------------------------------- */

static float *scores_of(const indexing *t, uint32_t row)
{
    return t->s->index_scores + (size_t)(row - t->begin) * t->s->options.context;
}

/* Whether a row leaves out keys; the others need no scores. */
static bool leaves_out(const indexing *t, uint32_t row)
{
    return t->s->rows.position[row] >= t->m->kept;
}

/* to[i] += weight max(0, products[i]) */
static void add_weighted(float *to, const float *products, float weight, uint32_t keys)
{
    for (uint32_t i = 0; i < keys; i++) to[i] += weight * (products[i] > 0 ? products[i] : 0);
}

static void score_block(const indexing *t, uint32_t row, uint32_t first, uint32_t keys,
                        unsigned thread)
{
    const pj_cpu *s = t->s;
    const struct pj_indexer *m = t->m;
    const float *q = pj_cpu_row(s, t->index, row);
    const float *weights = q + (size_t)(m->heads + 1) * m->dim;
    float *products = s->scores + thread * s->score_floats, *to = scores_of(t, row) + first;
    pj_kv_rows cached = pj_cpu_index_keys(s, t->l->index, s->rows.sequence[row]);
    cached.data = (const unsigned char *)cached.data + first * cached.row_bytes;
    memset(to, 0, keys * sizeof *to);
    for (uint32_t head = 0; head < m->heads; head += BLOCK_HEADS) {
        uint32_t heads = m->heads - head < BLOCK_HEADS ? m->heads - head : BLOCK_HEADS;
        s->kernels->attention_scores(products, BLOCK_KEYS, q + (size_t)head * m->dim, m->dim, heads,
                                     &cached, keys, m->dim, pj_team_scratch(s->team, thread));
        for (uint32_t h = 0; h < heads; h++)
            add_weighted(to, products + (size_t)h * BLOCK_KEYS, weights[head + h] * m->scale, keys);
    }
}

static void score_blocks(void *context, unsigned thread)
{
    const indexing *t = context;
    size_t begin, end;
    while (pj_team_take(t->s->team, (size_t)t->rows * t->blocks, 1, &begin, &end)) {
        uint32_t row = t->begin + (uint32_t)(begin / t->blocks);
        uint32_t first = (uint32_t)(begin % t->blocks) * BLOCK_KEYS;
        uint32_t keys = t->s->rows.position[row] + 1;
        if (first >= keys || !leaves_out(t, row)) continue;
        score_block(t, row, first, keys - first < BLOCK_KEYS ? keys - first : BLOCK_KEYS, thread);
    }
}

/* ---- the choice --------------------------------------------------------------------------- */

/* Larger for a larger number, with NaN above all. */
static uint32_t order_of(float x)
{
    uint32_t bits;
    x += 0.0f; /* both zeros are equal */
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return UINT32_MAX;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The order of the kept-th largest score, byte by byte from the highest; *equal: how many of those
 * that equal it are kept. */
static uint32_t least_kept(const float *scores, uint32_t keys, uint32_t kept, uint32_t *equal)
{
    uint32_t found = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t counts[BINS] = {0}, bin = BINS - 1;
        for (uint32_t i = 0; i < keys; i++) {
            uint32_t order = order_of(scores[i]);
            counts[order >> shift & (BINS - 1)] += (order & mask) == found;
        }
        while (counts[bin] < kept) kept -= counts[bin--];
        found |= bin << shift;
        mask |= (uint32_t)(BINS - 1) << shift;
    }
    *equal = kept;
    return found;
}

static void choose_row(void *context, size_t i)
{
    const indexing *t = context;
    uint32_t row = t->begin + (uint32_t)i, keys = t->s->rows.position[row] + 1, equal;
    uint32_t *to = t->s->seen_keys + (size_t)row * t->m->kept;
    const float *scores = scores_of(t, row);
    if (!leaves_out(t, row)) return;
    uint32_t least = least_kept(scores, keys, t->m->kept, &equal);
    for (uint32_t key = 0; key < keys; key++) {
        uint32_t order = order_of(scores[key]);
        if (order < least || (order == least && equal == 0)) continue;
        equal -= order == least;
        *to++ = key;
    }
}

static void score_and_choose(indexing *t, const pj_index_work *all)
{
    pj_cpu *s = t->s;
    uint32_t most = 0;
    double pairs = 0, kept = 0;
    for (uint32_t row = t->begin; row < t->begin + t->rows; row++) {
        if (!leaves_out(t, row)) continue;
        if (s->rows.position[row] + 1 > most) most = s->rows.position[row] + 1;
        pairs += s->rows.position[row] + 1;
        kept += t->m->kept;
    }
    if (most == 0) return;
    t->blocks = (most + BLOCK_KEYS - 1) / BLOCK_KEYS;
    pj_instrument_operation(s->instrument, PJ_N_OP_INDEX_SCORES);
    pj_team_offer(s->team, score_blocks, t);
    double share = pairs / all->pairs,
           row_bytes = (double)pj_dtype_row_bytes(s->options.kv_type, 1);
    double floats = t->rows * (t->m->heads * (t->m->dim + 1.0));
    pj_cpu_operation_end(s, &(pj_cpu_done){.flops = pairs * t->m->heads * (2.0 * t->m->dim + 3),
                                           .bytes = share * all->keys * t->m->dim * row_bytes +
                                                    4 * (floats + pairs)});
    pj_instrument_operation(s->instrument, PJ_N_OP_TOP_K);
    pj_cpu_rows(s, t->rows, (size_t)pairs * 8, choose_row, t);
    pj_cpu_operation_end(s, &(pj_cpu_done){.flops = pairs, .bytes = 4 * (pairs + kept)});
}

void pj_cpu_choose_keys(void *state, const pj_layer *layer, pj_slice index, bool chooses)
{
    pj_cpu *s = state;
    const pj_rows_of_pass *r = &s->rows;
    indexing t = {.s = s, .l = layer, .m = layer->indexer, .index = index, .chooses = chooses};
    pj_index_work work =
        pj_index_work_of(s->model, layer, r->pass, r->sequences, s->options.kv_type);
    rotate_and_append(&t, &work);
    for (t.begin = 0; chooses && t.begin < index.rows; t.begin += t.rows) {
        uint32_t left = index.rows - t.begin;
        t.rows = left < s->index_rows ? left : s->index_rows;
        score_and_choose(&t, &work);
    }
}

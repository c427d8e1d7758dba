/*
 * Drives the products: distributes rows over the thread team, blocks for the caches, calls the
 * set's kernels.
 *
 * Many tokens: a thread takes a block of weight rows that fits its L2 cache (unpacked there where
 * the type requires it) and multiplies it with all panels; within a panel it proceeds in stretches
 * of columns, so that the panel's part stays in cache for all tiles of the block. Sums accumulate
 * in small [rows][48] buffers, one per panel, and are stored transposed. Long rows are split into
 * chunks of columns, so that a block has many rows: the weights are read from memory once, the
 * activations once per block. Where a set multiplies so fast that reading the activations from L3
 * would slow it down, all blocks are multiplied with one pass of tokens before the next.
 */
#include "engine/kernels/linear.h"

#include "base/clock.h"
#include "base/memory.h"
#include "engine/kernels/ahead.h"
#include "engine/kernels/stats_timer.h"
#include "engine/kernels/tile.h"

#include <string.h>

void pj_value_sums_add(pj_value_sums *into, const pj_value_sums *part)
{
    into->sum += part->sum;
    into->sum_abs += part->sum_abs;
    into->sum_square += part->sum_square;
    into->count += part->count;
    into->skipped += part->skipped;
    into->below += part->below;
    into->max_abs = part->max_abs > into->max_abs ? part->max_abs : into->max_abs;
    into->nan += part->nan;
    into->inf += part->inf;
}

enum {
    BLOCK_MAX_ROWS = 128,
    /* block, a stretch of a panel and the next: L2 is 1 MiB, and also holds results and the next
     * block */
    CACHE_BYTES = 640 << 10,
    BLOCK_BYTES = 448 << 10, /* maximum of a block, for the same reason */
    CHUNK_BYTES = 8192,      /* per row at a time: a block has 31 rows or more */
    DOT_BYTES = 1 << 20,     /* weights that a thread takes at a time */
    SUMS_BYTES = 256 << 10,  /* of a block over many panels; at least one */
    PASS_MIN_TOKENS = 96     /* fewer do not pay for reading or unpacking the weights again */
};

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Whether that many tokens are few: multiplied as rows, by `dot`. */
static bool is_few(const pj_kernels *kernels, pj_dtype type, size_t tokens)
{
    const pj_tile_kernels *k = kernels->linear[type];
    const pj_form_kernels *form = kernels->forms[k->form];
    if (tokens > form->lanes && tokens <= form->lanes + k->dot_more) return true;
    return tokens <= (k->dot_tokens ? k->dot_tokens : form->dot_tokens);
}

static const pj_tile_kernels *kernels_for(const pj_kernels *kernels, pj_dtype type, size_t tokens)
{
    const pj_tile_kernels *k = kernels->linear[type];
    if (is_few(kernels, type, tokens)) return k;
    if (k->many) k = k->many;
    return k->stream && tokens <= k->stream->most_tokens ? k->stream : k;
}

pj_form pj_linear_form(const pj_kernels *kernels, pj_dtype type, size_t tokens)
{
    return kernels_for(kernels, type, tokens)->form;
}

bool pj_linear_shares(const pj_kernels *kernels, pj_dtype a, pj_dtype b, size_t tokens)
{
    return pj_linear_form(kernels, a, tokens) == pj_linear_form(kernels, b, tokens) &&
           is_few(kernels, a, tokens) == is_few(kernels, b, tokens);
}

bool pj_linear_is_float32(const pj_kernels *kernels, pj_dtype type)
{
    return kernels->linear[type] && pj_linear_form(kernels, type, 1) == PJ_FORM_F32 &&
           pj_linear_form(kernels, type, SIZE_MAX) == PJ_FORM_F32;
}

size_t pj_linear_pack_bytes(size_t tokens, size_t cols)
{
    /* The largest form: 4 bytes per value; codes need 2, and 8 per block. */
    size_t bytes;
    if (pj_mul_overflows(round_up(tokens, 16), round_up(cols, 64), &bytes)) return 0;
    if (pj_mul_overflows(bytes, 4, &bytes) || pj_add_overflows(bytes, 256, &bytes)) return 0;
    return bytes;
}

static bool has_codes(pj_form form)
{
    return form >= PJ_FORM_Q8 && form <= PJ_FORM_Q8_WORDS;
}

/* Size of a packed value. */
static size_t value_bytes(pj_form form, bool panels)
{
    if (form == PJ_FORM_F32 || form == PJ_FORM_SPLIT) return 4;
    return form == PJ_FORM_BF16 || form == PJ_FORM_Q8_WORDS ? 2 : 1;
}

/* ---- packing ---------------------------------------------------------------------------- */

typedef struct packing {
    const pj_form_kernels *form;
    pj_team *team;
    pj_packed *to;
    size_t value_bytes; /* of one */
    size_t panel;       /* tokens of a full panel */
} packing;

static size_t padded_cols(const pj_packed *x)
{
    return x->form == PJ_FORM_BF16 ? round_up(x->cols, 32) : x->cols;
}

/* Panels of equal width, in vectors, rather than full ones and a remainder. */
static size_t panel_tokens(const pj_form_kernels *form, size_t tokens)
{
    size_t vectors = (tokens + form->lanes - 1) / form->lanes;
    size_t panels = (vectors + form->vectors - 1) / form->vectors;
    return (vectors + panels - 1) / panels * form->lanes;
}

static void pack_rows(const packing *p, size_t begin, size_t end)
{
    const pj_packed *to = p->to;
    size_t cols = padded_cols(to), blocks = to->cols / PJ_Q8_BLOCK;
    for (size_t t = begin; t < end; t++)
        p->form->pack_row(
            to->x + t * to->x_stride, to->cols, (char *)to->values + t * cols * p->value_bytes,
            to->scales ? to->scales + t * blocks : NULL, to->sums ? to->sums + t * blocks : NULL);
}

static void pack_panel(const packing *p, size_t first)
{
    const pj_packed *to = p->to;
    size_t cols = round_up(to->cols, p->form->group), blocks = to->cols / PJ_Q8_BLOCK;
    size_t tokens = smaller(p->panel, to->tokens - first);
    p->form->pack_panel(to->x + first * to->x_stride, to->x_stride, tokens,
                        round_up(tokens, p->form->lanes), to->cols,
                        (char *)to->values + first * cols * p->value_bytes,
                        to->scales ? to->scales + first * blocks : NULL,
                        to->sums ? to->sums + first * blocks : NULL);
}

static void pack_some(void *context, unsigned thread)
{
    packing *p = context;
    size_t step = p->to->panels ? p->panel : 1;
    size_t items = (p->to->tokens + step - 1) / step, begin, end;
    while (pj_team_take(p->team, items, 1, &begin, &end)) {
        if (p->to->panels)
            pack_panel(p, begin * step);
        else
            pack_rows(p, begin, end);
    }
}

void pj_linear_pack(const pj_kernels *kernels, pj_team *team, pj_dtype type, const float *x,
                    size_t x_stride, size_t tokens, size_t cols, void *memory, pj_packed *packed)
{
    pj_form form = pj_linear_form(kernels, type, tokens);
    packing p = {.form = kernels->forms[form], .team = team, .to = packed};
    *packed = (pj_packed){.form = form,
                          .tokens = tokens,
                          .cols = cols,
                          .x = x,
                          .x_stride = x_stride,
                          .panels = !is_few(kernels, type, tokens),
                          .values = memory};
    p.value_bytes = value_bytes(form, packed->panels);
    if (packed->panels) p.panel = panel_tokens(p.form, tokens);
    if (has_codes(form)) {
        size_t padded = round_up(tokens, 16);
        packed->scales = (float *)((char *)memory + round_up(padded * cols * p.value_bytes, 64));
        packed->sums = (int32_t *)(packed->scales + padded * (cols / PJ_Q8_BLOCK));
    }
    if (packed->panels) {
        pj_team_offer(team, pack_some, &p);
    } else if (form != PJ_FORM_F32) {
        if (tokens * cols > 1 << 15)
            pj_team_offer(team, pack_some, &p);
        else
            pack_rows(&p, 0, tokens);
    }
}

/* ---- multiplying ------------------------------------------------------------------------ */

/* How the rows of a job are split into work units of each pass: `whole` units of `grain` rows, then
 * up to a total of `units` units of `fine` rows. */
typedef struct cut {
    size_t grain, whole, fine, units;
} cut;

typedef struct product {
    const pj_kernels *kernels;
    pj_team *team;
    const pj_packed *x;
    const pj_linear_job *jobs;
    size_t count;
    size_t passes, pass_tokens; /* of a full pass: whole panels */
    cut cuts[PJ_LINEAR_MAX_JOBS];
} product;

static const pj_tile_kernels *tile_kernels(const product *p, const pj_matrix *w)
{
    return kernels_for(p->kernels, w->type, p->x->tokens);
}

/* Adds rows [begin, end) of the output of some tokens to the statistics: all of them, or the sums
 * of sampled tokens and the bounds of all. `sums`: the same values without bias in L1, transposed
 * ([rows][PJ_TILE_MAX_TOKENS]); y's rows are far apart and mostly evicted. */
static void look_at(const product *p, const pj_linear_job *job, size_t token, size_t tokens,
                    size_t begin, size_t end, const float *sums, pj_value_sums *to)
{
    const pj_kernels *k = p->kernels;
    size_t step = job->sample_step > 1 ? job->sample_step : 1, rows = end - begin;
    float *y = job->y + token * job->y_stride + begin;
    int64_t timed_from = pj_stats_timer_begin();
    if (step == 1) {
        if (sums && !job->bias)
            k->value_sums(sums, rows, tokens, PJ_TILE_MAX_TOKENS, job->tau, to);
        else
            k->value_sums(y, tokens, rows, job->y_stride, job->tau, to);
    } else {
        pj_value_sums sampled = {0};
        size_t first = (p->x->tokens - 1 - token) % step; /* of the sampled tokens from here on */
        if (first < tokens)
            k->value_sums(y + first * job->y_stride, (tokens - first + step - 1) / step, rows,
                          job->y_stride * step, job->tau, &sampled);
        sampled.nan = sampled.inf = 0; /* counted with the bounds */
        if (sums && !job->bias)
            k->value_bounds(sums, rows, tokens, PJ_TILE_MAX_TOKENS, &sampled);
        else
            k->value_bounds(y, tokens, rows, job->y_stride, &sampled);
        pj_value_sums_add(to, &sampled);
    }
    pj_stats_timer_end(timed_from);
}

static void dot_unit(const product *p, const pj_linear_job *job, size_t begin, size_t end,
                     void *scratch, pj_value_sums *output_sums)
{
    pj_dot dot = {.weights = job->weights,
                  .begin = begin,
                  .end = end,
                  .x = p->x,
                  .bias = job->bias,
                  .y = job->y,
                  .y_stride = job->y_stride,
                  .scratch = scratch,
                  .ahead = pj_ahead_bytes(pj_team_ahead(p->team), job->weights->type)};
    p->kernels->linear[job->weights->type]->dot(&dot);
    if (output_sums) look_at(p, job, 0, p->x->tokens, begin, end, NULL, output_sums);
}

/* The stored weights of the block that this thread will probably process next, for prefetching. */
typedef struct coming {
    const char *at;
    size_t bytes, stride, rows; /* of a row; between rows; none: 0 */
} coming;

/* A block of rows over a chunk of columns, unpacked or in place. */
typedef struct block {
    const pj_tile_kernels *kernels;
    const pj_form_kernels *form;
    const pj_matrix *weights;
    size_t begin, end;   /* rows */
    size_t col, cols;    /* the chunk; cols a multiple of group after padding */
    const char *values;  /* of row `begin` at column `col` */
    size_t stride;       /* bytes between rows of values */
    const float *scales; /* [rows][scale_stride] */
    const float *minima;
    size_t scale_stride;
    bool in_place;
    pj_value_sums *output_sums; /* of the thread, or NULL */
    coming next;
} block;

/* Columns per chunk: a multiple of every type's block size. */
static size_t chunk_cols(const pj_tile_kernels *kernels)
{
    size_t bytes = kernels->chunk_bytes ? kernels->chunk_bytes : CHUNK_BYTES;
    return bytes / kernels->unpacked_bytes;
}

static size_t unpacked_stride(const pj_tile_kernels *kernels, size_t cols)
{
    /* One cache line more than the values, so that rows do not map to the same cache sets. */
    return round_up(cols * kernels->unpacked_bytes, 64) + 64;
}

/* Unpacked rows end with a whole tile: zeros follow the last. */
static void unpack_block(block *b, char *scratch)
{
    const pj_tile_kernels *k = b->kernels;
    const pj_matrix *w = b->weights;
    const pj_dtype_info *info = pj_dtype_get(w->type);
    size_t offset = b->col / info->block_values * info->block_bytes;
    size_t rows = b->end - b->begin, cols = smaller(b->cols, w->cols - b->col);
    b->in_place = k->direct && b->cols == cols;
    if (b->in_place) {
        b->values = (const char *)w->data + b->begin * w->row_bytes + offset;
        b->stride = w->row_bytes;
        return;
    }
    b->stride = unpacked_stride(k, b->cols);
    b->scale_stride = b->cols / PJ_Q8_BLOCK;
    size_t rounded = round_up(rows, k->rows);
    float *scales = (float *)(scratch + rounded * b->stride);
    float *minima = scales + rows * b->scale_stride;
    for (size_t r = 0; r < rows; r++)
        k->unpack((const char *)w->data + (b->begin + r) * w->row_bytes + offset, cols,
                  scratch + r * b->stride, scales + r * b->scale_stride,
                  minima + r * b->scale_stride);
    memset(scratch + rows * b->stride, 0, (rounded - rows) * b->stride);
    b->values = scratch;
    b->scales = scales;
    b->minima = minima;
}

/* Prefetch for the store after the last stretch: its lines are one row of y apart, which hardware
 * prefetchers do not follow. A few are prefetched before every tile. */
typedef struct output {
    float *y; /* of the panel's first token and the block's first row; NULL: not to be stored yet */
    size_t y_stride, tokens;
} output;

static void prefetch_output(const output *to, size_t row, size_t rows)
{
    enum { LINE = 16 };
    size_t begin = round_up(row, LINE), end = row + rows;
    for (size_t line = begin; to->y && line < end; line += LINE)
        for (size_t t = 0; t < to->tokens; t++)
            __builtin_prefetch(to->y + t * to->y_stride + line, 1, 2);
}

/* Prefetches by the tiles of a stretch: tile i of `count` prefetches `bytes` at `at` + i x
 * `stride`. */
typedef struct fetching {
    const char *at;
    size_t bytes, stride, count;
} fetching;

static size_t block_tiles(const block *b)
{
    return (b->end - b->begin + b->kernels->rows - 1) / b->kernels->rows;
}

/* All tiles of the block over one stretch of one panel. */
static void stretch_tiles(const block *b, const pj_tile *of_panel, size_t at, float *sums,
                          const fetching *fetch, const output *to)
{
    const pj_tile_kernels *k = b->kernels;
    size_t rows = b->end - b->begin;
    pj_tile tile = *of_panel;
    size_t groups = tile.cols / b->form->group, step = (fetch->bytes + groups - 1) / groups;
    for (size_t first = 0; first < rows; first += k->rows) {
        bool whole = rows - first >= k->rows;
        tile.stride = whole || !b->in_place ? b->stride : 0;
        for (size_t r = 0; r < k->rows; r++) {
            size_t row = smaller(first + r, rows - 1);
            tile.weights[r] = b->values + row * b->stride + at * k->unpacked_bytes;
            if (b->in_place || !has_codes(b->kernels->form)) continue;
            tile.scales[r] = b->scales + row * b->scale_stride + at / PJ_Q8_BLOCK;
            tile.minima[r] = b->minima + row * b->scale_stride + at / PJ_Q8_BLOCK;
        }
        tile.c = sums + first * PJ_TILE_MAX_TOKENS;
        bool fetches = first / k->rows < fetch->count;
        tile.ahead = fetch->at + (fetches ? first / k->rows * fetch->stride : 0);
        tile.ahead_step = fetches ? step : 0;
        prefetch_output(to, first, k->rows);
        k->tile(&tile);
    }
}

static fetching fetch_panel(const block *b, const char *at, size_t bytes)
{
    size_t tiles = block_tiles(b), share = bytes / tiles;
    return (fetching){at, share, share, tiles};
}

/* The last panel's tiles prefetch the weights of the next block, which would otherwise begin with
 * memory stalls. */
static fetching fetch_weights(const block *b, size_t stretch)
{
    const coming *next = &b->next;
    size_t tiles = block_tiles(b),
           stretches = (b->cols + b->kernels->stretch - 1) / b->kernels->stretch;
    size_t done = stretch * tiles;
    if (next->bytes == next->stride) { /* contiguous: equal shares */
        size_t share = next->rows * next->bytes / (stretches * tiles);
        return (fetching){next->at + done * share, share, share, tiles};
    }
    /* one row per tile, as far as it goes */
    size_t left = next->rows > done ? next->rows - done : 0;
    return (fetching){left ? next->at + done * next->stride : next->at, next->bytes, next->stride,
                      smaller(left, tiles)};
}

static void block_panel(const product *p, const block *b, const pj_linear_job *job, size_t token,
                        size_t panel, bool last_panel, float *sums)
{
    const pj_packed *x = p->x;
    size_t tokens = smaller(panel, x->tokens - token);
    size_t width = round_up(tokens, b->form->lanes);
    size_t padded = round_up(x->cols, b->form->group), blocks = x->cols / PJ_Q8_BLOCK;
    size_t bytes = value_bytes(x->form, true);
    output none = {0}, to = {job->y + token * job->y_stride + b->begin, job->y_stride, tokens};
    for (size_t at = 0; at < b->cols; at += b->kernels->stretch) {
        size_t col = b->col + at;
        pj_tile tile = {.x = (const char *)x->values + (token * padded + col * width) * bytes,
                        .cols = smaller(b->kernels->stretch, b->cols - at),
                        .vectors = width / b->form->lanes,
                        .half = tokens <= b->form->lanes / 2,
                        .add = col > 0};
        if (has_codes(x->form)) {
            tile.x_scales = x->scales + token * blocks + col / PJ_Q8_BLOCK * width;
            tile.x_sums = x->sums + token * blocks + col / PJ_Q8_BLOCK * width;
        }
        bool last = col + tile.cols >= padded;
        size_t x_bytes = width * tile.cols * bytes;
        fetching fetch = last_panel ? fetch_weights(b, at / b->kernels->stretch)
                                    : fetch_panel(b, (const char *)tile.x + x_bytes, x_bytes);
        stretch_tiles(b, &tile, at, sums, &fetch, last ? &to : &none);
    }
    if (b->col + b->cols < padded) return;
    p->kernels->tile_store(sums, b->end - b->begin, tokens, job->bias ? job->bias + b->begin : NULL,
                           to.y, job->y_stride);
    if (b->output_sums) look_at(p, job, token, tokens, b->begin, b->end, sums, b->output_sums);
}

/* After columns [col, col + chunk) of rows [begin, end): the next columns of the same rows, or the
 * rows left after every thread has taken one unit, as they do in turn. */
static coming coming_block(const product *p, const pj_matrix *w, size_t begin, size_t end,
                           size_t col, size_t chunk)
{
    const pj_dtype_info *info = pj_dtype_get(w->type);
    size_t rows = end - begin, next = col + chunk;
    if (next >= w->cols) {
        begin += pj_team_threads(p->team) * rows;
        rows = begin < w->rows ? smaller(rows, w->rows - begin) : 0;
        next = 0;
    }
    size_t cols = smaller(chunk, w->cols - next);
    return (coming){(const char *)w->data + (rows ? begin * w->row_bytes : 0) +
                        next / info->block_values * info->block_bytes,
                    cols / info->block_values * info->block_bytes, w->row_bytes, rows};
}

/* Rows [begin, end) times the tokens of a pass. */
static void tile_unit(const product *p, const pj_linear_job *job, size_t pass, size_t begin,
                      size_t end, void *scratch, pj_value_sums *output_sums)
{
    const pj_form_kernels *form = p->kernels->forms[p->x->form];
    const pj_tile_kernels *kernels = tile_kernels(p, job->weights);
    size_t panel = panel_tokens(form, p->x->tokens), padded = round_up(p->x->cols, form->group);
    size_t chunk = chunk_cols(kernels);
    size_t panel_floats = round_up(end - begin, kernels->rows) * PJ_TILE_MAX_TOKENS;
    size_t pass_end = smaller((pass + 1) * p->pass_tokens, p->x->tokens);
    bool one_chunk = padded <= chunk;
    /* Tokens whose sums are kept for the next chunk; all of them if there is none. */
    size_t group = one_chunk ? p->pass_tokens : SUMS_BYTES / 4 / panel_floats * panel;
    float *sums = scratch;
    for (size_t first = pass * p->pass_tokens; first < pass_end; first += group)
        for (size_t col = 0; col < padded; col += chunk) {
            block b = {.kernels = kernels,
                       .form = form,
                       .weights = job->weights,
                       .begin = begin,
                       .end = end,
                       .col = col,
                       .cols = smaller(chunk, padded - col),
                       .output_sums = output_sums,
                       .next = coming_block(p, job->weights, begin, end, col, chunk)};
            unpack_block(&b, (char *)scratch + SUMS_BYTES);
            size_t last = smaller(first + group, pass_end), index = 0;
            for (size_t token = first; token < last; token += panel, index += !one_chunk)
                block_panel(p, &b, job, token, panel, token + panel >= last,
                            sums + index * panel_floats);
        }
}

static void multiply_some(void *context, unsigned thread)
{
    product *p = context;
    void *scratch = pj_team_scratch(p->team, thread);
    size_t all = 0, unit, end;
    for (size_t j = 0; j < p->count; j++) all += p->cuts[j].units * p->passes;
    while (pj_team_take(p->team, all, 1, &unit, &end)) {
        size_t j = 0;
        while (unit >= p->cuts[j].units * p->passes) unit -= p->cuts[j++].units * p->passes;
        const cut *c = &p->cuts[j];
        if (unit == 0 && p->jobs[j].begun_ns) *p->jobs[j].begun_ns = pj_clock_ns();
        size_t pass = unit / c->units;
        unit %= c->units;
        size_t first =
            unit < c->whole ? unit * c->grain : c->whole * c->grain + (unit - c->whole) * c->fine;
        size_t last =
            smaller(first + (unit < c->whole ? c->grain : c->fine), p->jobs[j].weights->rows);
        pj_thread_sums *sums = p->jobs[j].sums;
        pj_value_sums *output_sums = sums ? &sums[thread].sums : NULL;
        if (p->x->panels)
            tile_unit(p, &p->jobs[j], pass, first, last, scratch, output_sums);
        else
            dot_unit(p, &p->jobs[j], first, last, scratch, output_sums);
    }
}

/* Rounds to whole tiles and whole cache lines of results. */
static size_t round_rows(size_t rows, const pj_tile_kernels *kernels)
{
    enum { LINE = 16 };
    return round_up(rows, kernels->rows > LINE ? kernels->rows : LINE);
}

/* Rows per unit: as many as the cache holds, fewer where threads would not share evenly. */
static size_t unit_rows(const product *p, const pj_matrix *w)
{
    const pj_tile_kernels *k = tile_kernels(p, w);
    size_t share = w->rows / (pj_team_threads(p->team) * (size_t)(p->x->panels ? 4 : 2)) + 1;
    if (!p->x->panels) {
        size_t rows = DOT_BYTES / (w->row_bytes + 1) + 1;
        return round_up(smaller(rows, share), 16); /* rows of a kernel that has one per lane */
    }
    const pj_form_kernels *form = p->kernels->forms[k->form];
    size_t cols = smaller(w->cols, chunk_cols(k));
    size_t panel =
        form->lanes * form->vectors * smaller(cols, k->stretch) * value_bytes(k->form, true);
    size_t bytes = smaller(BLOCK_BYTES, CACHE_BYTES - smaller(CACHE_BYTES, 2 * panel));
    size_t rows = smaller(smaller(bytes / unpacked_stride(k, cols), BLOCK_MAX_ROWS), share);
    return round_rows(rows ? rows : 1, k);
}

/* The last rows are split into smaller units, to balance the load at the end. */
static cut cut_job(const product *p, size_t j)
{
    const pj_matrix *w = p->jobs[j].weights;
    cut c = {.grain = unit_rows(p, w)};
    size_t threads = pj_team_threads(p->team);
    bool last = p->x->panels && threads > 1 && j + 1 == p->count;
    c.fine = last ? round_rows(c.grain / 4, tile_kernels(p, w)) : c.grain;
    c.whole = w->rows / c.grain;
    if (last) c.whole -= smaller(c.whole, threads);
    c.units = c.whole + (w->rows - c.whole * c.grain + c.fine - 1) / c.fine;
    return c;
}

/* Passes of nearly equal numbers of panels. */
static void cut_passes(product *p)
{
    const pj_form_kernels *form = p->kernels->forms[p->x->form];
    p->passes = 1;
    p->pass_tokens = p->x->tokens;
    if (!p->x->panels || !form->pass_bytes) return;
    size_t panel = panel_tokens(form, p->x->tokens);
    size_t panels = (p->x->tokens + panel - 1) / panel;
    size_t token_bytes = round_up(p->x->cols, form->group) * value_bytes(p->x->form, true);
    size_t most = form->pass_bytes / token_bytes;
    most = (most > PASS_MIN_TOKENS ? most : PASS_MIN_TOKENS) / panel;
    if (most == 0) most = 1;
    size_t passes = (panels + most - 1) / most, of_pass = (panels + passes - 1) / passes;
    p->passes = (panels + of_pass - 1) / of_pass;
    p->pass_tokens = of_pass * panel;
}

/* Weights whose reading may be timed to choose a prefetch distance: of one type, for one token. */
static size_t tried_bytes(const product *p)
{
    size_t bytes = 0;
    if (p->x->tokens != 1) return 0;
    for (size_t j = 0; j < p->count; j++) {
        const pj_matrix *w = p->jobs[j].weights;
        if (w->type != p->jobs[0].weights->type) return 0;
        bytes += w->rows * w->row_bytes;
    }
    return bytes;
}

void pj_linear_run(const pj_kernels *kernels, pj_team *team, const pj_packed *packed,
                   const pj_linear_job *jobs, size_t count)
{
    product p = {.kernels = kernels, .team = team, .x = packed, .jobs = jobs, .count = count};
    cut_passes(&p);
    for (size_t j = 0; j < count; j++) p.cuts[j] = cut_job(&p, j);
    pj_ahead *ahead = pj_team_ahead(team);
    pj_dtype type = jobs[0].weights->type;
    if (!pj_ahead_try(ahead, type, tried_bytes(&p))) {
        pj_team_offer(team, multiply_some, &p);
        return;
    }
    int64_t begin_ns = pj_clock_ns();
    pj_team_offer(team, multiply_some, &p);
    pj_ahead_took(ahead, type, pj_clock_ns() - begin_ns);
}

/* Products with the chosen experts for few tokens, as stored: an *entry* is a token and one of its
 * chosen experts, `slots` entries to a token.
 *   GATE: y[entry] = f(gate x[token]) up x[token];
 *   SINGLE: y[entry] = W x[token];
 *   DOWN: y[token] = sum over its entries of weight W x[entry], by ascending expert; also added to the
 *   residual stream, if there is one.
 * w and bias are tables of addresses by expert. With `tiles`, entries are sorted by expert, so that each
 * expert is read once, for up to TOKENS entries: GATE and SINGLE alone, of entries in sorted order.
 *
 * Dispatch: x: ceil(rows / (GROUPS ROWS)), or fewer; y: entries, tokens for DOWN, or the most tiles there
 * can be. TOKENS is 1 without tiles. */
#ifndef PRODUCT_EXPERTS_GLSL
#define PRODUCT_EXPERTS_GLSL

#include "dot_rows.glsl"
#include "gates.glsl"

layout(constant_id = 5) const uint OUTPUT = 0;
layout(constant_id = 6) const uint GATE = 0;
layout(constant_id = 7) const float ALPHA = 1;
layout(constant_id = 8) const float LIMIT = 0;
layout(constant_id = 9) const float RESIDUAL_SCALE = 1;

const uint OUTPUT_GATE = 0, OUTPUT_SINGLE = 1, OUTPUT_DOWN = 2;

layout(push_constant, scalar) uniform parameters {
    uint64_t x, y;
    uint64_t scales;  /* PACKED: of x */
    uint64_t chosen;  /* expert by entry */
    uint64_t weights; /* DOWN: by entry */
    uint64_t order;   /* DOWN: slots of each token by ascending expert */
    uint64_t w, bias; /* tables; gate's for GATE */
    uint64_t up, up_bias;
    uint64_t residual;
    uint64_t tiles; /* of sort: count, then (expert, first entry, entries) of each; 0: none */
    uint64_t list;  /* with tiles: row of x by entry; 0: the entry itself */
    uint rows, cols, slots, x_stride, y_stride, residual_stride;
};

const uint BLOCK_ROWS = GROUPS * ROWS;

/* The product of x with this workgroup's rows of an expert's matrix is added to `sums`. */
void add_product(uint64_t table, uint expert, uint block)
{
    uint64_t from[ROWS];
    uint64_t matrix = addresses(table).at[expert];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        from[r] = row_at(matrix, min(block * BLOCK_ROWS + group * ROWS + r, rows - 1), row_bytes_of(cols));
    dot_add(from);
}

float biased(uint64_t table, uint expert, uint row, float sum)
{
    precise float y = table == 0 ? sum : sum + float_at(addresses(table).at[expert], row);
    return y;
}

const uint OUTPUTS = BLOCK_ROWS * TOKENS; /* of a block; the first threads have one each */
#define OUTPUT_ROW (thread % BLOCK_ROWS)
#define OUTPUT_TOKEN (thread / BLOCK_ROWS)

float block_sum()
{
    return thread < OUTPUTS ? dot_sum(OUTPUT_ROW / ROWS, OUTPUT_TOKEN * ROWS + thread % ROWS) : 0;
}

float expert_product(uint64_t table, uint64_t bias_table, uint expert, uint block)
{
    uint row = min(block * BLOCK_ROWS + OUTPUT_ROW, rows - 1);
    dot_clear();
    add_product(table, expert, block);
    dot_gather();
    float sum = biased(bias_table, expert, row, block_sum());
    barrier();
    return sum;
}

/* gate and up of the rows that were taken, or their single product. */
float of_expert(uint expert, uint block)
{
    float value = 0;
    const uint matrices = OUTPUT == OUTPUT_GATE ? 2 : 1;
    for (uint m = 0; m < matrices; m++) {
        float y = expert_product(m == 0 ? w : up, m == 0 ? bias : up_bias, expert, block);
        if (m == 0)
            value = OUTPUT == OUTPUT_GATE ? gate_activate(GATE, y, ALPHA, LIMIT) : y;
        else
            value = gate_multiply(GATE, value, y, LIMIT);
    }
    return value;
}

/* Sum of a token's entries. */
float of_token(uint token, uint block)
{
    precise float value = 0;
    for (uint slot = 0; slot < slots; slot++) {
        uint entry = token * slots + word_at(order, token * slots + slot);
        dot_take(0, entry);
        value = fma(float_at(weights, entry), of_expert(word_at(chosen, entry), block), value);
    }
    return value;
}

struct work {
    uint expert, first, count; /* entries */
};

/* False: there is nothing left for this workgroup. Takes the rows of x, unless of DOWN. */
bool choose_work(out work w)
{
    uint at = gl_WorkGroupID.y;
    w.first = at;
    w.count = 1;
    w.expert = 0;
    if (OUTPUT == OUTPUT_DOWN) return true;
    if (tiles == 0) {
        w.expert = word_at(chosen, at);
        dot_take(0, at / slots);
        return true;
    }
    if (at >= word_at(tiles, 0)) return false;
    w.expert = word_at(tiles, 1 + 3 * at);
    w.first = word_at(tiles, 2 + 3 * at);
    w.count = word_at(tiles, 3 + 3 * at);
    for (uint t = 0; t < TOKENS; t++) dot_take(t, listed(list, w.first + min(t, w.count - 1)));
    return true;
}

void main()
{
    work mine;
    dot_begin(x, scales, x_stride, cols, addresses(w).at[0]);
    if (!choose_work(mine)) return;
    uint blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        uint row = block * BLOCK_ROWS + OUTPUT_ROW, at = mine.first + OUTPUT_TOKEN;
        float value = OUTPUT == OUTPUT_DOWN ? of_token(mine.first, block) : of_expert(mine.expert, block);
        if (thread >= OUTPUTS || OUTPUT_TOKEN >= mine.count || row >= rows) continue;
        floats(row_at(y, at, 4 * y_stride)).at[row] = value;
        if (OUTPUT != OUTPUT_DOWN || residual == 0) continue;
        uint64_t to = row_at(residual, at, 4 * residual_stride);
        floats(to).at[row] = fma(RESIDUAL_SCALE, value, float_at(to, row));
    }
}

#endif

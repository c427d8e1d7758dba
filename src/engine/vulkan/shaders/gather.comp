#version 450
/* Rows of a table by index, dequantised and scaled: embeddings, per-layer token vectors, the rows whose
 * logits are wanted.
 *
 * Dispatch: x: ceil(cols / (16 threads)); y: rows. */
#include "dequant.glsl"

layout(push_constant, scalar) uniform parameters {
    uint64_t table, list, y; /* list 0: row i is row i of the table */
    uint64_t row_bytes;      /* of the table */
    uint rows, cols, y_stride;
    uint table_rows; /* rows beyond them are the first one */
    float scale;
};

void store_run(uint64_t to, uint column, const run r)
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        precise float a = IS_FLOAT ? r.a[i] : fma(r.scale, r.a[i], r.offset);
        precise float b = IS_FLOAT ? r.b[i] : fma(r.scale, r.b[i], r.offset);
        floats(to).at[column + i] = a * scale;
        floats(to).at[column + 4 + i] = b * scale;
    }
}

void main()
{
    row_columns = cols;
    uint row = listed(list, gl_WorkGroupID.y);
    uint64_t from = table + uint64_t(row < table_rows ? row : 0) * row_bytes;
    uint64_t to = row_at(y, gl_WorkGroupID.y, 4 * y_stride);
    uint whole = columns_in_units(cols, row_bytes % 16 == 0 && (uint(table) & 15) == 0);
    set_tables(table);
    uint u = gl_WorkGroupID.x * threads + thread;
    if (u < whole / 16) {
        store_run(to, unit_column(u), unpack(from, u, 0));
        store_run(to, unit_column(u) + RUN_DISTANCE, unpack(from, u, 1));
    }
    if (IS_FLOAT)
        for (uint k = whole + u; k < cols; k += gl_NumWorkGroups.x * threads)
            floats(to).at[k] = stored_float(from, k) * scale;
}

/* Weights as stored in files, unpacked in registers. TYPE is a pj_dtype, or Q8_ROWS. A *run* is eight
 * adjacent values, scale * code + offset with one scale and one offset; a *unit* is the two runs that
 * share bytes, RUN_DISTANCE values apart: in most types a byte holds a value and the one sixteen (or 32,
 * or 64) further. Layouts: engine/kernels/blocks.c. A kernel calls unpack for both runs of a unit with
 * the same address, so that the compiler loads shared bytes once. It sets `row_columns` first. */
#ifndef DEQUANT_GLSL
#define DEQUANT_GLSL

#include "common.glsl"

const uint F32 = 0, F16 = 1, BF16 = 2, Q8_0 = 3, Q4_0 = 4, Q4_K = 5, Q5_K = 6, Q6_K = 7, Q4_1 = 8,
           Q5_0 = 9, Q5_1 = 10, IQ4_NL = 11, MXFP4 = 12, Q2_K = 13, Q3_K = 14, IQ4_XS = 15, IQ1_S = 16,
           IQ1_M = 17, IQ2_XXS = 18, IQ2_XS = 19, IQ2_S = 20, IQ3_XXS = 21, IQ3_S = 22, TQ1_0 = 23,
           TQ2_0 = 24, NVFP4 = 25, Q1_0 = 26;
/* Q8_0 as the engine puts it on a device: all codes of a row, its scales as f16, and padding, so that
 * rows begin at multiples of 16 bytes. */
const uint Q8_ROWS = 27;

layout(constant_id = 1) const uint TYPE = 0;

const bool IS_FLOAT = TYPE <= BF16;
const bool IS_BOOK = TYPE >= IQ1_S && TYPE <= Q1_0; /* of codebook.glsl */
const bool HAS_LEVELS = TYPE == IQ4_NL || TYPE == MXFP4 || TYPE == IQ4_XS || TYPE == NVFP4;
const bool HAS_OFFSET = TYPE == Q4_0 || TYPE == Q4_1 || TYPE == Q5_0 || TYPE == Q5_1 ||
                        TYPE == Q4_K || TYPE == Q5_K || TYPE == Q6_K || TYPE == Q2_K;
const uint RUN_DISTANCE = TYPE == Q4_K || TYPE == Q5_K                   ? 32
                          : TYPE == Q6_K || TYPE == Q2_K || TYPE == Q3_K ? 64
                          : TYPE == Q8_ROWS || IS_BOOK                   ? 8
                                                                         : 16;
const bool IS_WIDE = TYPE == Q4_K || TYPE == Q5_K || TYPE == Q6_K || TYPE == Q2_K || TYPE == Q3_K ||
                     TYPE == IQ4_XS || TYPE >= IQ1_S;
const uint VALUES_PER_BLOCK = IS_FLOAT                   ? 1
                              : TYPE == Q8_ROWS          ? 32
                              : TYPE == NVFP4            ? 64
                              : TYPE == Q1_0             ? 128
                              : IS_WIDE                  ? 256
                                                         : 32;
const uint BLOCK_BYTES = TYPE == F32                        ? 4
                         : TYPE == F16 || TYPE == BF16      ? 2
                         : TYPE == Q8_0                     ? 34
                         : TYPE == Q4_0 || TYPE == IQ4_NL   ? 18
                         : TYPE == Q4_1                     ? 20
                         : TYPE == Q5_0                     ? 22
                         : TYPE == Q5_1                     ? 24
                         : TYPE == MXFP4                    ? 17
                         : TYPE == Q4_K                     ? 144
                         : TYPE == Q5_K                     ? 176
                         : TYPE == Q6_K                     ? 210
                         : TYPE == Q2_K                     ? 84
                         : TYPE == Q3_K || TYPE == IQ3_S    ? 110
                         : TYPE == IQ4_XS                   ? 136
                         : TYPE == IQ1_S                    ? 50
                         : TYPE == IQ1_M                    ? 56
                         : TYPE == IQ2_XXS || TYPE == TQ2_0 ? 66
                         : TYPE == IQ2_XS                   ? 74
                         : TYPE == IQ2_S                    ? 82
                         : TYPE == IQ3_XXS                  ? 98
                         : TYPE == TQ1_0                    ? 54
                         : TYPE == NVFP4                    ? 36
                                                            : 18;
/* Of two bytes, in weights.c. */
const uint BOOK_ENTRIES = TYPE == IQ2_XXS || TYPE == IQ3_XXS ? 256
                          : TYPE == IQ2_XS || TYPE == IQ3_S  ? 512
                          : TYPE == IQ2_S                    ? 1024
                          : TYPE == IQ1_S || TYPE == IQ1_M   ? 2048
                                                             : 0;
const bool HAS_TABLES = HAS_LEVELS || BOOK_ENTRIES > 0;

uint row_columns;

uint row_bytes_of(uint cols)
{
    if (TYPE == Q8_ROWS) return (cols + cols / 16 + 15) / 16 * 16;
    return cols / VALUES_PER_BLOCK * BLOCK_BYTES;
}

/* The sixteen levels of a table type, before scaling; set_tables fills it before the first use. */
shared float levels[16];

float level_of(uint code)
{
    if (TYPE == MXFP4 || TYPE == NVFP4) {
        uint e = code >> 1 & 3, m = code & 1;
        float magnitude = e == 0 ? float(m) : float((2 + m) << (e - 1));
        return (code & 8) != 0 ? -magnitude : magnitude;
    }
    /* -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113 as bytes */
    const uint packed[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    return float(bitfieldExtract(int(packed[code >> 2]), int(code & 3) * 8, 8));
}

float half_at(uint64_t at)
{
    return unpackHalf2x16(uint(halves(at).at[0])).x;
}

uint byte_at(uint64_t at)
{
    return uint(bytes(at).at[0]);
}

/* A word at an address that is a multiple of two, or of one. */
uint word_of_halves(uint64_t at)
{
    return uint(halves(at).at[0]) | uint(halves(at).at[1]) << 16;
}

uint word_of_bytes(uint64_t at)
{
    return byte_at(at) | byte_at(at + 1) << 8 | byte_at(at + 2) << 16 | byte_at(at + 3) << 24;
}

uvec2 eight_bytes(uint64_t at)
{
    if (TYPE == MXFP4) return uvec2(word_of_bytes(at), word_of_bytes(at + 4));
    if (TYPE == Q4_K || TYPE == Q5_K || TYPE == IQ4_XS || TYPE == Q5_1) return word_pairs(at).at[0];
    if (TYPE == Q4_1 || TYPE == Q2_K) return uvec2(words(at).at[0], words(at).at[1]);
    return uvec2(word_of_halves(at), word_of_halves(at + 4));
}

vec4 four_signed(uint word)
{
    int w = int(word);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), w >> 24);
}

/* Four bits of `bits` (0..3), each at the bottom of a byte. */
uint spread_bits(uint bits)
{
    return (bits & 1) | (bits & 2) << 7 | (bits & 4) << 14 | (bits & 8) << 21;
}

vec4 four_levels(uint word)
{
    return vec4(levels[word & 15], levels[word >> 8 & 15], levels[word >> 16 & 15], levels[word >> 24 & 15]);
}

/* The levels of four codes as signed bytes. */
uint level_bytes(uint word)
{
    ivec4 v = ivec4(four_levels(word)) & 255;
    return uint(v.x | v.y << 8 | v.z << 16 | v.w << 24);
}

struct run {
    vec4 a, b; /* codes 0..3 and 4..7 */
    float scale, offset;
};

/* A run's codes as signed bytes; of table types as indices of levels. */
struct code_run {
    uvec2 codes;
    float scale, offset;
};

#include "codebook.glsl"

/* The tables of the type, by all threads, with a barrier; the matrix is the first that they read, or
 * any of its type. */
void set_tables(uint64_t matrix)
{
    if (!HAS_TABLES) return;
    if (HAS_LEVELS && thread < 16) levels[thread] = level_of(thread);
    if (BOOK_ENTRIES > 0) set_book(matrix);
    barrier();
}

/* ---- floating point ------------------------------------------------------------------------ */

float stored_float(uint64_t row, uint k)
{
    if (TYPE == F32) return float_at(row, k);
    uint bits = uint(halves(row).at[k]);
    return TYPE == F16 ? unpackHalf2x16(bits).x : uintBitsToFloat(bits << 16);
}

vec4 four_halves(uvec2 w)
{
    if (TYPE == F16) return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    return uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
}

/* Eight values; rows begin at multiples of 16 bytes and k is a multiple of eight. */
run unpack_floats(uint64_t row, uint k)
{
    run r;
    r.scale = 1;
    r.offset = 0;
    if (TYPE == F32) {
        r.a = vectors(row).at[k / 4];
        r.b = vectors(row).at[k / 4 + 1];
    } else {
        uvec4 w = word_quads(row).at[k / 8];
        r.a = four_halves(w.xy);
        r.b = four_halves(w.zw);
    }
    return r;
}

/* ---- blocks of 32 -------------------------------------------------------------------------- */

/* Unit `u` holds the bytes 8 (u % 2) .. of block u / 2. */
code_run unpack_small(uint64_t row, uint u, uint second)
{
    code_run r;
    uint64_t block = row + uint64_t(u / 2 * BLOCK_BYTES);
    uint part = u % 2 * 8;
    r.offset = 0;
    if (TYPE == Q8_0) {
        r.codes = eight_bytes(block + 2 + part + 16 * second);
        r.scale = half_at(block);
        return r;
    }
    uint header = TYPE == MXFP4 ? 1 : TYPE == Q4_1 ? 4 : TYPE == Q5_0 ? 6 : TYPE == Q5_1 ? 8 : 2;
    uvec2 w = eight_bytes(block + header + part) >> (4 * second) & 0x0f0f0f0fu;
    if (TYPE == Q5_0 || TYPE == Q5_1) {
        uint fifth = word_of_halves(block + header - 4) >> (part + 16 * second);
        w |= uvec2(spread_bits(fifth), spread_bits(fifth >> 4)) << 4;
    }
    if (TYPE == MXFP4) {
        uint e = byte_at(block);
        r.scale = uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    } else {
        r.scale = half_at(block);
    }
    if (TYPE == Q4_0) r.offset = -8 * r.scale;
    if (TYPE == Q5_0) r.offset = -16 * r.scale;
    if (TYPE == Q4_1 || TYPE == Q5_1) r.offset = half_at(block + 2);
    r.codes = w;
    return r;
}

/* ---- blocks of 256 ------------------------------------------------------------------------- */

uint byte_of(uvec3 packed, uint index)
{
    return packed[index / 4] >> (index % 4 * 8) & 255;
}

/* Q4_K and Q5_K: sub-blocks of 32 with six-bit scales and minima; a byte holds values of two. */
code_run unpack_k4(uint64_t block, uint v, uint second)
{
    code_run r;
    uint j = v / 4 * 2 + second, l = v % 4 * 8;
    uvec4 head = word_quads(block).at[0];
    uvec3 packed = head.yzw;
    uint scale, minimum;
    if (j < 4) {
        scale = byte_of(packed, j) & 63;
        minimum = byte_of(packed, j + 4) & 63;
    } else {
        scale = (byte_of(packed, j + 4) & 15) | byte_of(packed, j - 4) >> 6 << 4;
        minimum = byte_of(packed, j + 4) >> 4 | byte_of(packed, j) >> 6 << 4;
    }
    vec2 d = unpackHalf2x16(head.x);
    r.scale = d.x * float(scale);
    r.offset = -d.y * float(minimum);
    uint nibbles = TYPE == Q5_K ? 48 : 16;
    uvec2 w = eight_bytes(block + nibbles + v / 4 * 32 + l) >> (4 * second) & 0x0f0f0f0fu;
    if (TYPE == Q5_K) w |= (eight_bytes(block + 16 + l) >> j & 0x01010101u) << 4;
    r.codes = w;
    return r;
}

/* Q6_K, Q2_K and Q3_K: quarters of 32 values in each half of the block; scales per 16 values. */
code_run unpack_k6(uint64_t block, uint v, uint second)
{
    code_run r;
    uint side = v / 8, quarter = v % 8 / 4 + 2 * second, l = v % 4 * 8;
    uint sub = side * 8 + quarter * 2 + l / 16;
    if (TYPE == Q6_K) {
        uvec2 low = eight_bytes(block + side * 64 + v % 8 / 4 * 32 + l) >> (4 * second) & 0x0f0f0f0fu;
        uvec2 high = eight_bytes(block + 128 + side * 32 + l) >> (2 * quarter) & 0x03030303u;
        uint pair = uint(halves(block + 192 + sub / 2 * 2).at[0]);
        r.scale = half_at(block + 208) * float(bitfieldExtract(int(pair), int(sub % 2) * 8, 8));
        r.offset = -32 * r.scale;
        r.codes = low | high << 4;
    } else if (TYPE == Q2_K) {
        uvec2 w = eight_bytes(block + 16 + side * 32 + l) >> (2 * quarter) & 0x03030303u;
        vec2 d = unpackHalf2x16(words(block).at[20]);
        uint both = words(block).at[sub / 4] >> (sub % 4 * 8);
        r.scale = d.x * float(both & 15);
        r.offset = -d.y * float(both >> 4 & 15);
        r.codes = w;
    } else {
        uvec2 w = eight_bytes(block + 32 + side * 32 + l) >> (2 * quarter) & 0x03030303u;
        uvec2 third = eight_bytes(block + l) >> (side * 4 + quarter) & 0x01010101u;
        uint low = uint(halves(block + 96 + sub % 8 / 2 * 2).at[0]) >> (sub % 2 * 8 + sub / 8 * 4) & 15;
        uint high = uint(halves(block + 104 + sub % 4 / 2 * 2).at[0]) >> (sub % 2 * 8 + sub / 4 * 2) & 3;
        r.scale = half_at(block + 108) * float(int(low | high << 4) - 32);
        r.offset = 0;
        r.codes = w | (third ^ 0x01010101u) * 0xfcu; /* minus four, as a byte, without the third bit */
    }
    return r;
}

code_run unpack_xs(uint64_t block, uint v, uint second)
{
    code_run r;
    uint j = v / 2;
    uvec2 head = word_pairs(block).at[0];
    uint low = head.y >> (4 * j) & 15, high = head.x >> (16 + 2 * j) & 3;
    uvec2 w = eight_bytes(block + 8 + 16 * j + v % 2 * 8) >> (4 * second) & 0x0f0f0f0fu;
    r.scale = unpackHalf2x16(head.x).x * float(int(low | high << 4) - 32);
    r.offset = 0;
    r.codes = w;
    return r;
}

/* ---- all types ----------------------------------------------------------------------------- */

/* Columns of a row that are read in units; the others of a floating-point type one by one. Its rows
 * need not be aligned: then it is all of them. */
uint columns_in_units(uint cols, bool aligned)
{
    if (!IS_FLOAT) return cols;
    return aligned && cols % 8 == 0 ? cols / (2 * RUN_DISTANCE) * (2 * RUN_DISTANCE) : 0;
}

bool is_aligned(uint64_t rows, uint stride)
{
    return (uint(rows) & 15) == 0 && stride % 4 == 0;
}

/* First column of unit `u`; its second run is RUN_DISTANCE further. */
uint unit_column(uint u)
{
    const uint runs = RUN_DISTANCE / 8;
    return u / runs * (2 * RUN_DISTANCE) + u % runs * 8;
}

/* Unit and run of column k, a multiple of eight. */
uvec2 unit_of_column(uint k)
{
    const uint runs = RUN_DISTANCE / 8;
    return uvec2(k / (2 * RUN_DISTANCE) * runs + k % RUN_DISTANCE / 8, k / RUN_DISTANCE % 2);
}

code_run unpack_q8_rows(uint64_t row, uint u, uint second)
{
    code_run r;
    uvec4 w = word_quads(row).at[u];
    r.codes = second == 0 ? w.xy : w.zw;
    r.scale = half_at(row + row_columns + u / 2 * 2);
    r.offset = 0;
    return r;
}

code_run unpack_codes(uint64_t row, uint u, uint second)
{
    if (TYPE == Q8_ROWS) return unpack_q8_rows(row, u, second);
    if (VALUES_PER_BLOCK == 32) return unpack_small(row, u, second);
    const uint units = VALUES_PER_BLOCK / 16;
    if (IS_BOOK) return unpack_book(row + uint64_t(u / units * BLOCK_BYTES), u % units, second);
    uint64_t block = row + uint64_t(u / 16 * BLOCK_BYTES);
    if (TYPE == Q4_K || TYPE == Q5_K) return unpack_k4(block, u % 16, second);
    if (TYPE == IQ4_XS) return unpack_xs(block, u % 16, second);
    return unpack_k6(block, u % 16, second);
}

run unpack(uint64_t row, uint u, uint second)
{
    if (IS_FLOAT) return unpack_floats(row, unit_column(u) + RUN_DISTANCE * second);
    code_run c = unpack_codes(row, u, second);
    run r;
    r.a = HAS_LEVELS ? four_levels(c.codes.x) : four_signed(c.codes.x);
    r.b = HAS_LEVELS ? four_levels(c.codes.y) : four_signed(c.codes.y);
    r.scale = c.scale;
    r.offset = c.offset;
    return r;
}

#endif

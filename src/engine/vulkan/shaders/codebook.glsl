/* Types whose values come from codebooks, or have two bits or fewer: eight values at a time become
 * signed bytes, as engine/kernels/codebook.c decodes them, which also has the layouts. A unit is
 * sixteen adjacent values, which share a scale. The codebook of a type lies before each matrix;
 * set_tables brings it to shared memory. */
#ifndef CODEBOOK_GLSL
#define CODEBOOK_GLSL

const uint ONES = 0x01010101u;

shared uint book[BOOK_ENTRIES == 0 ? 1 : BOOK_ENTRIES / 2];

void set_book(uint64_t matrix)
{
    for (uint i = thread; i < BOOK_ENTRIES / 2; i += threads) book[i] = words(matrix - BOOK_ENTRIES * 2).at[i];
}

uint book_at(uint entry)
{
    return book[entry / 2] >> (entry % 2 * 16) & 0xffff;
}

/* Four pairs of bits, one per byte, of each half of an entry. */
uvec2 spread_pairs(uint entry)
{
    uvec2 x = uvec2(entry & 255, entry >> 8);
    x = (x | x << 12) & 0x000f000fu;
    return (x | x << 6) & 0x03030303u;
}

/* The nibbles of two entries, one per byte. */
uvec2 spread_nibbles(uint first, uint second)
{
    uvec2 x = uvec2(first, second);
    x = (x | x << 8) & 0x00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0fu;
}

/* Negates the bytes, none of which is 0, whose bit is set. */
uvec2 negate_bytes(uvec2 x, uint bits)
{
    uvec2 flags = uvec2(spread_bits(bits), spread_bits(bits >> 4));
    return (x ^ flags * 255) + flags;
}

/* Seven sign bits and the one that makes their number even. */
uint eight_signs(uint seven)
{
    return seven | uint(bitCount(seven) & 1) << 7;
}

/* 8, 25, 43 */
uvec2 levels_of_two(uint entry)
{
    uvec2 q = spread_pairs(entry);
    return 8 * ONES + q * 17 + (q >> 1 & ONES);
}

/* 4, 12, ..., 52, 62 */
uvec2 levels_of_three(uint first, uint second)
{
    uvec2 q = spread_nibbles(first, second);
    return 4 * ONES + q * 8 + ((q + ONES) >> 3 & ONES) * 2;
}

/* -1, 0, 1 and an eighth more or less, in eighths. */
uvec2 eighths(uint entry, bool less)
{
    const uint high = 0x80 * ONES; /* keeps borrows within bytes */
    return ((spread_pairs(entry) * 8 | high) - (less ? 9 : 7) * ONES) ^ high;
}

/* Run i of IQ2_XXS and IQ3_XXS: the signs of four runs and their scale are one word. */
code_run unpack_signed_word(uint64_t block, uint i)
{
    code_run r;
    uint j = i / 4;
    bool two = TYPE == IQ2_XXS;
    uint64_t at = block + 2 + 8 * j;
    uint rest = word_of_halves(two ? at + 4 : block + 66 + 4 * j);
    r.scale = half_at(block) * (0.5f + float(rest >> 28)) * (two ? 0.25f : 0.5f);
    if (two) {
        r.codes = levels_of_two(book_at(byte_at(at + i % 4)));
    } else {
        uint both = uint(halves(at).at[i % 4]);
        r.codes = levels_of_three(book_at(both & 255), book_at(both >> 8));
    }
    r.codes = negate_bytes(r.codes, eight_signs(rest >> (7 * (i % 4)) & 127));
    return r;
}

code_run unpack_iq2(uint64_t block, uint i)
{
    code_run r;
    uint v = i / 2, scales = TYPE == IQ2_XS ? 66 : 74;
    r.scale = half_at(block) * (0.5f + float(byte_at(block + scales + v / 2) >> (v % 2 * 4) & 15)) * 0.25f;
    if (TYPE == IQ2_XS) {
        uint both = uint(halves(block + 2).at[i]);
        r.codes = negate_bytes(levels_of_two(book_at(both & 511)), eight_signs(both >> 9));
    } else {
        uint high = byte_at(block + 66 + i / 4) >> (i % 4 * 2) & 3;
        r.codes = negate_bytes(levels_of_two(book_at(byte_at(block + 2 + i) | high << 8)), byte_at(block + 34 + i));
    }
    return r;
}

code_run unpack_iq3_s(uint64_t block, uint i)
{
    code_run r;
    uint high = byte_at(block + 66 + i / 4) >> (i % 4 * 2), both = uint(halves(block + 2).at[i]);
    uint first = book_at((both & 255) | (high & 1) << 8), second = book_at(both >> 8 | (high & 2) << 7);
    r.scale = half_at(block) * float(1 + 2 * (byte_at(block + 106 + i / 8) >> (i / 4 % 2 * 4) & 15));
    r.codes = negate_bytes(spread_nibbles(first, second) * 2 + ONES, byte_at(block + 74 + i));
    return r;
}

code_run unpack_iq1(uint64_t block, uint i)
{
    code_run r;
    uint scale, high;
    float d;
    if (TYPE == IQ1_S) {
        uint rest = uint(halves(block + 34).at[i / 4]);
        d = half_at(block);
        scale = rest >> 12 & 7;
        high = (rest >> (3 * (i % 4)) & 7) | rest >> 15 << 3;
    } else {
        uvec2 all = uvec2(word_of_halves(block + 48), word_of_halves(block + 52));
        uint bits = (all.x >> 12 & 15) | (all.x >> 28) << 4 | (all.y >> 12 & 15) << 8 | (all.y >> 28) << 12;
        uint v = i / 2, four = all[v / 8] >> (v / 4 % 2 * 16);
        d = unpackHalf2x16(bits).x;
        scale = four >> (v % 4 * 3) & 7;
        high = byte_at(block + 32 + i / 2) >> (i % 2 * 4);
    }
    uint entry = byte_at((TYPE == IQ1_S ? block + 2 : block) + i) | (high & 7) << 8;
    r.scale = d * float(2 * scale + 1) * 0.125f;
    r.codes = eighths(book_at(entry), (high & 8) != 0);
    return r;
}

/* Digit `place` of a fraction in base 3, less 1, as a byte. */
uint base3_digit(uint fraction, uint place)
{
    const uint powers[5] = {1, 3, 9, 27, 81};
    return (((fraction * powers[place] & 255) * 3 >> 8) - 1) & 255;
}

code_run unpack_ternary(uint64_t block, uint i)
{
    code_run r;
    if (TYPE == TQ2_0) {
        uvec2 w = uvec2(word_of_halves(block + i / 16 * 32 + i % 4 * 8), word_of_halves(block + i / 16 * 32 + i % 4 * 8 + 4));
        w = w >> (i / 4 % 4 * 2) & 0x03030303u;
        r.scale = half_at(block + 64);
        r.codes = ((w | 0x80808080u) - ONES) ^ 0x80808080u;
        return r;
    }
    r.scale = half_at(block + 52);
    r.codes = uvec2(0);
    for (uint k = 0; k < 8; k++) {
        uint v = 8 * i + k, at = v % 32, place = v / 32;
        if (v >= 240) {
            at = 48 + v % 4;
            place = (v - 240) / 4;
        } else if (v >= 160) {
            at = 32 + v % 16;
            place = (v - 160) / 16;
        }
        r.codes[k / 4] |= base3_digit(byte_at(block + at), place) << (k % 4 * 8);
    }
    return r;
}

/* Indices of levels, which are twice the 4-bit floats: half of the scale, an 8-bit float without a sign. */
code_run unpack_nvfp4(uint64_t block, uint v, uint second)
{
    code_run r;
    uint scale = byte_at(block + v), exponent = scale >> 3 & 15, mantissa = scale & 7;
    r.scale = (scale & 127) == 127 ? 0
              : exponent == 0      ? float(mantissa) / 1024
                                   : uintBitsToFloat((exponent + 119) << 23 | mantissa << 20);
    r.codes = uvec2(words(block + 4 + 8 * v).at[0], words(block + 4 + 8 * v).at[1]) >> (4 * second) & 0x0f0f0f0fu;
    return r;
}

code_run unpack_q1_0(uint64_t block, uint i)
{
    code_run r;
    r.scale = half_at(block);
    r.codes = negate_bytes(uvec2(ONES), byte_at(block + 2 + i) ^ 255);
    return r;
}

/* Unit v of a block. */
code_run unpack_book(uint64_t block, uint v, uint second)
{
    code_run r;
    uint i = 2 * v + second;
    if (TYPE == IQ2_XXS || TYPE == IQ3_XXS) r = unpack_signed_word(block, i);
    else if (TYPE == IQ2_XS || TYPE == IQ2_S) r = unpack_iq2(block, i);
    else if (TYPE == IQ3_S) r = unpack_iq3_s(block, i);
    else if (TYPE == IQ1_S || TYPE == IQ1_M) r = unpack_iq1(block, i);
    else if (TYPE == TQ1_0 || TYPE == TQ2_0) r = unpack_ternary(block, i);
    else if (TYPE == NVFP4) r = unpack_nvfp4(block, v, second);
    else r = unpack_q1_0(block, i);
    r.offset = 0;
    return r;
}

#endif

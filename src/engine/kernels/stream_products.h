/* Products of a panel with unpacked rows, for vectors of 16 tokens or, in half of one, 8: those are
 * multiplied twice as fast where the processor splits wide vectors. Included by stream_vnni.h once
 * for each, with HALF or without. */
#ifdef HALF
#define NAMED(name)      name##_half
#define OP(name)         _mm256_##name
#define LOAD_WORDS(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define NO_WORDS()       _mm256_setzero_si256()
#define WORDS            __m256i
#define FLOATS           __m256
#else
#define NAMED(name)      name
#define OP(name)         _mm512_##name
#define LOAD_WORDS(from) _mm512_loadu_si512(from)
#define NO_WORDS()       _mm512_setzero_si512()
#define WORDS            __m512i
#define FLOATS           __m512
#endif

/* A block of the panel, or half of one. */
typedef struct NAMED(stream_inputs) {
    const char *x;               /* of the block */
    size_t from, to;             /* groups of four columns */
    WORDS start[STREAM_VECTORS]; /* what sums of products start from */
    FLOATS scales[STREAM_VECTORS];
    FLOATS sums[STREAM_VECTORS]; /* negative, of values */
} NAMED(stream_inputs);

/* The sum of the codes' products with an offset, negative. */
INLINE WORDS NAMED(stream_offset)(const NAMED(stream_inputs) * in, int offset, size_t v,
                                  const size_t V)
{
    WORDS sum = NO_WORDS();
    UNROLL for (size_t g = in->from; g < in->to; g++) sum =
        OP(dpbusd_epi32)(sum, OP(set1_epi8)((char)offset), LOAD_WORDS(in->x + (g * V + v) * 64));
    return OP(sub_epi32)(NO_WORDS(), sum);
}

INLINE void NAMED(stream_start)(pj_dtype type, const pj_tile *t, size_t at,
                                NAMED(stream_inputs) * in, const size_t V)
{
    const stream_layout l = stream_layout_of(type);
    in->x = (const char *)t->x + at * V * 512;
    UNROLL for (size_t v = 0; v < V; v++)
    {
        WORDS sums = LOAD_WORDS(t->x_sums + (at * V + v) * 16);
        const int shift = l.offset == 128 ? 0 : l.offset == 16 ? 3 : l.offset == 8 ? 4 : 7;
        in->scales[v] = OP(loadu_ps)(t->x_scales + (at * V + v) * 16);
        if (l.halves) sums = NAMED(stream_offset)(in, l.minima ? 1 : l.offset, v, V);
        in->start[v] = l.minima ? NO_WORDS() : l.halves ? sums : OP(srai_epi32)(sums, shift);
        if (!l.minima) continue;
        in->sums[v] = OP(mul_ps)(OP(cvtepi32_ps)(sums), in->scales[v]);
        if (!l.halves)
            in->sums[v] = OP(mul_ps)(in->sums[v], OP(set1_ps)((float)l.minima / PJ_Q8_OFFSET));
    }
}

/* Block `b` of R rows' codes; `scale`: of a row's scales. */
INLINE void NAMED(stream_multiply)(const NAMED(stream_inputs) * in, const stream_codes *w, size_t b,
                                   size_t scale, const bool minima,
                                   FLOATS sums[STREAM_ROWS][STREAM_VECTORS], const size_t R,
                                   const size_t V)
{
    WORDS whole[STREAM_ROWS][STREAM_VECTORS];
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++) whole[r][v] =
        in->start[v];
    UNROLL for (size_t g = in->from; g < in->to; g++)
    {
        WORDS panel[STREAM_VECTORS];
        UNROLL for (size_t v = 0; v < V; v++) panel[v] = LOAD_WORDS(in->x + (g * V + v) * 64);
        UNROLL for (size_t r = 0; r < R; r++)
        {
            WORDS codes = NAMED(four_codes)(w->codes[r] + b * 32 + g * 4);
            UNROLL for (size_t v = 0; v < V; v++) whole[r][v] =
                OP(dpbusd_epi32)(whole[r][v], codes, panel[v]);
        }
    }
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++)
    {
        FLOATS both = OP(mul_ps)(in->scales[v], OP(set1_ps)(w->scales[r][scale]));
        sums[r][v] = OP(fmadd_ps)(OP(cvtepi32_ps)(whole[r][v]), both, sums[r][v]);
        if (minima)
            sums[r][v] = OP(fmadd_ps)(in->sums[v], OP(set1_ps)(w->minima[r][scale]), sums[r][v]);
    }
}

/* Block `b` of the current columns, which is block `at` of the panel. */
INLINE void NAMED(stream_block)(pj_dtype type, const pj_tile *t, const stream_codes *w, size_t b,
                                size_t at, FLOATS sums[STREAM_ROWS][STREAM_VECTORS], const size_t R,
                                const size_t V)
{
    const stream_layout l = stream_layout_of(type);
    const size_t parts = l.halves ? 2 : 1;
    UNROLL for (size_t i = 0; i < parts; i++)
    {
        NAMED(stream_inputs) in = {.from = 8 / parts * i, .to = 8 / parts * (i + 1)};
        NAMED(stream_start)(type, t, at, &in, V);
        NAMED(stream_multiply)(&in, w, b, parts * b + i, l.minima, sums, R, V);
    }
}

/* `R` rows times `V` vectors. */
INLINE void NAMED(stream_of)(pj_dtype type, const pj_tile *t, const size_t R, const size_t V)
{
    const size_t bytes = stream_layout_of(type).bytes;
    stream_codes both[2], *now = &both[0], *next = &both[1];
    const char *const *rows = (const char *const *)t->weights;
    FLOATS sums[STREAM_ROWS][STREAM_VECTORS];
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
        t->add ? OP(loadu_ps)(t->c + r * PJ_TILE_MAX_TOKENS + v * 16) : OP(setzero_ps)();
    size_t left = t->cols / PJ_Q8_BLOCK, blocks = left < STREAM_BLOCKS ? left : STREAM_BLOCKS;
    for (size_t r = 0; r < R; r++) stream_unpack(type, rows[r], blocks, now, r);
    for (size_t at = 0, offset = bytes; left > 0; offset += bytes) {
        size_t current = blocks;
        left -= current;
        blocks = left < STREAM_BLOCKS ? left : STREAM_BLOCKS;
        for (size_t b = 0; b < current; b++, at++) {
            if (b % (STREAM_BLOCKS / R) == 0) {
                /* at the end those that the next tile begins with */
                size_t r = b / (STREAM_BLOCKS / R);
                const char *from = rows[r] + (blocks ? offset : 0);
                UNROLL for (size_t line = 0; line < bytes; line += 64)
                    __builtin_prefetch(from + line + t->stride * R, 0, 2);
                /* all rows: only the last columns may have fewer blocks */
                if (blocks == STREAM_BLOCKS)
                    stream_unpack(type, from, STREAM_BLOCKS, next, r);
                else if (blocks && stream_has_rest(type))
                    stream_unpack(type, from, blocks, next, r);
            }
            NAMED(stream_block)(type, t, now, b, at, sums, R, V);
        }
        stream_codes *other = now;
        now = next, next = other;
    }
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++)
        OP(storeu_ps)(t->c + r * PJ_TILE_MAX_TOKENS + v * 16, sums[r][v]);
}

#undef NAMED
#undef OP
#undef LOAD_WORDS
#undef NO_WORDS
#undef WORDS
#undef FLOATS

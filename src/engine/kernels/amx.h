/*
 * AMX tile instructions as macros over inline assembly. The compilers' intrinsics do not declare
 * their memory accesses (gcc 12 declares only 8 of the 64 bytes of a configuration), so that
 * preceding stores may be eliminated; these declare them.
 *
 * With PJ_AMX_MODEL the same macros are a C model of the instructions, so that the kernels can be
 * tested without AMX hardware: eight tiles of 16 rows x 64 bytes, and products as defined by the
 * architecture manual (rows and columns outside a tile's configuration stay zero). The model counts
 * instructions: what bounds a kernel can be tested without the hardware too.
 */
#ifndef PJ_KERNELS_AMX_H
#define PJ_KERNELS_AMX_H

#include <stdint.h>
#include <string.h>

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

_Static_assert(sizeof(tile_config) == 64, "must match what ldtilecfg reads");

#ifndef PJ_AMX_MODEL

#define TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)))
#define TILE_LOAD(t, at, stride)                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t  \
                     :                                \
                     : "r"(at), "r"((size_t)(stride)) \
                     : "memor"                        \
                       "y")
#define TILE_STORE(t, at, stride)                        \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" \
                     :                                   \
                     : "r"(at), "r"((size_t)(stride))    \
                     : "memory")
#define TILE_ZERO(t)       __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#else

#include "engine/kernels/half.h"

/* Tile loads, stores and products of this thread. */
typedef struct pj_amx_counts {
    uint64_t loads, stores, products;
} pj_amx_counts;

extern _Thread_local pj_amx_counts pj_amx_model_counts;

static _Thread_local tile_config model_config;
static _Thread_local uint8_t model_tiles[8][16][64];

static inline void model_configure(const tile_config *config)
{
    model_config = *config;
    memset(model_tiles, 0, sizeof model_tiles);
}

static inline void model_load(int t, const void *at, size_t stride)
{
    pj_amx_model_counts.loads++;
    memset(model_tiles[t], 0, sizeof model_tiles[t]);
    for (int r = 0; r < model_config.rows[t]; r++)
        memcpy(model_tiles[t][r], (const char *)at + (size_t)r * stride, model_config.row_bytes[t]);
}

static inline void model_store(int t, void *at, size_t stride)
{
    pj_amx_model_counts.stores++;
    for (int r = 0; r < model_config.rows[t]; r++)
        memcpy((char *)at + (size_t)r * stride, model_tiles[t][r], model_config.row_bytes[t]);
}

static inline void model_bf16(int c, int a, int b)
{
    pj_amx_model_counts.products++;
    for (int m = 0; m < model_config.rows[c]; m++)
        for (int n = 0; n < model_config.row_bytes[c] / 4; n++) {
            float sum;
            memcpy(&sum, &model_tiles[c][m][4 * n], 4);
            for (int k = 0; k < model_config.row_bytes[a] / 4; k++)
                for (int i = 0; i < 2; i++)
                    sum += pj_float_of_bf16(pj_load_u16(&model_tiles[a][m][4 * k + 2 * i])) *
                           pj_float_of_bf16(pj_load_u16(&model_tiles[b][k][4 * n + 2 * i]));
            memcpy(&model_tiles[c][m][4 * n], &sum, 4);
        }
}

#define TILE_CONFIGURE(config)    model_configure(config)
#define TILE_LOAD(t, at, stride)  model_load(t, at, stride)
#define TILE_STORE(t, at, stride) model_store(t, at, stride)
#define TILE_ZERO(t)              memset(model_tiles[t], 0, sizeof model_tiles[t])
#define TILE_BF16(c, a, b)        model_bf16(c, a, b)

#endif
#endif

#version 450
/* Sorts the entries of many tokens (a token and one of its experts each) by expert, in the order of the
 * tokens, for product_tiled: one workgroup, each of whose threads places the entries of its experts.
 *
 * Dispatch: one workgroup. */
#include "common.glsl"

layout(constant_id = 1) const uint EXPERTS = 1;

layout(push_constant, scalar) uniform parameters {
    uint64_t chosen; /* [entries] experts */
    uint64_t list;   /* [entries] token of each sorted entry */
    uint64_t places; /* [entries] sorted entry of each entry */
    uint64_t begins; /* [EXPERTS + 1] first sorted entry of each expert */
    uint64_t tiles;  /* count, then (expert, first entry, entries) of each */
    uint entries, slots, tile_entries;
};

shared uint first_entry[EXPERTS + 1], first_tile[EXPERTS + 1];

void count_entries(uint expert)
{
    uint count = 0;
    for (uint i = 0; i < entries; i++) count += uint(word_at(chosen, i) == expert);
    first_entry[expert + 1] = count;
    first_tile[expert + 1] = (count + tile_entries - 1) / tile_entries;
}

void place_entries(uint expert)
{
    uint at = first_entry[expert];
    for (uint i = 0; i < entries; i++) {
        if (word_at(chosen, i) != expert) continue;
        words(list).at[at] = i / slots;
        words(places).at[i] = at++;
    }
}

void cut_tiles(uint expert)
{
    uint end = first_entry[expert + 1], tile = first_tile[expert];
    for (uint at = first_entry[expert]; at < end; at += tile_entries, tile++) {
        words(tiles).at[1 + 3 * tile] = expert;
        words(tiles).at[2 + 3 * tile] = at;
        words(tiles).at[3 + 3 * tile] = min(tile_entries, end - at);
    }
}

void main()
{
    for (uint e = thread; e < EXPERTS; e += threads) count_entries(e);
    barrier();
    if (thread == 0) {
        first_entry[0] = first_tile[0] = 0;
        for (uint e = 0; e < EXPERTS; e++) {
            first_entry[e + 1] += first_entry[e];
            first_tile[e + 1] += first_tile[e];
        }
        words(tiles).at[0] = first_tile[EXPERTS];
    }
    barrier();
    for (uint e = thread; e <= EXPERTS; e += threads) words(begins).at[e] = first_entry[e];
    for (uint e = thread; e < EXPERTS; e += threads) {
        place_entries(e);
        cut_tiles(e);
    }
}

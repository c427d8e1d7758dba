/* Figures from the vendors' public data sheets: model, base power in watts, hardware threads. Add a
 * line for a missing CPU, or give the figures by hand (estimate:idle_w=..,full_w=..). */
#include "power/tdp.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const pj_tdp table[] = {
    /* AMD EPYC */
    {"EPYC 7251", 120, 16},
    {"EPYC 7302", 155, 32},
    {"EPYC 7402", 180, 48},
    {"EPYC 7443", 200, 48},
    {"EPYC 7452", 155, 64},
    {"EPYC 7502", 180, 64},
    {"EPYC 7513", 200, 64},
    {"EPYC 7543", 225, 64},
    {"EPYC 7551", 180, 64},
    {"EPYC 7571", 200, 64},
    {"EPYC 7601", 180, 64},
    {"EPYC 7642", 225, 96},
    {"EPYC 7702", 200, 128},
    {"EPYC 7742", 225, 128},
    {"EPYC 7713", 225, 128},
    {"EPYC 7763", 280, 128},
    {"EPYC 7773X", 280, 128},
    {"EPYC 7B12", 240, 128},
    {"EPYC 7B13", 240, 128},
    {"EPYC 7R13", 225, 96},
    {"EPYC 7R32", 280, 96},
    {"EPYC 8024P", 90, 16},
    {"EPYC 8324P", 180, 64},
    {"EPYC 9124", 200, 32},
    {"EPYC 9254", 200, 48},
    {"EPYC 9354", 280, 64},
    {"EPYC 9454", 290, 96},
    {"EPYC 9554", 360, 128},
    {"EPYC 9654", 360, 192},
    {"EPYC 9754", 360, 256},
    {"EPYC 9R14", 400, 192},
    {"EPYC 9B14", 400, 192},
    {"EPYC 9V74", 400, 160},
    {"EPYC 9355", 280, 64},
    {"EPYC 9455", 300, 96},
    {"EPYC 9555", 360, 128},
    {"EPYC 9575F", 400, 128},
    {"EPYC 9655", 400, 192},
    {"EPYC 9755", 500, 256},
    {"EPYC 9965", 500, 384},
    /* AMD Threadripper and Ryzen */
    {"Threadripper 1950X", 180, 32},
    {"Threadripper 2990WX", 250, 64},
    {"Threadripper 3970X", 280, 64},
    {"Threadripper 3990X", 280, 128},
    {"Threadripper PRO 5995WX", 280, 128},
    {"Threadripper PRO 7995WX", 350, 192},
    {"Ryzen 5 3600", 65, 12},
    {"Ryzen 7 3700X", 65, 16},
    {"Ryzen 9 3900X", 105, 24},
    {"Ryzen 9 3950X", 105, 32},
    {"Ryzen 5 5600X", 65, 12},
    {"Ryzen 7 5800X", 105, 16},
    {"Ryzen 7 5800X3D", 105, 16},
    {"Ryzen 9 5900X", 105, 24},
    {"Ryzen 9 5950X", 105, 32},
    {"Ryzen 5 7600X", 105, 12},
    {"Ryzen 7 7700X", 105, 16},
    {"Ryzen 7 7800X3D", 120, 16},
    {"Ryzen 9 7900X", 170, 24},
    {"Ryzen 9 7950X", 170, 32},
    {"Ryzen 7 7840U", 28, 16},
    {"Ryzen 7 7840HS", 45, 16},
    {"Ryzen 7 9700X", 65, 16},
    {"Ryzen 9 9900X", 120, 24},
    {"Ryzen 9 9950X", 170, 32},
    {"Ryzen AI 9 HX 370", 28, 24},
    {"RYZEN AI MAX+ 395", 55, 32},
    /* Intel Xeon */
    {"E5-2630 v3", 85, 16},
    {"E5-2670", 115, 16},
    {"E5-2680 v3", 120, 24},
    {"E5-2680 v4", 120, 28},
    {"E5-2690 v4", 135, 28},
    {"E5-2699 v4", 145, 44},
    {"Gold 5118", 105, 24},
    {"Gold 6130", 125, 32},
    {"Gold 6148", 150, 40},
    {"Gold 6226R", 150, 32},
    {"Gold 6248", 150, 40},
    {"Gold 6248R", 205, 48},
    {"Gold 6338", 205, 64},
    {"Gold 6354", 205, 36},
    {"Gold 6430", 270, 64},
    {"Gold 6448Y", 225, 64},
    {"Platinum 8160", 150, 48},
    {"Platinum 8175M", 240, 48},
    {"Platinum 8259CL", 210, 48},
    {"Platinum 8275CL", 240, 48},
    {"Platinum 8280", 205, 56},
    {"Platinum 8352Y", 205, 64},
    {"Platinum 8358", 250, 64},
    {"Platinum 8368", 270, 76},
    {"Platinum 8370C", 270, 64},
    {"Platinum 8375C", 300, 64},
    {"Platinum 8380", 270, 80},
    {"Platinum 8462Y+", 300, 64},
    {"Platinum 8468", 350, 96},
    {"Platinum 8480+", 350, 112},
    {"Platinum 8480CL", 350, 112},
    {"Platinum 8481C", 350, 112},
    {"Platinum 8488C", 350, 96},
    {"Platinum 8490H", 350, 120},
    {"Platinum 8558", 330, 96},
    {"Platinum 8592+", 350, 128},
    {"Xeon(R) 6980P", 500, 256},
    /* Intel Core */
    {"i5-8250U", 15, 8},
    {"i7-8550U", 15, 8},
    {"i7-8700K", 95, 12},
    {"i9-9900K", 95, 16},
    {"i7-10700K", 125, 16},
    {"i9-10900K", 125, 20},
    {"i5-1135G7", 28, 8},
    {"i7-1165G7", 28, 8},
    {"i7-11700K", 125, 16},
    {"i9-11900K", 125, 16},
    {"i5-12400", 65, 12},
    {"i5-12600K", 125, 16},
    {"i7-12700K", 125, 20},
    {"i9-12900K", 125, 24},
    {"i7-1260P", 28, 16},
    {"i5-13600K", 125, 20},
    {"i7-13700K", 125, 24},
    {"i9-13900K", 125, 32},
    {"i7-1360P", 28, 16},
    {"i5-14600K", 125, 20},
    {"i7-14700K", 125, 28},
    {"i9-14900K", 125, 32},
    {"Ultra 7 155H", 28, 22},
    {"Ultra 9 185H", 45, 22},
    {"Ultra 7 265K", 125, 20},
    {"Ultra 9 285K", 125, 24},
    /* Apple: sustained package power as measured in reviews; Apple publishes no figure */
    {"Apple M1", 20, 8},
    {"Apple M1 Pro", 35, 10},
    {"Apple M1 Max", 40, 10},
    {"Apple M1 Ultra", 80, 20},
    {"Apple M2", 22, 8},
    {"Apple M2 Pro", 40, 12},
    {"Apple M2 Max", 45, 12},
    {"Apple M2 Ultra", 90, 24},
    {"Apple M3", 22, 8},
    {"Apple M3 Pro", 35, 12},
    {"Apple M3 Max", 55, 16},
    {"Apple M4", 25, 10},
    {"Apple M4 Pro", 50, 14},
    {"Apple M4 Max", 65, 16},
    /* Arm servers and boards */
    {"Neoverse-N1", 250, 80},
    {"BCM2711", 6, 4},
    {"BCM2712", 10, 4},
};

static bool word_edge(char c)
{
    return !isalnum((unsigned char)c) && c != '+';
}

static bool contains_words(const char *text, const char *words)
{
    size_t length = strlen(words);
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        if ((at == text || word_edge(at[-1])) && word_edge(at[length])) return true;
    return false;
}

const pj_tdp *pj_tdp_find(const char *model_name)
{
    const pj_tdp *best = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (contains_words(model_name, table[i].model) &&
            (!best || strlen(table[i].model) > strlen(best->model)))
            best = &table[i];
    return best;
}

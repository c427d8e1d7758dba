/* Kernel dispatch: one table per combination of sets that this machine can run, built once, lowest
 * set first so that better ones override. */
#include "engine/kernels/cpu.h"
#include "engine/kernels/plain.h"
#include "engine/kernels/sets.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Worst first. */
static const pj_kernel_set sets[] = {
#if defined(__x86_64__)
    {"avx2", pj_cpu_has_avx2, pj_kernels_avx2_apply},
    {"avx512", pj_cpu_has_avx512, pj_kernels_avx512_apply},
    {"vnni", pj_cpu_has_vnni, pj_kernels_vnni_apply},
    {"vbmi", pj_cpu_has_vbmi, pj_kernels_vbmi_apply},
    {"bf16", pj_cpu_has_bf16, pj_kernels_bf16_apply},
    {"amx", pj_cpu_has_amx, pj_kernels_amx_apply},
#elif defined(__aarch64__)
    {"neon", pj_cpu_has_neon, pj_kernels_neon_apply},
    {"dotprod", pj_cpu_has_dotprod, pj_kernels_dotprod_codes},
    {"i8mm", pj_cpu_has_i8mm, pj_kernels_i8mm_codes},
#endif
    {NULL, NULL, NULL}};

enum { SETS = sizeof sets / sizeof *sets - 1, TABLES = 1 << SETS };

/* Known names, so that a mask meant for another architecture is not an error. */
static const char *const known[] = {"c",    "avx2", "avx512", "vnni",    "vbmi",
                                    "bf16", "amx",  "neon",   "dotprod", "i8mm"};
enum { KNOWN = sizeof known / sizeof *known };

static pj_kernels tables[TABLES]; /* indexed by a bit mask of sets */
static unsigned supported;        /* bit mask of sets */
static const pj_kernels *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int known_index(const char *name, size_t bytes)
{
    for (int i = 0; i < KNOWN; i++)
        if (strlen(known[i]) == bytes && memcmp(known[i], name, bytes) == 0) return i;
    return -1;
}

/* Bit mask of the sets that a mask allows; false for an unknown name. */
static bool parse_mask(const char *mask, unsigned *bits)
{
    *bits = 0;
    bool list = strchr(mask, ',') != NULL;
    while (*mask) {
        size_t bytes = strcspn(mask, ",");
        int index = known_index(mask, bytes);
        if (bytes > 0 && index < 0) return false;
        for (int s = 0; s < SETS; s++) {
            int at = known_index(sets[s].name, strlen(sets[s].name));
            if (at == index || (!list && at < index)) *bits |= 1u << s;
        }
        mask += bytes + (mask[bytes] == ',');
    }
    return true;
}

static void build(void)
{
    for (int s = 0; s < SETS; s++)
        if (sets[s].supported()) supported |= 1u << s;
    for (unsigned bits = 0; bits < TABLES; bits++) {
        tables[bits] = pj_kernels_c;
        for (int s = 0; s < SETS; s++) {
            if (!(bits & supported & 1u << s)) continue;
            sets[s].apply(&tables[bits]);
            tables[bits].name = sets[s].name;
        }
    }
    char *mask = getenv("PERJOULE_ISA");
    unsigned bits = supported;
    if (mask && *mask && parse_mask(mask, &bits)) bits &= supported;
    chosen = &tables[bits];
}

const pj_kernels *pj_kernels_get(void)
{
    pthread_once(&once, build);
    return chosen;
}

const pj_kernels *pj_kernels_find(const char *mask)
{
    unsigned bits = ~0u;
    pthread_once(&once, build);
    if (mask && *mask && !parse_mask(mask, &bits)) return NULL;
    return &tables[bits & supported];
}

size_t pj_kernels_list(const char *names[], size_t max)
{
    size_t count = 0;
    pthread_once(&once, build);
    if (max > 0) names[count++] = "c";
    for (int s = 0; s < SETS && count < max; s++)
        if (supported >> s & 1) names[count++] = sets[s].name;
    return count;
}

/* Rules for the names and units of IOReport's channels. */
#include "power/ioreport_channels.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n >= s && strcmp(name + n - s, suffix) == 0;
}

/* After `prefix` there are only numbers: "", "0", "0_1". */
static bool is_numbered(const char *name, const char *prefix)
{
    if (!starts_with(name, prefix)) return false;
    const char *rest = name + strlen(prefix);
    return strspn(rest, "0123456789_") == strlen(rest);
}

/* The name without "DIE_<n>_"; `die` is -1 without it. */
static const char *skip_die(const char *name, int *die)
{
    int digits = 0;
    *die = -1;
    if (sscanf(name, "DIE_%d%n", die, &digits) != 1 || name[digits] != '_') {
        *die = -1;
        return name;
    }
    return name + digits + 1;
}

/* "ECPU", "PCPU1", "EACC_CPU", "PACC1_CPU": returns the letter and sets the number, -1 for none. */
static char cluster_letter(const char *name, int *number)
{
    const char *rest = name + 1;
    *number = -1;
    if (!name[0] || !strchr("EPM", name[0])) return 0;
    bool is_block = starts_with(rest, "ACC");
    if (!is_block && !starts_with(rest, "CPU")) return 0;
    rest += 3;
    if (isdigit((unsigned char)*rest)) *number = *rest++ - '0';
    if (is_block) return strcmp(rest, "_CPU") == 0 ? name[0] : 0;
    return *rest == 0 ? name[0] : 0;
}

static bool has_cores(const char *name, const char (*all)[PJ_IOREPORT_NAME_BYTES], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!starts_with(all[i], name)) continue;
        const char *rest = all[i] + strlen(name);
        if (starts_with(rest, "DTL") || isdigit((unsigned char)rest[0])) return true;
        if (rest[0] == '_' && (isdigit((unsigned char)rest[1]) || starts_with(rest, "_CPU")))
            return true;
    }
    return false;
}

static bool is_cluster(const char *name, const char (*all)[PJ_IOREPORT_NAME_BYTES], uint32_t count)
{
    int die, number;
    const char *bare = skip_die(name, &die);
    if (!cluster_letter(bare, &number)) return false;
    return number < 0 || ends_with(bare, "_CPU") || has_cores(name, all, count);
}

pj_ioreport_kind pj_ioreport_energy_kind(const char *name,
                                         const char (*all)[PJ_IOREPORT_NAME_BYTES], uint32_t count)
{
    if (strcmp(name, "CPU Energy") == 0) return PJ_IOREPORT_CPU;
    if (ends_with(name, "CPU Energy")) return PJ_IOREPORT_CPU_DIE;
    if (strcmp(name, "GPU Energy") == 0) return PJ_IOREPORT_GPU;
    if (is_numbered(name, "GPU SRAM")) return PJ_IOREPORT_GPU_SRAM;
    if (is_numbered(name, "GPU")) return PJ_IOREPORT_GPU_UNIT;
    if (is_numbered(name, "ANE")) return PJ_IOREPORT_ANE;
    if (is_numbered(name, "DRAM")) return PJ_IOREPORT_DRAM;
    if (is_numbered(name, "DCS")) return PJ_IOREPORT_DCS;
    if (is_numbered(name, "AMCC")) return PJ_IOREPORT_AMCC;
    return is_cluster(name, all, count) ? PJ_IOREPORT_CLUSTER : PJ_IOREPORT_OTHER;
}

pj_ioreport_kind pj_ioreport_traffic_kind(const char *name)
{
    int die, digits = 0;
    if (sscanf(name, "DIE%d %n", &die, &digits) == 1 && digits > 0) name += digits;
    if (strcmp(name, "DCS RD") == 0) return PJ_IOREPORT_READ;
    return strcmp(name, "DCS WR") == 0 ? PJ_IOREPORT_WRITTEN : PJ_IOREPORT_OTHER;
}

void pj_ioreport_cluster_name(const char *channel, char *name, size_t bytes)
{
    int die, number;
    const char *bare = skip_die(channel, &die);
    char letter = (char)tolower((unsigned char)cluster_letter(bare, &number));
    char where[24] = "", which[16] = "";
    if (die >= 0) snprintf(where, sizeof where, "die%d-", die);
    if (number >= 0) snprintf(which, sizeof which, "%d", number);
    snprintf(name, bytes, "%s%c%s", where, letter ? letter : '?', which);
}

/* A unit is a quantity (3: energy), a power of ten and one of two, each with an offset of 127 and
 * 0 for none, and a constant. */
static double from_unit(uint64_t unit)
{
    enum { ENERGY = 3, OFFSET = 127 };
    unsigned ten = unit >> 32 & 0xff, two = unit >> 40 & 0xff, constant = unit & 0xffffffff;
    if (unit >> 56 != ENERGY || constant != 0 || (two != 0 && two != OFFSET)) return NAN;
    return 1e6 * pow(10, ten ? (int)ten - OFFSET : 0);
}

double pj_ioreport_microjoules(uint64_t unit, const char *label)
{
    static const struct {
        const char *label;
        double microjoules;
    } labels[] = {{"J", 1e6}, {"mJ", 1e3}, {"uJ", 1}, {"\302\265J", 1}, {"nJ", 1e-3}, {"pJ", 1e-6}};
    double known = from_unit(unit);
    if (!isnan(known)) return known;
    while (*label == ' ') label++; /* labels are padded */
    size_t length = strcspn(label, " ");
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (is_word(label, length, labels[i].label)) return labels[i].microjoules;
    return NAN;
}

/*
 * Reading powermetrics' plists. Energies (mJ per sample) are preferred to powers: power is the same
 * figure rounded. `combined_power` is not the old `package_energy`, so it is not read at all; a
 * total is the sum of its rails. Intel Macs give package_joules or package_watts.
 */
#include "power/powermetrics_plist.h"

#include <math.h>
#include <plist/plist.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DOCUMENT_BYTES = 8 << 20 };

static double number_of(plist_t dict, const char *key)
{
    if (!dict || plist_get_node_type(dict) != PLIST_DICT) return NAN;
    plist_t node = plist_dict_get_item(dict, key);
    if (!node) return NAN;
    double real = NAN;
    uint64_t whole;
    switch (plist_get_node_type(node)) {
    case PLIST_REAL: plist_get_real_val(node, &real); return real;
    case PLIST_UINT: /* libplist keeps negative integers in the same type */
        plist_get_uint_val(node, &whole);
        return (double)(int64_t)whole;
    default: return NAN;
    }
}

static void set_power(pj_pm_sample *s, pj_pm_rail rail, double mw, double step_mw)
{
    if (isnan(mw) || !isnan(s->mw[rail])) return;
    if (mw < 0 || isinf(mw)) {
        s->rejected[rail] = true;
        return;
    }
    s->mw[rail] = mw;
    s->step_mw[rail] = step_mw;
}

static void set_energy(pj_pm_sample *s, pj_pm_rail rail, double mj)
{
    double seconds = (double)s->elapsed_ns * 1e-9;
    set_power(s, rail, mj / seconds, 1 / seconds);
}

static void take_figures(pj_pm_sample *s, plist_t root)
{
    static const struct {
        pj_pm_rail rail;
        const char *energy, *power;
    } keys[] = {{PJ_PM_CPU, "cpu_energy", "cpu_power"},
                {PJ_PM_GPU, "gpu_energy", "gpu_power"},
                {PJ_PM_ANE, "ane_energy", "ane_power"},
                {PJ_PM_DRAM, "dram_energy", "dram_power"},
                {PJ_PM_PACKAGE, "package_energy", "package_power"}};
    plist_t processor = plist_dict_get_item(root, "processor");
    plist_t gpu = plist_dict_get_item(root, "gpu");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        set_energy(s, keys[i].rail, number_of(processor, keys[i].energy));
        set_power(s, keys[i].rail, number_of(processor, keys[i].power), 1);
    }
    /* With only the gpu_power sampler there is no `processor`. */
    set_energy(s, PJ_PM_GPU, number_of(gpu, "gpu_energy"));
    double seconds = (double)s->elapsed_ns * 1e-9;
    set_power(s, PJ_PM_CPU, number_of(processor, "package_joules") * 1e3 / seconds, 1);
    set_power(s, PJ_PM_CPU, number_of(processor, "package_watts") * 1e3, 1);
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] && !strchr(" \t\r\n", text[i])) return false;
    return true;
}

pj_status pj_pm_parse(const char *text, size_t bytes, pj_pm_sample *sample, pj_error *err)
{
    *sample = (pj_pm_sample){0};
    for (int i = 0; i < PJ_PM_RAILS; i++) sample->mw[i] = sample->step_mw[i] = NAN;
    while (bytes > 0 && (!*text || strchr(" \t\r\n", *text))) text++, bytes--;
    if (is_blank(text, bytes)) return PJ_E_AGAIN;
    if (bytes > MAX_DOCUMENT_BYTES)
        return pj_fail(err, PJ_E_INVALID, "a powermetrics sample is larger than %d bytes",
                       MAX_DOCUMENT_BYTES);
    /* No document type of its own making: entities could blow up, and powermetrics has none. */
    char *copy = malloc(bytes + 1);
    if (!copy) return pj_fail(err, PJ_E_NO_MEMORY, "out of memory for a powermetrics sample");
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    plist_t root = NULL;
    if (!strstr(copy, "<!ENTITY") && strstr(copy, "</plist>"))
        plist_from_xml(copy, (uint32_t)bytes, &root);
    free(copy);
    if (!root || plist_get_node_type(root) != PLIST_DICT) {
        if (root) plist_free(root);
        return pj_fail(err, PJ_E_INVALID, "a powermetrics sample is cut or is not a property list");
    }
    double elapsed = number_of(root, "elapsed_ns");
    pj_status status = PJ_OK;
    if (!(elapsed > 0) || elapsed > 9e18)
        status = pj_fail(err, PJ_E_INVALID, "a powermetrics sample has no elapsed_ns above 0");
    else {
        sample->elapsed_ns = (int64_t)elapsed;
        take_figures(sample, root);
    }
    plist_free(root);
    return status;
}

/*
 * Reading powermetrics' property lists. Energies (mJ per sample) are preferred to powers: power is
 * the same figure rounded. `combined_power` is not the old `package_energy`, so it is not read at
 * all; a total is the sum of its rails. Intel Macs give package_joules or package_watts.
 */
#include "power/powermetrics_plist.h"

#include "power/plist_scan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DOCUMENT_BYTES = 8 << 20 };

/* What is read, in order of preference per rail. */
static const struct {
    const char *section, *key;
    pj_pm_rail rail;
    bool energy; /* mJ (or J) over the sample; else a power */
    double unit; /* to mJ or mW */
} wanted[] = {
    {"processor", "cpu_energy", PJ_PM_CPU, true, 1},
    {"processor", "cpu_power", PJ_PM_CPU, false, 1},
    {"processor", "gpu_energy", PJ_PM_GPU, true, 1},
    {"processor", "gpu_power", PJ_PM_GPU, false, 1},
    {"processor", "ane_energy", PJ_PM_ANE, true, 1},
    {"processor", "ane_power", PJ_PM_ANE, false, 1},
    {"processor", "dram_energy", PJ_PM_DRAM, true, 1},
    {"processor", "dram_power", PJ_PM_DRAM, false, 1},
    {"processor", "package_energy", PJ_PM_PACKAGE, true, 1},
    {"processor", "package_power", PJ_PM_PACKAGE, false, 1},
    {"gpu", "gpu_energy", PJ_PM_GPU, true, 1}, /* the gpu_power sampler alone: no `processor` */
    {"processor", "package_joules", PJ_PM_CPU, true, 1e3},
    {"processor", "package_watts", PJ_PM_CPU, false, 1e3},
};
enum { WANTED = sizeof wanted / sizeof *wanted };

typedef struct figures {
    double elapsed_ns, value[WANTED]; /* NAN: not there */
} figures;

static void powermetrics_plist_take_number(void *context, pj_plist_text section, pj_plist_text key,
                                           double value)
{
    figures *f = context;
    if (section.bytes == 0 && pj_plist_is(key, "elapsed_ns")) f->elapsed_ns = value;
    for (int i = 0; i < WANTED; i++)
        if (pj_plist_is(section, wanted[i].section) && pj_plist_is(key, wanted[i].key))
            f->value[i] = value;
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

static void fill_sample(pj_pm_sample *s, const figures *f)
{
    double seconds = f->elapsed_ns * 1e-9;
    s->elapsed_ns = (int64_t)f->elapsed_ns;
    for (int i = 0; i < WANTED; i++) {
        double value = f->value[i] * wanted[i].unit;
        bool count = wanted[i].energy && wanted[i].unit == 1; /* of 1 mJ */
        set_power(s, wanted[i].rail, wanted[i].energy ? value / seconds : value,
                  count ? 1 / seconds : 1);
    }
}

static bool powermetrics_plist_is_blank(const char *text, size_t bytes)
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
    if (powermetrics_plist_is_blank(text, bytes)) return PJ_E_AGAIN;
    if (bytes > MAX_DOCUMENT_BYTES)
        return pj_fail(err, PJ_E_INVALID, "a powermetrics sample is larger than %d bytes",
                       MAX_DOCUMENT_BYTES);
    figures f = {.elapsed_ns = NAN};
    for (int i = 0; i < WANTED; i++) f.value[i] = NAN;
    if (!pj_plist_scan(text, bytes, powermetrics_plist_take_number, &f))
        return pj_fail(err, PJ_E_INVALID, "a powermetrics sample is cut or is not a property list");
    if (!(f.elapsed_ns > 0) || f.elapsed_ns > 9e18)
        return pj_fail(err, PJ_E_INVALID, "a powermetrics sample has no elapsed_ns above 0");
    fill_sample(sample, &f);
    return PJ_OK;
}

void pj_pm_describe(const pj_pm_rail *kinds, uint32_t count, const char *source, const char *device,
                    pj_rail *rails)
{
    static const struct {
        const char *name;
        pj_rail_class rail_class;
    } words[PJ_PM_RAILS] = {{"cpu", PJ_RAIL_CPU},
                            {"gpu", PJ_RAIL_GPU},
                            {"ane", PJ_RAIL_ANE},
                            {"dram", PJ_RAIL_DRAM},
                            {"package", PJ_RAIL_PLATFORM}};
    for (uint32_t i = 0; i < count; i++) {
        bool package = kinds[i] == PJ_PM_PACKAGE,
             inside = !package && kinds[count - 1] == PJ_PM_PACKAGE;
        rails[i] = (pj_rail){.rail_class = words[kinds[i]].rail_class,
                             .kind = PJ_RAIL_INSTANT,
                             .scope = package ? PJ_SCOPE_PACKAGE : PJ_SCOPE_DOMAIN,
                             .quality = PJ_MEASURED,
                             .parent = inside ? (int)count - 1 : -1};
        snprintf(rails[i].name, sizeof rails[i].name, "%s", words[kinds[i]].name);
        snprintf(rails[i].source, sizeof rails[i].source, "%s", source);
        snprintf(rails[i].device, sizeof rails[i].device, "%s", device);
        snprintf(rails[i].field, sizeof rails[i].field, "%s_energy", words[kinds[i]].name);
    }
}

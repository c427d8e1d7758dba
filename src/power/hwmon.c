/*
 * hwmon: energy and power inputs of GPUs, boards and systems on modules under /sys/class/hwmon.
 * Folder numbers change from boot to boot, so a rail is named by its chip and label. Of one channel
 * the best reading is taken: energy counter, else averaged power, else power, else volts times
 * amperes; disabled channels are left out. Which column a rail counts for is said by a table of
 * chips and labels below; what the table does not know is kept as a platform rail and counts for
 * none, because a wrong sum is worse than a missing one.
 */
#include "power/source.h"

#include "base/clock.h"
#include "power/sysfs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_CHANNELS = 48, PATH_BYTES = 512, MAX_CHIPS = 64, MAX_CHANNEL_NUMBER = 16 };

typedef enum channel_kind { ENERGY, POWER_AVERAGE, POWER, VOLTS_AMPERES } channel_kind;

typedef struct channel {
    channel_kind kind;
    int fd, second_fd;   /* second: amperes */
    uint32_t chip_order; /* counts chips of the same name */
    char chip[32], label[48], device[64];
    int number;
    double max_mw, window_ms;
} channel;

typedef struct hwmon {
    channel channels[MAX_CHANNELS];
    uint32_t count;
} hwmon;

typedef struct chip {
    char folder[PATH_BYTES];
    char name[32], device[64];
    uint32_t order;
} chip;

/* What a rail is, by chip and by the start of its label; the first row that fits counts. `contains`
 * says which rails of the same chip lie inside this one ("*": all). */
static const struct {
    const char *chip, *label;
    pj_rail_class rail_class;
    pj_rail_scope scope;
    bool holds_others;
} known[] = {
    {"amdgpu", "", PJ_RAIL_GPU, PJ_SCOPE_BOARD, false},
    {"xe", "card", PJ_RAIL_GPU, PJ_SCOPE_BOARD, true},
    {"xe", "", PJ_RAIL_PLATFORM, PJ_SCOPE_PACKAGE, false},
    {"i915", "", PJ_RAIL_GPU, PJ_SCOPE_BOARD, false},
    {"nouveau", "", PJ_RAIL_GPU, PJ_SCOPE_BOARD, false},
    {"ina3221", "VDD_IN", PJ_RAIL_TOTAL, PJ_SCOPE_MODULE, true}, /* Jetson */
    {"ina3221", "POM_5V_IN", PJ_RAIL_TOTAL, PJ_SCOPE_MODULE, true},
    {"ina3221", "VDD_CPU_CV", PJ_RAIL_CPU, PJ_SCOPE_DOMAIN, false},
    {"ina3221", "VDD_GPU_SOC", PJ_RAIL_GPU, PJ_SCOPE_DOMAIN, false},
    {"ina3221", "POM_5V_CPU", PJ_RAIL_CPU, PJ_SCOPE_DOMAIN, false},
    {"ina3221", "POM_5V_GPU", PJ_RAIL_GPU, PJ_SCOPE_DOMAIN, false},
    {"ina3221", "VDDQ", PJ_RAIL_DRAM, PJ_SCOPE_DOMAIN, false},
    {"power_meter", "Module Power", PJ_RAIL_TOTAL, PJ_SCOPE_MODULE, true}, /* GH200: all of it */
    {"power_meter", "Grace Power", PJ_RAIL_CPU, PJ_SCOPE_PACKAGE, true},
    {"acpi_power_meter", "Module Power", PJ_RAIL_TOTAL, PJ_SCOPE_MODULE, true},
    {"acpi_power_meter", "Grace Power", PJ_RAIL_CPU, PJ_SCOPE_PACKAGE, true},
    {"amd_energy", "Esocket", PJ_RAIL_CPU, PJ_SCOPE_PACKAGE, true},
    {"fam15h_power", "", PJ_RAIL_CPU, PJ_SCOPE_PACKAGE, false},
    {"zenpower", "", PJ_RAIL_PLATFORM, PJ_SCOPE_DOMAIN, false},
    {NULL, NULL, PJ_RAIL_PLATFORM, PJ_SCOPE_DOMAIN, false},
};

static int row_of(const char *chip_name, const char *label)
{
    int i = 0;
    for (; known[i].chip; i++)
        if (strcmp(known[i].chip, chip_name) == 0 &&
            strncmp(known[i].label, label, strlen(known[i].label)) == 0)
            break;
    return i;
}

static bool chip_path(const chip *c, char *path, const char *kind, int number, const char *suffix)
{
    return snprintf(path, PATH_BYTES, "%.400s/%s%d_%s", c->folder, kind, number, suffix) <
           PATH_BYTES;
}

static bool chip_number(const chip *c, const char *kind, int number, const char *suffix,
                        int64_t *value)
{
    char path[PATH_BYTES];
    return chip_path(c, path, kind, number, suffix) && pj_sysfs_number(path, value);
}

static bool enabled(const chip *c, const char *kind, int number)
{
    int64_t value;
    return !chip_number(c, kind, number, "enable", &value) || value != 0;
}

static double bound_mw(const chip *c, int number)
{
    static const char *const suffixes[] = {"cap_max", "cap", "rated_max", "crit", "max"};
    int64_t value;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (chip_number(c, "power", number, suffixes[i], &value) && value > 0)
            return (double)value * 1e-3;
    return 0;
}

static int open_input(const chip *c, const char *kind, int number, const char *suffix)
{
    char path[PATH_BYTES];
    int64_t value;
    if (!enabled(c, kind, number) || !chip_path(c, path, kind, number, suffix)) return -1;
    int fd = pj_sysfs_open(path);
    if (fd >= 0 && pj_sysfs_read(fd, &value) != PJ_OK) {
        close(fd);
        return -1;
    }
    return fd;
}

static double window_ms_of(const chip *c)
{
    char path[PATH_BYTES];
    int64_t value;
    snprintf(path, sizeof path, "%.480s/update_interval", c->folder);
    return pj_sysfs_number(path, &value) && value > 0 ? (double)value : 0;
}

static void add_channel(hwmon *h, const chip *c, channel_kind kind, int fd, int second_fd,
                        const char *label_kind, int number)
{
    char path[PATH_BYTES];
    if (h->count == MAX_CHANNELS) {
        close(fd);
        if (second_fd >= 0) close(second_fd);
        return;
    }
    channel *ch = &h->channels[h->count++];
    *ch = (channel){.kind = kind,
                    .fd = fd,
                    .second_fd = second_fd,
                    .chip_order = c->order,
                    .number = number,
                    .max_mw = bound_mw(c, number),
                    .window_ms = window_ms_of(c)};
    memcpy(ch->chip, c->name, sizeof ch->chip);
    memcpy(ch->device, c->device, sizeof ch->device);
    if (!chip_path(c, path, label_kind, number, "label") ||
        !pj_sysfs_text(path, ch->label, sizeof ch->label))
        snprintf(ch->label, sizeof ch->label, "%s%d", label_kind, number);
}

/* The best reading of each channel of one chip. */
static void add_chip(hwmon *h, const chip *c)
{
    for (int n = 1; n <= MAX_CHANNEL_NUMBER; n++) {
        int energy = open_input(c, "energy", n, "input");
        if (energy >= 0) add_channel(h, c, ENERGY, energy, -1, "energy", n);
        /* A chip's energy and power channels of one number are the same rail. */
        int average = energy >= 0 ? -1 : open_input(c, "power", n, "average");
        if (average >= 0) add_channel(h, c, POWER_AVERAGE, average, -1, "power", n);
        int power = energy >= 0 || average >= 0 ? -1 : open_input(c, "power", n, "input");
        if (power >= 0) add_channel(h, c, POWER, power, -1, "power", n);
        if (energy >= 0 || average >= 0 || power >= 0) continue;
        int volts = open_input(c, "in", n, "input");
        if (volts < 0) continue;
        int amperes = open_input(c, "curr", n, "input");
        if (amperes >= 0)
            add_channel(h, c, VOLTS_AMPERES, volts, amperes, "in", n);
        else
            close(volts);
    }
}

/* The device behind a hwmon folder: the last part of its `device` link, e.g. 0000:03:00.0. */
static void find_device(chip *c)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    snprintf(path, sizeof path, "%.480s/device", c->folder);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    const char *name = strrchr(target, '/');
    snprintf(c->device, sizeof c->device, "%.20s %.40s", c->name, name ? name + 1 : "");
}

static void scan(hwmon *h, const pj_power_env *env)
{
    char folder[PATH_BYTES], names[MAX_CHIPS][PJ_SYSFS_NAME_BYTES], seen[MAX_CHIPS][32];
    if (!pj_power_path(folder, sizeof folder, env->sysfs_root, "/sys/class/hwmon")) return;
    uint32_t count = pj_sysfs_list(folder, "hwmon", names, MAX_CHIPS), chips = 0;
    for (uint32_t i = 0; i < count; i++) {
        chip c = {.order = 0};
        char path[PATH_BYTES];
        if (snprintf(c.folder, sizeof c.folder, "%.400s/%s", folder, names[i]) >= PATH_BYTES)
            continue;
        snprintf(path, sizeof path, "%.500s/name", c.folder);
        if (!pj_sysfs_text(path, c.name, sizeof c.name)) continue;
        for (uint32_t k = 0; k < chips; k++) c.order += strcmp(seen[k], c.name) == 0;
        memcpy(seen[chips++], c.name, sizeof c.name);
        find_device(&c);
        add_chip(h, &c);
    }
}

static void close_channels(hwmon *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        close(h->channels[i].fd);
        if (h->channels[i].second_fd >= 0) close(h->channels[i].second_fd);
    }
    h->count = 0;
}

/* ---- the source ---------------------------------------------------------------------------- */

static void explain(pj_source_report *report)
{
    pj_source_report_set(report, PJ_SOURCE_ABSENT,
                         "load the device's driver (amdgpu, i915, xe, ina3221); on Grace boot with "
                         "acpi_power_meter.force_cap_on=y",
                         "no chip under /sys/class/hwmon offers an energy or power reading");
}

static void hwmon_probe(const pj_power_env *env, const char *argument, pj_source_report *report)
{
    hwmon h = {0};
    *report = (pj_source_report){PJ_SOURCE_USABLE, "", ""};
    scan(&h, env);
    if (h.count == 0) explain(report);
    close_channels(&h);
}

static pj_status hwmon_open(void *state, const pj_power_env *env, const char *argument,
                            pj_error *err)
{
    pj_source_report report;
    scan(state, env);
    if (((hwmon *)state)->count > 0) return PJ_OK;
    explain(&report);
    return pj_fail(err, PJ_E_UNAVAILABLE, "%s; %s", report.reason, report.remedy);
}

/* "amdgpu-ppt", "ina3221-vdd_in"; a second chip of the same name gets a number: "amdgpu1-ppt". */
static void name_rail(const channel *c, char name[PJ_RAIL_NAME_BYTES])
{
    char order[12] = "";
    if (c->chip_order > 0) snprintf(order, sizeof order, "%u", c->chip_order);
    snprintf(name, PJ_RAIL_NAME_BYTES, "%.14s%s-%.14s", c->chip, order, c->label);
    for (char *p = name; *p; p++)
        *p = isalnum((unsigned char)*p) || *p == '-' ? (char)tolower((unsigned char)*p) : '_';
}

static bool same_chip(const channel *a, const channel *b)
{
    return a->chip_order == b->chip_order && strcmp(a->chip, b->chip) == 0;
}

/* The rail of the same chip that holds this one: a rail that holds others, of a wider scope. */
static int parent_of(const hwmon *h, uint32_t index)
{
    const channel *c = &h->channels[index];
    int own = row_of(c->chip, c->label), best = -1;
    for (uint32_t i = 0; i < h->count; i++) {
        int row = row_of(h->channels[i].chip, h->channels[i].label);
        bool wider = known[row].scope > known[own].scope;
        if (i == index || !known[row].holds_others || !wider) continue;
        /* Grace shows each of its sensors as a chip of its own. */
        if (!same_chip(&h->channels[i], c) && strcmp(h->channels[i].chip, c->chip) != 0) continue;
        if (best < 0 ||
            known[row].scope < known[row_of(h->channels[best].chip, h->channels[best].label)].scope)
            best = (int)i;
    }
    return best;
}

static uint32_t hwmon_rails(const void *state, pj_rail *rails, uint32_t max)
{
    static const char *const fields[] = {"energy%d_input", "power%d_average", "power%d_input",
                                         "in%d x curr"};
    const hwmon *h = state;
    uint32_t count = h->count < max ? h->count : max;
    for (uint32_t i = 0; i < count; i++) {
        const channel *c = &h->channels[i];
        int row = row_of(c->chip, c->label);
        rails[i] = (pj_rail){
            .rail_class = known[row].rail_class,
            .kind = c->kind == ENERGY ? PJ_RAIL_COUNTER : PJ_RAIL_INSTANT,
            .scope = known[row].scope,
            .quality = PJ_MEASURED,
            .parent = parent_of(h, i),
            .period_ns = (int64_t)(c->window_ms * 1e6),
            .window_ns = (int64_t)(c->window_ms * 1e6),
            .resolution = c->kind == ENERGY ? 1 : 0.001,
            .max_mw = c->max_mw,
        };
        name_rail(c, rails[i].name);
        snprintf(rails[i].source, sizeof rails[i].source, "hwmon");
        memcpy(rails[i].device, c->device, sizeof c->device);
        snprintf(rails[i].field, sizeof rails[i].field, fields[c->kind], c->number);
    }
    return count;
}

static pj_status read_channel(const channel *c, double *value)
{
    int64_t first, second;
    pj_status status = pj_sysfs_read(c->fd, &first);
    if (status != PJ_OK) return status;
    *value = c->kind == ENERGY ? (double)first : (double)first * 1e-3; /* uJ; uW to mW */
    if (c->kind != VOLTS_AMPERES) return PJ_OK;
    status = pj_sysfs_read(c->second_fd, &second);
    *value = (double)first * (double)second * 1e-3; /* mV x mA */
    return status;
}

static pj_status hwmon_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    const hwmon *h = state;
    *count = 0;
    for (uint32_t i = 0; i < h->count && i < max; i++) {
        pj_reading *r = &readings[(*count)++];
        *r = (pj_reading){.rail = (uint16_t)i, .before_ns = pj_clock_ns()};
        pj_status status = read_channel(&h->channels[i], &r->value);
        r->after_ns = pj_clock_ns();
        if (status == PJ_OK) continue;
        bool gone = status == PJ_E_NOT_FOUND; /* ENODEV: unplugged or its driver is gone */
        r->value = NAN;
        r->status = gone ? PJ_READING_LOST : PJ_READING_GAP;
        r->reason = gone                     ? PJ_REASON_GONE
                    : status == PJ_E_INVALID ? PJ_REASON_NOT_A_NUMBER
                                             : PJ_REASON_IO;
    }
    return PJ_OK;
}

static void hwmon_close(void *state)
{
    close_channels(state);
}

const pj_power_source pj_source_hwmon = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "hwmon",
    .state_bytes = sizeof(hwmon),
    .probe = hwmon_probe,
    .open = hwmon_open,
    .rails = hwmon_rails,
    .read = hwmon_read,
    .close = hwmon_close,
    .max_gap_ns = 60000000000, /* xe folds its 32-bit register only when it is read */
};

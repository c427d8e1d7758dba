/* hwmon: energy and power inputs of GPUs, boards and modules under /sys/class/hwmon. Folder numbers
 * change between boots, so a rail is named by its chip and label. For each channel the best reading
 * is used: energy counter, else averaged power, else power, else volts times amperes; disabled
 * channels are skipped. Older drivers put the attributes into the device's folder
 * (hwmonN/device/power1_average); both places are searched. The table of chips and labels below
 * decides which column a rail counts for; unknown ones are kept as platform rails and count for
 * none, because a wrong sum is worse than a missing one. */
#include "power/source.h"

#include "power/sysfs.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Current name of the driver; "acpi_power_meter" is treated the same. */
#define POWER_METER "power_meter"

enum { MAX_CHANNELS = 48, PATH_BYTES = 512, MAX_CHIPS = 64, MAX_CHANNEL_NUMBER = 16 };

typedef enum channel_kind { ENERGY, POWER_AVERAGE, POWER, VOLTS_AMPERES } channel_kind;

/* The attribute of each kind, in order of preference. */
static const struct {
    const char *name, *suffix;
} inputs[] = {{"energy", "input"}, {"power", "average"}, {"power", "input"}, {"in", "input"}};

typedef struct channel {
    channel_kind kind;
    int fd, second_fd;   /* second: amperes */
    uint32_t chip_order; /* counts chips of the same name */
    char chip[32], label[48], device[64];
    int number;
    int socket;      /* from the label ("... Socket 1"); -1: none */
    bool apu;        /* the GPU shares its package with the CPU, and this reading covers both */
    bool second_die; /* reads 0: another die of the board reports for both */
    bool multi_die;  /* a board with several dies */
    bool silent;     /* gave no value when it was opened, as a GPU that sleeps; fd may be -1 */
    double max_mw, window_ms;
} channel;

typedef struct hwmon {
    channel channels[MAX_CHANNELS];
    uint32_t count;
    uint32_t silent; /* of these */
} hwmon;

typedef struct chip {
    char folder[PATH_BYTES];
    char name[32], device[64];
    uint32_t order;
    bool apu, multi_die;
} chip;

/* What a rail is, by chip and prefix of its label; the first matching row applies. */
static const struct {
    const char *chip, *label;
    pj_rail_class rail_class;
    pj_rail_scope scope;
    bool holds_others; /* contains the rails of the same chip with a narrower scope */
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
    /* GH200: the whole module */
    {POWER_METER, "Module Power", PJ_RAIL_TOTAL, PJ_SCOPE_MODULE, true},
    {POWER_METER, "Grace Power", PJ_RAIL_CPU, PJ_SCOPE_PACKAGE, true},
    {POWER_METER, "CPU Power", PJ_RAIL_CPU, PJ_SCOPE_DOMAIN, false},
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
            strncasecmp(known[i].label, label, strlen(known[i].label)) == 0)
            break;
    return i;
}

/* The file of an attribute, such as power1_average. */
static int chip_open(const chip *c, const char *kind, int number, const char *suffix)
{
    return pj_sysfs_open_at("%s/%s%d_%s", c->folder, kind, number, suffix);
}

static bool enabled(const chip *c, const char *kind, int number)
{
    int64_t value;
    return !pj_sysfs_number(chip_open(c, kind, number, "enable"), &value) || value != 0;
}

static double hwmon_bound_mw(const chip *c, int number)
{
    static const char *const suffixes[] = {"cap_max", "cap", "rated_max", "crit", "max"};
    int64_t value;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (pj_sysfs_number(chip_open(c, "power", number, suffixes[i]), &value) && value > 0)
            return (double)value * 1e-3;
    return 0;
}

static int open_input(const chip *c, const char *kind, int number, const char *suffix)
{
    int64_t value;
    int fd = chip_open(c, kind, number, suffix);
    if (fd < 0 || (enabled(c, kind, number) && pj_sysfs_read(fd, &value) == PJ_OK)) return fd;
    pj_sysfs_close(fd);
    return -1;
}

/* A file may claim anything; no sensor averages over more than an hour. */
static double sane_window_ms(int64_t value)
{
    enum { MOST_MS = 3600000 };
    return value > 0 ? (double)(value < MOST_MS ? value : MOST_MS) : 0;
}

/* Averaging window of a reading: stated per chip, or per channel for averaged power. */
static double window_ms_of(const chip *c, channel_kind kind, int number)
{
    int64_t value;
    if (kind == POWER_AVERAGE &&
        pj_sysfs_number(chip_open(c, "power", number, "average_interval"), &value) && value > 0)
        return sane_window_ms(value);
    return pj_sysfs_number(pj_sysfs_open_at("%s/update_interval", c->folder), &value)
               ? sane_window_ms(value)
               : 0;
}

/* The label of a channel; ACPI power meters call it power1_oem_info. */
static void find_label(const chip *c, const char *kind, int number, char *label, size_t bytes)
{
    if (!pj_sysfs_text(chip_open(c, kind, number, "label"), label, bytes) &&
        !pj_sysfs_text(chip_open(c, kind, number, "oem_info"), label, bytes))
        snprintf(label, bytes, "%s%d", kind, number);
}

/* "Grace Power Socket 1" belongs to socket 1. */
static int socket_of(const char *label)
{
    const char *word = strcasestr(label, "socket");
    int number;
    return word && sscanf(word + 6, "%d", &number) == 1 ? number : -1;
}

static void add_channel(hwmon *h, const chip *c, channel_kind kind, int fd, int second_fd,
                        int number)
{
    if (h->count == MAX_CHANNELS) {
        pj_sysfs_close(fd);
        pj_sysfs_close(second_fd);
        return;
    }
    channel *ch = &h->channels[h->count++];
    *ch = (channel){.kind = kind,
                    .fd = fd,
                    .second_fd = second_fd,
                    .chip_order = c->order,
                    .number = number,
                    .apu = c->apu,
                    .multi_die = c->multi_die,
                    .max_mw = hwmon_bound_mw(c, number),
                    .window_ms = window_ms_of(c, kind, number)};
    memcpy(ch->chip, c->name, sizeof ch->chip);
    memcpy(ch->device, c->device, sizeof ch->device);
    find_label(c, inputs[kind].name, number, ch->label, sizeof ch->label);
    ch->socket = socket_of(ch->label);
    int64_t now;
    ch->second_die =
        fd >= 0 && strcmp(c->name, "amdgpu") == 0 && pj_sysfs_read(fd, &now) == PJ_OK && now == 0;
}

/* The best reading of each channel of one chip: its energy and power channels of one number are the
 * same rail. */
static void add_chip(hwmon *h, const chip *c)
{
    for (int n = 1; n <= MAX_CHANNEL_NUMBER; n++) {
        int fd = -1, second_fd = -1;
        channel_kind kind = ENERGY;
        for (; kind <= VOLTS_AMPERES; kind++)
            if ((fd = open_input(c, inputs[kind].name, n, inputs[kind].suffix)) >= 0) break;
        if (kind == VOLTS_AMPERES) second_fd = open_input(c, "curr", n, "input");
        if (fd >= 0 && (kind != VOLTS_AMPERES || second_fd >= 0))
            add_channel(h, c, kind, fd, second_fd, n);
        else
            pj_sysfs_close(fd);
    }
}

/* The device of a hwmon folder: the last part of its `device` link, e.g. 0000:03:00.0. */
static void find_device(chip *c, const char *base)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    snprintf(path, sizeof path, "%.480s/device", base);
    pj_sysfs_link(path, target, sizeof target);
    const char *name = strrchr(target, '/');
    snprintf(c->device, sizeof c->device, "%.20s %.40s", c->name, name ? name + 1 : "");
}

/* PCI device ids of AMD boards with special reporting. */
static bool hwmon_is_one_of(const char *base, const char *const *ids)
{
    char id[16];
    if (!pj_sysfs_text(pj_sysfs_open_at("%s/device/device", base), id, sizeof id)) return false;
    for (; *ids; ids++)
        if (strcasecmp(*ids, id) == 0) return true;
    return false;
}

/* Only on APUs does the driver show the northbridge voltage. */
static bool is_apu(const chip *c, const char *base)
{
    static const char *const mi300a[] = {"0x74a0", NULL};
    char label[32];
    for (int n = 0; n <= MAX_CHANNEL_NUMBER; n++)
        if (pj_sysfs_text(chip_open(c, "in", n, "label"), label, sizeof label) &&
            strcasecmp(label, "vddnb") == 0)
            return true;
    return hwmon_is_one_of(base, mi300a);
}

/* Keeps a GPU whose power cannot be read now, or not at all, so that totals are marked incomplete.
 * An APU's power is part of its processor's; on a board with several dies one reports for all. */
static void add_silent(hwmon *h, chip *c, const char *folder)
{
    snprintf(c->folder, sizeof c->folder, "%s", folder);
    if (known[row_of(c->name, "")].rail_class != PJ_RAIL_GPU || is_apu(c, folder) || c->multi_die ||
        h->count == MAX_CHANNELS)
        return;
    int fd = chip_open(c, "energy", 1, "input");
    channel_kind kind = fd >= 0 ? ENERGY : POWER;
    if (fd < 0) fd = chip_open(c, "power", 1, "average");
    if (fd < 0) fd = chip_open(c, "power", 1, "input");
    add_channel(h, c, kind, fd, -1, 1);
    h->channels[h->count - 1].silent = true;
    h->silent++;
}

/* Adds the channels found in `folder`; false when there are none. */
static bool scan_folder(hwmon *h, chip *c, const char *folder, const char *base)
{
    static const char *const mi250[] = {"0x7408", "0x740c", NULL};
    uint32_t before = h->count;
    snprintf(c->folder, sizeof c->folder, "%s", folder);
    if (strcmp(c->name, "amdgpu") == 0) {
        c->apu = is_apu(c, base);
        c->multi_die = hwmon_is_one_of(base, mi250);
    }
    add_chip(h, c);
    return h->count > before;
}

/* The chip's name, which may be in the device's folder. */
static bool find_name(const char *base, char *name, size_t bytes)
{
    if (!pj_sysfs_text(pj_sysfs_open_at("%s/name", base), name, bytes) &&
        !pj_sysfs_text(pj_sysfs_open_at("%s/device/name", base), name, bytes))
        return false;
    if (strcmp(name, "acpi_power_meter") == 0) snprintf(name, bytes, POWER_METER);
    return true;
}

static void scan(hwmon *h, const pj_power_env *env)
{
    char folder[PATH_BYTES], names[MAX_CHIPS][PJ_SYSFS_NAME_BYTES], seen[MAX_CHIPS][32];
    if (!pj_power_path(folder, sizeof folder, env->sysfs_root, "/sys/class/hwmon")) return;
    uint32_t count = pj_sysfs_list(folder, "hwmon", names, MAX_CHIPS), chips = 0;
    for (uint32_t i = 0; i < count; i++) {
        chip c = {.order = 0};
        char hwmon_path[PATH_BYTES], device[PATH_BYTES];
        if (snprintf(hwmon_path, sizeof hwmon_path, "%.400s/%s", folder, names[i]) >= 480) continue;
        snprintf(device, sizeof device, "%.480s/device", hwmon_path);
        if (!find_name(hwmon_path, c.name, sizeof c.name)) continue;
        for (uint32_t k = 0; k < chips; k++) c.order += strcmp(seen[k], c.name) == 0;
        memcpy(seen[chips++], c.name, sizeof c.name);
        find_device(&c, hwmon_path);
        if (!scan_folder(h, &c, hwmon_path, hwmon_path) && !scan_folder(h, &c, device, hwmon_path))
            add_silent(h, &c, hwmon_path);
    }
}

static void close_channels(void *state)
{
    hwmon *h = state;
    for (uint32_t i = 0; i < h->count; i++) {
        pj_sysfs_close(h->channels[i].fd);
        pj_sysfs_close(h->channels[i].second_fd);
    }
    h->count = h->silent = 0;
}

/* ---- the source ---- */

static pj_status hwmon_open(void *state, const pj_power_env *env, const char *argument,
                            pj_source_report *report)
{
    hwmon *h = state;
    scan(h, env);
    if (h->count > h->silent) return PJ_OK;
    report->unread = h->silent > 0;
    close_channels(h);
    return pj_source_explain(
        report, PJ_E_UNAVAILABLE,
        "load the device's driver (amdgpu, i915, xe, ina3221); on Grace boot with "
        "acpi_power_meter.force_cap_on=y",
        "no chip under /sys/class/hwmon offers an energy or power reading");
}

/* "amdgpu-ppt", "ina3221-vdd_in"; a second chip of the same name gets a number: "amdgpu1-ppt". */
static void hwmon_name_rail(const channel *c, char name[PJ_RAIL_NAME_BYTES])
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

/* Scope of a channel where the board determines it rather than the table: on an APU the GPU's
 * reading covers the whole package, CPU included. */
static pj_rail_scope hwmon_scope_of(const channel *c)
{
    if (c->apu) return PJ_SCOPE_MODULE;
    if (c->second_die) return PJ_SCOPE_DOMAIN; /* where zero is a value */
    return known[row_of(c->chip, c->label)].scope;
}

/* The first die of a two-die board: the channel before, which reports for both. */
static int first_die_of(const hwmon *h, uint32_t index)
{
    if (!h->channels[index].second_die || !h->channels[index].multi_die) return -1;
    for (uint32_t i = index; i-- > 0;)
        if (h->channels[i].multi_die && !h->channels[i].second_die) return (int)i;
    return -1;
}

/* The rail of the same chip that contains this one: one with a wider scope that contains others, of
 * the same socket where labels name sockets. */
static int parent_of(const hwmon *h, uint32_t index)
{
    const channel *c = &h->channels[index];
    int best = -1;
    for (uint32_t i = 0; i < h->count; i++) {
        const channel *other = &h->channels[i];
        bool wider = hwmon_scope_of(other) > hwmon_scope_of(c);
        if (i == index || !known[row_of(other->chip, other->label)].holds_others || !wider)
            continue;
        /* Grace shows each sensor as a separate chip. */
        bool meters = strcmp(other->chip, POWER_METER) == 0 && strcmp(c->chip, POWER_METER) == 0;
        if (!same_chip(other, c) && !(meters && other->socket == c->socket)) continue;
        if (best < 0 || hwmon_scope_of(other) < hwmon_scope_of(&h->channels[best])) best = (int)i;
    }
    return best >= 0 ? best : first_die_of(h, index);
}

static uint32_t hwmon_rails(const void *state, pj_rail *rails)
{
    const hwmon *h = state;
    for (uint32_t i = 0; i < h->count; i++) {
        const channel *c = &h->channels[i];
        int row = row_of(c->chip, c->label);
        rails[i] = (pj_rail){
            .source = "hwmon",
            .rail_class = known[row].rail_class,
            .kind = c->kind == ENERGY ? PJ_RAIL_COUNTER : PJ_RAIL_INSTANT,
            .scope = hwmon_scope_of(c),
            .quality = PJ_MEASURED,
            .parent = parent_of(h, i),
            .period_ns = (int64_t)(c->window_ms * 1e6),
            .window_ns = (int64_t)(c->window_ms * 1e6),
            .resolution = c->kind == ENERGY ? 1 : 0.001,
            .max_mw = c->max_mw,
        };
        hwmon_name_rail(c, rails[i].name);
        memcpy(rails[i].device, c->device, sizeof c->device);
        snprintf(rails[i].field, sizeof rails[i].field, "%s%d%s%s", inputs[c->kind].name, c->number,
                 c->kind == VOLTS_AMPERES ? " x " : "_",
                 c->kind == VOLTS_AMPERES ? "curr" : inputs[c->kind].suffix);
    }
    return h->count;
}

static pj_status read_channel(void *state, uint32_t rail, double *value)
{
    const channel *c = &((const hwmon *)state)->channels[rail];
    int64_t first, second;
    pj_status status = c->fd < 0 ? PJ_E_AGAIN : pj_sysfs_read(c->fd, &first);
    if (status != PJ_OK) return c->silent ? PJ_E_AGAIN : status;       /* not an event */
    *value = c->kind == ENERGY ? (double)first : (double)first * 1e-3; /* uJ; uW to mW */
    if (c->kind != VOLTS_AMPERES) return PJ_OK;
    status = pj_sysfs_read(c->second_fd, &second);
    *value = (double)first * (double)second * 1e-3; /* mV x mA */
    return status;
}

static pj_status hwmon_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    *count = pj_source_poll(state, ((const hwmon *)state)->count, read_channel, readings);
    return PJ_OK;
}

const pj_power_source pj_source_hwmon = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "hwmon",
    .counts_for = 1u << PJ_RAIL_GPU,
    .state_bytes = sizeof(hwmon),
    .open = hwmon_open,
    .rails = hwmon_rails,
    .read = hwmon_read,
    .close = close_channels,
    /* xe reads its 32-bit register only on access, so it must be read before it wraps */
    .max_gap_ns = 60000000000,
};

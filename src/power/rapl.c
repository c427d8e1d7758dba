/*
 * RAPL: energy counters of Intel and AMD CPUs on Linux, through either of two kernel interfaces.
 *
 *   powercap  /sys/class/powercap/intel-rapl:N[:M]/energy_uj. Readable only by root since 5.10. It
 *             wraps at max_energy_range_uj plus one unit: the range file holds 2^32 - 1 units.
 *   perf      the "power" PMU: 64-bit counts in units of the event's scale (2^-32 J). Cheaper, and
 *             it does not wrap, but the kernel updates it from the 32-bit hardware register on a
 *             slow timer, so an event must be read at least once a minute (max_gap_ns).
 *
 * perf is preferred where it opens. If powercap exists too, a domain counts only when powercap also
 * has it: old kernels list perf events that do not exist. A domain seen twice (intel-rapl and
 * intel-rapl-mmio) is used once. A package is a rail of class CPU; core and uncore are inside it
 * and kept as platform rails; psys covers the whole machine and is the packages' parent. If some
 * counters can be read and that of a package or DRAM cannot, it is a rail without readings, so that
 * totals are marked incomplete.
 */
#include "power/source.h"

#include "power/sysfs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#endif

enum { MAX_DOMAINS = 48, PATH_BYTES = 512, PERIOD_NS = 1000000, MOST_PACKAGES = 4095 };

typedef enum domain_kind { PACKAGE = 0, CORE, UNCORE, DRAM, PSYS, DOMAIN_KINDS } domain_kind;

typedef struct domain {
    domain_kind kind;
    int package;                    /* -1: psys */
    char name[PJ_SYSFS_NAME_BYTES]; /* as spelt by the kernel */
    int fd;                         /* -1: it cannot be read */
    double scale_uj;                /* of one count */
    double modulus_uj;
    double max_mw;
    bool by_perf;
    int limit_fd; /* the long-term power limit; -1: the domain has none */
} domain;

typedef struct rapl {
    const char *root; /* of sysfs */
    domain domains[MAX_DOMAINS];
    uint32_t count;
    bool zones_seen, perf_seen;
    int error; /* errno of the last failure to open a counter */
} rapl;

#define ZONES         "/sys/class/powercap"
#define POWER_UNIT    "/sys/bus/event_source/devices/power"
#define LONG_TERM_CAP "constraint_0_power_limit_uw"

/* ---- powercap ---- */

/* "package-1-die-0", "core", ... A sub-zone's package is that of its parent zone. */
static bool parse_name(const char *name, domain_kind *kind, int *package)
{
    static const char *const names[] = {"package-", "core", "uncore", "dram", "psys"};
    for (int k = 0; k < DOMAIN_KINDS; k++) {
        if (strncmp(name, names[k], strlen(names[k])) != 0) continue;
        *kind = (domain_kind)k;
        if (k == PACKAGE) {
            int die = 0;
            if (sscanf(name, "package-%5d-die-%5d", package, &die) < 1) return false;
            *package = *package * 16 + die; /* each die counts as a package */
        }
        return true;
    }
    return false;
}

/* Index of a domain; -1: there is none. */
static int rapl_index_of(const rapl *r, domain_kind kind, int package)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->domains[i].kind == kind && r->domains[i].package == package) return (int)i;
    return -1;
}

/* The domain, added where it is not known yet; NULL: there is no room. */
static domain *rapl_domain(rapl *r, domain_kind kind, int package)
{
    int index = rapl_index_of(r, kind, package);
    if (index >= 0) return &r->domains[index];
    if (r->count == MAX_DOMAINS) return NULL;
    domain *d = &r->domains[r->count++];
    *d = (domain){.kind = kind, .package = package, .fd = -1, .limit_fd = -1};
    return d;
}

/* The zone's largest power limit: a laptop's PL2 is twice its PL1. */
static double zone_max_mw(const rapl *r, const char *zone)
{
    static const char *const files[] = {"constraint_0_max_power_uw", LONG_TERM_CAP,
                                        "constraint_1_power_limit_uw",
                                        "constraint_2_power_limit_uw"};
    int64_t most = 0, value;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (pj_sysfs_number(pj_sysfs_open_at("%s" ZONES "/%s/%s", r->root, zone, files[i]),
                            &value) &&
            value > most)
            most = value;
    return (double)most * 1e-3;
}

/* Opens a zone's counter; -1 when it gives no value. */
static int open_counter(rapl *r, const char *zone)
{
    int64_t value;
    int fd = pj_sysfs_open_at("%s" ZONES "/%s/energy_uj", r->root, zone);
    if (fd < 0) {
        r->error = errno;
        return -1;
    }
    pj_status status = pj_sysfs_read(fd, &value);
    if (status == PJ_OK) return fd;
    r->error = status == PJ_E_DENIED ? EACCES : EIO;
    pj_sysfs_close(fd);
    return -1;
}

/* Adds the zone, or the counter of one that could not be read under its other name. */
static void add_zone(rapl *r, const char *zone, domain_kind kind, int package, const char *name)
{
    int64_t range = 0;
    bool known = rapl_index_of(r, kind, package) >= 0;
    domain *d = rapl_domain(r, kind, package);
    if (!d || d->fd >= 0) return;
    r->zones_seen = true;
    d->fd = open_counter(r, zone);
    if (known && d->fd < 0) return;
    pj_sysfs_number(pj_sysfs_open_at("%s" ZONES "/%s/max_energy_range_uj", r->root, zone), &range);
    pj_sysfs_close(d->limit_fd);
    d->limit_fd = pj_sysfs_open_at("%s" ZONES "/%s/" LONG_TERM_CAP, r->root, zone);
    d->modulus_uj = (double)range * 4294967296.0 / 4294967295.0;
    d->max_mw = zone_max_mw(r, zone);
    snprintf(d->name, sizeof d->name, "%s", name);
}

static void add_zones(rapl *r, const char *prefix)
{
    char folder[PATH_BYTES], zones[128][PJ_SYSFS_NAME_BYTES], name[PJ_SYSFS_NAME_BYTES];
    int package_of_zone[256];
    memset(package_of_zone, -1, sizeof package_of_zone);
    if (!pj_power_path(folder, sizeof folder, r->root, ZONES)) return;
    uint32_t count = pj_sysfs_list(folder, prefix, zones, 128);
    for (uint32_t i = 0; i < count; i++) { /* sorted: a zone comes before its sub-zones */
        int zone, sub = -1, package = -1;
        domain_kind kind;
        if (sscanf(zones[i] + strlen(prefix), "%d:%d", &zone, &sub) < 1 || zone < 0 || zone > 255 ||
            !pj_sysfs_text(pj_sysfs_open_at("%s/%s/name", folder, zones[i]), name, sizeof name) ||
            !parse_name(name, &kind, &package))
            continue;
        if (kind == PACKAGE) package_of_zone[zone] = package;
        if (kind != PACKAGE && kind != PSYS) package = package_of_zone[zone];
        add_zone(r, zones[i], kind, package, name);
    }
}

/* ---- perf ---- */

#ifdef __linux__

static const struct {
    const char *event;
    domain_kind kind;
} perf_events[] = {{"energy-pkg", PACKAGE},
                   {"energy-cores", CORE},
                   {"energy-gpu", UNCORE},
                   {"energy-ram", DRAM},
                   {"energy-psys", PSYS}};

static int open_event(int64_t type, uint64_t config, int cpu)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = (uint32_t)type;
    attr.config = config;
    return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* The package a CPU belongs to, in powercap's numbering (a die is a package). */
static int package_of_cpu(const rapl *r, int cpu)
{
    static const char topology[] = "%s/sys/devices/system/cpu/cpu%d/topology/%s";
    int64_t package = 0, die = 0;
    pj_sysfs_number(pj_sysfs_open_at(topology, r->root, cpu, "physical_package_id"), &package);
    pj_sysfs_number(pj_sysfs_open_at(topology, r->root, cpu, "die_id"), &die);
    if (package < 0 || package > MOST_PACKAGES || die < 0 || die > MOST_PACKAGES) return 0;
    return (int)(package * 16 + die);
}

/* Takes the event in place of the zone's counter. Where there are zones, an event without one does
 * not exist. */
static void rapl_add_event(rapl *r, int64_t type, size_t which, int cpu)
{
    static const char file[] = "%s" POWER_UNIT "/events/%s%s";
    const char *event = perf_events[which].event;
    char config[64], scale[64];
    domain_kind kind = perf_events[which].kind;
    int package = kind == PSYS ? -1 : package_of_cpu(r, cpu);
    if (!pj_sysfs_text(pj_sysfs_open_at(file, r->root, event, ""), config, sizeof config) ||
        strncmp(config, "event=", 6) != 0 ||
        !pj_sysfs_text(pj_sysfs_open_at(file, r->root, event, ".scale"), scale, sizeof scale))
        return;
    double joules = strtod(scale, NULL);
    int index = rapl_index_of(r, kind, package);
    r->perf_seen = true;
    if (!(joules > 0) || (index < 0 ? r->zones_seen : r->domains[index].by_perf)) return;
    int fd = open_event(type, strtoull(config + 6, NULL, 0), cpu);
    if (fd < 0) r->error = errno;
    domain *d = fd >= 0 ? rapl_domain(r, kind, package) : NULL;
    if (!d) {
        pj_sysfs_close(fd);
        return;
    }
    pj_sysfs_close(d->fd);
    d->fd = fd;
    d->by_perf = true;
    d->scale_uj = joules * 1e6;
    d->modulus_uj = 0;
    snprintf(d->name, sizeof d->name, "%s", event);
}

static void add_events(rapl *r)
{
    char mask[256];
    int64_t type;
    if (!pj_sysfs_number(pj_sysfs_open_at("%s" POWER_UNIT "/type", r->root), &type) ||
        !pj_sysfs_text(pj_sysfs_open_at("%s" POWER_UNIT "/cpumask", r->root), mask, sizeof mask))
        return;
    for (char *p = mask; *p;) { /* "0,24": one CPU of each package */
        char *end;
        long cpu = strtol(p, &end, 10);
        if (end == p) break;
        for (size_t k = 0; k < sizeof perf_events / sizeof *perf_events; k++)
            rapl_add_event(r, type, k, (int)cpu);
        p = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') break;
    }
}

#else
static void add_events(rapl *r) {}
#endif

/* ---- the source ---- */

static void close_domains(void *state)
{
    rapl *r = state;
    for (uint32_t i = 0; i < r->count; i++) {
        pj_sysfs_close(r->domains[i].fd);
        pj_sysfs_close(r->domains[i].limit_fd);
    }
    r->count = 0;
}

/* Opens every domain by perf, else by powercap; false when nothing can be read. One that cannot is
 * kept only if it would count. */
static bool open_best(rapl *r)
{
    bool any = false;
    uint32_t kept = 0;
    add_zones(r, "intel-rapl:");
    add_zones(r, "intel-rapl-mmio:");
    /* A sysfs root other than the machine's own describes another machine: its perf type numbers
     * are meaningless to this kernel. */
    if (!r->root[0]) add_events(r);
    for (uint32_t i = 0; i < r->count; i++) {
        domain d = r->domains[i];
        any |= d.fd >= 0;
        if (d.fd >= 0 || d.kind == PACKAGE || d.kind == DRAM)
            r->domains[kept++] = d;
        else
            pj_sysfs_close(d.limit_fd);
    }
    r->count = kept;
    return any;
}

static bool in_virtual_machine(const pj_power_env *env)
{
    char text[8192];
    return pj_sysfs_text(pj_sysfs_open_at("%s/proc/cpuinfo", env->procfs_root), text,
                         sizeof text) &&
           strstr(text, " hypervisor") != NULL;
}

static const char REMEDY_DENIED[] =
    "sudo perjoule setup --write rapl (a udev rule for this machine), or until the next boot: "
    "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj; note that unprivileged access to "
    "RAPL allows the PLATYPUS side channel";

static pj_status rapl_open(void *state, const pj_power_env *env, const char *argument,
                           pj_source_report *report)
{
    rapl *r = state;
    r->root = env->sysfs_root;
    if (open_best(r)) return PJ_OK;
    close_domains(r);
    if (r->error == EACCES || r->error == EPERM)
        return pj_source_explain(report, PJ_E_DENIED, REMEDY_DENIED,
                                 "RAPL counters exist, but cannot be read: %s", strerror(r->error));
    if (r->zones_seen || r->perf_seen)
        return pj_source_explain(report, PJ_E_UNAVAILABLE, "see dmesg | grep -i rapl",
                                 "RAPL counters are listed, but return no reading: %s",
                                 r->error ? strerror(r->error) : "unknown reason");
    if (in_virtual_machine(env))
        return pj_source_explain(
            report, PJ_E_UNAVAILABLE,
            "measure on the host, or use the source estimate for modelled figures",
            "RAPL is unavailable in a virtual machine");
    return pj_source_explain(
        report, PJ_E_UNAVAILABLE,
        "sudo modprobe intel_rapl_msr (Intel, AMD since Linux 5.11); in a "
        "container mount /sys/class/powercap and /sys/devices/virtual/powercap "
        "read-only",
        "this machine shows no RAPL zones in /sys/class/powercap");
}

/* "cpu" when there is one package, "cpu0", "cpu1" when there are several. */
static void rapl_name_rail(const rapl *r, const domain *d, char name[PJ_RAIL_NAME_BYTES])
{
    static const char *const words[] = {"cpu", "core", "uncore", "dram", "psys"};
    int packages = 0, order = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->domains[i].kind != PACKAGE) continue;
        packages++;
        order += r->domains[i].package < d->package;
    }
    if (d->kind == PSYS || packages < 2)
        snprintf(name, PJ_RAIL_NAME_BYTES, "%s", words[d->kind]);
    else
        snprintf(name, PJ_RAIL_NAME_BYTES, "%s%d", words[d->kind], order);
}

static uint32_t rapl_rails(const void *state, pj_rail *rails)
{
    static const pj_rail_class classes[] = {PJ_RAIL_CPU, PJ_RAIL_PLATFORM, PJ_RAIL_PLATFORM,
                                            PJ_RAIL_DRAM, PJ_RAIL_PLATFORM};
    const rapl *r = state;
    for (uint32_t i = 0; i < r->count; i++) {
        const domain *d = &r->domains[i];
        pj_rail *rail = &rails[i];
        *rail = (pj_rail){.source = "rapl",
                          .rail_class = classes[d->kind],
                          .kind = PJ_RAIL_COUNTER,
                          .scope = d->kind == PACKAGE ? PJ_SCOPE_PACKAGE
                                   : d->kind == PSYS  ? PJ_SCOPE_MACHINE
                                                      : PJ_SCOPE_DOMAIN,
                          .quality = PJ_MEASURED,
                          .parent = -1,
                          .period_ns = PERIOD_NS,
                          .resolution = d->by_perf ? 0 : 61.03515625, /* 2^-14 J, the usual unit */
                          .modulus_uj = d->modulus_uj,
                          .max_mw = d->max_mw};
        rapl_name_rail(r, d, rail->name);
        snprintf(rail->device, sizeof rail->device, "rapl-%d", d->package < 0 ? 0 : d->package);
        snprintf(rail->field, sizeof rail->field, "%s %.40s", d->by_perf ? "perf" : "powercap",
                 d->name);
        if (d->kind == PACKAGE) rail->parent = rapl_index_of(r, PSYS, -1);
        /* DRAM is listed below a package, but the package's counter does not include it. */
        if (d->kind == CORE || d->kind == UNCORE)
            rail->parent = rapl_index_of(r, PACKAGE, d->package);
        if (d->kind == DRAM) rail->parent = rapl_index_of(r, PSYS, -1);
    }
    return r->count;
}

static pj_status read_domain(void *state, uint32_t rail, double *value_uj)
{
    const domain *d = &((const rapl *)state)->domains[rail];
    if (d->fd < 0) return PJ_E_NOT_FOUND;
    if (d->by_perf) {
        uint64_t count;
        if (read(d->fd, &count, sizeof count) != (ssize_t)sizeof count)
            return pj_status_of_errno(errno);
        *value_uj = (double)count * d->scale_uj;
        return PJ_OK;
    }
    int64_t count;
    pj_status status = pj_sysfs_read(d->fd, &count);
    *value_uj = (double)count;
    return status;
}

static pj_status rapl_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    *count = pj_source_poll(state, ((const rapl *)state)->count, read_domain, readings);
    return PJ_OK;
}

static uint32_t rapl_limits(const void *state, double *limits_mw)
{
    const rapl *r = state;
    for (uint32_t i = 0; i < r->count; i++) {
        int64_t uw;
        bool known = r->domains[i].limit_fd >= 0 &&
                     pj_sysfs_read(r->domains[i].limit_fd, &uw) == PJ_OK && uw > 0;
        limits_mw[i] = known ? (double)uw * 1e-3 : NAN;
    }
    return r->count;
}

const pj_power_source pj_source_rapl = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "rapl",
    .counts_for = 1u << PJ_RAIL_CPU,
    .state_bytes = sizeof(rapl),
    .open = rapl_open,
    .rails = rapl_rails,
    .read = rapl_read,
    .close = close_domains,
    .max_gap_ns = 60000000000,
    .limits = rapl_limits,
};

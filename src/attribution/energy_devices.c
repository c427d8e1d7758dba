/*
 * Devices of a run and the rails that measure them. A rail is found by the name that the program
 * gave, by UUID, by PCI address, or because there is one device of a kind and one rail of that
 * kind. Work of a device is charged to its rails alone, and the host's to the others; a rail that
 * measures the whole machine also measures the devices that have no rail beside it.
 */
#include "attribution/energies.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the table ---- */

/* Numbers between those of the run's devices may be nobody's, in a damaged spool. */
static bool energy_devices_has(const pj_energies *j, uint32_t device)
{
    return device == PJ_HOST || j->tree->devices >> device & 1;
}

static pj_device_row *energy_devices_new(pj_energies *j)
{
    pj_run_data *d = j->d;
    uint32_t count =
        d->device_count > j->tree->device_count ? d->device_count : j->tree->device_count;
    pj_device_row *rows = pj_arena_alloc(&d->arena, count, sizeof *rows);
    for (uint32_t i = 0; rows && i < count; i++) {
        rows[i] = i < d->device_count ? d->devices[i] : pj_device_row_make(i);
        rows[i].number = i;
        if (!rows[i].kind) rows[i].kind = i == PJ_HOST ? "cpu" : "gpu";
        if (rows[i].name || !energy_devices_has(j, i)) continue;
        char name[32]; /* its description was lost, or it is the host */
        snprintf(name, sizeof name, "device %u", i);
        rows[i].name = i == PJ_HOST && d->info.machine
                           ? d->info.machine
                           : pj_arena_strndup(&d->arena, i ? name : "host", i ? strlen(name) : 4);
        if (!rows[i].name) return NULL;
    }
    d->devices = rows;
    d->device_count = count;
    return rows;
}

/* ---- which rails ---- */

/* Whether the rail belongs to the part that another one measures: a log, the memory of a board. */
static bool energy_devices_same_part(const pj_rail *a, const pj_rail *b)
{
    return a->device[0] && strcmp(a->device, b->device) == 0 && strcmp(a->source, b->source) == 0;
}

static pj_rail_class energy_devices_class(const pj_device_row *device)
{
    if (strcasecmp(device->kind, "cpu") == 0) return PJ_RAIL_CPU;
    return strcasecmp(device->kind, "gpu") == 0 ? PJ_RAIL_GPU : PJ_RAIL_ANE;
}

/* Another device has the same UUID, so that a rail's may be either's. */
static bool energy_devices_share_uuid(const pj_run_data *d, const pj_device_row *device)
{
    for (uint32_t i = 1; i < d->device_count; i++)
        if (&d->devices[i] != device && pj_device_has_uuid(d->devices[i].uuid, device->uuid))
            return true;
    return false;
}

typedef enum rail_match { BY_NAME, BY_UUID, BY_PCI, BY_KIND, MATCHES } rail_match;

static bool energy_devices_fits(const pj_energies *j, const pj_device_row *device,
                                const pj_rail *rail, rail_match how)
{
    switch (how) {
    case BY_NAME: return device->rail && strcmp(rail->name, device->rail) == 0;
    case BY_UUID:
        return pj_device_has_uuid(rail->device, device->uuid) &&
               !energy_devices_share_uuid(j->d, device);
    case BY_PCI: return pj_device_has_pci(rail->device, device->pci);
    default:
        return rail->rail_class == energy_devices_class(device) &&
               !pj_device_differs(rail->device, device->uuid, device->pci);
    }
}

/* The rails that fit, as bits; those that another device has are not free. */
static uint64_t energy_devices_find(const pj_energies *j, const pj_device_row *device,
                                    rail_match how, uint64_t taken)
{
    const pj_run_data *d = j->d;
    uint64_t found = 0;
    for (uint32_t r = 0; r < d->rail_count; r++)
        if (!(taken >> r & 1) && energy_devices_fits(j, device, &d->rails[r], how))
            found |= 1ull << r;
    for (uint32_t r = 0; r < d->rail_count; r++)
        for (uint32_t other = 0; other < d->rail_count; other++)
            if (found >> other & 1 && !(taken >> r & 1) &&
                energy_devices_same_part(&d->rails[r], &d->rails[other]))
                found |= 1ull << r;
    return found;
}

/* Whether all of the rails are of one part of the machine. */
static bool energy_devices_is_one(const pj_energies *j, uint64_t rails)
{
    const pj_rail *first = NULL;
    for (uint32_t r = 0; r < j->d->rail_count; r++) {
        if (!(rails >> r & 1)) continue;
        if (first && !energy_devices_same_part(first, &j->d->rails[r])) return false;
        if (!first) first = &j->d->rails[r];
    }
    return first != NULL;
}

/* Whether no other device of this kind is without a rail. */
static bool energy_devices_is_only(const pj_run_data *d, const pj_device_row *device,
                                   const uint64_t *found)
{
    for (uint32_t i = 1; i < d->device_count; i++)
        if (&d->devices[i] != device && !found[i] && d->devices[i].name &&
            strcasecmp(d->devices[i].kind, device->kind) == 0)
            return false;
    return true;
}

static const char *energy_devices_reason(const pj_device_row *device, rail_match how)
{
    static const char *const how_found[MATCHES] = {"by name", "by UUID", "by PCI address",
                                                   "the only one of its kind"};
    if (how < MATCHES) return how_found[how];
    if (device->rail) return "no rail has the given name";
    return device->uuid || device->pci
               ? "no rail has its UUID or PCI address, nor is there only one"
               : "no rail measures it, or several may";
}

static void energy_devices_match(pj_energies *j, uint64_t *found)
{
    pj_run_data *d = j->d;
    uint64_t taken = 0;
    for (rail_match how = BY_NAME; how < MATCHES; how++)
        for (uint32_t i = 1; i < d->device_count; i++) {
            pj_device_row *device = &d->devices[i];
            bool may = how == BY_NAME || !device->rail; /* a name that the program gave decides */
            if (found[i] || !may || !device->name) continue;
            uint64_t rails = energy_devices_find(j, device, how, taken);
            if (how == BY_KIND &&
                !(energy_devices_is_one(j, rails) && energy_devices_is_only(d, device, found)))
                continue;
            found[i] = rails;
            taken |= rails;
            if (rails) device->rail_reason = energy_devices_reason(device, how);
        }
    for (uint32_t i = 1; i < d->device_count; i++)
        if (!found[i] && d->devices[i].name)
            d->devices[i].rail_reason = energy_devices_reason(&d->devices[i], MATCHES);
}

/* ---- what each rail measures ---- */

static bool energy_devices_in_total(const pj_energies *j, uint32_t rail)
{
    return pj_rail_in_column(j->d->rails, j->d->rail_count, rail, PJ_RAIL_TOTAL);
}

/* Devices that have a rail of their own in the total. */
static uint64_t energy_devices_apart(const pj_energies *j, const uint64_t *found)
{
    uint64_t apart = 0;
    for (uint32_t i = 1; i < j->d->device_count; i++)
        for (uint32_t r = 0; r < j->d->rail_count; r++)
            if (found[i] >> r & 1 && energy_devices_in_total(j, r)) apart |= 1ull << i;
    return apart;
}

static uint64_t energy_devices_of_rail(const pj_energies *j, uint32_t rail, const uint64_t *found,
                                       uint64_t apart)
{
    const pj_rail *r = &j->d->rails[rail];
    uint64_t own = 0, host = 1ull << PJ_HOST, all = j->tree->devices | host;
    for (uint32_t i = 1; i < j->d->device_count; i++)
        if (found[i] >> rail & 1) own |= 1ull << i;
    /* an APU's includes the CPU; a device that computes on the CPU shares its rail */
    bool shared = r->scope == PJ_SCOPE_MODULE || r->rail_class == PJ_RAIL_CPU;
    if (own) return shared ? own | host : own;
    bool is_wide = r->rail_class == PJ_RAIL_TOTAL || r->scope == PJ_SCOPE_MACHINE;
    return is_wide ? all & ~apart : host;
}

/* Rails of boards that computed nothing in this run do not measure the host. */
static bool energy_devices_measures_host(const pj_energies *j)
{
    for (uint32_t r = 0; r < j->d->rail_count; r++)
        if (j->rail_devices[r] & 1ull << PJ_HOST && energy_devices_in_total(j, r) &&
            pj_rail_covers_cpu(&j->d->rails[r]))
            return true;
    return false;
}

static pj_status energy_devices_name_rails(pj_energies *j, const uint64_t *found, pj_error *err)
{
    pj_run_data *d = j->d;
    char names[PJ_MAX_RAILS * PJ_RAIL_NAME_BYTES];
    for (uint32_t i = 0; i < d->device_count; i++) {
        uint64_t rails = 0;
        if (!energy_devices_has(j, i)) continue;
        for (uint32_t r = 0; r < d->rail_count; r++)
            if (j->rail_devices[r] >> i & 1 && energy_devices_in_total(j, r)) rails |= 1ull << r;
        if (i == PJ_HOST && !(j->measured >> PJ_HOST & 1)) rails = 0;
        pj_rail_names(d->rails, d->rail_count, rails, names, sizeof names);
        d->devices[i].rails = *names ? pj_arena_strndup(&d->arena, names, strlen(names)) : NULL;
        if (*names && !d->devices[i].rails) return pj_fail_memory(err, "the devices of a run");
        if (i == PJ_HOST)
            d->devices[i].rail_reason = rails ? NULL : "no rail measures the CPU";
        else if (rails && !(found[i] & rails))
            d->devices[i].rail_reason = "with the whole machine";
        else if (!rails && found[i])
            d->devices[i].rail_reason = "its rail does not count in the total";
    }
    return PJ_OK;
}

pj_status pj_energy_devices(pj_energies *j, pj_error *err)
{
    pj_run_data *d = j->d;
    for (uint32_t r = 0; r < d->rail_count; r++) j->rail_devices[r] = 1ull << PJ_HOST;
    j->measured = 1ull << PJ_HOST;
    if (d->device_count == 0 && j->tree->device_count == 1) return PJ_OK;
    uint64_t *found = pj_arena_alloc(&j->arena, PJ_MAX_DEVICES, sizeof *found);
    if (!found || !energy_devices_new(j)) return pj_fail_memory(err, "the devices of a run");
    energy_devices_match(j, found);
    uint64_t apart = energy_devices_apart(j, found);
    for (uint32_t r = 0; r < d->rail_count; r++)
        j->rail_devices[r] = energy_devices_of_rail(j, r, found, apart);
    bool has_host = energy_devices_measures_host(j);
    j->measured = 0;
    for (uint32_t r = 0; r < d->rail_count; r++)
        if (energy_devices_in_total(j, r) && (has_host || j->rail_devices[r] != 1ull << PJ_HOST))
            j->measured |= j->rail_devices[r];
    for (uint32_t i = 1; i < d->device_count; i++)
        j->no_parts |= d->rail_count && !(j->measured >> i & 1) && j->tree->busy_ns[i] > 0;
    return energy_devices_name_rails(j, found, err);
}

/* ---- leaves ---- */

pj_leaf *pj_energy_leaves_of(pj_energies *j, const pj_rail_result *result)
{
    size_t count = (size_t)j->tree->leaf_count + 2;
    if (j->tree->device_count == 1) return j->pooled;
    for (uint32_t i = 0; i + 1 < j->result_count; i++) /* of another rail of the same devices */
        if (j->results[i].devices == result->devices) return j->results[i].leaves;
    pj_leaf *leaves = pj_arena_alloc(&j->arena, count, sizeof *leaves);
    if (!leaves) return NULL;
    memcpy(leaves, j->pooled, count * sizeof *leaves);
    for (uint32_t i = 0; i < j->tree->leaf_count; i++)
        if (!pj_rail_sees_leaf(j, result, i)) leaves[i + 1].end_ns = leaves[i + 1].begin_ns;
    return leaves;
}

/* ---- results ---- */

static void energy_devices_add(pj_energies *j, uint32_t leaf)
{
    uint8_t number = pj_tree_leaf_device(j->tree, &j->tree->leaves[leaf]);
    pj_device_row *device = &j->d->devices[number];
    if (!(j->measured >> number & 1)) return;
    device->energy_mj += pj_mj_of_nj(j->gross[leaf]);
    device->net_energy_mj += pj_mj_of_nj(j->net[leaf]);
}

static pj_status energy_devices_store(pj_run_data *d, pj_error *err)
{
    pj_json json;
    if (!d->device_count) return PJ_OK;
    pj_json_open(&json, 1 << 20);
    pj_devices_write(&json, d->devices, d->device_count);
    pj_status status = pj_buffer_status(&json.own, "the devices of a run", err);
    if (status == PJ_OK)
        d->info.devices_json = pj_arena_strndup(&d->arena, json.own.data, json.own.length);
    pj_json_close(&json);
    if (status == PJ_OK && !d->info.devices_json)
        return pj_fail_memory(err, "the devices of a run");
    return status;
}

pj_status pj_energy_of_devices(pj_energies *j, pj_error *err)
{
    pj_run_data *d = j->d;
    for (uint32_t i = 0; i < d->device_count; i++) {
        if (!energy_devices_has(j, i)) continue;
        bool is_known = j->measured >> i & 1 && j->result_count > 0;
        d->devices[i].energy_mj = d->devices[i].net_energy_mj = is_known ? 0 : NAN;
        if (i == PJ_HOST) continue;
        d->devices[i].busy_ms = (double)j->tree->busy_ns[i] * 1e-6;
        if (j->tree->clock_error_ns[i] > 0)
            d->devices[i].clock_error_us = (double)j->tree->clock_error_ns[i] * 1e-3;
    }
    for (uint32_t i = 0; d->device_count && i < j->tree->leaf_count; i++) energy_devices_add(j, i);
    return energy_devices_store(d, err);
}

/* ---- what is missing ---- */

static bool energy_devices_lists(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == 0)) return true;
    return false;
}

/* "gpu"; where the run has several devices of that kind "gpu0", "gpu1", ... */
static void energy_devices_label(const pj_run_data *d, uint32_t device, char *text, size_t bytes)
{
    uint32_t same = 0, before = 0;
    for (uint32_t i = 1; i < d->device_count; i++) {
        if (!d->devices[i].name || strcasecmp(d->devices[i].kind, d->devices[device].kind) != 0)
            continue;
        same++;
        before += i < device;
    }
    if (device == PJ_HOST || same < 2)
        snprintf(text, bytes, "%.30s", d->devices[device].kind);
    else
        snprintf(text, bytes, "%.20s%u", d->devices[device].kind, before);
}

void pj_energy_name_unmeasured(const pj_energies *j, char *text, size_t bytes)
{
    const pj_run_data *d = j->d;
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; j->used_rails && i < d->device_count && used < bytes; i++) {
        char label[32];
        if (!energy_devices_has(j, i)) continue;
        energy_devices_label(d, i, label, sizeof label);
        if (j->measured >> i & 1 || energy_devices_lists(d->info.partial_rails, label)) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "", label);
    }
}

/* Descriptions of devices, and how they are recognised. */
#include "trace/device.h"

#include "trace/json_member.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_DIGITS = 32, PCI_BYTES = 32 };

pj_device_row pj_device_row_make(uint32_t number)
{
    return (pj_device_row){.number = number,
                           .memory_bytes = NAN,
                           .clock_mhz = NAN,
                           .clock_error_us = NAN,
                           .busy_ms = NAN,
                           .energy_mj = NAN,
                           .net_energy_mj = NAN};
}

/* ---- UUIDs --------------------------------------------------------------------------------- */

/* What drivers give for a UUID that they do not have. */
static const char device_no_uuid[] = "00000000000000000000000000000000";

/* The first word of the text that ends in 32 hexadecimal digits, in lower case; false: none. */
static bool device_digits(const char *text, char digits[UUID_DIGITS])
{
    size_t length = strcspn(text, " ");
    int left = UUID_DIGITS;
    while (length && left) {
        char c = text[--length];
        if (c == '-') continue;
        if (!isxdigit((unsigned char)c)) return false;
        digits[--left] = (char)tolower((unsigned char)c);
    }
    return left == 0 && memcmp(digits, device_no_uuid, UUID_DIGITS) != 0;
}

static bool device_is_uuid(const char *text)
{
    char digits[UUID_DIGITS];
    return text && device_digits(text, digits);
}

bool pj_device_has_uuid(const char *text, const char *uuid)
{
    char a[UUID_DIGITS], b[UUID_DIGITS];
    if (!text || !uuid || !device_digits(text, a) || !device_digits(uuid, b)) return false;
    return memcmp(a, b, sizeof a) == 0;
}

void pj_device_key(const char *uuid, const char *name, char key[PJ_DEVICE_KEY_BYTES])
{
    char digits[UUID_DIGITS];
    if (uuid && device_digits(uuid, digits))
        snprintf(key, PJ_DEVICE_KEY_BYTES, "%.*s", UUID_DIGITS, digits);
    else
        snprintf(key, PJ_DEVICE_KEY_BYTES, "%s", name);
}

/* ---- PCI addresses -------------------------------------------------------------------------- */

/* "0000:65:00.0" of "65:0.0", "00000000:65:00.0" and the like; false: not an address. */
static bool device_pci_of(const char *text, char address[PCI_BYTES])
{
    unsigned domain = 0, bus, slot, function = 0;
    int used = 0;
    if (sscanf(text, "%x:%x:%x%n", &domain, &bus, &slot, &used) < 3 || !used) {
        domain = 0;
        if (sscanf(text, "%x:%x%n", &bus, &slot, &used) < 2 || !used) return false;
    }
    if (text[used] == '.' && sscanf(text + used, ".%x", &function) != 1) return false;
    snprintf(address, PCI_BYTES, "%04x:%02x:%02x.%x", domain, bus, slot, function);
    return true;
}

bool pj_device_has_pci(const char *text, const char *pci)
{
    char wanted[PCI_BYTES], found[PCI_BYTES];
    if (!text || !pci || !device_pci_of(pci, wanted)) return false;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        if (device_pci_of(word, found) && strcmp(found, wanted) == 0) return true;
        word += strcspn(word, " ");
    }
    return false;
}

bool pj_device_differs(const char *text, const char *uuid, const char *pci)
{
    if (device_is_uuid(text) && device_is_uuid(uuid)) return !pj_device_has_uuid(text, uuid);
    return pci && strchr(text, ':') && !pj_device_has_pci(text, pci);
}

static bool device_is_pci(const char *text)
{
    char address[PCI_BYTES];
    return text && device_pci_of(text, address);
}

bool pj_device_is(const pj_device_row *device, const pj_device_info *info)
{
    bool uuids = device_is_uuid(device->uuid) && device_is_uuid(info->uuid);
    bool addresses = device_is_pci(device->pci) && device_is_pci(info->pci);
    if (uuids && !pj_device_has_uuid(device->uuid, info->uuid)) return false;
    /* some drivers give two cards one UUID */
    if (addresses) return pj_device_has_pci(device->pci, info->pci);
    return uuids || (device->name && strcmp(device->name, info->name) == 0);
}

/* ---- in a spool ----------------------------------------------------------------------------- */

/* clang-format off */
#define DEVICE_TEXTS(X)   X(name) X(kind) X(uuid) X(pci) X(driver) X(rail)
#define DEVICE_NUMBERS(X) X(memory_bytes) X(clock_mhz)
/* What is stored besides, once the run has been attributed. */
#define STORED_TEXTS(X)   X(name) X(kind) X(uuid) X(pci) X(driver) X(rails) X(rail_reason)
#define STORED_NUMBERS(X) \
    X(memory_bytes) X(clock_mhz) X(clock_error_us) X(busy_ms) X(energy_mj) X(net_energy_mj)
/* clang-format on */

static void device_write_limits(pj_json *json, const char *limits)
{
    pj_json_key(json, "limits");
    if (limits)
        pj_json_raw(json, limits, strlen(limits));
    else
        pj_json_null(json);
}

static const char *device_limits(const json_t *object, pj_arena *arena)
{
    json_t *limits = json_object_get(object, "limits");
    char *text = json_is_object(limits) ? json_dumps(limits, JSON_COMPACT) : NULL;
    const char *kept = text ? pj_arena_strndup(arena, text, strlen(text)) : NULL;
    free(text);
    return kept;
}

void pj_device_write(pj_json *json, const pj_device_row *from)
{
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "number", from->number);
#define WRITE_TEXT(member)   pj_json_kv_string(json, #member, from->member);
#define WRITE_NUMBER(member) pj_json_kv_double(json, #member, from->member);
    DEVICE_TEXTS(WRITE_TEXT)
    DEVICE_NUMBERS(WRITE_NUMBER)
    device_write_limits(json, from->limits);
    pj_json_object_end(json);
}

static const char *device_text(const json_t *object, const char *name, pj_arena *arena)
{
    const char *text = pj_member_text(object, name);
    return *text ? pj_arena_strndup(arena, text, strlen(text)) : NULL;
}

pj_status pj_device_read(const char *text, size_t bytes, pj_arena *arena, pj_device_row *to,
                         pj_error *err)
{
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    double number = pj_member_number(object, "number");
    bool is_sound = number >= 1 && number < PJ_MAX_DEVICES && number == (int)number;
    *to = pj_device_row_make(is_sound ? (uint32_t)number : 0);
#define READ_TEXT(member)   to->member = device_text(object, #member, arena);
#define READ_NUMBER(member) to->member = pj_member_number(object, #member);
    DEVICE_TEXTS(READ_TEXT)
    DEVICE_NUMBERS(READ_NUMBER)
    to->limits = device_limits(object, arena);
    json_decref(object);
    if (is_sound && to->name) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "a device of the spool has no valid number or no name");
}

/* ---- as stored ------------------------------------------------------------------------------ */

void pj_devices_write(pj_json *json, const pj_device_row *devices, uint32_t count)
{
    pj_json_object_begin(json);
    for (uint32_t i = 0; i < count; i++) {
        char number[16];
        const pj_device_row *from = &devices[i];
        if (!from->name) continue; /* a number that no device has */
        snprintf(number, sizeof number, "%u", from->number);
        pj_json_kv_object_begin(json, number);
        STORED_TEXTS(WRITE_TEXT)
        STORED_NUMBERS(WRITE_NUMBER)
        device_write_limits(json, from->limits);
        pj_json_object_end(json);
    }
    pj_json_object_end(json);
}

uint32_t pj_devices_read(const char *json, pj_arena *arena, pj_device_row *devices)
{
    json_t *root = json ? json_loads(json, 0, NULL) : NULL, *object;
    const char *number;
    uint32_t count = 0;
    json_object_foreach(root, number, object)
    {
        if (count == PJ_MAX_DEVICES) break;
        pj_device_row *to = &devices[count++];
        *to = pj_device_row_make((uint32_t)strtoul(number, NULL, 10));
        STORED_TEXTS(READ_TEXT)
        STORED_NUMBERS(READ_NUMBER)
        to->limits = device_limits(object, arena);
    }
    json_decref(root);
    return count;
}

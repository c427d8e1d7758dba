/* The devices of a run: what computed in it, the host included. A span names its device by number.
 * The host (number 0) is in the table of a run that has other devices. */
#ifndef PJ_TRACE_DEVICE_H
#define PJ_TRACE_DEVICE_H

#include "base/json.h"
#include "base/memory.h"

#include <perjoule.h>

enum { PJ_HOST = 0, PJ_MAX_DEVICES = 32 };

typedef struct pj_device_row {
    uint32_t number;
    const char *name, *kind, *uuid, *pci, *driver; /* NULL: unknown */
    double memory_bytes, clock_mhz;                /* NAN: unknown */
    const char *limits; /* what it can do at most, one JSON object; NULL: never measured */
    const char *rail;   /* as declared; NULL: to be found. Not stored */
    /* Filled by attribution. */
    const char *rails;       /* that measure it: "gpu0,gpu0-memory"; NULL: none */
    const char *rail_reason; /* how they were found, or why there are none; one clause */
    double clock_error_us;   /* 1 sigma of its times on the host's clock, the largest; NAN: none */
    double busy_ms;          /* time in which it had recorded work; NAN: of the host */
    double energy_mj, net_energy_mj; /* on its rails; NAN: unavailable */
} pj_device_row;

/* A row of which nothing is known. */
pj_device_row pj_device_row_make(uint32_t number);

/* Whether two UUIDs name one device: hexadecimal digits, without regard to case, dashes and a
 * prefix such as "GPU-". A text that has no 32 digits, or only zeros, is no UUID. What follows the
 * UUID in `text` (a version of the driver, in rails) does not matter. */
bool pj_device_has_uuid(const char *text, const char *uuid);
/* Whether `text`, in which a PCI address may be a word among others, names the device at `pci`. A
 * missing domain is 0000. */
bool pj_device_has_pci(const char *text, const char *pci);
/* Whether `text` has an address of the same kind that is another device's. NULL: not known. */
bool pj_device_differs(const char *text, const char *uuid, const char *pci);
/* What tells a device from others on a machine: the digits of its UUID, else its name. */
enum { PJ_DEVICE_KEY_BYTES = 128 };
void pj_device_key(const char *uuid, const char *name, char key[PJ_DEVICE_KEY_BYTES]);
/* Whether the table's device is the one described: UUID and PCI address, as far as both have them,
 * else name. */
bool pj_device_is(const pj_device_row *device, const pj_device_info *info);

/* A run's devices as it stores them: one JSON object, by number. */
void pj_devices_write(pj_json *json, const pj_device_row *devices, uint32_t count);
/* Returns how many, at most PJ_MAX_DEVICES; their texts go to the arena. `json` NULL: none. */
uint32_t pj_devices_read(const char *json, pj_arena *arena, pj_device_row *devices);

/* The spool's JSON object. */
void pj_device_write(pj_json *json, const pj_device_row *device);
pj_status pj_device_read(const char *text, size_t bytes, pj_arena *arena, pj_device_row *device,
                         pj_error *err);

#endif

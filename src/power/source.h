/*
 * The interface of a power source. A source knows one way to read power on one kind of machine and
 * nothing else: no thread, no filter, no history. It describes its rails and on request reads their
 * raw values. The sampler (sampler.c) distinguishes repeats from updates, rejects implausible
 * values and restarts failed sources; energy curves (curve.c) turn readings into energy.
 *
 * A source is a const pj_power_source listed in sources.c. The caller owns its state (state_bytes,
 * zeroed); one thread at a time uses a state. `read` must not block or log. That of a polled source
 * runs up to a thousand times per second and must not allocate, lock or parse text with a library
 * either; a stream is read every 10 ms.
 */
#ifndef PJ_POWER_SOURCE_H
#define PJ_POWER_SOURCE_H

#include "base/error.h"
#include "trace/rail.h"

enum {
    PJ_POWER_SOURCE_VERSION = 1,
    PJ_SOURCE_TEXT_BYTES = 512,
    PJ_SOURCE_READ_MAX = 1024, /* maximum readings per read call */
    PJ_POWER_LIST_MAX = 16,
    PJ_POWER_ARGUMENT_BYTES = 1024
};

/* Where sources search, configurable for tests and unusual machines. Strings are borrowed and must
 * outlive every source opened with them. */
typedef struct pj_power_env {
    const char *sysfs_root;       /* prefix of "/sys/...": "" for the machine's own */
    const char *procfs_root;      /* prefix of "/proc/...": "" for the machine's own */
    const char *nvml_library;     /* NULL: libnvidia-ml.so.1 */
    const char *ioreport_library; /* in place of libIOReport and CoreFoundation; NULL: these */
    const char *powermetrics;     /* command line, NULL: sudo -n /usr/bin/powermetrics */
    const char *visible_devices;  /* CUDA_VISIBLE_DEVICES, NULL: all */
    const char *cache_folder;     /* of sensor characterisations; NULL: no cache */
    /* of samples; 0: each source's own update period, or 100 ms where it has none */
    int64_t interval_ns;
} pj_power_env;

/* From PERJOULE_SYSFS, PERJOULE_PROCFS, PERJOULE_NVML, PERJOULE_IOREPORT,
 * PERJOULE_POWERMETRICS and CUDA_VISIBLE_DEVICES; the cache folder lies in static storage. */
void pj_power_env_get(pj_power_env *env);

/* The default --power list: PERJOULE_POWER, else "auto". */
const char *pj_power_default(void);

typedef enum pj_source_state {
    PJ_SOURCE_USABLE = 0,
    PJ_SOURCE_DENIED,  /* present, but not permitted */
    PJ_SOURCE_ABSENT,  /* this machine does not have it */
    PJ_SOURCE_OPTIONAL /* usable, but only when named */
} pj_source_state;

/* Why a source cannot be used, or is used only when named. Zeroed: it is usable. */
typedef struct pj_source_report {
    pj_source_state state;
    /* One sentence: what is missing. The meter adds the source's name before it and the remedy
     * after it. */
    char reason[PJ_SOURCE_TEXT_BYTES];
    char remedy[PJ_SOURCE_TEXT_BYTES]; /* the exact command or step that fixes it */
    bool unread; /* absent, but its device is present: totals lack the source's classes */
} pj_source_report;

enum {
    PJ_SOURCE_REMOTE = 1,  /* its rails belong to another machine */
    PJ_SOURCE_STREAM = 2,  /* pushes data with its own timestamps; `read` may allocate */
    PJ_SOURCE_BY_NAME = 4, /* never part of "auto" */
    PJ_SOURCE_ONCE = 8,    /* cannot be reopened */
    PJ_SOURCE_MODEL = 16,  /* computes this machine's power instead of measuring it */
    PJ_SOURCE_SPARE = 32   /* "auto" opens it only for classes that no source before it gives */
};

typedef struct pj_power_source {
    int version; /* PJ_POWER_SOURCE_VERSION */
    const char *name;
    unsigned counts_for; /* bit mask of classes that it provides, where known */
    unsigned flags;
    size_t state_bytes;
    /* Takes milliseconds (over a network at most 3 s). `argument` is the text after "name:" in the
     * list, "" without any. On failure the state holds no resources and the report, zeroed by the
     * caller, says why. */
    pj_status (*open)(void *state, const pj_power_env *env, const char *argument,
                      pj_source_report *report);
    /* Of a source that is never part of "auto": what it is and how to use it, as a report. */
    void (*describe)(const pj_power_env *env, pj_source_report *report);
    /* Fills up to PJ_MAX_RAILS rails and returns how many. Where a device has both a counter and a
     * power reading, both are rails: the counter in its class, the power as PJ_RAIL_PLATFORM with
     * the same device and scope; the meter compares the two. `parent` is an index in this array, or
     * -1 (left at 0, the first rail contains itself, which the meter refuses); `kind` says what
     * values are; `source` is the source's name. Rails and their order are fixed from open to
     * close. */
    uint32_t (*rails)(const void *state, pj_rail *rails);
    /* Raw values now. A polled source gives one reading per rail; a stream (subprocess, recording)
     * gives what arrived since the last call, oldest first, possibly none. Sets rail (index among
     * its own), before_ns and after_ns, value, status (OK; GAP with NAN and a reason for a rail
     * that failed; LOST for a rail that is gone), window_ns where known, fresh_ns where the device
     * reports it (equal powers without it are repeats, and after a while a GAP); the rest is zero.
     * Never blocks for long. PJ_E_LOST: the source is gone. Other
     * failures: nothing could be read this time. */
    pj_status (*read)(void *state, pj_reading *readings, uint32_t max, uint32_t *count);
    /* Optional, of a source some of whose reads take milliseconds: restricts the reads that follow
     * to these rails (bit mask). */
    void (*select)(void *state, uint64_t rails);
    void (*close)(void *state); /* optional; after a successful open; may run twice */
    /* Shortest sensible time between polls, below which drivers answer wrongly or slowly; 0: 1 ms.
     * Streams are read every 10 ms. */
    int64_t min_poll_ns;
    /* Optional. The longest permissible time between reads, for a counter that the kernel updates
     * only when read; 0: any. */
    int64_t max_gap_ns;
    /* Optional. The power limits now in force, milliwatts by rail, NAN where unknown; returns the
     * number of rails filled. Polled once per second, because a limit that changes during a run
     * makes its parts incomparable. */
    uint32_t (*limits)(const void *state, double *limits_mw);
} pj_power_source;

/* All sources, in the order of preference of "auto"; ends with NULL. */
extern const pj_power_source *const pj_power_sources[];
const pj_power_source *pj_power_source_find(const char *name, size_t length); /* NULL: none */

typedef struct pj_power_choice {
    const pj_power_source *source;
    char argument[PJ_POWER_ARGUMENT_BYTES]; /* after "name:", "" for none */
    bool by_name;                           /* named in the list; false: from "auto" */
} pj_power_choice;

/* A parsed --power list: "auto", "none", or names in order of preference, e.g.
 * "rapl,nvml,estimate", "replay:FILE", "sim:key=value,key=value". "auto" may appear among
 * names. A piece between commas that does not start with a source's name belongs to the
 * previous argument. */
typedef struct pj_power_list {
    pj_power_choice choices[PJ_POWER_LIST_MAX];
    uint32_t count;
    bool named; /* the user named sources; false: only "auto" or "none" */
} pj_power_list;

/* Whether the rail's power is computed by a model of this machine. */
bool pj_rail_is_model(const pj_rail *rail);

pj_status pj_power_list_parse(const char *text, pj_power_list *list, pj_error *err);
bool pj_power_is_remote(const char *list); /* names a source of another machine's rails */
/* The list without its secrets: the value of every `token=` is replaced by "***". What is stored,
 * sent or printed is this one. Cut where it does not fit. */
void pj_power_list_public(const char *list, char *out, size_t bytes);

/* Why a reading was rejected, missing or lost (pj_reading.reason). */
typedef enum pj_reading_reason {
    PJ_REASON_NONE = 0,
    PJ_REASON_UNSUPPORTED, /* as reported by the driver, temporarily or permanently */
    PJ_REASON_IO,          /* the read call failed */
    PJ_REASON_DENIED,
    PJ_REASON_NOT_A_NUMBER, /* text, N/A, NaN, overflowing digits */
    PJ_REASON_NEGATIVE,
    PJ_REASON_TOO_HIGH,  /* above 1.5 x the rail's limit, or too much energy for the time */
    PJ_REASON_ZERO,      /* exactly 0 where the rail is known to be positive */
    PJ_REASON_BACKWARDS, /* a counter stepped back a little without a reset */
    PJ_REASON_FROZEN,    /* unchanged for more than 20 periods */
    PJ_REASON_SUSPENDED, /* the machine or the process was suspended before it */
    PJ_REASON_AMBIGUOUS, /* a counter may have wrapped more than once since */
    PJ_REASON_GONE,      /* device unplugged, GPU lost, subprocess dead */
    PJ_REASON_COUNT
} pj_reading_reason;

/* ---- helpers for sources (source.c) ---- */

/* Writes root + path; false when it does not fit. */
bool pj_power_path(char *out, size_t bytes, const char *root, const char *path);
/* Parses the unsigned decimal number at the start of a sysfs text, which must end there or in white
 * space; false for anything else, also for overflow. */
bool pj_power_parse_u64(const char *text, size_t bytes, uint64_t *value);
/* The remedy for what other machines lack. */
#define PJ_ONLY_MACS "nothing to do: only Macs have it"
/* Fills a report on a failure, or on a source that is usable when named (PJ_OK); `remedy` may be
 * "". Returns the status. */
pj_status pj_source_explain(pj_source_report *report, pj_status status, const char *remedy,
                            const char *reason_format, ...) __attribute__((format(printf, 4, 5)));
typedef pj_status pj_source_read_fn(void *state, uint32_t rail, double *value);
/* Reads every rail of a polled source and returns how many there are. What a failure means:
 * PJ_E_NOT_FOUND: the rail is lost; PJ_E_AGAIN: there is no value now, which is usual; else a gap.
 */
uint32_t pj_source_poll(void *state, uint32_t rail_count, pj_source_read_fn *read,
                        pj_reading *readings);
/* Makes a gap of a reading, or a loss. */
void pj_source_fail_reading(pj_reading *reading, pj_status status);

#endif

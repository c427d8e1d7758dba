/* Rails and readings. A rail is one channel of a power source (CPU package, GPU board, DRAM); a
 * reading is one value of it. Sources produce them, the sampler forwards them, energy curves and
 * the spool consume them. Nothing here depends on tokens or spans. */
#ifndef PJ_TRACE_RAIL_H
#define PJ_TRACE_RAIL_H

#include <perjoule.h>

enum { PJ_MAX_RAILS = 64, PJ_RAIL_NAME_BYTES = 32 };
/* Of a counter: it is undocumented whether its sensor covers all of each period or a part of it. */
enum { PJ_WINDOW_UNKNOWN = -1 };

/* The sample column that a rail counts for. PLATFORM rails (package, psys, module, and others
 * stored only for reference) have no column. */
typedef enum pj_rail_class {
    PJ_RAIL_CPU = 0,
    PJ_RAIL_GPU, /* each GPU is a rail of this class; the column is their sum */
    PJ_RAIL_ANE,
    PJ_RAIL_DRAM,
    PJ_RAIL_TOTAL,
    PJ_RAIL_PLATFORM,
    PJ_RAIL_CLASS_COUNT
} pj_rail_class;

typedef enum pj_rail_kind {
    PJ_RAIL_COUNTER = 0, /* value: cumulative energy, microjoules since an arbitrary start */
    PJ_RAIL_INSTANT,     /* value: milliwatts, mean over `window_ns` (0: over the period) */
    PJ_RAIL_AVERAGE      /* value: milliwatts, trailing mean over `window_ns` > period */
} pj_rail_kind;

typedef enum pj_rail_scope {
    PJ_SCOPE_DOMAIN = 0, /* part of a package: cores, DRAM */
    PJ_SCOPE_PACKAGE,
    PJ_SCOPE_BOARD,
    PJ_SCOPE_MODULE, /* CPU and GPU together */
    PJ_SCOPE_MACHINE
} pj_rail_scope;

typedef struct pj_rail {
    char name[PJ_RAIL_NAME_BYTES]; /* "cpu", "gpu0", "dram", "package-0", "total" */
    char source[16];               /* "rapl", "nvml", ... */
    char device[64];               /* UUID, PCI bus id, chip name: the key of a cached profile */
    char field[64];                /* what is read: "energy_uj", "field 186 scope 0", ... */
    pj_rail_class rail_class;
    pj_rail_kind kind;
    pj_rail_scope scope;
    pj_source_quality quality; /* PJ_MEASURED or PJ_MODELLED */
    int parent;                /* index of the rail that contains this one, or -1 */
    int64_t period_ns;         /* update period as declared or measured here; 0: unknown */
    int64_t window_ns;         /* averaging window; 0: as the period; PJ_WINDOW_UNKNOWN */
    int64_t delay_ns;          /* from the end of its window to the publication of a value */
    int64_t lag_ns;            /* time constant of a first-order (capacitor-like) lag; 0: none */
    int64_t
        grid_ns;    /* counters: exact period of ticks that are on a grid (power/grid.h); 0: none */
    int64_t log_ns; /* how long the device's log of past values reaches back; 0: it keeps none */
    double resolution; /* smallest step of the value, in the value's unit; 0: unknown */
    double modulus_uj; /* counters: the value wraps here; 0: never, or unknown */
    double max_mw;     /* plausibility bound of power (before the factor 1.5); 0: unknown */
    int twin_class;    /* 1 + the class that this rail measures redundantly; 0: none */
    double gain;       /* reading / truth, from a calibration; 0: 1 */
    double gain_sd;    /* relative 1 sigma that remains; 0: unknown (8 % is assumed) */
} pj_rail;

typedef enum pj_reading_status {
    PJ_READING_OK = 0,
    PJ_READING_REPEAT,   /* the sensor has not published since the last reading */
    PJ_READING_GAP,      /* this read failed, the source still works */
    PJ_READING_REJECTED, /* implausible: kept raw, not used */
    PJ_READING_RESET,    /* first value after a start, reset or resume: arms the counter */
    PJ_READING_LOST      /* the rail delivers no further values */
} pj_reading_status;

typedef struct pj_reading {
    int64_t before_ns, after_ns; /* clock around the read call */
    int64_t fresh_ns;            /* when the sensor published the value, as far as known: the
                                    device's own time, or between the last poll that saw the old
                                    value and the first that saw this one; 0: unknown */
    int64_t fresh_error_ns;      /* half the width of that interval */
    int64_t window_ns;           /* true averaging time if the source reports it, else 0 */
    double value;                /* raw, in the unit of the rail's kind; NAN without one */
    uint16_t rail;               /* index */
    uint8_t status;              /* pj_reading_status */
    uint8_t reason;              /* why rejected or lost; see power/ */
    uint32_t sequence;           /* of the sampler's tick */
} pj_reading;

/* ---- names and rules (rail.c) ---- */

/* Names as in the database, the API and tables. */
const char *pj_rail_class_name(pj_rail_class rail_class);
const char *pj_rail_kind_name(pj_rail_kind kind);
const char *pj_rail_scope_name(pj_rail_scope scope);
int pj_rail_class_parse(const char *name); /* from the class's own name; -1: unknown */
/* The column of a sample, "cpu_power_mw"; NULL for PJ_RAIL_PLATFORM, which has none. */
const char *pj_rail_class_column(pj_rail_class rail_class);
/* Whether the sensor covers less than nine tenths of the time. */
bool pj_rail_sees_part(const pj_rail *rail);
/* Whether a counter's sensor covers, or may cover, only a part of each period. What it counted
 * remains what it counted; that this is the energy of the period is less certain. */
bool pj_rail_steps_are_power(const pj_rail *rail);
/* 1 sigma of a constant error of its power, which a gain does not describe: recorded boards are off
 * by up to 7 W against a meter. It is in gross energies; net ones have it twice, with opposite
 * signs. */
double pj_rail_offset_sd_mw(const pj_rail *rail);
/* Whether it measures the CPU, alone or with the whole machine. A simulated rail is taken to,
 * whatever it is called: it stands for what computes. */
bool pj_rail_covers_cpu(const pj_rail *rail);
/* The rail whose log shows how the energy between two ticks of this counter was distributed: of the
 * same device and scope; -1: none. */
int pj_rail_log_of(const pj_rail *rails, uint32_t count, uint32_t counter);
/* Plausibility limit of rails whose device reports none. */
double pj_rail_class_most_mw(pj_rail_class rail_class);
/* The class that a recorded rail of this name counts for: "cpu", "cpu1", "gpu0", ...; else
 * PLATFORM. */
pj_rail_class pj_rail_class_of_name(const char *name);

/* Whether this is the GPU that conditions call `device`: "gpu0" is the rail "gpu0" or "gpu0-power",
 * "amdgpu" the rail "amdgpu-ppt". */
bool pj_rail_is_gpu(const pj_rail *rail, const char *device);

/* Whether this rail counts towards the column; a rail contained in a wider one of the same
 * column does not. The total is the sum of all CPU, GPU, ANE and DRAM rails that are not contained
 * in another of these; where a source reports a total itself, that total plus the GPU boards
 * outside it. */
bool pj_rail_in_column(const pj_rail *rails, uint32_t count, uint32_t rail, pj_rail_class column);
/* Sum of `values` (by rail) over the column: NAN if one that counts is NAN, or none counts. */
double pj_rail_column_sum(const pj_rail *rails, uint32_t count, const double *values,
                          pj_rail_class column);
/* Describes a partial total: "CPU only, GPU missing". Both arguments are lists of names. */
void pj_partial_text(const char *total_rails, const char *partial_rails, char *text, size_t bytes);
/* Names of the rails whose bits are set in `which`, separated by commas. */
void pj_rail_names(const pj_rail *rails, uint32_t count, uint64_t which, char *text, size_t bytes);

#endif

/* The part of NVIDIA's management library that perjoule calls, declared here from its documented
 * binary interface: nothing from NVIDIA is needed to build, and the library is loaded only where it
 * exists. Names are the library's, without their prefix. */
#ifndef PJ_POWER_NVML_API_H
#define PJ_POWER_NVML_API_H

#include <stddef.h>

typedef struct nvml_device_handle *nvml_device;
typedef int nvml_return;

enum {
    NVML_OK = 0,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_GPU_IS_LOST = 15
};

/* Fields of nvmlDeviceGetFieldValues. */
enum {
    NVML_FIELD_TOTAL_ENERGY = 83,
    NVML_FIELD_POWER_AVERAGE = 185,
    NVML_FIELD_POWER_INSTANT = 186
};
enum { NVML_SCOPE_GPU = 0, NVML_SCOPE_MODULE = 1, NVML_SCOPE_MEMORY = 2 };

typedef union nvml_value {
    double d;
    unsigned int ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
} nvml_value;

typedef struct nvml_field {
    unsigned int field, scope;
    long long timestamp_us; /* wall clock */
    long long latency_us;
    int value_type;     /* 0 double, 1 uint, 2 ulong, 3 ulonglong, 4 slonglong, 5 int */
    nvml_return status; /* check before the value */
    nvml_value value;
} nvml_field;

_Static_assert(sizeof(nvml_field) == 40, "must match the library's layout");

typedef struct nvml_sample {
    unsigned long long timestamp_us; /* wall clock */
    nvml_value value;
} nvml_sample;

enum { NVML_TEXT_BYTES = 96 };

/* Architectures as nvmlDeviceGetArchitecture numbers them. */
enum {
    NVML_KEPLER = 2,
    NVML_MAXWELL,
    NVML_PASCAL,
    NVML_VOLTA,
    NVML_TURING,
    NVML_AMPERE,
    NVML_ADA,
    NVML_HOPPER,
    NVML_BLACKWELL
};

typedef struct nvml_utilisation { /* percent of the last sample period */
    unsigned int gpu, memory;
} nvml_utilisation;

enum { NVML_TEMPERATURE_GPU = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };

/* Throttle reasons, as a bit mask. */
enum {
    NVML_REASON_POWER_CAP = 0x4,
    NVML_REASON_HARDWARE = 0x8,
    NVML_REASON_SOFTWARE_THERMAL = 0x20,
    NVML_REASON_HARDWARE_THERMAL = 0x40,
    NVML_REASON_POWER_BRAKE = 0x80
};

typedef struct nvml_api {
    void *library;
    nvml_return (*init)(void);
    nvml_return (*shutdown)(void);
    const char *(*error_string)(nvml_return);
    nvml_return (*device_count)(unsigned int *);
    nvml_return (*device_by_index)(unsigned int, nvml_device *);
    nvml_return (*device_by_uuid)(const char *, nvml_device *); /* optional */
    nvml_return (*device_of_mig)(nvml_device, nvml_device *);   /* optional */
    nvml_return (*uuid)(nvml_device, char *, unsigned int);
    nvml_return (*name)(nvml_device, char *, unsigned int);                   /* optional */
    nvml_return (*architecture)(nvml_device, unsigned int *);                 /* optional */
    nvml_return (*mig_mode)(nvml_device, unsigned int *, unsigned int *);     /* optional */
    nvml_return (*power_limits)(nvml_device, unsigned int *, unsigned int *); /* optional */
    nvml_return (*enforced_limit)(nvml_device, unsigned int *);               /* optional */
    nvml_return (*total_energy)(nvml_device, unsigned long long *);           /* optional */
    nvml_return (*power_usage)(nvml_device, unsigned int *);                  /* optional */
    nvml_return (*field_values)(nvml_device, int, nvml_field *);              /* optional */
    nvml_return (*driver_version)(char *, unsigned int);                      /* optional */
    nvml_return (*samples)(nvml_device, int, unsigned long long, int *, unsigned int *,
                           nvml_sample *); /* optional */
    /* conditions, all optional */
    nvml_return (*temperature)(nvml_device, int, unsigned int *);
    nvml_return (*clock)(nvml_device, int, unsigned int *);
    nvml_return (*utilisation)(nvml_device, nvml_utilisation *);
    nvml_return (*default_limit)(nvml_device, unsigned int *);
    nvml_return (*clock_reasons)(nvml_device, unsigned long long *);
    /* limits, all optional; setting takes root */
    nvml_return (*power_limit)(nvml_device, unsigned int *);
    nvml_return (*max_clock)(nvml_device, int, unsigned int *);
    nvml_return (*set_power_limit)(nvml_device, unsigned int);
    nvml_return (*lock_clocks)(nvml_device, unsigned int, unsigned int);
    nvml_return (*reset_clocks)(nvml_device);
} nvml_api;

#endif

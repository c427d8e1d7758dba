/*
 * Vulkan as the engine uses it: devices, memory by address, compute pipelines, a queue of recorded
 * work, and the device's clock. libvulkan is opened at run time; a program built without Vulkan's
 * headers has the same functions, and they say so.
 *
 * Shaders get no descriptors: a buffer is an address (GL_EXT_buffer_reference) among the push
 * constants, of which every device has at least 128 bytes.
 *
 * Work is recorded with pj_vk_dispatch, pj_vk_barrier and so on, is submitted in parts on the way,
 * and has been done when pj_vk_wait returns. Dispatches without a barrier between them may overlap.
 * The first failure of a recording is kept, later calls do nothing, and pj_vk_wait returns it: hot
 * paths need no checks. One thread at a time may use a pj_vk.
 */
#ifndef PJ_VULKAN_VK_H
#define PJ_VULKAN_VK_H

#include "base/error.h"

enum {
    PJ_VK_MAX_DEVICES = 16,
    PJ_VK_PUSH_BYTES = 128,    /* most a dispatch may push */
    PJ_VK_MAX_CONSTANTS = 16,  /* specialisation constants of a pipeline */
    PJ_VK_MAX_STAMPS = 1 << 15 /* between two pj_vk_stamps_clear */
};

/* ---- devices ---- */

typedef enum pj_vk_kind {
    PJ_VK_OTHER,
    PJ_VK_INTEGRATED,
    PJ_VK_DISCRETE,
    PJ_VK_VIRTUAL,
    PJ_VK_SOFTWARE /* a driver that computes on the CPU */
} pj_vk_kind;

typedef struct pj_vk_info {
    char name[256];   /* as the driver calls it */
    char driver[256]; /* "NVIDIA 580.159.04", "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)" */
    pj_vk_kind kind;
    uint32_t vendor_id, device_id; /* PCI numbers, or Khronos' for vendors without one */
    uint32_t api_major, api_minor, api_patch;
    uint8_t uuid[16]; /* of the device: for an NVIDIA card the one that NVML has */
    /* It names no card: it is all zero, or a device elsewhere on the bus has the same. */
    bool uuid_is_shared;
    uint32_t namesakes; /* devices before this one in the list that have the same UUID */
    uint8_t key[16];    /* what is kept about the device is kept under this: its UUID, if it has one
                           of its own */
    bool has_pci;
    uint32_t pci_domain, pci_bus, pci_device, pci_function;
    uint64_t memory_bytes;     /* of the largest device-local heap */
    uint64_t free_bytes;       /* of it, as the driver reports; 0: it does not */
    uint64_t allocation_bytes; /* the largest single allocation that the driver promises */
    uint64_t buffer_bytes;     /* the largest buffer; 0: it does not say */
    uint32_t subgroup_size;    /* the usual one */
    uint32_t subgroup_min, subgroup_max;
    uint32_t shared_bytes; /* of a workgroup */
    uint32_t max_threads;  /* of a workgroup */
    uint32_t max_groups_x; /* of a dispatch; at least 65535 */
    double tick_ns;        /* of the device's clock */
    /* fast paths that the device has */
    bool float16, int8, int16, storage16, storage8, subgroup_arithmetic, subgroup_control;
    bool packed_dot;         /* 4x8-bit dot products in hardware */
    bool cooperative_matrix; /* the driver multiplies 16x16 matrices of f16 with sums in f32 */
    bool calibrated_clock, memory_budget, device_fault;
    bool usable;      /* the engine can run on it */
    char reason[128]; /* why it cannot; empty otherwise */
} pj_vk_info;

/* Lists the devices of all drivers, software ones last. PJ_E_UNAVAILABLE with the reason where
 * there is no libvulkan or no driver; *count is then 0. */
pj_status pj_vk_list(pj_vk_info devices[PJ_VK_MAX_DEVICES], uint32_t *count, pj_error *err);

bool pj_vk_is_hardware(const pj_vk_info *info);
enum { PJ_VK_NONE = -1, PJ_VK_SEVERAL = -2 };
/* The device that a user means by "gpu" (the first that is hardware), "gpu:N" (the Nth, from 0), a
 * UUID, or a name or its first words; PJ_VK_NONE; PJ_VK_SEVERAL: more than one has that name or
 * UUID.
 * Software is meant by its UUID or name alone. */
int pj_vk_select(const pj_vk_info *devices, uint32_t count, const char *name);

typedef struct pj_vk_options {
    const uint8_t *uuid;   /* of the device; NULL: the first that is usable */
    uint32_t namesakes;    /* devices with this UUID that come before it in the list */
    bool validate;         /* with the validation layer, where it is installed */
    const char *cache_dir; /* of the pipeline cache; NULL: the user's; "": none */
    int64_t
        timeout_ns; /* a submission that takes longer is a hung device; 0: 60 s, software 600 s */
    uint64_t memory_limit; /* tests: a larger sum of buffers is refused; 0: none */
} pj_vk_options;

typedef struct pj_vk pj_vk;

pj_status pj_vk_open(pj_vk **vk, const pj_vk_options *options, pj_error *err);
void pj_vk_close(pj_vk *vk); /* NULL is allowed; waits for the device; frees pipelines */
const pj_vk_info *pj_vk_device(const pj_vk *vk);
/* True if the validation layer is on; its messages so far, and the last one's text. */
bool pj_vk_is_validated(const pj_vk *vk);
uint32_t pj_vk_validation_messages(const pj_vk *vk, const char **last);

/* ---- memory ---- */

typedef enum pj_vk_place {
    PJ_VK_DEVICE,  /* fast for the device; not mapped */
    PJ_VK_UPLOAD,  /* mapped, written by the host */
    PJ_VK_READBACK /* mapped and cached, read by the host after pj_vk_wait */
} pj_vk_place;

/* Shaders may read and write buffers of every place. */
typedef struct pj_vk_buffer {
    uint64_t address; /* on the device, a multiple of 256 */
    uint64_t bytes;
    void *mapped; /* NULL for PJ_VK_DEVICE */
    pj_vk_place place;
    struct pj_vk_block *block; /* NULL: no buffer */
} pj_vk_buffer;

/* Contents are undefined. `what` is named in the error, with the sizes where memory is short. */
pj_status pj_vk_buffer_make(pj_vk *vk, pj_vk_place place, uint64_t bytes, const char *what,
                            pj_vk_buffer *buffer, pj_error *err);
void pj_vk_buffer_free(pj_vk *vk, pj_vk_buffer *buffer); /* may run twice; not while in use */
uint64_t pj_vk_memory_used(const pj_vk *vk);             /* bytes of PJ_VK_DEVICE buffers */
/* Whether so much is free; PJ_E_NO_MEMORY with the sizes. */
pj_status pj_vk_need(const pj_vk *vk, uint64_t bytes, const char *what, pj_error *err);
uint64_t pj_vk_memory_free(const pj_vk *vk); /* bytes that such buffers may still have */

/* Copies between the host and a buffer of any place, and waits; for loading and tests. */
pj_status pj_vk_upload(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const void *data,
                       uint64_t bytes, pj_error *err);
/* One of many uploads, done after the next pj_vk_wait; nothing else is recorded in between. */
pj_status pj_vk_upload_part(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, const void *data,
                            uint64_t bytes, pj_error *err);
pj_status pj_vk_download(pj_vk *vk, const pj_vk_buffer *from, uint64_t offset, void *data,
                         uint64_t bytes, pj_error *err);

/* ---- pipelines ---- */

/* SPIR-V of a compute shader, entry point "main". */
typedef struct pj_vk_shader {
    const char *name; /* unique */
    const uint32_t *code;
    size_t code_bytes;
    uint32_t push_bytes; /* size of its push constants */
    /* 1 + number of the constant that is the size of its subgroups, which are full; 0: any size */
    uint32_t subgroup_constant;
} pj_vk_shader;

typedef struct pj_vk_pipeline pj_vk_pipeline;

/* The pipeline of a shader with the given specialisation constants (constant_id 0, 1, ...), made at
 * its first use and kept until the device is closed. NULL on failure, with the reason. */
const pj_vk_pipeline *pj_vk_pipeline_get(pj_vk *vk, const pj_vk_shader *shader,
                                         const uint32_t *constants, uint32_t count, pj_error *err);

/* ---- recorded work ---- */

/* `push` are the shader's push_bytes. NULL as pipeline fails the recording. `work` is about how
 * many bytes the dispatch reads; long recordings are submitted in parts by it. */
void pj_vk_dispatch(pj_vk *vk, const pj_vk_pipeline *pipeline, const void *push, uint32_t x,
                    uint32_t y, uint32_t z, uint64_t work);
/* What was recorded before it is done, and its writes visible, before what follows starts. */
void pj_vk_barrier(pj_vk *vk);
/* Copies and fills are not ordered without barriers either. Offsets and bytes: multiples of 4. */
void pj_vk_copy(pj_vk *vk, const pj_vk_buffer *to, uint64_t to_offset, const pj_vk_buffer *from,
                uint64_t from_offset, uint64_t bytes);
void pj_vk_fill(pj_vk *vk, const pj_vk_buffer *to, uint64_t offset, uint64_t bytes, uint32_t value);
/* Submits what is recorded and goes on. */
void pj_vk_flush(pj_vk *vk);
/* Submits and waits for all. The first failure since the last wait: a lost device, a hung one, what
 * a recording call found. After PJ_E_LOST every call fails. */
pj_status pj_vk_wait(pj_vk *vk, pj_error *err);

/* Fails the recording for a reason of the caller's. */
void pj_vk_refuse(pj_vk *vk, const pj_error *reason);

/* ---- time ---- */

/* Records a timestamp: the time at which what was recorded before the last barrier is done. Returns
 * its number, 0 and up since pj_vk_stamps_clear, or UINT32_MAX when there are too many. */
uint32_t pj_vk_stamp(pj_vk *vk);
/* After pj_vk_wait: CLOCK_MONOTONIC of stamps [first, first + count), as pj_clock_ns gives it. */
pj_status pj_vk_stamps_read(pj_vk *vk, uint32_t first, uint32_t count, int64_t *times_ns,
                            pj_error *err);
uint32_t pj_vk_stamps(const pj_vk *vk); /* recorded since then */
void pj_vk_stamps_clear(pj_vk *vk);     /* after pj_vk_wait */
/* Compares the clocks again if the last comparison is older than `age_ns`. */
pj_status pj_vk_clock_update(pj_vk *vk, int64_t age_ns, pj_error *err);
/* How far a stamp's time may be off, in ns: deviation of the comparisons and distance of the line.
 */
double pj_vk_clock_error_ns(const pj_vk *vk);

#endif

/*
 * CUPTI, NVIDIA's library that traces GPU work, opened at run time: the program's own copy if it
 * has one, since CUPTI must not be newer than the driver. Declared here is what is used of its
 * public interface. No header or library of NVIDIA's is needed to build.
 */
#ifndef PJ_INJECT_CUDA_CUPTI_H
#define PJ_INJECT_CUDA_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of activity records. */
enum {
    PJ_CUPTI_MEMCPY = 1,
    PJ_CUPTI_MEMSET = 2,
    PJ_CUPTI_DRIVER = 4,
    PJ_CUPTI_RUNTIME = 5,
    PJ_CUPTI_DEVICE = 8,
    PJ_CUPTI_KERNEL = 10, /* concurrent kernels */
    PJ_CUPTI_PEER_COPY = 22,
    PJ_CUPTI_GRAPH = 51 /* graphs as wholes: since CUDA 11.7 */
};
enum { PJ_CUPTI_FLUSH_FORCED = 1 };

typedef void pj_cupti_request(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void pj_cupti_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                size_t valid);

/* Functions return 0 on success. Those marked "or NULL" are missing in old versions. */
typedef struct pj_cupti {
    int (*get_version)(uint32_t *version);
    int (*subscribe)(void **subscriber, void (*callback)(void), void *context);
    int (*subscribe_named)(void **subscriber, void (*callback)(void), void *context,
                           void *parameters); /* or NULL */
    int (*register_callbacks)(pj_cupti_request *request, pj_cupti_completed *completed);
    int (*register_clock)(uint64_t (*clock)(void)); /* or NULL */
    int (*get_time)(uint64_t *ns);
    int (*set_thread_id_type)(uint32_t type); /* or NULL */
    int (*enable)(uint32_t kind);
    int (*disable)(uint32_t kind);
    int (*next_record)(uint8_t *buffer, size_t valid, void **record);
    int (*flush_all)(uint32_t flags);
    int (*flush_period)(uint32_t milliseconds); /* or NULL */
    int (*get_dropped)(void *context, uint32_t stream, size_t *count);
    int (*get_result_string)(int result, const char **text);
    uint32_t version;
} pj_cupti;

/* Opens CUPTI and becomes its one client; nothing is enabled. On failure `problem` is a clause that
 * names what failed and why. */
bool pj_cupti_open(pj_cupti *cupti, char *problem, size_t bytes);
/* "CUPTI_ERROR_NOT_INITIALIZED (15)" */
void pj_cupti_name_result(const pj_cupti *cupti, int result, char *text, size_t bytes);

#endif

/* Writing limits: the file that limits.c reads. */
#include "bench/limits_save.h"

#include "base/file.h"
#include "record/limits.h"
#include "trace/json_member.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 64 << 10 };

static void write_object(const pj_machine_limits *limits, const json_t *earlier, pj_json *json)
{
    pj_json_object_begin(json);
    const json_t *peaks = json_object_get(earlier, "peak_gflops_per_s");
    double read = limits->read_bytes_s * 1e-9;
    if (limits->threads) pj_json_kv_uint(json, "threads", limits->threads);
    pj_json_kv_double(json, "read_gbytes_per_s",
                      read > 0 ? read : pj_member_number(earlier, "read_gbytes_per_s"));
    pj_json_key(json, "peak_gflops_per_s");
    pj_json_object_begin(json);
    for (int t = 0; t < PJ_DTYPE_COUNT; t++) {
        const char *name = pj_dtype_get((pj_dtype)t)->name;
        double peak = limits->operations_s[t] * 1e-9;
        if (!(peak > 0)) peak = pj_member_number(peaks, name);
        if (peak > 0) pj_json_kv_double(json, name, peak);
    }
    pj_json_object_end(json);
    pj_json_object_end(json);
}

pj_status pj_machine_limits_save(const char *what, const pj_machine_limits *limits, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    char path[PATH_MAX], folder[PATH_MAX];
    pj_status status = pj_limits_path(what, path, sizeof path, err);
    if (status != PJ_OK) return status;
    memcpy(folder, path, sizeof folder);
    *strrchr(folder, '/') = 0;
    status = pj_dir_make(folder, err);
    if (status != PJ_OK) return status;
    pj_buffer_init(&buffer, FILE_BYTES);
    pj_json_init(&json, &buffer);
    char *kept = pj_limits_kept(what);
    json_t *earlier = kept ? json_loads(kept, 0, NULL) : NULL;
    write_object(limits, earlier, &json);
    json_decref(earlier);
    free(kept);
    status = pj_json_finish(&json) ? pj_file_write(path, buffer.data, buffer.length, err)
                                   : pj_fail_memory(err, "the limits of the machine");
    pj_buffer_fini(&buffer);
    return status;
}

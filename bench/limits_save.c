/* Writing the limits of this machine: the file that limits.c reads. */
#include "bench/limits_save.h"

#include "base/file.h"
#include "record/limits.h"

#include <limits.h>
#include <string.h>

enum { FILE_BYTES = 64 << 10 };

static void write_object(const pj_machine_limits *limits, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "threads", limits->threads);
    pj_json_kv_double(json, "read_gbytes_per_s", limits->read_bytes_s * 1e-9);
    pj_json_key(json, "peak_gflops_per_s");
    pj_json_object_begin(json);
    for (int t = 0; t < PJ_DTYPE_COUNT; t++)
        if (limits->operations_s[t] > 0)
            pj_json_kv_double(json, pj_dtype_get((pj_dtype)t)->name,
                              limits->operations_s[t] * 1e-9);
    pj_json_object_end(json);
    pj_json_object_end(json);
}

pj_status pj_machine_limits_save(const char *cpu, const pj_machine_limits *limits, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    char path[PATH_MAX], folder[PATH_MAX];
    pj_status status = pj_machine_limits_path(cpu, path, sizeof path, err);
    if (status != PJ_OK) return status;
    memcpy(folder, path, sizeof folder);
    *strrchr(folder, '/') = 0;
    status = pj_dir_make(folder, err);
    if (status != PJ_OK) return status;
    pj_buffer_init(&buffer, FILE_BYTES);
    pj_json_init(&json, &buffer);
    write_object(limits, &json);
    status = pj_json_finish(&json) ? pj_file_write(path, buffer.data, buffer.length, err)
                                   : pj_fail_memory(err, "the limits of the machine");
    pj_buffer_fini(&buffer);
    return status;
}

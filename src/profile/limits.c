/* The file is one JSON object, the same that runs carry; what is no JSON object is as if absent. */
#include "profile/limits.h"

#include "base/file.h"
#include "base/ids.h"
#include "base/memory.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 64 << 10 };

/* A home folder may be shared by machines. */
static pj_status path_of(const char *cpu, char *path, size_t bytes, pj_error *err)
{
    char data[PATH_MAX], host[256] = "", name[64];
    pj_status status = pj_path_user_data(data, sizeof data, err);
    if (status != PJ_OK) return status;
    gethostname(host, sizeof host - 1);
    uint64_t hash = pj_hash64(pj_hash64(0, cpu, strlen(cpu)), host, strlen(host));
    snprintf(name, sizeof name, "limits/%016llx.json", (unsigned long long)hash);
    return pj_path_join(path, bytes, data, name)
               ? PJ_OK
               : pj_fail(err, PJ_E_INVALID, "the path of the user's data folder is too long");
}

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
    pj_status status = path_of(cpu, path, sizeof path, err);
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

void pj_machine_limits_write(const char *cpu, pj_json *json)
{
    char path[PATH_MAX], *text = NULL, *clean = NULL;
    size_t bytes;
    if (path_of(cpu, path, sizeof path, NULL) == PJ_OK &&
        pj_file_read(path, FILE_BYTES, &text, &bytes, NULL) == PJ_OK) {
        json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(object)) clean = json_dumps(object, JSON_COMPACT);
        json_decref(object);
    }
    pj_json_key(json, "limits");
    if (clean)
        pj_json_raw(json, clean, strlen(clean));
    else
        pj_json_null(json);
    free(clean);
    pj_free(text);
}

/* Reading the limits of this machine. The file is one JSON object, as stored with runs;
 * any other content counts as a missing file. */
#include "record/limits.h"

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

/* Named by machine, because a home folder may be shared. */
pj_status pj_limits_path(const char *what, char *path, size_t bytes, pj_error *err)
{
    char host[256] = "", name[64];
    gethostname(host, sizeof host - 1);
    uint64_t hash = pj_hash64(pj_hash64(0, what, strlen(what)), host, strlen(host));
    snprintf(name, sizeof name, "limits/%016llx.json", (unsigned long long)hash);
    return pj_path_user_file(name, path, bytes, err);
}

char *pj_limits_kept(const char *what)
{
    char path[PATH_MAX], *text = NULL, *clean = NULL;
    size_t bytes;
    if (pj_limits_path(what, path, sizeof path, NULL) == PJ_OK &&
        pj_file_read(path, FILE_BYTES, &text, &bytes, NULL) == PJ_OK) {
        json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(object)) clean = json_dumps(object, JSON_COMPACT);
        json_decref(object);
    }
    pj_free(text);
    return clean;
}

void pj_machine_limits_write(const char *cpu, pj_json *json)
{
    char *clean = pj_limits_kept(cpu);
    pj_json_key(json, "limits");
    if (clean)
        pj_json_raw(json, clean, strlen(clean));
    else
        pj_json_null(json);
    free(clean);
}

/* Looking for a model in the places that are looked into, in order. */
#include "profile/find_model.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool exists(const char *path)
{
    return pj_dir_exists(path) || pj_file_exists(path);
}

pj_status pj_model_find(const char *name, const char *models, char *path, size_t bytes,
                        pj_error *err)
{
    const char *folder = models ? models : getenv("PERJOULE_MODELS");
    if (!folder || !*folder) folder = "models";
    const char *wanted = name ? name : "demo";
    bool is_path = name && (strncmp(name, "synthetic:", 10) == 0 || exists(name));
    if (is_path) {
        if ((size_t)snprintf(path, bytes, "%s", name) < bytes) return PJ_OK;
        return pj_fail(err, PJ_E_INVALID, "the path of the model is too long");
    }
    if (pj_path_join(path, bytes, folder, wanted) && exists(path)) return PJ_OK;
    if (pj_path_join(path, bytes, PJ_DATADIR "/models", wanted) && exists(path)) return PJ_OK;
    if (!name)
        return pj_fail(err, PJ_E_NOT_FOUND,
                       "no model was given with -m, and the demonstration model is neither in %s "
                       "nor in " PJ_DATADIR "/models",
                       folder);
    return pj_fail(err, PJ_E_NOT_FOUND, "there is no model %s: not a path, and not in %s", name,
                   folder);
}

/* Looks up embedded files by request path. With a dozen entries a linear search is enough. */
#include "net/assets.h"

#include <string.h>

const pj_asset *pj_assets_find(const char *path)
{
    if (strcmp(path, "/") == 0) path = "/index.html";
    for (size_t i = 0; i < pj_asset_count; i++) {
        if (strcmp(pj_asset_table[i].path, path) == 0) return &pj_asset_table[i];
    }
    return NULL;
}

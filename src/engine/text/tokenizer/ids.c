/* A growable list of token ids. */
#include "base/memory.h"
#include "engine/text/tokenizer.h"

void pj_ids_fini(pj_ids *ids)
{
    pj_free(ids->ids);
    *ids = (pj_ids){0};
}

bool pj_ids_append(pj_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        size_t capacity = ids->capacity ? 2 * ids->capacity : 64;
        int32_t *grown = pj_resize(ids->ids, capacity, sizeof *grown);
        if (!grown) return false;
        ids->ids = grown;
        ids->capacity = capacity;
    }
    ids->ids[ids->count++] = id;
    return true;
}

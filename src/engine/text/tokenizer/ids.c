/* A growable list of token ids. */
#include "base/memory.h"
#include "engine/text/tokenizer.h"

#include <string.h>

void pj_ids_fini(pj_ids *ids)
{
    pj_free(ids->ids);
    *ids = (pj_ids){0};
}

static bool ids_reserve(pj_ids *ids, size_t more)
{
    size_t capacity = ids->capacity ? ids->capacity : 64;
    if (more <= ids->capacity - ids->count) return true;
    while (capacity < ids->count + more) capacity *= 2;
    int32_t *grown = pj_resize(ids->ids, capacity, sizeof *grown);
    if (!grown) return false;
    ids->ids = grown;
    ids->capacity = capacity;
    return true;
}

bool pj_ids_append(pj_ids *ids, int32_t id)
{
    if (!ids_reserve(ids, 1)) return false;
    ids->ids[ids->count++] = id;
    return true;
}

bool pj_ids_extend(pj_ids *ids, const int32_t *more, size_t count)
{
    if (!ids_reserve(ids, count)) return false;
    if (count) memcpy(ids->ids + ids->count, more, count * sizeof *more);
    ids->count += count;
    return true;
}

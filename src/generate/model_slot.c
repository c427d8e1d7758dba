/* The slot that keeps one model open between runs. */
#include "generate/model_slot.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <string.h>

static bool make_key(const pj_engine_options *o, pj_buffer *key)
{
    pj_buffer_init(key, 1 << 16);
    return pj_buffer_printf(key, "%s|%s|%u|%d|%u|%d|%d|%s|%s", o->model, o->dtype ? o->dtype : "",
                            o->threads, (int)o->kv, o->chunk, o->no_tokenizer, o->no_mmap,
                            o->draft ? o->draft : "", o->device ? o->device : "");
}

static bool has_key(const pj_model_slot *slot, const pj_engine_options *options)
{
    pj_buffer key;
    bool same = make_key(options, &key) && slot->key && strcmp(slot->key, key.data) == 0;
    pj_buffer_fini(&key);
    return same;
}

bool pj_model_slot_holds(const pj_model_slot *slot, const pj_engine_options *options)
{
    return has_key(slot, options) && pj_engine_is_current(slot->engine);
}

pj_status pj_model_slot_open(pj_model_slot *slot, const pj_engine_options *options, pj_error *err)
{
    pj_buffer key;
    if (pj_model_slot_holds(slot, options)) return PJ_OK;
    if (slot->is_series && has_key(slot, options))
        return pj_fail(err, PJ_E_LOST, "the files of %s have changed since the run before",
                       options->model);
    pj_model_slot_close(slot);
    slot->key = make_key(options, &key) ? pj_buffer_take(&key) : NULL;
    pj_buffer_fini(&key);
    if (!slot->key) return pj_fail_memory(err, "a model");
    pj_status status = pj_engine_open(options, &slot->engine, err);
    if (status != PJ_OK) pj_model_slot_close(slot);
    return status;
}

void pj_model_slot_check(pj_model_slot *slot, pj_status status)
{
    if (status == PJ_E_LOST) pj_model_slot_close(slot);
}

void pj_model_slot_close(pj_model_slot *slot)
{
    pj_engine_close(slot->engine);
    pj_free(slot->key);
    slot->engine = NULL;
    slot->key = NULL;
}

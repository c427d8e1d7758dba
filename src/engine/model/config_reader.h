/* Readers for members of a config.json. Each checks type and range; the first error is kept and
 * later ones are dropped, so that calling code reads like a list of fields. */
#ifndef PJ_MODEL_CONFIG_READER_H
#define PJ_MODEL_CONFIG_READER_H

#include "engine/model/config.h"

#include <jansson.h>

typedef struct pj_config_reader {
    json_t *object;
    const json_t *outer; /* parent of `object` if it is nested (text_config); else NULL */
    const char *name;    /* of the file */
    pj_arena *arena;
    pj_error *err;
    pj_status status;
} pj_config_reader;

pj_status pj_config_refuse(pj_config_reader *r, pj_status status, const char *key,
                           const char *problem);
/* The value, or NULL when it is absent or null. */
json_t *pj_config_get(const pj_config_reader *r, const char *key);
/* The same, falling back to the parent object. */
json_t *pj_config_get_any(const pj_config_reader *r, const char *key);
/* `fallback` < 0: the field is required. */
uint32_t pj_config_count(pj_config_reader *r, const char *key, int64_t fallback, int64_t min,
                         int64_t max);
/* `fallback` may be NAN for "not given"; min and max are inclusive. */
double pj_config_number(pj_config_reader *r, const char *key, double fallback, double min,
                        double max);
double pj_config_need_number(pj_config_reader *r, const char *key, double min, double max);
bool pj_config_bool(pj_config_reader *r, const char *key, bool fallback);
const char *pj_config_text(pj_config_reader *r, const char *key, const char *fallback);

/* Quantised checkpoints (config_packing.c). */
void pj_config_read_packing(pj_config_reader *r, pj_model_config *config);
/* Differences between layers (config_layers.c), then rotation of queries and keys (config_rope.c).
 */
void pj_config_read_layers(pj_config_reader *r, pj_model_config *config);
uint32_t pj_config_count_kinds(pj_config_reader *r); /* of layers, where they are listed */
/* Reads config->layer_width, if every layer's is listed. */
bool pj_config_widths(pj_config_reader *r, pj_model_config *config);
/* Sparse attention (config_indexer.c). */
void pj_config_read_indexer(pj_config_reader *r, pj_model_config *config);
void pj_config_read_rope(pj_config_reader *r, pj_model_config *config);
/* Mixtures of experts and their routers (config_experts.c). */
void pj_config_read_experts(pj_config_reader *r, pj_model_config *config);

#endif

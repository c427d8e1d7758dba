/* Parts of reading a config.json that have their own files. */
#ifndef PJ_MODEL_CONFIG_PARTS_H
#define PJ_MODEL_CONFIG_PARTS_H

#include "engine/model/config.h"
#include "engine/model/config_reader.h"

/* Differences between layers: sliding windows, layers without rotation. */
void pj_config_read_layers(pj_config_reader *r, pj_model_config *config);
/* Rotation of queries and keys; call after the layers. */
void pj_config_read_rope(pj_config_reader *r, pj_model_config *config);

#endif

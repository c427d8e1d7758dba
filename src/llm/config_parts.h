/* Parts of reading a config.json that have their own files. */
#ifndef PJ_LLM_CONFIG_PARTS_H
#define PJ_LLM_CONFIG_PARTS_H

#include "llm/config.h"
#include "llm/config_reader.h"

/* Differences between layers: sliding windows, layers without rotation. */
void pj_config_read_layers(pj_config_reader *r, pj_model_config *config);
/* Rotation of queries and keys; call after the layers. */
void pj_config_read_rope(pj_config_reader *r, pj_model_config *config);

#endif

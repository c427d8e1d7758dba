/* Texts, prompts, token ids and template variables that commands take from files and options.
 * What is allocated the caller frees (pj_free). */
#ifndef PJ_CLI_INPUTS_H
#define PJ_CLI_INPUTS_H

#include "base/buffer.h"
#include "base/random.h"
#include "base/text_list.h"
#include "engine/generation/engine.h"

enum { PJ_INPUT_PROMPT_BYTES = 15 << 20 };

/* A file; "-" is standard input. */
pj_status pj_input_read(const char *path, size_t max_bytes, char **text, size_t *bytes,
                        pj_error *err);
/* A file of prompts, one per line; empty lines are skipped. The prompts point into *text. */
pj_status pj_input_prompts(const char *path, uint32_t most, char **text, pj_prompt **prompts,
                           uint32_t *count, pj_error *err);
/* "1,2,3"; separators are commas and white space. */
pj_status pj_ids_parse(const char *text, int32_t **ids, uint32_t *count, pj_error *err);
/* "1%" or "0.01": 0.01; NAN: neither, or 1 and more without a %, which looks like a percentage. */
double pj_share_parse(const char *text);
/* NAME=VALUE settings as one JSON object: a value that is valid JSON is used as it is (false, 3,
 * [1]), any other becomes a string. *variables is NULL without settings. */
pj_status pj_chat_variables(const pj_text_list *settings, char **variables, pj_error *err);
/* Appends so many words that are single tokens in most vocabularies. */
void pj_input_make_up(pj_random *random, int64_t words, pj_buffer *text);

#endif

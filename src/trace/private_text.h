/* What a private run stores instead of a text: its SHA-256, its length and simple features, from
 * which the text cannot be reconstructed. (A correct guess of a short text can be confirmed by the
 * hash.) Definitions: docs/formats.md. */
#ifndef PJ_TRACE_PRIVATE_TEXT_H
#define PJ_TRACE_PRIVATE_TEXT_H

#include "base/json.h"

void pj_private_text_write(pj_json *json, const char *text, size_t bytes);

#endif

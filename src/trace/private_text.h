/*
 * What a private run keeps of a text instead of the text itself: its SHA-256, its length and simple
 * features, from which it cannot be read back. (A short text that somebody guesses can be confirmed
 * by its hash.) Definitions: docs/formats.md.
 */
#ifndef PJ_TRACE_PRIVATE_TEXT_H
#define PJ_TRACE_PRIVATE_TEXT_H

#include "base/json.h"

void pj_private_text_write(pj_json *json, const char *text, size_t bytes);

#endif

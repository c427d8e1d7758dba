/* JSON from elsewhere (a database, another machine's run) as part of our own. */
#ifndef PJ_BASE_JSON_DOCUMENT_H
#define PJ_BASE_JSON_DOCUMENT_H

#include "base/json.h"

/* Whether the text is one value and nothing else. */
bool pj_json_is_valid(const char *text, size_t bytes);
/* Writes the value, with characters escaped that a terminal would act on; null if it is not valid
 * JSON, or NULL. */
void pj_json_document(pj_json *json, const char *text, size_t bytes);

#endif

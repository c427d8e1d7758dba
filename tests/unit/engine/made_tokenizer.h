/* Small generated tokenizer.json texts, for tests and fuzzing. */
#ifndef PJ_TESTS_UNIT_MADE_TOKENIZER_H
#define PJ_TESTS_UNIT_MADE_TOKENIZER_H

#include "base/buffer.h"

typedef enum made_kind {
    MADE_BYTE_LEVEL = 0, /* Split by a large pattern, byte level, a template with <s> */
    MADE_FALLBACK,       /* Prepend and Replace, byte fallback, fused unknowns */
    MADE_WORDS,          /* NFKC, Lowercase, Metaspace; added tokens with every flag */
    MADE_KIND_COUNT
} made_kind;

void made_tokenizer(made_kind kind, pj_buffer *text);

#endif

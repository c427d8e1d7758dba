/* SHA-256 (FIPS 180-4): identifies a text without storing it. */
#ifndef PJ_BASE_SHA256_H
#define PJ_BASE_SHA256_H

#include <stddef.h>

enum { PJ_SHA256_TEXT_BYTES = 65 }; /* 64 hexadecimal digits and the NUL */

void pj_sha256_text(const void *bytes, size_t count, char text[PJ_SHA256_TEXT_BYTES]);

#endif

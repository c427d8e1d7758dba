/* Base64 (RFC 4648 section 4). */
#ifndef PJ_BASE_BASE64_H
#define PJ_BASE_BASE64_H

#include "base/buffer.h"

void pj_base64_write(pj_buffer *out, const void *bytes, size_t count);
/* False unless the text stands for exactly `count` bytes; then they are not all written. */
bool pj_base64_read(const char *text, size_t length, void *bytes, size_t count);

#endif

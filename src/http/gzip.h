/* Data in gzip (RFC 1952): exports, answers to clients that accept it, and files to import. */
#ifndef PJ_HTTP_GZIP_H
#define PJ_HTTP_GZIP_H

#include "base/json.h"

#include <stddef.h>

typedef struct pj_gzip pj_gzip;

/* Compresses what arrives and passes it on to `write`. The level is zlib's: 1 (fast) to 9. */
pj_status pj_gzip_new(int level, pj_json_write_fn *write, void *context, pj_gzip **gzip,
                      pj_error *err);
bool pj_gzip_write(void *gzip, const char *bytes, size_t count); /* a pj_json_write_fn */
bool pj_gzip_finish(pj_gzip *gzip); /* false: not all could be written */
void pj_gzip_free(pj_gzip *gzip);   /* NULL is allowed */

/* `out` is to be freed with pj_free(). */
pj_status pj_gzip_text(int level, const char *text, size_t bytes, char **out, size_t *out_bytes,
                       pj_error *err);
bool pj_is_gzip(const void *bytes, size_t count);
/* Fails if more than `most` bytes come out. */
pj_status pj_gunzip(const void *bytes, size_t count, size_t most, char **out, size_t *out_bytes,
                    pj_error *err);

#endif

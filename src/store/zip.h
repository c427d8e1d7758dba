/* A zip archive written sequentially, for exports: entries are deflated as they arrive and followed
 * by their sizes (data descriptors), so that only the directory is kept in memory. Up to 4 GiB in
 * total. */
#ifndef PJ_STORE_ZIP_H
#define PJ_STORE_ZIP_H

#include "base/json.h"

typedef struct pj_zip pj_zip;

pj_status pj_zip_new(pj_json_write_fn *write, void *context, pj_zip **zip, pj_error *err);
pj_status pj_zip_entry(pj_zip *zip, const char *name, pj_error *err); /* ends the previous entry */
bool pj_zip_write(void *zip, const char *bytes, size_t count);        /* a pj_json_write_fn */
pj_status pj_zip_finish(pj_zip *zip, pj_error *err);
void pj_zip_free(pj_zip *zip); /* NULL is allowed */

#endif

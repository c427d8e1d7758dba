/*
 * A zip archive written front to back, for exports: entries are deflated as they come, their sizes
 * follow them (data descriptors), so nothing is kept but the directory. Up to 4 GiB in all.
 */
#ifndef PJ_STORE_ZIP_H
#define PJ_STORE_ZIP_H

#include "base/json.h"

typedef struct pj_zip pj_zip;

pj_status pj_zip_new(pj_json_write_fn *write, void *context, pj_zip **zip, pj_error *err);
pj_status pj_zip_entry(pj_zip *zip, const char *name, pj_error *err); /* ends the one before */
bool pj_zip_write(void *zip, const char *bytes, size_t count);        /* a pj_json_write_fn */
pj_status pj_zip_finish(pj_zip *zip, pj_error *err);
void pj_zip_free(pj_zip *zip); /* NULL is allowed */

#endif

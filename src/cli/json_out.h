/* JSON on standard output. */
#ifndef PJ_CLI_JSON_OUT_H
#define PJ_CLI_JSON_OUT_H

#include "base/json.h"

/* One JSON value for standard output: all of it or, after a failure, none. */
typedef struct pj_json_out {
    pj_buffer buffer;
    pj_json json;
} pj_json_out;

pj_json *pj_json_out_begin(pj_json_out *out);
/* Prints it unless `status` is a failure, and frees it. Returns that status, or that of printing.
 */
pj_status pj_json_out_end(pj_json_out *out, pj_status status, pj_error *err);

#endif

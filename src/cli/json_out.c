/* JSON on standard output. */
#include "cli/json_out.h"

#include "cli/options.h"

#include <stdio.h>

pj_json *pj_json_out_begin(pj_json_out *out)
{
    pj_buffer_init(&out->buffer, 1u << 31);
    pj_json_init(&out->json, &out->buffer);
    return &out->json;
}

pj_status pj_json_out_end(pj_json_out *out, pj_status status, pj_error *err)
{
    pj_buffer *text = &out->buffer;
    pj_buffer_char(text, '\n');
    if (status == PJ_OK) status = pj_buffer_status(text, "the answer", err);
    if (status == PJ_OK &&
        (fwrite(text->data, 1, text->length, stdout) != text->length || fflush(stdout) != 0) &&
        !pj_output_is_closed())
        status = pj_fail(err, PJ_E_IO, "cannot write to standard output");
    pj_buffer_fini(text);
    return status;
}

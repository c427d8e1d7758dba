/* A spool from anywhere, through the reader and the whole build. Checksums are corrected first:
 * otherwise hardly any mutation would get past them. */
#include "attribution/build.h"
#include "base/ids.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend(unsigned char *bytes, size_t size)
{
    uint32_t crc = pj_crc32c(0, bytes, PJ_SPOOL_HEADER_BYTES - 4);
    memcpy(bytes + PJ_SPOOL_HEADER_BYTES - 4, &crc, 4);
    for (size_t at = PJ_SPOOL_HEADER_BYTES; at + sizeof(pj_record) <= size;) {
        pj_record *record = (pj_record *)(bytes + at);
        size_t whole = pj_record_size(pj_record_bytes(record));
        if (whole > size - at) return;
        record->crc = pj_crc32c(0, &record->type_bytes, 4 + pj_record_bytes(record));
        at += whole;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_spool_reader reader;
    pj_run_data run;
    pj_error err;
    if (size < PJ_SPOOL_HEADER_BYTES || size > 1 << 20) return 0;
    unsigned char *copy = malloc(size);
    memcpy(copy, data, size);
    mend(copy, size);
    if (pj_spool_reader_memory(copy, size, &reader, &err) == PJ_OK) {
        if (pj_build_run(&reader, &(pj_build_options){0}, &run, &err) == PJ_OK)
            pj_run_data_fini(&run);
        pj_spool_reader_close(&reader);
    }
    free(copy);
    return 0;
}

/* An untrusted spool file through the reader and the whole build of a run. Checksums are corrected
 * first, because hardly any mutation would pass them. Lane numbers are reduced to a few, because
 * every lane up to the highest has state, which would dominate the time of a spool with lane
 * 50,000. Attribution takes two thirds of a build's time, so only one input in four, selected by
 * its content, is attributed. */
#include "attribution/build.h"
#include "base/ids.h"
#include "trace/span.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FEW_LANES = 64, TOO_MANY_LANES = 65536 };

static uint32_t fold(uint32_t lane)
{
    return lane >= FEW_LANES && lane < TOO_MANY_LANES ? lane % FEW_LANES : lane;
}

static void fold_lane(pj_record *record)
{
    pj_record_type type = pj_record_kind(record);
    uint32_t bytes = pj_record_bytes(record);
    if ((type == PJ_RECORD_SPAN || type == PJ_RECORD_SPAN_BEGIN) && bytes >= sizeof(pj_span)) {
        pj_span *span = (pj_span *)record->payload;
        span->lane = (uint16_t)fold(span->lane);
    }
    if (type == PJ_RECORD_TOKEN_TEXT && bytes >= sizeof(pj_token_text_record)) {
        pj_token_text_record *text = (pj_token_text_record *)record->payload;
        text->lane = fold(text->lane);
    }
}

static void mend(unsigned char *bytes, size_t size)
{
    uint32_t crc = pj_crc32c(0, bytes, PJ_SPOOL_HEADER_BYTES - 4);
    memcpy(bytes + PJ_SPOOL_HEADER_BYTES - 4, &crc, 4);
    for (size_t at = PJ_SPOOL_HEADER_BYTES; at + sizeof(pj_record) <= size;) {
        pj_record *record = (pj_record *)(bytes + at);
        size_t whole = pj_record_size(pj_record_bytes(record));
        if (whole > size - at) return;
        fold_lane(record);
        record->crc = pj_crc32c(0, &record->type_bytes, 4 + pj_record_bytes(record));
        at += whole;
    }
}

/* The steps of a build before attribution. */
static void read_rows(pj_spool_reader *reader)
{
    pj_tree tree = {0};
    pj_run_data run = {0};
    pj_error err;
    pj_arena_init(&run.arena, 0);
    if (pj_tree_init(&tree, reader, &run.arena, &err) == PJ_OK &&
        pj_build_facts(&tree, &run, &err) == PJ_OK)
        pj_build_rows(&tree, &run, &err);
    pj_tree_fini(&tree);
    pj_run_data_fini(&run);
}

static void build(pj_spool_reader *reader)
{
    pj_run_data run;
    pj_error err;
    if (pj_build_run(reader, &(pj_build_options){0}, &run, &err) == PJ_OK) pj_run_data_fini(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_spool_reader reader;
    pj_error err;
    if (size < PJ_SPOOL_HEADER_BYTES || size > 1 << 20) return 0;
    unsigned char *copy = malloc(size);
    memcpy(copy, data, size);
    mend(copy, size);
    if (pj_spool_reader_memory(copy, size, &reader, &err) == PJ_OK) {
        if (pj_crc32c(0, data, size) % 4 == 0)
            build(&reader);
        else
            read_rows(&reader);
        pj_spool_reader_close(&reader);
    }
    free(copy);
    return 0;
}

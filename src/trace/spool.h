/*
 * The spool: a run's events in a file while it goes on, so that a killed process loses nothing
 * that was written. Written by the collector thread alone; read when the run ends, or by the next
 * process when this one died. A lock on the open file (flock) tells the spool of a living process
 * from a leftover.
 *
 * Format, version 1, in the byte order of the machine that wrote it
 *
 *   header   64 bytes: magic "PJSPOOL" NUL, u32 version, u32 0x01020304 (byte order),
 *            i64 start on the monotonic clock (ns), i64 start in wall time (ns since 1970 UTC),
 *            28 bytes zero, u32 CRC-32C of the 60 bytes before it
 *   records  each at a multiple of 8 bytes: u32 CRC-32C of the rest of the record without padding,
 *            u32 type (low 8 bits) and length of the payload (high 24 bits), payload, zeros up to
 *            a multiple of 8
 *
 *   type          payload
 *   SPAN          pj_span (56 bytes); if HAS_STATS: pj_stats (28) and 4 zero bytes; if HAS_EXTRAS:
 *                 pj_extra (16 bytes) to the end
 *   SPAN_BEGIN    pj_span with end 0: a phase, section or token opened; its SPAN comes when it ends
 *   TOKEN_TEXT    pj_token_text_record, then the bytes of the text
 *   NAME          u32 id, then the bytes of the name; before any record that uses the id
 *   READINGS      pj_reading (56 bytes) each
 *   RAIL          JSON object: index and description of one rail, and its baseline
 *   INFO          JSON object: facts of the run; a later one replaces fields of an earlier one
 *   WARNING       JSON object: t_ns, code, text
 *   END           JSON object: status, t_ns. A spool without it was interrupted
 *
 * A reader stops at the first record that is cut off or whose checksum is wrong; everything before
 * it is good, because records are only ever appended.
 *
 * The file is written with write(), not through a mapping: what write() took survives the death of
 * the process just as well, and a full disk is an error code instead of a SIGBUS. When the disk is
 * full the spool goes on in memory (pj_spool_in_memory), so that the run can still be finished.
 */
#ifndef PJ_TRACE_SPOOL_H
#define PJ_TRACE_SPOOL_H

#include "base/buffer.h"
#include "base/file.h"
#include "trace/rail.h"
#include "trace/span.h"

enum { PJ_SPOOL_VERSION = 1, PJ_SPOOL_HEADER_BYTES = 64, PJ_RECORD_MAX_BYTES = (1 << 24) - 1 };

typedef enum pj_record_type {
    PJ_RECORD_PAD = 0, /* fills the end of a lane's ring; never in a file */
    PJ_RECORD_SPAN,
    PJ_RECORD_SPAN_BEGIN,
    PJ_RECORD_TOKEN_TEXT,
    PJ_RECORD_NAME,
    PJ_RECORD_READINGS,
    PJ_RECORD_RAIL,
    PJ_RECORD_INFO,
    PJ_RECORD_WARNING,
    PJ_RECORD_END
} pj_record_type;

typedef struct pj_record {
    uint32_t crc;
    uint32_t type_bytes; /* type | payload bytes << 8 */
    unsigned char payload[];
} pj_record;

static inline pj_record_type pj_record_kind(const pj_record *record)
{
    return (pj_record_type)(record->type_bytes & 0xff);
}
static inline uint32_t pj_record_bytes(const pj_record *record)
{
    return record->type_bytes >> 8;
}
/* Bytes a record with this payload takes, header and padding included. */
static inline size_t pj_record_size(size_t payload_bytes)
{
    return sizeof(pj_record) + ((payload_bytes + 7) & ~(size_t)7);
}

typedef struct pj_token_text_record {
    uint32_t span_serial; /* of the token's span on this lane */
    uint32_t lane;
    uint32_t sequence;
    int32_t token_id;
    /* the text follows */
} pj_token_text_record;

/* A span record taken apart. Pointers go into the record. */
typedef struct pj_span_view {
    const pj_span *span;
    const pj_stats *stats; /* NULL: none */
    const pj_extra *extras;
    uint32_t extra_count;
} pj_span_view;
/* False when the payload is too short for what its flags say. */
bool pj_span_view_get(const pj_record *record, pj_span_view *view);

/* ---- writing ---- */

typedef struct pj_spool {
    int fd;
    int file_fd;     /* the file's descriptor and lock when it was left for memory, else 0 */
    char *path;      /* NULL: only in memory */
    pj_buffer batch; /* not yet written */
    uint64_t written_bytes;
    bool in_memory; /* from the start or because the disk was full */
} pj_spool;

/* Makes DIR/ID.spool, locked; `dir` NULL: in memory, for runs that are not kept. */
pj_status pj_spool_create(const char *dir, const char *run_id, int64_t start_ns,
                          int64_t start_wall_ns, pj_spool *spool, pj_error *err);
pj_status pj_spool_append(pj_spool *spool, pj_record_type type, const void *payload, size_t bytes,
                          pj_error *err);
/* A record as it came from a lane: the checksum is put in. */
pj_status pj_spool_append_record(pj_spool *spool, const pj_record *record, pj_error *err);
/* Hands everything to the operating system. On a full disk the spool moves to memory and goes on;
 * the status is then that error, once. */
pj_status pj_spool_flush(pj_spool *spool, pj_error *err);
/* Frees it. The file stays unless `remove`. */
void pj_spool_close(pj_spool *spool, bool remove);

/* ---- reading ---- */

typedef struct pj_spool_reader {
    pj_mapping mapping;
    size_t offset;
    size_t checked; /* checksums of records below this offset were found good */
    int64_t start_ns, start_wall_ns;
    bool truncated; /* it ended with a record that was cut off or corrupt */
    bool borrowed;  /* the memory is the caller's */
    int lock_fd;    /* -1: not locked by us */
} pj_spool_reader;

/* Opens a leftover file and locks it; PJ_E_AGAIN when a living process has it, PJ_E_NOT_FOUND when
 * somebody else has removed it meanwhile. */
pj_status pj_spool_reader_open(const char *path, pj_spool_reader *reader, pj_error *err);
/* Reads what a spool of this process holds, written and flushed. */
pj_status pj_spool_reader_of(const pj_spool *spool, pj_spool_reader *reader, pj_error *err);
/* Reads from memory that the caller keeps; for tests and the fuzzer. */
pj_status pj_spool_reader_memory(const unsigned char *bytes, size_t count, pj_spool_reader *reader,
                                 pj_error *err);
/* The next record, borrowed; NULL at the end. */
const pj_record *pj_spool_next(pj_spool_reader *reader);
void pj_spool_rewind(pj_spool_reader *reader);
void pj_spool_reader_close(pj_spool_reader *reader); /* may run twice */

#endif

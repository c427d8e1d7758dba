/*
 * The spool: the append-only file that receives a run's events while the run is in progress, so
 * that a kill loses nothing already written. The collector thread is its only writer. It
 * is read back when the run ends, or by a later process if this one died. An advisory lock (flock)
 * on the open file distinguishes the spool of a live process from a leftover.
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
 *   CONDITIONS    pj_condition each
 *   SHARE         pj_share_record, then its energies: the run's part of the machine's energy
 *   DEVICE        JSON object: number and description of a device
 *   LAUNCH        pj_launch_record: where spans of a device were launched; before these
 *
 * A reader skips records whose checksum is wrong and resumes at the next valid one; it counts the
 * bytes it skipped. A record that is cut off at the end of the file is what an interrupted write
 * leaves, and is not counted as damage.
 *
 * The file is written with write(), not through a mapping: written data survives the death of the
 * process just as well, and a full disk is an error code instead of a SIGBUS. When the disk
 * is full, the reserve file of the folder is deleted first, which frees PJ_SPOOL_RESERVE_BYTES;
 * when those are used up too, the spool continues in memory, so that the run can still finish.
 */
#ifndef PJ_TRACE_SPOOL_H
#define PJ_TRACE_SPOOL_H

#include "base/buffer.h"
#include "base/file.h"
#include "trace/rail.h"
#include "trace/span.h"

enum { PJ_SPOOL_VERSION = 1, PJ_SPOOL_HEADER_BYTES = 64, PJ_RECORD_MAX_BYTES = (1 << 24) - 1 };
enum { PJ_SPOOL_RESERVE_BYTES = 8 << 20 };

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
    PJ_RECORD_END,
    PJ_RECORD_CONDITIONS, /* an array of pj_condition */
    PJ_RECORD_SHARE,      /* pj_share_record (trace/share.h) */
    PJ_RECORD_DEVICE,
    PJ_RECORD_LAUNCH,
    PJ_RECORD_LAST = PJ_RECORD_LAUNCH
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

/* Applies to the spans of a device's lane from this serial number on, up to the next record. */
typedef struct pj_launch_record {
    int64_t clock_error_ns; /* of their times, 1 sigma */
    uint32_t lane, serial;
    uint32_t host_lane, host_serial; /* the host's span that launched them; UINT32_MAX: unknown */
    uint32_t device, reserved;
} pj_launch_record;

/* A span record taken apart. Pointers go into the record. */
typedef struct pj_span_view {
    const pj_span *span;
    const pj_stats *stats; /* NULL: none */
    const pj_extra *extras;
    uint32_t extra_count;
} pj_span_view;
/* False if the payload is too short for its flags. */
bool pj_span_view_get(const pj_record *record, pj_span_view *view);

/* ---- writing ---- */

typedef struct pj_spool {
    int fd;
    int file_fd;     /* the file's descriptor and lock after the spool moved to memory, else 0 */
    char *path;      /* NULL: only in memory */
    char *reserve;   /* file to delete when the disk is full; NULL: none, or already deleted */
    pj_buffer batch; /* not yet written */
    uint64_t written_bytes;
    bool in_memory; /* from the start or because the disk was full */
    bool stuck;     /* even memory cannot be written: the rest stays in the batch */
} pj_spool;

/* Ensures that DIR/reserve exists and occupies PJ_SPOOL_RESERVE_BYTES on the disk. Best effort. */
void pj_spool_reserve(const char *dir);
/* Deletes it. */
void pj_spool_release(const char *dir);
/* Creates DIR/ID.spool, locked; `dir` NULL: in memory, for runs that are not kept. */
pj_status pj_spool_create(const char *dir, const char *run_id, int64_t start_ns,
                          int64_t start_wall_ns, pj_spool *spool, pj_error *err);
pj_status pj_spool_append(pj_spool *spool, pj_record_type type, const void *payload, size_t bytes,
                          pj_error *err);
/* A record from a lane: fills in the checksum. */
pj_status pj_spool_append_record(pj_spool *spool, const pj_record *record, pj_error *err);
/* Writes the batch. On a full disk the reserve is deleted, and then the spool moves to memory; each
 * of these steps is reported once, as a failure whose sentence explains what happens next. */
pj_status pj_spool_flush(pj_spool *spool, pj_error *err);
/* For a run that ended but could not be stored: completes the file with what is only in memory, or
 * writes the whole spool to `other_dir` (NULL: none) if the file cannot take it. Returns how many
 * of the pj_spool_bytes are on disk in one file, whose path is spool->path (NULL: none). */
uint64_t pj_spool_keep(pj_spool *spool, const char *other_dir, const char *run_id);
static inline uint64_t pj_spool_bytes(const pj_spool *spool)
{
    return spool->written_bytes + spool->batch.length;
}
/* Frees it. The file stays unless `remove`. */
void pj_spool_close(pj_spool *spool, bool remove);

/* ---- reading ---- */

typedef struct pj_spool_reader {
    pj_mapping mapping;
    size_t offset;
    size_t checked; /* checksums of records below this offset are verified */
    int64_t start_ns, start_wall_ns;
    uint64_t damaged_bytes; /* skipped so far for lack of a valid record */
    size_t scan_budget;     /* bytes that may still be checksummed in search of one */
    bool truncated;         /* the last record is cut off */
    bool borrowed;          /* the memory is the caller's */
    bool copied;            /* the memory is the reader's own */
    int lock_fd;            /* -1: not locked by us */
} pj_spool_reader;

/* Opens a leftover file and locks it; PJ_E_AGAIN when a live process holds it, PJ_E_NOT_FOUND when
 * another process has removed it meanwhile. */
pj_status pj_spool_reader_open(const char *path, pj_spool_reader *reader, pj_error *err);
/* The same for an open descriptor, which belongs to the reader whatever the outcome. */
pj_status pj_spool_reader_open_fd(int fd, const char *path, pj_spool_reader *reader, pj_error *err);
/* Reads a spool of this process, after a flush. */
pj_status pj_spool_reader_of(const pj_spool *spool, pj_spool_reader *reader, pj_error *err);
/* Reads from memory that the caller keeps; for tests and the fuzzer. */
pj_status pj_spool_reader_memory(const unsigned char *bytes, size_t count, pj_spool_reader *reader,
                                 pj_error *err);
/* The next record, borrowed; NULL at the end. */
const pj_record *pj_spool_next(pj_spool_reader *reader);
void pj_spool_rewind(pj_spool_reader *reader);
void pj_spool_reader_close(pj_spool_reader *reader); /* may run twice */

#endif

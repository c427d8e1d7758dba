/* Writing and reading the spool; its format is described in the header. */
#include "trace/spool.h"

#include "base/ids.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH_BYTES = 256 << 10 };

static const char magic[8] = "PJSPOOL";
static const uint32_t byte_order_mark = 0x01020304;

typedef struct spool_header {
    char magic[8];
    uint32_t version, byte_order;
    int64_t start_ns, start_wall_ns;
    unsigned char zero[28];
    uint32_t crc;
} spool_header;

_Static_assert(sizeof(spool_header) == PJ_SPOOL_HEADER_BYTES, "part of the format");
_Static_assert(sizeof(pj_reading) == 56, "part of the format");
/* Statistics have a slot of 32 bytes in a record; larger ones would be a new version of the format. */
_Static_assert(sizeof(pj_stats) <= 32 && sizeof(pj_extra) == 16, "part of the format");

bool pj_span_view_get(const pj_record *record, pj_span_view *view)
{
    size_t left = pj_record_bytes(record);
    const unsigned char *at = record->payload;
    *view = (pj_span_view){0};
    if (left < sizeof(pj_span)) return false;
    view->span = (const pj_span *)at;
    at += sizeof(pj_span);
    left -= sizeof(pj_span);
    if (view->span->flags & PJ_SPAN_HAS_STATS) {
        if (left < 32) return false;
        view->stats = (const pj_stats *)at;
        at += 32;
        left -= 32;
    }
    if (view->span->flags & PJ_SPAN_HAS_EXTRAS) {
        view->extras = (const pj_extra *)at;
        view->extra_count = (uint32_t)(left / sizeof(pj_extra));
    }
    return true;
}

/* The checksum covers the word behind it and the payload without padding. */
static uint32_t record_crc(const pj_record *record)
{
    return pj_crc32c(0, &record->type_bytes, sizeof record->type_bytes + pj_record_bytes(record));
}

/* ---- writing ------------------------------------------------------------------------------- */

static int anonymous_file(void)
{
#ifdef __linux__
    return memfd_create("perjoule-spool", MFD_CLOEXEC);
#else
    char path[] = "/tmp/perjoule-spool-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
#endif
}

static pj_status open_file(pj_spool *spool, const char *dir, const char *run_id, pj_error *err)
{
    char name[64], path[4096];
    if ((size_t)snprintf(name, sizeof name, "%s.spool", run_id) >= sizeof name ||
        !pj_path_join(path, sizeof path, dir, name))
        return pj_fail(err, PJ_E_INVALID, "the path of the spool folder %s is too long", dir);
    spool->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (spool->fd < 0) return pj_fail_errno(err, errno, "cannot make the spool %s", path);
    if (flock(spool->fd, LOCK_EX | LOCK_NB) != 0) {
        pj_fail_errno(err, errno, "cannot lock the spool %s", path);
        unlink(path);
        return err ? err->status : PJ_E_IO;
    }
    spool->path = pj_strdup(path);
    if (!spool->path) {
        unlink(path);
        return pj_fail_memory(err, "a spool");
    }
    return PJ_OK;
}

pj_status pj_spool_create(const char *dir, const char *run_id, int64_t start_ns,
                          int64_t start_wall_ns, pj_spool *spool, pj_error *err)
{
    pj_status status = PJ_OK;
    spool_header header = {.version = PJ_SPOOL_VERSION,
                           .byte_order = byte_order_mark,
                           .start_ns = start_ns,
                           .start_wall_ns = start_wall_ns};
    memcpy(header.magic, magic, sizeof magic);
    header.crc = pj_crc32c(0, &header, offsetof(spool_header, crc));
    *spool = (pj_spool){.fd = -1, .in_memory = !dir};
    pj_buffer_init(&spool->batch, 2 * (size_t)PJ_RECORD_MAX_BYTES);
    if (dir) {
        status = open_file(spool, dir, run_id, err);
    } else if ((spool->fd = anonymous_file()) < 0) {
        status = pj_fail_errno(err, errno, "cannot make a spool in memory");
    }
    if (status == PJ_OK && !(pj_buffer_reserve(&spool->batch, 2 * BATCH_BYTES) &&
                             pj_buffer_append(&spool->batch, &header, sizeof header)))
        status = pj_fail_memory(err, "a spool");
    if (status == PJ_OK) status = pj_spool_flush(spool, err);
    if (status != PJ_OK) pj_spool_close(spool, true);
    return status;
}

static bool write_all(int fd, const char *bytes, size_t count, uint64_t offset)
{
    while (count) {
        ssize_t n = pwrite(fd, bytes, count, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = ENOSPC;
            return false;
        }
        bytes += n;
        count -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* Copies what the file holds into memory and goes on there; the file stays as it is. */
static bool move_to_memory(pj_spool *spool)
{
    char block[16384];
    int fd = anonymous_file();
    if (fd < 0) return false;
    for (uint64_t done = 0; done < spool->written_bytes;) {
        size_t want = sizeof block;
        if (spool->written_bytes - done < want) want = (size_t)(spool->written_bytes - done);
        ssize_t n = pread(spool->fd, block, want, (off_t)done);
        if (n <= 0 || !write_all(fd, block, (size_t)n, done)) {
            close(fd);
            return false;
        }
        done += (uint64_t)n;
    }
    spool->file_fd = spool->fd; /* keeps the lock: the file is still this run's */
    spool->fd = fd;
    spool->in_memory = true;
    return true;
}

pj_status pj_spool_flush(pj_spool *spool, pj_error *err)
{
    size_t count = spool->batch.length;
    if (!count) return PJ_OK;
    pj_status status = PJ_OK;
    bool written = write_all(spool->fd, spool->batch.data, count, spool->written_bytes);
    if (!written) {
        int number = errno;
        status = pj_fail_errno(err, number, "cannot write the spool %s",
                               spool->path ? spool->path : "in memory");
        written = !spool->in_memory && move_to_memory(spool) &&
                  write_all(spool->fd, spool->batch.data, count, spool->written_bytes);
    }
    if (written) {
        spool->written_bytes += count;
        pj_buffer_clear(&spool->batch);
    }
    return status;
}

static pj_status make_room(pj_spool *spool, size_t bytes, pj_error *err)
{
    pj_status status = PJ_OK;
    if (spool->batch.length >= BATCH_BYTES) status = pj_spool_flush(spool, err);
    if (!pj_buffer_reserve(&spool->batch, bytes)) {
        spool->batch.failed = false; /* this record is lost; the next may fit again */
        return pj_fail_memory(err, "a record of the spool");
    }
    return status;
}

pj_status pj_spool_append_record(pj_spool *spool, const pj_record *record, pj_error *err)
{
    size_t size = pj_record_size(pj_record_bytes(record));
    pj_status status = make_room(spool, size, err);
    if (status == PJ_E_NO_MEMORY) return status;
    pj_record *copy = (pj_record *)(spool->batch.data + spool->batch.length);
    memcpy(copy, record, size);
    copy->crc = record_crc(copy);
    spool->batch.length += size;
    return status;
}

pj_status pj_spool_append(pj_spool *spool, pj_record_type type, const void *payload, size_t bytes,
                          pj_error *err)
{
    if (bytes > PJ_RECORD_MAX_BYTES)
        return pj_fail(err, PJ_E_FULL, "a record of %zu bytes is too long for the spool (16 MiB)",
                       bytes);
    size_t size = pj_record_size(bytes);
    pj_status status = make_room(spool, size, err);
    if (status == PJ_E_NO_MEMORY) return status;
    pj_record *record = (pj_record *)(spool->batch.data + spool->batch.length);
    memset((unsigned char *)record + size - 8, 0, 8); /* the padding */
    record->type_bytes = type | (uint32_t)bytes << 8;
    memcpy(record->payload, payload, bytes);
    record->crc = record_crc(record);
    spool->batch.length += size;
    return status;
}

void pj_spool_close(pj_spool *spool, bool remove)
{
    if (remove && spool->path) unlink(spool->path);
    if (spool->fd >= 0) close(spool->fd);
    if (spool->file_fd > 0) close(spool->file_fd);
    pj_free(spool->path);
    pj_buffer_fini(&spool->batch);
    *spool = (pj_spool){.fd = -1};
}

/* ---- reading ------------------------------------------------------------------------------- */

static pj_status check_header(pj_spool_reader *reader, const char *name, pj_error *err)
{
    const spool_header *header = (const spool_header *)reader->mapping.data;
    if (reader->mapping.size < sizeof *header || memcmp(header->magic, magic, sizeof magic) != 0)
        return pj_fail(err, PJ_E_INVALID, "%s is not a spool of perjoule", name);
    if (header->byte_order != byte_order_mark)
        return pj_fail(err, PJ_E_UNSUPPORTED, "%s was written on a machine of the other byte order",
                       name);
    if (header->version != PJ_SPOOL_VERSION)
        return pj_fail(err, PJ_E_UNSUPPORTED, "%s has version %u; this perjoule reads version %d",
                       name, header->version, PJ_SPOOL_VERSION);
    if (header->crc != pj_crc32c(0, header, offsetof(spool_header, crc)))
        return pj_fail(err, PJ_E_INVALID, "the header of %s is corrupt", name);
    reader->start_ns = header->start_ns;
    reader->start_wall_ns = header->start_wall_ns;
    reader->offset = sizeof *header;
    return PJ_OK;
}

static pj_status map_fd(int fd, const char *name, pj_spool_reader *reader, pj_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return pj_fail_errno(err, errno, "cannot read %s", name);
    if (info.st_nlink == 0 && reader->lock_fd >= 0)
        return pj_fail(err, PJ_E_NOT_FOUND, "%s was taken by another process", name);
    if (info.st_size < PJ_SPOOL_HEADER_BYTES)
        return pj_fail(err, PJ_E_INVALID, "%s is too short for a spool", name);
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return pj_fail_errno(err, errno, "cannot map %s", name);
    reader->mapping = (pj_mapping){data, (size_t)info.st_size};
    return check_header(reader, name, err);
}

pj_status pj_spool_reader_open(const char *path, pj_spool_reader *reader, pj_error *err)
{
    *reader = (pj_spool_reader){.lock_fd = open(path, O_RDONLY | O_CLOEXEC)};
    pj_status status;
    if (reader->lock_fd < 0) return pj_fail_errno(err, errno, "cannot open %s", path);
    if (flock(reader->lock_fd, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? pj_fail(err, PJ_E_AGAIN, "%s belongs to a run that goes on", path)
                     : pj_fail_errno(err, errno, "cannot lock %s", path);
    else
        status = map_fd(reader->lock_fd, path, reader, err);
    if (status != PJ_OK) pj_spool_reader_close(reader);
    return status;
}

pj_status pj_spool_reader_of(const pj_spool *spool, pj_spool_reader *reader, pj_error *err)
{
    *reader = (pj_spool_reader){.lock_fd = -1};
    pj_status status = map_fd(spool->fd, spool->path ? spool->path : "the spool", reader, err);
    if (status != PJ_OK) pj_spool_reader_close(reader);
    reader->checked = reader->mapping.size; /* these very pages were written a moment ago */
    return status;
}

pj_status pj_spool_reader_memory(const unsigned char *bytes, size_t count, pj_spool_reader *reader,
                                 pj_error *err)
{
    *reader = (pj_spool_reader){.lock_fd = -1, .borrowed = true};
    reader->mapping = (pj_mapping){bytes, count};
    return check_header(reader, "the spool", err);
}

const pj_record *pj_spool_next(pj_spool_reader *reader)
{
    size_t left = reader->mapping.size - reader->offset;
    const pj_record *record = (const pj_record *)(reader->mapping.data + reader->offset);
    if (left == 0) return NULL;
    size_t size = left < sizeof *record ? SIZE_MAX : pj_record_size(pj_record_bytes(record));
    if (size > left || pj_record_kind(record) == PJ_RECORD_PAD ||
        (reader->offset >= reader->checked && record->crc != record_crc(record))) {
        reader->truncated = true;
        return NULL;
    }
    reader->offset += size;
    if (reader->checked < reader->offset) reader->checked = reader->offset;
    return record;
}

void pj_spool_rewind(pj_spool_reader *reader)
{
    reader->offset = PJ_SPOOL_HEADER_BYTES;
}

void pj_spool_reader_close(pj_spool_reader *reader)
{
    if (!reader->borrowed) pj_file_unmap(&reader->mapping);
    if (reader->lock_fd >= 0) close(reader->lock_fd);
    *reader = (pj_spool_reader){.lock_fd = -1};
}

/* Writing and reading the spool; the header describes its format. */
#include "trace/spool.h"

#include "base/file.h"
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

enum { BATCH_BYTES = 256 << 10, SCAN_BUDGET_BYTES = 64 << 20, STUCK_MAX_BYTES = 1 << 30 };

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
_Static_assert(sizeof(pj_launch_record) == 32, "part of the format");
/* Statistics have a slot of 32 bytes in a record; larger ones would be a new version of the format.
 */
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

/* The checksum covers the word after it and the payload without padding. */
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

static pj_status spool_open_file(pj_spool *spool, const char *dir, const char *run_id,
                                 pj_error *err)
{
    char name[64], path[4096];
    if ((size_t)snprintf(name, sizeof name, "%s.spool", run_id) >= sizeof name ||
        !pj_path_join(path, sizeof path, dir, name))
        return pj_fail(err, PJ_E_INVALID, "the path of the spool folder %s is too long", dir);
    spool->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (spool->fd < 0) return pj_fail_errno(err, errno, "cannot create the spool %s", path);
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
    if (pj_path_join(path, sizeof path, dir, "reserve")) spool->reserve = pj_strdup(path);
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
        status = spool_open_file(spool, dir, run_id, err);
    } else if ((spool->fd = anonymous_file()) < 0) {
        status = pj_fail_errno(err, errno, "cannot create a spool in memory");
    }
    if (status == PJ_OK && !(pj_buffer_reserve(&spool->batch, 2 * BATCH_BYTES) &&
                             pj_buffer_append(&spool->batch, &header, sizeof header)))
        status = pj_fail_memory(err, "a spool");
    if (status == PJ_OK) status = pj_spool_flush(spool, err);
    if (status != PJ_OK) pj_spool_close(spool, true);
    return status;
}

static bool spool_write_all(int fd, const char *bytes, size_t count, uint64_t offset)
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

/* Copies bytes [from, to) of one file to the same offset of another. */
static bool copy_range(int source, int target, uint64_t from, uint64_t to)
{
    char block[16384];
    for (uint64_t done = from; done < to;) {
        size_t want = to - done < sizeof block ? (size_t)(to - done) : sizeof block;
        ssize_t n = pread(source, block, want, (off_t)done);
        if (n <= 0 || !spool_write_all(target, block, (size_t)n, done)) return false;
        done += (uint64_t)n;
    }
    return true;
}

/* Continues in memory; the file stays as it is. */
static bool move_to_memory(pj_spool *spool)
{
    int fd = anonymous_file();
    if (fd < 0) return false;
    if (!copy_range(spool->fd, fd, 0, spool->written_bytes)) {
        close(fd);
        return false;
    }
    spool->file_fd = spool->fd; /* keeps the lock: the file is still this run's */
    spool->fd = fd;
    spool->in_memory = true;
    return true;
}

static bool write_batch(const pj_spool *spool)
{
    return spool_write_all(spool->fd, spool->batch.data, spool->batch.length, spool->written_bytes);
}

static bool is_full_disk(int number)
{
    return number == ENOSPC || number == EDQUOT;
}

/* Deletes the reserve and writes into the space that it occupied. */
static bool use_reserve(pj_spool *spool, int number, pj_error *err)
{
    if (!spool->reserve || !is_full_disk(number)) return false;
    if (unlink(spool->reserve) != 0 && errno != ENOENT) return false; /* ENOENT: another run did */
    pj_free(spool->reserve);
    spool->reserve = NULL;
    pj_fail_errno(err, number,
                  "cannot write the spool %s; the reserve of %d MB was released, and "
                  "the run continues there",
                  spool->path, PJ_SPOOL_RESERVE_BYTES >> 20);
    return write_batch(spool);
}

static bool use_memory(pj_spool *spool, int number, pj_error *err)
{
    bool moved = !spool->in_memory && move_to_memory(spool) && write_batch(spool);
    pj_fail_errno(err, number, "cannot write the spool %s, so the run continues in memory",
                  spool->path ? spool->path : "in memory");
    return moved;
}

pj_status pj_spool_flush(pj_spool *spool, pj_error *err)
{
    if (!spool->batch.length) return PJ_OK;
    bool written = write_batch(spool), failed = !written;
    int number = errno;
    if (failed && spool->stuck) return PJ_OK; /* already reported */
    if (!written) written = use_reserve(spool, number, err);
    if (!written) written = use_memory(spool, number, err);
    if (written) {
        spool->written_bytes += spool->batch.length;
        pj_buffer_clear(&spool->batch);
    } else {
        spool->stuck = true;
        spool->batch.max_bytes = STUCK_MAX_BYTES;
    }
    return failed ? pj_status_of_errno(number) : PJ_OK;
}

/* ---- keeping what could not be stored ------------------------------------------------------- */

#ifdef __APPLE__
static bool spool_occupy(int fd)
{
    static const char zeros[1 << 16];
    for (uint64_t at = 0; at < PJ_SPOOL_RESERVE_BYTES; at += sizeof zeros)
        if (!spool_write_all(fd, zeros, sizeof zeros, at)) return false;
    return true;
}
#else
static bool spool_occupy(int fd)
{
    return posix_fallocate(fd, 0, PJ_SPOOL_RESERVE_BYTES) == 0;
}
#endif

void pj_spool_reserve(const char *dir)
{
    char path[4096];
    struct stat info;
    if (!pj_path_join(path, sizeof path, dir, "reserve")) return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    bool held =
        fstat(fd, &info) == 0 && (uint64_t)info.st_blocks * 512 >= (uint64_t)PJ_SPOOL_RESERVE_BYTES;
    if (!held && !spool_occupy(fd)) unlink(path); /* too little space even for this */
    close(fd);
}

void pj_spool_release(const char *dir)
{
    char path[4096];
    if (pj_path_join(path, sizeof path, dir, "reserve")) unlink(path);
}

/* Everything from `from` on, including the batch. */
static bool write_rest(const pj_spool *spool, int fd, uint64_t from)
{
    return copy_range(spool->fd, fd, from, spool->written_bytes) &&
           spool_write_all(fd, spool->batch.data, spool->batch.length, spool->written_bytes);
}

/* Completes the file that stayed on disk when the spool moved to memory. */
static bool complete_file(const pj_spool *spool)
{
    struct stat info;
    if (!spool->path) return false;
    if (!spool->file_fd) return spool->batch.length == 0 || write_batch(spool);
    if (fstat(spool->file_fd, &info) != 0) return false;
    /* The last write may have been cut short, so the tail is written from the last whole block. */
    uint64_t from = (uint64_t)info.st_size / 4096 * 4096;
    if (from > spool->written_bytes) from = 0;
    bool whole = write_rest(spool, spool->file_fd, from);
    if (whole || !spool->reserve || unlink(spool->reserve) != 0) return whole;
    return write_rest(spool, spool->file_fd, from);
}

/* Writes the whole spool into a folder on another disk. */
static bool move_elsewhere(pj_spool *spool, const char *dir, const char *run_id)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "%s.spool", run_id);
    if (!dir || !pj_path_join(path, sizeof path, dir, name)) return false;
    char *copy = pj_strdup(path);
    int fd = copy ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    bool whole = fd >= 0 && write_rest(spool, fd, 0);
    if (fd >= 0 && !whole) unlink(path);
    if (fd >= 0) close(fd);
    if (!whole) {
        pj_free(copy);
        return false;
    }
    if (spool->path) unlink(spool->path);
    pj_free(spool->path);
    spool->path = copy;
    return true;
}

uint64_t pj_spool_keep(pj_spool *spool, const char *other_dir, const char *run_id)
{
    struct stat info;
    uint64_t total = pj_spool_bytes(spool), kept = 0;
    if (complete_file(spool) || move_elsewhere(spool, other_dir, run_id)) return total;
    if (spool->path && fstat(spool->file_fd ? spool->file_fd : spool->fd, &info) == 0)
        kept = (uint64_t)info.st_size;
    return kept < total ? kept : total - 1;
}

static pj_status spool_make_room(pj_spool *spool, size_t bytes, pj_error *err)
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
    pj_status status = spool_make_room(spool, size, err);
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
        return pj_fail(err, PJ_E_FULL, "a record of %zu bytes exceeds the spool's limit (16 MiB)",
                       bytes);
    size_t size = pj_record_size(bytes);
    pj_status status = spool_make_room(spool, size, err);
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
    pj_free(spool->reserve);
    pj_buffer_fini(&spool->batch);
    *spool = (pj_spool){.fd = -1};
}

/* ---- reading ------------------------------------------------------------------------------- */

static pj_status check_header(pj_spool_reader *reader, const char *name, pj_error *err)
{
    const spool_header *header = (const spool_header *)reader->mapping.data;
    if (reader->mapping.size < sizeof *header || memcmp(header->magic, magic, sizeof magic) != 0)
        return pj_fail(err, PJ_E_INVALID, "%s is not a perjoule spool", name);
    if (header->byte_order != byte_order_mark)
        return pj_fail(err, PJ_E_UNSUPPORTED, "%s was written on a machine of different byte order",
                       name);
    if (header->version != PJ_SPOOL_VERSION)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s has version %u, but this perjoule reads version %d", name,
                       header->version, PJ_SPOOL_VERSION);
    if (header->crc != pj_crc32c(0, header, offsetof(spool_header, crc)))
        return pj_fail(err, PJ_E_INVALID, "the header of %s is corrupt", name);
    reader->start_ns = header->start_ns;
    reader->start_wall_ns = header->start_wall_ns;
    if (reader->checked < sizeof *header) reader->checked = sizeof *header;
    pj_spool_rewind(reader);
    return PJ_OK;
}

static pj_status map_fd(int fd, const char *name, pj_spool_reader *reader, pj_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return pj_fail_errno(err, errno, "cannot read %s", name);
    if (info.st_nlink == 0 && reader->lock_fd >= 0)
        return pj_fail(err, PJ_E_NOT_FOUND, "%s was taken by another process", name);
    if (info.st_size < PJ_SPOOL_HEADER_BYTES)
        return pj_fail(err, PJ_E_INVALID, "%s is too short to be a spool", name);
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return pj_fail_errno(err, errno, "cannot map %s", name);
    reader->mapping = (pj_mapping){data, (size_t)info.st_size};
    return check_header(reader, name, err);
}

pj_status pj_spool_reader_open_fd(int fd, const char *path, pj_spool_reader *reader, pj_error *err)
{
    pj_status status;
    *reader = (pj_spool_reader){.lock_fd = fd};
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? pj_fail(err, PJ_E_AGAIN, "%s belongs to a run that is in progress", path)
                     : pj_fail_errno(err, errno, "cannot lock %s", path);
    else
        status = map_fd(fd, path, reader, err);
    if (status != PJ_OK) pj_spool_reader_close(reader);
    return status;
}

pj_status pj_spool_reader_open(const char *path, pj_spool_reader *reader, pj_error *err)
{
    *reader = (pj_spool_reader){.lock_fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return pj_fail_errno(err, errno, "cannot open %s", path);
    return pj_spool_reader_open_fd(fd, path, reader, err);
}

/* Copies the memory file and the batch, which holds what could not be written even there (file size
 * limits apply to it too). */
static pj_status copy_all(const pj_spool *spool, pj_spool_reader *reader, pj_error *err)
{
    uint64_t done = 0, total = spool->written_bytes + spool->batch.length;
    unsigned char *bytes = pj_alloc(total, 1);
    if (!bytes) return pj_fail_memory(err, "the spool of a run");
    while (done < spool->written_bytes) {
        ssize_t n = pread(spool->fd, bytes + done, spool->written_bytes - done, (off_t)done);
        if (n <= 0) break;
        done += (uint64_t)n;
    }
    memcpy(bytes + done, spool->batch.data, spool->batch.length);
    reader->mapping = (pj_mapping){bytes, done + spool->batch.length};
    reader->copied = true;
    return check_header(reader, "the spool", err);
}

pj_status pj_spool_reader_of(const pj_spool *spool, pj_spool_reader *reader, pj_error *err)
{
    *reader = (pj_spool_reader){.lock_fd = -1};
    pj_status status =
        spool->stuck ? copy_all(spool, reader, err)
                     : map_fd(spool->fd, spool->path ? spool->path : "the spool", reader, err);
    if (status != PJ_OK) pj_spool_reader_close(reader);
    reader->checked = reader->mapping.size; /* written by this process a moment ago */
    return status;
}

pj_status pj_spool_reader_memory(const unsigned char *bytes, size_t count, pj_spool_reader *reader,
                                 pj_error *err)
{
    *reader = (pj_spool_reader){.lock_fd = -1, .borrowed = true};
    reader->mapping = (pj_mapping){bytes, count};
    return check_header(reader, "the spool", err);
}

/* The record at `offset`; NULL when there is no valid one. Checksums cost time: records already
 * verified are not verified again, and a search has a budget of bytes. */
static const pj_record *record_at(const pj_spool_reader *reader, size_t offset, size_t *budget)
{
    size_t left = reader->mapping.size - offset;
    const pj_record *record = (const pj_record *)(reader->mapping.data + offset);
    if (left < sizeof *record) return NULL;
    pj_record_type kind = pj_record_kind(record);
    size_t size = pj_record_size(pj_record_bytes(record));
    if (size > left || kind == PJ_RECORD_PAD) return NULL;
    if (offset < reader->checked) return record;
    if (budget && (kind > PJ_RECORD_LAST || size > *budget)) return NULL;
    if (budget) *budget -= size;
    return record->crc == record_crc(record) ? record : NULL;
}

/* Moves to the next valid record after a bad one; false: there is none. */
static bool skip_damage(pj_spool_reader *reader)
{
    size_t from = reader->offset, end = reader->mapping.size, at = from + 8;
    const pj_record *bad = (const pj_record *)(reader->mapping.data + from);
    bool cut_off = end - from < sizeof *bad || pj_record_size(pj_record_bytes(bad)) > end - from;
    if (reader->checked > from) return false; /* not from a file: the writer's own memory */
    while (at + sizeof *bad <= end && !record_at(reader, at, &reader->scan_budget)) at += 8;
    bool found = at + sizeof *bad <= end;
    reader->offset = found ? at : end;
    reader->truncated = !found && cut_off;
    if (!reader->truncated) reader->damaged_bytes += reader->offset - from;
    return found;
}

const pj_record *pj_spool_next(pj_spool_reader *reader)
{
    if (reader->offset >= reader->mapping.size) return NULL;
    const pj_record *record = record_at(reader, reader->offset, NULL);
    while (!record) {
        if (!skip_damage(reader)) return NULL;
        record = record_at(reader, reader->offset, NULL);
    }
    size_t begin = reader->offset;
    reader->offset += pj_record_size(pj_record_bytes(record));
    if (reader->checked == begin) reader->checked = reader->offset; /* no damage before it */
    return record;
}

void pj_spool_rewind(pj_spool_reader *reader)
{
    reader->offset = PJ_SPOOL_HEADER_BYTES;
    reader->damaged_bytes = 0;
    reader->scan_budget = SCAN_BUDGET_BYTES;
}

void pj_spool_reader_close(pj_spool_reader *reader)
{
    if (reader->copied)
        pj_free((void *)(uintptr_t)reader->mapping.data);
    else if (!reader->borrowed)
        pj_file_unmap(&reader->mapping);
    if (reader->lock_fd >= 0) close(reader->lock_fd);
    *reader = (pj_spool_reader){.lock_fd = -1};
}

/* Files of spools: finding, opening and locking them, and where attempts to recover them are
 * counted. */
#include "record/spool_files.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NEWBORN_S = 60 };

/* Empty: a live process may be about to lock it, which must not fail because this one looks. */
static bool is_newborn(const struct stat *info)
{
    return info->st_size == 0 && pj_clock_wall_ns() / PJ_NS_PER_S - info->st_mtime <= NEWBORN_S;
}

bool pj_spool_tries_path(const char *spool, char *path, size_t bytes)
{
    int stem = (int)(strlen(spool) - strlen(".spool"));
    return snprintf(path, bytes, "%.*s.tries", stem, spool) < (int)bytes;
}

pj_status pj_spool_file_open(const char *path, pj_spool_reader *reader, uint64_t *bytes,
                             pj_error *err)
{
    struct stat info;
    *reader = (pj_spool_reader){.lock_fd = -1};
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return pj_fail_errno(err, errno, "cannot open it");
    pj_status status = PJ_OK;
    if (fstat(fd, &info) != 0)
        status = pj_fail_errno(err, errno, "cannot inspect it");
    else if (!S_ISREG(info.st_mode) || info.st_uid != geteuid())
        status = pj_fail(err, PJ_E_DENIED, "it is not a file of this user, and is ignored");
    else if (is_newborn(&info))
        status = pj_fail(err, PJ_E_AGAIN, "a live process may be about to write it");
    if (status != PJ_OK) {
        close(fd);
        return status;
    }
    *bytes = (uint64_t)info.st_size;
    return pj_spool_reader_open_fd(fd, path, reader, err);
}

bool pj_spool_file_has_records(const char *path)
{
    struct stat info = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno != ENOENT;
    bool is_empty = fstat(fd, &info) == 0 && info.st_size <= PJ_SPOOL_HEADER_BYTES;
    /* Under its lock, which recovery holds while it deletes such a file: never a new one's name. */
    if (is_empty && flock(fd, LOCK_EX) == 0 && fstat(fd, &info) == 0 && info.st_nlink) unlink(path);
    close(fd);
    return !is_empty;
}

bool pj_spool_next_file(DIR *spools, const char *dir, bool damaged, char path[PJ_SPOOL_DIR_BYTES])
{
    for (struct dirent *entry; spools && (entry = readdir(spools));) {
        bool wanted = pj_ends_with(entry->d_name, ".spool") ||
                      (damaged && pj_ends_with(entry->d_name, ".damaged"));
        if (wanted && pj_path_join(path, PJ_SPOOL_DIR_BYTES, dir, entry->d_name)) return true;
    }
    if (spools) closedir(spools);
    return false;
}

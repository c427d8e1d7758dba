#include "store/owner.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { OWNER_PATH_BYTES = 4096 };

static bool owner_path(char path[OWNER_PATH_BYTES], const char *folder, const char *id)
{
    char name[PJ_UUID_BYTES + 8];
    snprintf(name, sizeof name, "%s.owner", id);
    return pj_path_join(path, OWNER_PATH_BYTES, folder, name);
}

pj_status pj_owner_open(pj_owner *owner, const char *folder, pj_error *err)
{
    char path[OWNER_PATH_BYTES];
    *owner = (pj_owner){.fd = -1};
    pj_uuid7(owner->id);
    if (!owner_path(path, folder, owner->id) || !(owner->path = pj_strdup(path)))
        return pj_fail_memory(err, "the owner of queued runs");
    owner->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (owner->fd >= 0 && flock(owner->fd, LOCK_EX | LOCK_NB) == 0) return PJ_OK;
    pj_status status = pj_fail_errno(err, errno, "cannot lock %s", path);
    pj_owner_close(owner);
    return status;
}

void pj_owner_close(pj_owner *owner)
{
    if (owner->path && owner->fd >= 0) {
        unlink(owner->path);
        close(owner->fd);
    }
    pj_free(owner->path);
    *owner = (pj_owner){.fd = -1};
}

/* A shared lock: two processes that look at the same time do not take each other for the owner. */
bool pj_owner_is_alive(const char *folder, const char *id)
{
    char path[OWNER_PATH_BYTES];
    if (strspn(id, "0123456789abcdef-") != PJ_UUID_BYTES - 1 || id[PJ_UUID_BYTES - 1] ||
        !owner_path(path, folder, id))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno != ENOENT;
    bool alive = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!alive) unlink(path);
    close(fd);
    return alive;
}

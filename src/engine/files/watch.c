/* Files are told apart by device and inode; size and time of modification tell whether one was
 * written to. */
#include "engine/files/watch.h"

#include "base/ids.h"
#include "base/memory.h"

#include <sys/stat.h>

typedef struct file_state {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified;
} file_state;

struct pj_watched_file {
    char *path;
    file_state state; /* zeros: absent */
};

static file_state watch_state(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return (file_state){0};
#ifdef __APPLE__
    struct timespec modified = info.st_mtimespec;
#else
    struct timespec modified = info.st_mtim;
#endif
    return (file_state){info.st_dev, info.st_ino, info.st_size, modified};
}

static bool is_same_file(const file_state *a, const file_state *b)
{
    return a->device == b->device && a->inode == b->inode;
}

static bool is_unchanged(const file_state *a, const file_state *b)
{
    return a->bytes == b->bytes && a->modified.tv_sec == b->modified.tv_sec &&
           a->modified.tv_nsec == b->modified.tv_nsec;
}

pj_status pj_watch_add(pj_watch *watch, const char *path, pj_error *err)
{
    pj_watched_file *files = pj_resize(watch->files, watch->count + 1, sizeof *files);
    char *copy = pj_strdup(path);
    if (files) watch->files = files;
    if (!files || !copy) {
        pj_free(copy);
        return pj_fail_memory(err, "a list of a model's files");
    }
    files[watch->count++] = (pj_watched_file){copy, watch_state(path)};
    return PJ_OK;
}

bool pj_watch_is_current(const pj_watch *watch)
{
    for (uint32_t i = 0; i < watch->count; i++) {
        const file_state *before = &watch->files[i].state;
        file_state now = watch_state(watch->files[i].path);
        if (!is_same_file(before, &now) || !is_unchanged(before, &now)) return false;
    }
    return true;
}

const char *pj_watch_written(const pj_watch *watch)
{
    for (uint32_t i = 0; i < watch->count; i++) {
        const file_state *before = &watch->files[i].state;
        file_state now = watch_state(watch->files[i].path);
        if (is_same_file(before, &now) && !is_unchanged(before, &now)) return watch->files[i].path;
    }
    return NULL;
}

uint64_t pj_watch_stamp(const pj_watch *watch)
{
    uint64_t stamp = 0;
    for (uint32_t i = 0; i < watch->count; i++) {
        const file_state *s = &watch->files[i].state;
        const uint64_t parts[] = {(uint64_t)s->device, (uint64_t)s->inode, (uint64_t)s->bytes,
                                  (uint64_t)s->modified.tv_sec, (uint64_t)s->modified.tv_nsec};
        stamp = pj_hash64(stamp, parts, sizeof parts);
    }
    return stamp;
}

void pj_watch_fini(pj_watch *watch)
{
    for (uint32_t i = 0; i < watch->count; i++) pj_free(watch->files[i].path);
    pj_free(watch->files);
    *watch = (pj_watch){0};
}

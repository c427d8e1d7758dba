/* Files over POSIX. Files are read with read(2) up to a bound and not by stat()'s size: /proc and
 * pipes have none, and a file may grow meanwhile. */
#include "base/file.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

/* ---- mapped files -------------------------------------------------------------------------- */

/* What a signal handler can read: entries are reused, never freed. */
typedef struct pj_guarded_file {
    _Atomic uintptr_t data; /* 0: the entry is free */
    _Atomic size_t size;
    atomic_bool is_cut;
} pj_guarded_file;

enum { MOST_GUARDED = 8192 };

static pj_guarded_file guarded[MOST_GUARDED];
static atomic_uint guarded_count;
static pthread_mutex_t guarded_mutex = PTHREAD_MUTEX_INITIALIZER;

static pj_guarded_file *guard_file(const void *data, size_t size)
{
    pthread_mutex_lock(&guarded_mutex);
    unsigned count = guarded_count, i = 0;
    while (i < count && guarded[i].data) i++;
    pj_guarded_file *entry = i < MOST_GUARDED ? &guarded[i] : NULL;
    if (entry) {
        entry->is_cut = false;
        entry->size = size;
        entry->data = (uintptr_t)data;
        if (i == count) guarded_count = count + 1;
    }
    pthread_mutex_unlock(&guarded_mutex);
    return entry;
}

/* Puts zeros in place of what is gone: up to the next multiple of 2 MiB, since what follows may be
 * replaced by another thread at the same time (pages.c copies in such parts). */
static bool replace_pages(uintptr_t data, size_t size, uintptr_t at)
{
    enum { PART_BYTES = 2 << 20 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = at & ~(page - 1);
    uintptr_t end = (data + size + page - 1) & ~(page - 1);
    uintptr_t part = (at / PART_BYTES + 1) * PART_BYTES;
    return mmap((void *)from, (part < end ? part : end) - from, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void take_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    bool is_fault = info->si_code > 0; /* not sent by a process */
    for (unsigned i = 0; is_fault && i < guarded_count; i++) {
        uintptr_t data = guarded[i].data;
        size_t size = guarded[i].size;
        /* read again: the entry may have become another file's in between */
        if (!data || at < data || at - data >= size || guarded[i].data != data) continue;
        if (!replace_pages(data, size, at)) break;
        guarded[i].is_cut = true;
        errno = error;
        return;
    }
    signal(number, SIG_DFL); /* the instruction runs again, and this time the signal ends all */
    if (!is_fault) raise(number);
}

void pj_file_guard(void)
{
    struct sigaction action = {.sa_sigaction = take_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

bool pj_file_is_cut(const pj_mapping *mapping)
{
    return mapping->guard && mapping->guard->is_cut;
}

pj_status pj_file_map(const char *path, pj_mapping *mapping, pj_error *err)
{
    *mapping = (pj_mapping){0};
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
    if (fd < 0) return pj_fail_errno(err, errno, "cannot open %s", path);
    pj_status status = PJ_OK;
    if (fstat(fd, &info) != 0)
        status = pj_fail_errno(err, errno, "cannot read %s", path);
    else if (!S_ISREG(info.st_mode))
        status = pj_fail(err, PJ_E_INVALID, "%s is not a regular file", path);
    else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = pj_fail_errno(err, errno, "cannot map %s", path);
        else
            *mapping =
                (pj_mapping){data, (size_t)info.st_size, guard_file(data, (size_t)info.st_size)};
    }
    close(fd);
    return status;
}

void pj_file_unmap(pj_mapping *mapping)
{
    if (mapping->guard) mapping->guard->data = 0;
    if (mapping->data) munmap((void *)(uintptr_t)mapping->data, mapping->size);
    *mapping = (pj_mapping){0};
}

pj_status pj_file_read_fd(int fd, const char *name, size_t max_bytes, char **text, size_t *bytes,
                          pj_error *err)
{
    pj_buffer buffer;
    pj_status status = PJ_OK;
    *text = NULL;
    *bytes = 0;
    pj_buffer_init(&buffer, max_bytes < SIZE_MAX - 65536 ? max_bytes + 65536 : max_bytes);
    for (;;) {
        if (!pj_buffer_reserve(&buffer, 65536)) {
            status = buffer.length > max_bytes ? PJ_E_FULL : pj_fail_memory(err, name);
            break;
        }
        ssize_t got = read(fd, buffer.data + buffer.length, 65536);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = pj_fail_errno(err, errno, "cannot read %s", name);
        if (got <= 0) break;
        buffer.length += (size_t)got;
        if (buffer.length > max_bytes) break;
    }
    if (buffer.length > max_bytes)
        status = pj_fail(err, PJ_E_INVALID, "%s is larger than %zu bytes", name, max_bytes);
    if (status == PJ_OK) {
        *bytes = buffer.length;
        buffer.data[buffer.length] = 0;
        *text = pj_buffer_take(&buffer);
    }
    pj_buffer_fini(&buffer);
    return status;
}

pj_status pj_file_read(const char *path, size_t max_bytes, char **text, size_t *bytes,
                       pj_error *err)
{
    *text = NULL;
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return pj_fail_errno(err, errno, "cannot open %s", path);
    pj_status status = pj_file_read_fd(fd, path, max_bytes, text, bytes, err);
    close(fd);
    return status;
}

static int file_write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(fd, bytes, count);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        bytes += done;
        count -= (size_t)done;
    }
    return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

int pj_file_numbers(const char *folder, const char *name, double *values, int max)
{
    char path[PATH_MAX], line[512];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    bool read = file && fgets(line, sizeof line, file);
    if (file) fclose(file);
    for (char *at = line, *end; read && count < max; at = end, count++) {
        values[count] = strtod(at, &end);
        if (end == at) break;
    }
    return count;
}

bool pj_file_is_special(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

pj_status pj_file_write(const char *path, const void *bytes, size_t count, pj_error *err)
{
    char part[PATH_MAX];
    bool beside = !pj_file_is_special(path);
    snprintf(part, sizeof part, "%s", path);
    if (beside && snprintf(part, sizeof part, "%s.%ld.tmp", path, (long)getpid()) >= PATH_MAX)
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return pj_fail_errno(err, errno, "cannot write %s", path);
    int failure = file_write_all(fd, bytes, count);
    if (close(fd) != 0 && !failure) failure = errno;
    if (beside && !failure && rename(part, path) != 0) failure = errno;
    if (!failure) return PJ_OK;
    if (beside) unlink(part);
    return pj_fail_errno(err, failure, "cannot write %s", path);
}

bool pj_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool pj_dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

pj_status pj_dir_make(const char *path, pj_error *err)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != 0) continue;
        char kept = *p;
        *p = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST && !pj_dir_exists(part))
            return pj_fail_errno(err, errno, "cannot create the folder %s", part);
        if (kept == 0) break;
        *p = kept;
    }
    if (!pj_dir_exists(path)) return pj_fail(err, PJ_E_IO, "%s is not a folder", path);
    return PJ_OK;
}

bool pj_path_join(char *out, size_t bytes, const char *a, const char *b)
{
    size_t length = strlen(a);
    const char *slash = length > 0 && a[length - 1] == '/' ? "" : "/";
    int count = snprintf(out, bytes, "%s%s%s", a, slash, b);
    return count >= 0 && (size_t)count < bytes;
}

const char *pj_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

pj_status pj_path_user_data(char *out, size_t bytes, pj_error *err)
{
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int count;
    if (xdg && xdg[0] == '/') count = snprintf(out, bytes, "%s/perjoule", xdg);
#ifdef __APPLE__
    else if (home && home[0])
        count = snprintf(out, bytes, "%s/Library/Application Support/perjoule", home);
#endif
    else if (home && home[0])
        count = snprintf(out, bytes, "%s/.local/share/perjoule", home);
    else
        return pj_fail(err, PJ_E_UNAVAILABLE,
                       "neither HOME nor XDG_DATA_HOME is set; give a path, e.g. --db FILE");
    if (count < 0 || (size_t)count >= bytes)
        return pj_fail(err, PJ_E_INVALID, "the path of the user's data folder is too long");
    return PJ_OK;
}

pj_status pj_path_user_file(const char *name, char *out, size_t bytes, pj_error *err)
{
    char folder[PATH_MAX];
    pj_status status = pj_path_user_data(folder, sizeof folder, err);
    if (status != PJ_OK || pj_path_join(out, bytes, folder, name)) return status;
    return pj_fail(err, PJ_E_INVALID, "the path of the user's data folder is too long");
}

bool pj_path_user_cache(char *out, size_t bytes)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/') return pj_path_join(out, bytes, xdg, "perjoule");
#ifdef __APPLE__
    const char *below = "Library/Caches/perjoule";
#else
    const char *below = ".cache/perjoule";
#endif
    return home && home[0] && pj_path_join(out, bytes, home, below);
}

void pj_file_limit_raise(uint64_t wanted)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &files);
}

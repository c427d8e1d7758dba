/*
 * A disk that fails on demand: loaded into the program with LD_PRELOAD, for files below the folder
 * PJ_FAULT_DIR.
 *
 *   PJ_FAULT_CAPACITY=BYTES  the folder is a disk of this size: a write that does not fit is short,
 *                            and the next fails with ENOSPC, see write(2)
 *   PJ_FAULT_LOCKS=none      the folder is on a file system without locks: fcntl(F_SETLK) fails
 *                            with ENOLCK
 *   PJ_FAULT_LOG=FILE        every change is appended to FILE, with its data, so that a test can
 *                            build what a power failure at any moment would have left behind
 *
 * Log records, in the machine's byte order: u8 kind, u32 bytes of the path, i64 offset or size, u64
 * bytes of data; then path and data. Kinds: W write, T truncate, S sync, U unlink, C create.
 * Files that are mapped (the database's shared-memory index) are not logged: SQLite rebuilds them.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, BLOCK = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* one change at a time */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char folder[PATH_BYTES];
static long long capacity = -1;
static int log_fd = -1;
static bool has_locks = true;

static void set_up(void)
{
    const char *dir = getenv("PJ_FAULT_DIR"), *most = getenv("PJ_FAULT_CAPACITY"),
               *log = getenv("PJ_FAULT_LOG");
    if (!dir || !realpath(dir, folder)) return;
    has_locks = !getenv("PJ_FAULT_LOCKS");
    if (most) capacity = atoll(most);
    if (log)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                              0600);
}

/* ---- selecting files ------------------------------------------------------------------------ */

static bool is_inside(const char *path)
{
    size_t length = strlen(folder);
    return length > 0 && strncmp(path, folder, length) == 0 && path[length] == '/';
}

static bool path_of(int fd, char path[PATH_BYTES])
{
    char link[64];
    pthread_once(&once, set_up);
    if (!folder[0]) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_BYTES - 1);
    if (n < 0) return false;
    path[n] = 0;
    return is_inside(path);
}

/* Resolves the folder of a path, whose last part need not exist. */
static bool absolute(const char *name, char path[PATH_BYTES])
{
    char copy[PATH_BYTES], real[PATH_BYTES];
    pthread_once(&once, set_up);
    if (!folder[0] || strlen(name) >= sizeof copy) return false;
    strcpy(copy, name);
    char *slash = strrchr(copy, '/');
    const char *last = slash ? name + (slash - copy) + 1 : name;
    if (slash) *slash = 0;
    if (!realpath(slash ? (copy[0] ? copy : "/") : ".", real)) return false;
    return snprintf(path, PATH_BYTES, "%s/%s", real, last) < PATH_BYTES && is_inside(path);
}

/* ---- the log -------------------------------------------------------------------------------- */

static void note(char kind, const char *path, int64_t offset, const void *data, uint64_t bytes)
{
    struct __attribute__((packed)) {
        char kind;
        uint32_t path_bytes;
        int64_t offset;
        uint64_t bytes;
    } head = {kind, (uint32_t)strlen(path), offset, bytes};
    struct iovec parts[] = {{&head, sizeof head},
                            {(void *)(uintptr_t)path, head.path_bytes},
                            {(void *)(uintptr_t)data, bytes}};
    if (log_fd >= 0 && syscall(SYS_writev, log_fd, parts, 3) < 0) abort();
}

/* ---- free space ----------------------------------------------------------------------------- */

static long long used_below(const char *path)
{
    long long used = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char name[PATH_BYTES];
        struct stat info;
        if (e->d_name[0] == '.' && (!e->d_name[1] || e->d_name[1] == '.')) continue;
        if (snprintf(name, sizeof name, "%s/%s", path, e->d_name) >= PATH_BYTES ||
            lstat(name, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode)) used += used_below(name);
        if (S_ISREG(info.st_mode)) used += (info.st_size + BLOCK - 1) / BLOCK * BLOCK;
    }
    if (dir) closedir(dir);
    return used;
}

/* How many of `count` bytes at `offset` fit. */
static size_t that_fit(int fd, off_t offset, size_t count)
{
    struct stat info;
    if (capacity < 0 || fstat(fd, &info) != 0) return count;
    long long own = (info.st_size + BLOCK - 1) / BLOCK * BLOCK;
    long long end = own + capacity - used_below(folder);
    if (end < own) end = own;
    if (offset + (off_t)count <= end) return count;
    return offset < end ? (size_t)(end - offset) : 0;
}

/* ---- intercepted functions ------------------------------------------------------------------ */

static ssize_t put(int fd, const void *bytes, size_t count, off_t offset, bool at_offset)
{
    char path[PATH_BYTES];
    if (!path_of(fd, path))
        return at_offset ? syscall(SYS_pwrite64, fd, bytes, count, offset)
                         : syscall(SYS_write, fd, bytes, count);
    pthread_mutex_lock(&mutex);
    off_t at = at_offset                       ? offset
               : fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END)
                                               : lseek(fd, 0, SEEK_CUR);
    size_t fit = that_fit(fd, at, count);
    ssize_t n = -1;
    errno = ENOSPC;
    if (fit || !count)
        n = at_offset ? syscall(SYS_pwrite64, fd, bytes, fit, offset)
                      : syscall(SYS_write, fd, bytes, fit);
    int number = errno;
    if (n > 0) note('W', path, at, bytes, (uint64_t)n);
    pthread_mutex_unlock(&mutex);
    errno = number;
    return n;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    return put(fd, bytes, count, 0, false);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return put(fd, bytes, count, offset, true);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    return put(fd, bytes, count, offset, true);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    char path[PATH_BYTES];
    bool inside = path_of(fd, path);
    if (inside && that_fit(fd, offset, (size_t)bytes) < (size_t)bytes) return ENOSPC;
    if (inside) note('T', path, offset + bytes, NULL, 0);
    return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
}
int posix_fallocate64(int fd, off64_t offset, off64_t bytes)
{
    return posix_fallocate(fd, offset, bytes);
}

int ftruncate(int fd, off_t size)
{
    char path[PATH_BYTES];
    if (path_of(fd, path)) note('T', path, size, NULL, 0);
    return (int)syscall(SYS_ftruncate, fd, size);
}
int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, size);
}

int statvfs(const char *path, struct statvfs *info)
{
    static int (*real)(const char *, struct statvfs *);
    char inside[PATH_BYTES];
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    int result = real(path, info);
    if (result == 0 && absolute(path, inside) && capacity >= 0) {
        long long left = capacity - used_below(folder);
        info->f_bavail = info->f_bfree = left > 0 ? (fsblkcnt_t)left / info->f_frsize : 0;
    }
    return result;
}
int statvfs64(const char *path, struct statvfs64 *info)
{
    return statvfs(path, (struct statvfs *)info);
}

static int control(int fd, int command, void *argument)
{
    char path[PATH_BYTES];
    bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;
    if (locks && path_of(fd, path) && !has_locks) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}
#define CONTROL(function)                           \
    int function(int fd, int command, ...)          \
    {                                               \
        va_list arguments;                          \
        va_start(arguments, command);               \
        void *argument = va_arg(arguments, void *); \
        va_end(arguments);                          \
        return control(fd, command, argument);      \
    }
CONTROL(fcntl)
CONTROL(fcntl64)

static int sync_with(long number, int fd)
{
    char path[PATH_BYTES];
    bool inside = path_of(fd, path);
    int result = (int)syscall(number, fd);
    if (inside && result == 0) note('S', path, 0, NULL, 0);
    return result;
}
int fsync(int fd)
{
    char path[PATH_BYTES];
    if (path_of(fd, path)) return sync_with(SYS_fsync, fd);
    pthread_once(&once, set_up);
    int result = (int)syscall(SYS_fsync, fd);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n > 0) path[n] = 0;
    if (n > 0 && folder[0] && strcmp(path, folder) == 0) note('S', path, 0, NULL, 0);
    return result;
}
int fdatasync(int fd)
{
    return sync_with(SYS_fdatasync, fd);
}

int unlink(const char *name)
{
    char path[PATH_BYTES];
    bool inside = absolute(name, path);
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, name, 0);
    if (inside && result == 0) note('U', path, 0, NULL, 0);
    return result;
}

static int open_with(const char *name, int flags, mode_t mode)
{
    char path[PATH_BYTES];
    struct stat info;
    bool makes = (flags & O_CREAT) && absolute(name, path) && lstat(path, &info) != 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
    if (makes && fd >= 0) note('C', path, 0, NULL, 0);
    return fd;
}
#define OPEN(function, more)                                        \
    int function(const char *name, int flags, ...)                  \
    {                                                               \
        va_list arguments;                                          \
        va_start(arguments, flags);                                 \
        mode_t mode = flags & O_CREAT ? va_arg(arguments, int) : 0; \
        va_end(arguments);                                          \
        return open_with(name, flags | (more), mode);               \
    }
OPEN(open, 0)
OPEN(open64, O_LARGEFILE)

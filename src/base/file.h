/* Files and mappings. Paths are passed to the operating system unchanged. */
#ifndef PJ_BASE_FILE_H
#define PJ_BASE_FILE_H

#include "base/error.h"

/* A whole file mapped read-only. Empty files give data NULL, size 0 and PJ_OK. */
typedef struct pj_mapping {
    const unsigned char *data;
    size_t size;
    struct pj_guarded_file *guard; /* NULL: none was left */
} pj_mapping;

pj_status pj_file_map(const char *path, pj_mapping *mapping, pj_error *err);
void pj_file_unmap(pj_mapping *mapping); /* may run twice */
/* A file may be shortened while it is mapped, by a download that begins again, say; reading a page
 * that is gone raises SIGBUS. After this, such pages of these mappings read as zeros. For programs,
 * not libraries: it takes the signal. */
void pj_file_guard(void);
/* Whether pages were gone when they were read. */
bool pj_file_is_cut(const pj_mapping *mapping);

/* Reads the whole file and appends a NUL that is not counted; more than max_bytes is an error.
 * Works on pipes and /proc too. The caller frees *text (pj_free). */
pj_status pj_file_read(const char *path, size_t max_bytes, char **text, size_t *bytes,
                       pj_error *err);
/* As above from an open descriptor, e.g. standard input; `name` is for error messages. */
pj_status pj_file_read_fd(int fd, const char *name, size_t max_bytes, char **text, size_t *bytes,
                          pj_error *err);
/* Reads the numbers at the start of a small file, separated by blanks; returns how many there are,
 * at most `max`, and 0 where there is no such file. */
int pj_file_numbers(const char *folder, const char *name, double *values, int max);
/* The path is there and no regular file: a device, a pipe, or a link. */
bool pj_file_is_special(const char *path);
/* Atomic: writes a temporary file in the same folder, syncs it and renames it; but writes directly
 * to what is special, which must not be replaced. */
pj_status pj_file_write(const char *path, const void *bytes, size_t count, pj_error *err);
bool pj_file_exists(const char *path);
bool pj_dir_exists(const char *path);
pj_status pj_dir_make(const char *path, pj_error *err); /* with parents, mode 0700 */
/* Writes "a/b" into `out`; false when it does not fit. */
bool pj_path_join(char *out, size_t bytes, const char *a, const char *b);
const char *pj_path_name(const char *path); /* after the last slash; static or borrowed */
/* perjoule's data folder of this user: $XDG_DATA_HOME/perjoule, ~/.local/share/perjoule, or on
 * macOS ~/Library/Application Support/perjoule. Not created. */
pj_status pj_path_user_data(char *out, size_t bytes, pj_error *err);
/* The path of a file in it. */
pj_status pj_path_user_file(const char *name, char *out, size_t bytes, pj_error *err);

/* perjoule's cache folder of this user: $XDG_CACHE_HOME/perjoule, ~/.cache/perjoule, or on macOS
 * ~/Library/Caches/perjoule. Not created; false when there is none. */
bool pj_path_user_cache(char *out, size_t bytes);

/* Raises the limit of open files up to `wanted` (best effort): a shell's default of 1024 is meant
 * for programs that use select(). */
void pj_file_limit_raise(uint64_t wanted);

#endif

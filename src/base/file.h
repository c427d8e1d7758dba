/* Files and mappings. Paths are as the operating system has them. */
#ifndef PJ_BASE_FILE_H
#define PJ_BASE_FILE_H

#include "base/error.h"

/* A whole file mapped read-only. Empty files give data NULL, size 0 and PJ_OK. */
typedef struct pj_mapping {
    const unsigned char *data;
    size_t size;
} pj_mapping;

pj_status pj_file_map(const char *path, pj_mapping *mapping, pj_error *err);
void pj_file_unmap(pj_mapping *mapping); /* may run twice */

/* The whole file with a NUL after it that is not counted; more than max_bytes is an error. Works on
 * pipes and /proc too. The caller frees *text (pj_free). */
pj_status pj_file_read(const char *path, size_t max_bytes, char **text, size_t *bytes,
                       pj_error *err);
/* As above from an open descriptor, e.g. standard input; `name` is for the sentence. */
pj_status pj_file_read_fd(int fd, const char *name, size_t max_bytes, char **text, size_t *bytes,
                          pj_error *err);
/* Whole or not at all: written beside, synced, renamed. */
pj_status pj_file_write(const char *path, const void *bytes, size_t count, pj_error *err);
bool pj_file_exists(const char *path);
bool pj_dir_exists(const char *path);
pj_status pj_dir_make(const char *path, pj_error *err); /* with parents, mode 0700 */
/* Writes "a/b" into `out`; false when it does not fit. */
bool pj_path_join(char *out, size_t bytes, const char *a, const char *b);
const char *pj_path_name(const char *path); /* behind the last slash; static or borrowed */
/* perjoule's folder of the user's data: $XDG_DATA_HOME/perjoule, ~/.local/share/perjoule, or on
 * macOS ~/Library/Application Support/perjoule. Not created. */
pj_status pj_path_user_data(char *out, size_t bytes, pj_error *err);

/* Lets the process open as many files as the system allows it, up to `wanted`: a shell's default of
 * 1024 is meant for programs that wait with select(). Best effort. */
void pj_file_limit_raise(uint64_t wanted);

#endif

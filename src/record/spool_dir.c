/* Chooses the folder for a database's spools, and rejects folders of other users. */
#include "record/spool_dir.h"

#include "base/file.h"
#include "base/ids.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the folder that earlier versions shared ------------------------------------------------ */

static bool is_database(const char *folder, const char *name)
{
    char path[PJ_SPOOL_DIR_BYTES];
    return pj_path_join(path, sizeof path, folder, name) && pj_store_is_database(path);
}

/* Whether a file belongs to another database: by its header, or by its write-ahead log, which holds
 * the header of a new database. */
static bool is_of_another(const char *folder, const char *name, const char *own)
{
    size_t length = strlen(own);
    if (strncmp(name, own, length) == 0 && (!name[length] || strcmp(name + length, "-wal") == 0))
        return false;
    size_t bytes = strlen(name);
    return (bytes > 4 && strcmp(name + bytes - 4, "-wal") == 0) || is_database(folder, name);
}

static bool is_alone(const char *folder, const char *own)
{
    bool alone = true;
    DIR *files = opendir(folder);
    if (!files) return false;
    for (struct dirent *entry; alone && (entry = readdir(files));)
        alone = !is_of_another(folder, entry->d_name, own);
    closedir(files);
    return alone;
}

static void add_shared_folder(const char *database, pj_spool_dirs *dirs)
{
    char folder[PJ_SPOOL_DIR_BYTES], *out = dirs->path[2];
    const char *slash = strrchr(database, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - database) + 1 : 1,
             slash ? database : ".");
    if (!pj_path_join(out, PJ_SPOOL_DIR_BYTES, folder, "spool") ||
        pj_spool_dir_check(out, NULL) != PJ_OK || !is_alone(folder, slash ? slash + 1 : database))
        out[0] = 0;
}

/* ---- the folders of one database ------------------------------------------------------------ */

void pj_spool_dirs_of(const char *database, pj_spool_dirs *dirs)
{
    char real[PATH_MAX], data[PATH_MAX];
    bool is_server = pj_store_is_server(database);
    *dirs = (pj_spool_dirs){0};
    if (!is_server && realpath(database, real))
        database = real; /* resolved, so that aliases of a path share one folder */
    if (!is_server &&
        snprintf(dirs->path[0], PJ_SPOOL_DIR_BYTES, "%s-spool", database) >= PJ_SPOOL_DIR_BYTES)
        dirs->path[0][0] = 0;
    if (pj_path_user_data(data, sizeof data, NULL) == PJ_OK)
        snprintf(dirs->path[1], PJ_SPOOL_DIR_BYTES, "%s/spools/%016llx", data,
                 (unsigned long long)pj_hash64(0, database, strlen(database)));
    if (!is_server) add_shared_folder(database, dirs);
}

pj_status pj_spool_dir_check(const char *dir, pj_error *err)
{
    struct stat info;
    if (lstat(dir, &info) != 0)
        return pj_fail_errno(err, errno, "cannot inspect the spool folder %s", dir);
    if (!S_ISDIR(info.st_mode)) return pj_fail(err, PJ_E_INVALID, "%s is not a folder", dir);
    if (info.st_uid != geteuid())
        return pj_fail(err, PJ_E_DENIED, "the spool folder %s belongs to another user", dir);
    return PJ_OK;
}

/* Readable by the owner only: spools contain prompts. */
__attribute__((nonnull(1))) static pj_status make_private(const char *dir, pj_error *err)
{
    char parent[PJ_SPOOL_DIR_BYTES], *slash;
    snprintf(parent, sizeof parent, "%s", dir);
    if ((slash = strrchr(parent, '/')) && slash != parent) {
        *slash = 0;
        pj_status status = pj_dir_make(parent, err);
        if (status != PJ_OK) return status;
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return pj_fail_errno(err, errno, "cannot create the spool folder %s", dir);
    pj_status status = pj_spool_dir_check(dir, err);
    if (status == PJ_OK && chmod(dir, 0700) != 0)
        status = pj_fail_errno(err, errno, "cannot protect the spool folder %s", dir);
    if (status == PJ_OK && access(dir, W_OK | X_OK) != 0)
        status = pj_fail_errno(err, errno, "cannot write the spool folder %s", dir);
    return status;
}

bool pj_spool_dir_make(const pj_spool_dirs *dirs, const char **dir, pj_error *why)
{
    for (int i = 0; i < 2; i++) {
        if (!dirs->path[i][0] || make_private(dirs->path[i], why) != PJ_OK) continue;
        *dir = dirs->path[i];
        return true;
    }
    return false;
}

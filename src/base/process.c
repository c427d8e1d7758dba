/* Memory from /proc/self/status (Linux) or from task_info (macOS). */
#include "base/process.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>

bool pj_process_memory_get(pj_process_memory *memory)
{
    task_vm_info_data_t info;
    mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
    *memory = (pj_process_memory){0};
    if (task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&info, &count) != KERN_SUCCESS)
        return false;
    memory->resident_bytes = info.resident_size;
    memory->anonymous_bytes = info.internal;
    memory->file_bytes = info.external;
    return true;
}

pj_status pj_process_path(char *path, size_t bytes, pj_error *err)
{
    uint32_t size = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    if (_NSGetExecutablePath(path, &size) == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the path of this program is longer than %zu bytes", bytes);
}

#else
#include <unistd.h>

/* "RssAnon:     1234 kB" */
static bool read_kilobytes(const char *text, const char *name, uint64_t *bytes)
{
    const char *line = strstr(text, name);
    if (!line) return false;
    char *end;
    line += strlen(name);
    unsigned long long value = strtoull(line, &end, 10);
    *bytes += value * 1024;
    return end != line;
}

bool pj_process_memory_get(pj_process_memory *memory)
{
    enum { MAX_STATUS_BYTES = 1 << 20 };
    char *text;
    size_t bytes;
    *memory = (pj_process_memory){0};
    if (pj_file_read("/proc/self/status", MAX_STATUS_BYTES, &text, &bytes, NULL) != PJ_OK)
        return false;
    /* files in tmpfs count as files, although the kernel counts them as shared memory */
    bool known = read_kilobytes(text, "\nRssAnon:", &memory->anonymous_bytes) &&
                 read_kilobytes(text, "\nRssFile:", &memory->file_bytes) &&
                 read_kilobytes(text, "\nRssShmem:", &memory->file_bytes);
    pj_free(text);
    if (known)
        memory->resident_bytes = memory->anonymous_bytes + memory->file_bytes;
    else
        *memory = (pj_process_memory){0};
    return known;
}

pj_status pj_process_path(char *path, size_t bytes, pj_error *err)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes);
    if (length < 0) return pj_fail_errno(err, errno, "cannot find the path of this program");
    if ((size_t)length >= bytes)
        return pj_fail(err, PJ_E_INVALID, "the path of this program is longer than %zu bytes",
                       bytes);
    path[length] = 0;
    return PJ_OK;
}

#endif

pj_status pj_process_sibling(const char *name, char *path, size_t bytes, pj_error *err)
{
    pj_status status = pj_process_path(path, bytes, err);
    if (status != PJ_OK) return status;
    char *slash = strrchr(path, '/');
    size_t left = bytes - (slash ? (size_t)(slash + 1 - path) : bytes);
    if (strlen(name) >= left)
        return pj_fail(err, PJ_E_INVALID, "the path of %s is longer than %zu bytes", name, bytes);
    strcpy(slash + 1, name);
    return PJ_OK;
}

/* Copying structs of callers that were compiled with another version of the header. */
#include "base/sized.h"

#include <string.h>

pj_status pj_sized_read(void *ours, size_t our_size, size_t first_size, const void *theirs,
                        const char *name, pj_error *err)
{
    size_t size;
    memset(ours, 0, our_size);
    if (!theirs) return pj_fail(err, PJ_E_INVALID, "%s may not be NULL", name);
    memcpy(&size, theirs, sizeof size);
    /* a size that ends inside a member would yield half a pointer */
    if (size % sizeof size != 0 || size > 1 << 16)
        return pj_fail(err, PJ_E_INVALID, "%s has a size of %zu bytes: set it with sizeof", name,
                       size);
    if (!size) size = first_size;
    for (size_t i = our_size; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return pj_fail(err, PJ_E_UNSUPPORTED,
                           "%s has members unknown to libperjoule %d.%d.%d: update it", name,
                           PJ_VERSION_MAJOR, PJ_VERSION_MINOR, PJ_VERSION_PATCH);
    memcpy(ours, theirs, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof our_size);
    return PJ_OK;
}

/* Parses lists of token ids. */
#include "cli/ids.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

pj_status pj_ids_parse(const char *text, int32_t **ids, uint32_t *count, pj_error *err)
{
    /* a number and its separator take two characters at least */
    size_t most = strlen(text) / 2 + 1;
    int32_t *list = pj_alloc(most, sizeof *list);
    *ids = NULL;
    *count = 0;
    if (!list) return pj_fail_memory(err, "the token ids");
    for (const char *p = text + strspn(text, " \t\r\n,"); *p;) {
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX || !strchr(" \t\r\n,", *end)) {
            pj_free(list);
            return pj_fail(err, PJ_E_INVALID, "\"%.20s\" is not a token id", p);
        }
        list[(*count)++] = (int32_t)id;
        p = end + strspn(end, " \t\r\n,");
    }
    *ids = list;
    return PJ_OK;
}

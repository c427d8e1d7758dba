/* The version, once: from the build. */
#include <perjoule/base.h>

const char *pj_version(void)
{
    return PJ_VERSION_TEXT;
}

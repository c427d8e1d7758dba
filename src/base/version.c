/* The version, as the build defines it. */
#include <perjoule/base.h>

const char *pj_version(void)
{
    return PJ_VERSION_TEXT;
}

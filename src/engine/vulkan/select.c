/* Which device a user means. */
#include "engine/vulkan/vk.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool pj_vk_is_hardware(const pj_vk_info *info)
{
    return info->kind != PJ_VK_SOFTWARE;
}

static bool select_is_uuid(const pj_vk_info *info, const char *name)
{
    char digits[33];
    if (strncasecmp(name, "GPU-", 4) == 0) name += 4;
    for (int i = 0; i < 16; i++) snprintf(digits + 2 * i, 3, "%02x", info->uuid[i]);
    const char *wanted = digits;
    for (; *name; name++) {
        if (*name == '-') continue;
        if (!*wanted || tolower((unsigned char)*name) != *wanted++) return false;
    }
    return !*wanted;
}

/* "llvmpipe" is the device "llvmpipe (LLVM 15.0.6, 256 bits)", if only its first words count. */
static bool select_is_name(const pj_vk_info *info, const char *name, bool whole)
{
    size_t length = strlen(name);
    if (length == 0 || strncasecmp(info->name, name, length) != 0) return false;
    return !info->name[length] || (!whole && info->name[length] == ' ');
}

static int select_named(const pj_vk_info *devices, uint32_t count, const char *name, bool whole)
{
    int found = PJ_VK_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (select_is_name(&devices[i], name, whole))
            found = found == PJ_VK_NONE ? (int)i : PJ_VK_SEVERAL;
    return found;
}

static int select_with_uuid(const pj_vk_info *devices, uint32_t count, const char *name)
{
    int found = PJ_VK_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (select_is_uuid(&devices[i], name)) found = found == PJ_VK_NONE ? (int)i : PJ_VK_SEVERAL;
    return found;
}

static int select_nth_hardware(const pj_vk_info *devices, uint32_t count, unsigned long n)
{
    for (uint32_t i = 0; i < count; i++)
        if (pj_vk_is_hardware(&devices[i]) && n-- == 0) return (int)i;
    return PJ_VK_NONE;
}

int pj_vk_select(const pj_vk_info *devices, uint32_t count, const char *name)
{
    char *end;
    if (strcasecmp(name, "gpu") == 0) return select_nth_hardware(devices, count, 0);
    if (strncasecmp(name, "gpu:", 4) == 0 && isdigit((unsigned char)name[4])) {
        unsigned long n = strtoul(name + 4, &end, 10);
        return *end ? PJ_VK_NONE : select_nth_hardware(devices, count, n);
    }
    int named = select_with_uuid(devices, count, name);
    if (named == PJ_VK_NONE) named = select_named(devices, count, name, true);
    return named == PJ_VK_NONE ? select_named(devices, count, name, false) : named;
}

/* /proc/self/cgroup names the groups, the file systems below /sys/fs/cgroup hold them. */
#include "base/control_group.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 512 };

/* In a container, the upper folders of the path may not exist, and the mounted root is the
 * container's own group. */
static void group_upwards(const char *mounted, char *group, bool second, pj_group_visit *visit,
                          void *context)
{
    for (;;) {
        char folder[PATH_BYTES], *slash = strrchr(group, '/');
        snprintf(folder, sizeof folder, "%s%s", mounted, group);
        visit(folder, second, context);
        if (!slash) return;
        *slash = '\0';
    }
}

static bool names_controller(const char *list, const char *end, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = list; at < end; at += strcspn(at, ",:") + 1)
        if (strcspn(at, ",:") == bytes && strncmp(at, name, bytes) == 0) return true;
    return false;
}

void pj_group_each(const char *root, const char *controller, pj_group_visit *visit, void *context)
{
    char path[PATH_BYTES], line[LINE_BYTES], mounted[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) { /* HIERARCHY:CONTROLLERS:/GROUP */
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        line[strcspn(line, "\n")] = '\0';
        bool second = group == list + 1; /* which has no list of controllers */
        if (!second && !names_controller(list + 1, group, controller)) continue;
        /* "cpu,cpuacct" is mounted under both names, or that one alone */
        int bytes = second ? 0 : (int)(group - list - 1);
        snprintf(mounted, sizeof mounted, "%s/sys/fs/cgroup/%.*s", root, bytes, list + 1);
        if (!second && access(mounted, F_OK) != 0)
            snprintf(mounted, sizeof mounted, "%s/sys/fs/cgroup/%s", root, controller);
        /* the root's own folder is ""; "/" would visit it twice */
        group_upwards(mounted, strcmp(group, ":/") == 0 ? group + 2 : group + 1, second, visit,
                      context);
    }
    if (file) fclose(file);
}

/* How busy the machine's processors are, from procfs or from the kernel of macOS. */
#include "power/busy.h"

#include "base/file.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#ifdef __APPLE__
#include <mach/mach.h>

void pj_busy_get(const pj_power_env *env, pj_busy *busy)
{
    host_cpu_load_info_data_t load;
    mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
    *busy = (pj_busy){0};
    if (host_statistics(mach_host_self(), HOST_CPU_LOAD_INFO, (host_info_t)&load, &count) !=
        KERN_SUCCESS)
        return;
    busy->busy = (double)load.cpu_ticks[CPU_STATE_USER] + load.cpu_ticks[CPU_STATE_SYSTEM] +
                 load.cpu_ticks[CPU_STATE_NICE];
    busy->total = busy->busy + load.cpu_ticks[CPU_STATE_IDLE];
}
#else
void pj_busy_get(const pj_power_env *env, pj_busy *busy)
{
    char path[1024], *text = NULL;
    size_t bytes = 0;
    double t[8] = {0};
    *busy = (pj_busy){0};
    if (!pj_power_path(path, sizeof path, env->procfs_root, "/proc/stat") ||
        pj_file_read(path, 1 << 20, &text, &bytes, NULL) != PJ_OK)
        return;
    /* user nice system idle iowait irq softirq steal */
    int found = sscanf(text, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3],
                       &t[4], &t[5], &t[6], &t[7]);
    pj_free(text);
    if (found < 4) return;
    for (int i = 0; i < 8; i++) busy->total += t[i];
    busy->busy = busy->total - t[3] - t[4];
}
#endif

double pj_busy_share(const pj_busy *before, const pj_busy *after)
{
    double total = after->total - before->total;
    if (before->total <= 0 || total <= 0) return NAN;
    double share = (after->busy - before->busy) / total;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

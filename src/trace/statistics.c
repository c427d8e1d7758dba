/* The table of statistics as data. */
#include "trace/statistics.h"

#include <string.h>

const pj_statistic_info pj_statistics[PJ_STATISTIC_COUNT] = {
#define X(ID, member, type, name, aggregate, unit, label, ...)                     \
    [PJ_STATISTIC_##ID] = {PJ_STATISTIC_NAME_##type(PJ_ACTIVATION, name),          \
                           PJ_STATISTIC_NAME_##type(PJ_TENSOR, name), unit, label, \
                           PJ_AGGREGATE_##aggregate},
    PJ_STATISTICS(X)
#undef X
};

#define PLANE_YES(name) "cube_" name
#define PLANE_NO(name)  NULL
enum { PJ_YES = 1, PJ_NO = 0 };

const pj_metric_info pj_metric_table[PJ_METRIC_COUNT] = {
#define X(ID, name, unit, aggregate, heatmap, plane, tree) \
    [PJ_METRIC_##ID] = {name, unit, aggregate, PLANE_##plane(name), PJ_##heatmap, PJ_##tree},
    PJ_METRICS(X)
#undef X
};

int pj_metric_parse(const char *name)
{
    for (int i = 0; i < PJ_METRIC_COUNT; i++)
        if (strcmp(pj_metric_table[i].name, name) == 0) return i;
    return -1;
}

/* How runs that are open at the same time in one session divide the machine's energy, and the
 * records of it in each run's spool. */
#ifndef PJ_TRACE_SHARE_H
#define PJ_TRACE_SHARE_H

#include "base/error.h"

#include <string.h>

typedef enum pj_share_rule {
    PJ_SHARE_EQUAL = 0, /* each open run gets the same */
    PJ_SHARE_WEIGHT,    /* in proportion to declared weights; equally while all of them are 0 */
    PJ_SHARE_RULE_COUNT
} pj_share_rule;

static inline const char *pj_share_rule_name(pj_share_rule rule)
{
    static const char *const names[] = {"equal", "weight"};
    return (unsigned)rule < PJ_SHARE_RULE_COUNT ? names[rule] : NULL;
}

/* -1: unknown name. */
static inline int pj_share_rule_parse(const char *name)
{
    for (int rule = 0; rule < PJ_SHARE_RULE_COUNT; rule++)
        if (strcmp(pj_share_rule_name((pj_share_rule)rule), name) == 0) return rule;
    return -1;
}

/* Energy of the machine on one rail, NAN: unknown; 1 sigma without that of the gain. */
typedef struct pj_share_energy {
    double mj, sd_mj;
} pj_share_energy;

/* The share of one run in the machine's energy. Without an end: from `begin_ns` until the next such
 * record. With one: `rail_count` pj_share_energy follow, the machine's energy over that time, which
 * is the same in the spools of all runs that were open then. */
typedef struct pj_share_record {
    int64_t begin_ns, end_ns; /* end 0: unknown */
    double share;
    uint32_t rule; /* pj_share_rule */
    uint32_t rail_count;
} pj_share_record;

#endif

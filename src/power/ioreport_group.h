/* The channels of one of IOReport's groups that are wanted, and their values. Each group has a
 * subscription of its own: one that the kernel refuses would refuse a common one too. */
#ifndef PJ_POWER_IOREPORT_GROUP_H
#define PJ_POWER_IOREPORT_GROUP_H

#include "power/ioreport_api.h"
#include "power/ioreport_channels.h"

enum { PJ_IOREPORT_CHANNELS = 96, PJ_IOREPORT_LISTED = 1024 };

#define PJ_IOREPORT_NO_VALUE INT64_MIN

typedef struct pj_ioreport_channel {
    char name[PJ_IOREPORT_NAME_BYTES];
    pj_ioreport_kind kind;
    double scale; /* microjoules or bytes per count */
} pj_ioreport_channel;

typedef struct pj_ioreport_group {
    const ioreport_api *api;
    cf_object key, wanted; /* the name of the array of channels; what is subscribed to */
    ioreport_subscription *subscription;
    pj_ioreport_channel channels[PJ_IOREPORT_CHANNELS];
    uint32_t count;
} pj_ioreport_group;

/* Subscribes to the channels of the group whose kind has its bit in `kinds`. `api` is borrowed. On
 * failure nothing is held. */
pj_status pj_ioreport_group_open(pj_ioreport_group *group, const ioreport_api *api,
                                 const char *name, uint32_t kinds, pj_source_report *report);
void pj_ioreport_group_close(pj_ioreport_group *group);
/* Counts by channel, PJ_IOREPORT_NO_VALUE for one without. Takes milliseconds. */
pj_status pj_ioreport_group_read(const pj_ioreport_group *group,
                                 int64_t values[PJ_IOREPORT_CHANNELS]);

#endif

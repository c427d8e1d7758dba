/* Internals of a meter, for the files that implement it. */
#ifndef PJ_POWER_METER_IMPL_H
#define PJ_POWER_METER_IMPL_H

#include "power/sampler.h"

/* Each source is skipped once at most, and its sensors disagree once. */
enum { PJ_METER_NOTES = 2 * PJ_POWER_LIST_MAX };

typedef struct pj_skipped {
    const pj_power_source *source;
    char text[2 * PJ_SOURCE_TEXT_BYTES + 4]; /* reason; remedy */
} pj_skipped;

struct pj_meter {
    pj_power_env env;
    pj_power_list list;
    bool skip_characterise, any_denied;
    pj_power_sampler *samplers[PJ_POWER_LIST_MAX];
    uint32_t sampler_count;
    pj_rail rails[PJ_MAX_RAILS];
    pj_rail_contact contacts[PJ_MAX_RAILS];
    uint16_t rail_source[PJ_MAX_RAILS]; /* index of the sampler */
    uint32_t rail_count;
    char sources[128];
    unsigned unread_classes; /* bit mask: present, but not read */
    char unread[64];         /* their names */
    char still[256];         /* names of rails that were left out */
    char remedy[1024];
    pj_skipped skipped[PJ_POWER_LIST_MAX];
    uint32_t skipped_count;
    pj_meter_event notes[PJ_METER_NOTES]; /* the meter's own events, oldest first */
    uint32_t note_count, note_next;
    bool running;
    pj_meter_subscriber_fn *subscriber; /* called with all readings read; NULL: none */
    void *subscriber_context;
    /* bit mask of kinds reported per rail; last: for the machine */
    uint32_t reported[PJ_MAX_RAILS + 1];
    uint32_t suppressed[PJ_MAX_RAILS + 1]; /* number of suppressed repeats */
    uint32_t lost_sources;                 /* bit mask of those reported as lost */
};

void pj_meter_forget_events(pj_meter *meter); /* a run begins */
void pj_meter_note(pj_meter *meter, pj_meter_event_kind kind, uint32_t source, double value);

#endif

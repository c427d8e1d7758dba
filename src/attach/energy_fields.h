/* Names under which other meters report energy, for clients that read those: figures of a request
 * under any name and unit, beside `energy_joules`. Written as "NAME=FIGURE[:UNIT]", separated by
 * commas: "energy_kwh=total:kWh,output_energy=output:Wh". */
#ifndef PJ_ATTACH_ENERGY_FIELDS_H
#define PJ_ATTACH_ENERGY_FIELDS_H

#include "base/buffer.h"
#include "base/error.h"

enum { PJ_ENERGY_FIELDS = 8, PJ_ENERGY_FIELD_NAME_BYTES = 48 };

typedef enum pj_energy_figure {
    PJ_FIGURE_TOTAL = 0,
    PJ_FIGURE_INPUT,
    PJ_FIGURE_OUTPUT,
    PJ_FIGURE_LO,
    PJ_FIGURE_HI,
    PJ_FIGURE_COUNT
} pj_energy_figure;

typedef struct pj_energy_fields {
    struct {
        char name[PJ_ENERGY_FIELD_NAME_BYTES];
        pj_energy_figure figure;
        double per_joule;
    } items[PJ_ENERGY_FIELDS];
    uint32_t count;
} pj_energy_fields;

/* Appends the fields of a list; a name that is there already is replaced. On failure the fields
 * that precede the faulty one have been added. */
pj_status pj_energy_fields_add(pj_energy_fields *fields, const char *list, pj_error *err);
/* Writes `,"NAME":number` for each; null where the figure (joules) is NAN. */
void pj_energy_fields_write(const pj_energy_fields *fields, const double figures[PJ_FIGURE_COUNT],
                            pj_buffer *to);

#endif

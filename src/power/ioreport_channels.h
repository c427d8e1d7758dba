/*
 * What IOReport's channels mean. Their names differ between chips, and a chip has up to 725 of
 * them, most of which are parts of others: they are told apart by rules, and the rest is left
 * alone. Recorded: "CPU Energy" of a chip, or "DIE_<n>_CPU Energy" of each die of an Ultra; "GPU
 * Energy", beside which "GPU0" and "GPU SRAM0" are its parts; "ANE", "ANE0", "ANE0_1"; "DRAM0",
 * "DCS0", "AMCC0", which are the memory, its channels and its controllers, and do not overlap;
 * clusters "ECPU", "PCPU1", "MCPU0", "EACC_CPU", "PACC1_CPU", on an Ultra after "DIE_<n>_".
 *
 * Pure functions.
 */
#ifndef PJ_POWER_IOREPORT_CHANNELS_H
#define PJ_POWER_IOREPORT_CHANNELS_H

#include "base/error.h"

enum { PJ_IOREPORT_NAME_BYTES = 64 };

typedef enum pj_ioreport_kind {
    PJ_IOREPORT_OTHER = 0,
    PJ_IOREPORT_CPU,      /* of the whole chip */
    PJ_IOREPORT_CPU_DIE,  /* of one die; counts only where no channel of the chip exists */
    PJ_IOREPORT_CLUSTER,  /* part of the CPU */
    PJ_IOREPORT_GPU,      /* of the whole chip, its SRAM included */
    PJ_IOREPORT_GPU_UNIT, /* the GPU without its SRAM; counts only where the above is missing */
    PJ_IOREPORT_GPU_SRAM, /* the same */
    PJ_IOREPORT_ANE,
    PJ_IOREPORT_DRAM,
    PJ_IOREPORT_DCS,
    PJ_IOREPORT_AMCC,
    PJ_IOREPORT_READ, /* memory traffic */
    PJ_IOREPORT_WRITTEN,
    PJ_IOREPORT_KINDS
} pj_ioreport_kind;

/* Of a channel of the group "Energy Model". A numbered cluster ("PCPU1") cannot be told from a
 * core by its name alone: it is one if the chip has cores or telemetry below it. */
pj_ioreport_kind pj_ioreport_energy_kind(const char *name,
                                         const char (*all)[PJ_IOREPORT_NAME_BYTES], uint32_t count);
/* Of a channel of the group "AMC Stats". */
pj_ioreport_kind pj_ioreport_traffic_kind(const char *name);
/* A cluster's name in rails: "PACC1_CPU" is "p1", "DIE_1_ECPU" is "die1-e". */
void pj_ioreport_cluster_name(const char *channel, char *name, size_t bytes);
/* Microjoules per count, from the unit, else from its label; NAN: neither is one of energy. */
double pj_ioreport_microjoules(uint64_t unit, const char *label);

#endif

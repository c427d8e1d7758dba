/*
 * The share of a run in the machine's energy over time, as its spool has it (trace/share.h), and
 * its application: leaves are cut where the share changes, attributed as if the run had been alone,
 * and scaled. Within each part of the run's time the leaves of a rail add up exactly to the share
 * of the energy that was determined for all concurrent runs together.
 */
#ifndef PJ_ATTRIBUTION_SHARES_H
#define PJ_ATTRIBUTION_SHARES_H

#include "attribution/tree.h"
#include "trace/share.h"

/* A time of constant share. */
typedef struct pj_share_part {
    int64_t begin_ns, end_ns;
    double share;
    const pj_share_energy
        *energies; /* [rail_count] of the machine, maybe unaligned; NULL: unknown */
    uint32_t rail_count;
} pj_share_part;

typedef struct pj_shares {
    pj_share_part *parts; /* in order, covering the run */
    uint32_t count;       /* 0: the run was always alone */
    pj_share_rule rule;
} pj_shares;

pj_status pj_shares_read(const pj_tree *tree, pj_shares *shares, pj_error *err);
void pj_shares_fini(pj_shares *shares);
/* Cuts the leaves of the tree at the borders of parts. */
pj_status pj_shares_cut(const pj_shares *shares, pj_tree *tree, pj_error *err);
/* The part that contains the time, or the nearest. */
const pj_share_part *pj_shares_at(const pj_shares *shares, int64_t at_ns);
/* Mean share over an interval; 1 without parts. */
double pj_shares_mean(const pj_shares *shares, int64_t begin_ns, int64_t end_ns);
pj_share_energy pj_share_part_energy(const pj_share_part *part, uint32_t rail);

#endif

/* Which rows of an output its statistics are computed from. The largest magnitude and the counts of
 * NaN and Inf always cover all rows; extras are those of sampled rows unless all are asked for. */
#ifndef PJ_FORWARD_STATISTICS_ROWS_H
#define PJ_FORWARD_STATISTICS_ROWS_H

typedef enum pj_statistics_rows {
    PJ_STATISTICS_BY_DEPTH = 0, /* all rows at depth deep, sampled ones at module */
    PJ_STATISTICS_OFF,
    PJ_STATISTICS_SAMPLED, /* at least 32 rows, spread evenly */
    PJ_STATISTICS_ALL
} pj_statistics_rows;

#endif

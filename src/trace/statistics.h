/*
 * The one table of statistics, and of the metrics that charts can show. All other lists of
 * statistics are generated from it: columns of rows and of the database, sums and planes for
 * charts, routes, live messages, help; `tools/statistics.py --write` copies it to files other than
 * C (openapi.json, the export's schema, the dashboard).
 *
 * To add a statistic of outputs, add a member of pj_stats (perjoule.h), a line here, and the code
 * that computes it. New lines go to the end of their list, because stored sums are in this order.
 */
#ifndef PJ_TRACE_STATISTICS_H
#define PJ_TRACE_STATISTICS_H

#include <perjoule.h>

/*
 * X(ID, member of pj_stats, type, name, aggregate, unit, label, ...)
 *
 * type       FLOAT, or U32 for counts
 * name       of a column, after "activation_" (layers, components) or "tensor_" (operations); a
 *            count has the same name in every table
 * aggregate  over many rows: MEAN, MAX or SUM
 * label      shown to the user
 * Further arguments of the list are passed on to X after these.
 */

/* Shown: in charts, in answers about components and operations, and live. */
#define PJ_SHOWN_STATISTICS(X, ...)                                        \
    X(MEAN, mean_abs, FLOAT, "mean", MEAN, "", "mean |x|", __VA_ARGS__)    \
    X(STD, std, FLOAT, "std", MEAN, "", "standard deviation", __VA_ARGS__) \
    X(MAX, max_abs, FLOAT, "max", MAX, "", "max |x|", __VA_ARGS__)         \
    X(SPARSITY, sparsity, FLOAT, "sparsity", MEAN, "share", "sparsity", __VA_ARGS__)

/* Kept with every row. */
#define PJ_ROW_STATISTICS(X, ...)                                                 \
    X(SIGNED_MEAN, mean, FLOAT, "signed_mean", MEAN, "", "mean", __VA_ARGS__)     \
    X(NAN_COUNT, nan_count, U32, "nan_count", SUM, "", "NaN values", __VA_ARGS__) \
    X(INF_COUNT, inf_count, U32, "inf_count", SUM, "", "infinite values", __VA_ARGS__)

#define PJ_STATISTICS(X, ...)           \
    PJ_SHOWN_STATISTICS(X, __VA_ARGS__) \
    PJ_ROW_STATISTICS(X, __VA_ARGS__)

/* Column name of a statistic, given the table's prefix. */
#define PJ_STATISTIC_NAME_FLOAT(prefix, name) prefix "_" name
#define PJ_STATISTIC_NAME_U32(prefix, name)   name
#define PJ_ACTIVATION                         "activation"
#define PJ_TENSOR                             "tensor"

typedef enum pj_statistic {
#define X(ID, ...) PJ_STATISTIC_##ID,
    PJ_SHOWN_STATISTICS(X) PJ_STATISTIC_SHOWN,
    PJ_STATISTIC_LAST_SHOWN = PJ_STATISTIC_SHOWN - 1,
    PJ_ROW_STATISTICS(X)
#undef X
        PJ_STATISTIC_COUNT
} pj_statistic;

typedef enum pj_aggregate { PJ_AGGREGATE_MEAN, PJ_AGGREGATE_MAX, PJ_AGGREGATE_SUM } pj_aggregate;

typedef struct pj_statistic_info {
    const char *activation, *tensor; /* columns: of layers and components, of operations */
    const char *unit, *label;
    pj_aggregate aggregate;
} pj_statistic_info;

extern const pj_statistic_info pj_statistics[PJ_STATISTIC_COUNT];

/* NAN: not given. */
static inline double pj_statistic_get(const pj_stats *stats, pj_statistic statistic)
{
    switch (statistic) {
#define X(ID, member, ...) \
    case PJ_STATISTIC_##ID: return (double)stats->member;
        PJ_STATISTICS(X)
#undef X
    case PJ_STATISTIC_COUNT: break;
    }
    return __builtin_nan("");
}

/* ---- metrics ------------------------------------------------------------------------------- */

/*
 * X(ID, name, unit, aggregate, heatmap, plane, tree): what a chart can show of a part of a run.
 * heatmap, plane (stored per token with the run) and tree: YES or NO.
 */
#define PJ_METRICS(X)                                            \
    X(TIME, "time", "ms", "sum", YES, YES, YES)                  \
    X(ENERGY, "energy", "mJ", "sum", YES, YES, YES)              \
    X(POWER, "power", "mW", "energy over time", YES, NO, NO)     \
    PJ_SHOWN_STATISTICS(PJ_METRIC_OF_STATISTIC, X)               \
    X(ENTROPY, "attention_entropy", "nat", "mean", YES, YES, NO) \
    X(FLOPS, "flops", "FLOP", "sum", NO, NO, YES)                \
    X(BYTES, "bytes", "B", "sum", NO, NO, YES)

#define PJ_METRIC_OF_STATISTIC(ID, member, type, name, aggregate, unit, label, X) \
    X(ID, PJ_STATISTIC_NAME_##type("activation", name), unit, PJ_WORD_##aggregate, YES, YES, NO)
#define PJ_WORD_MEAN "mean"
#define PJ_WORD_MAX  "max"
#define PJ_WORD_SUM  "sum"

typedef enum pj_metric {
#define X(ID, ...) PJ_METRIC_##ID,
    PJ_METRICS(X)
#undef X
        PJ_METRIC_COUNT
} pj_metric;

typedef struct pj_metric_info {
    const char *name, *unit, *aggregate;
    const char *plane; /* the stored chart; NULL: not kept */
    bool in_heatmap, in_tree;
} pj_metric_info;

extern const pj_metric_info pj_metric_table[PJ_METRIC_COUNT];

int pj_metric_parse(const char *name); /* "time", "energy", ...; -1: unknown */

/* Of a metric that is a statistic of outputs, else PJ_STATISTIC_COUNT. */
static inline pj_statistic pj_metric_statistic(pj_metric metric)
{
    int statistic = (int)metric - (int)PJ_METRIC_MEAN;
    return statistic >= 0 && statistic < PJ_STATISTIC_SHOWN ? (pj_statistic)statistic
                                                            : PJ_STATISTIC_COUNT;
}

/* Names of metrics as one text, for choices and help; the separator also comes first: skip it. */
#define PJ_TEXT_IF_YES(text) text
#define PJ_TEXT_IF_NO(text)
#define PJ_BAR_HEATMAP(ID, name, unit, agg, heatmap, ...)      PJ_TEXT_IF_##heatmap("|" name)
#define PJ_BAR_TREE(ID, name, unit, agg, heatmap, plane, tree) PJ_TEXT_IF_##tree("|" name)
#define PJ_COMMA_HEATMAP(ID, name, unit, agg, heatmap, ...)    PJ_TEXT_IF_##heatmap(", " name)
#define PJ_BLANK_HEATMAP(ID, name, unit, agg, heatmap, ...)    PJ_TEXT_IF_##heatmap(" " name)
#define PJ_HEATMAP_CHOICES                                     (&(PJ_METRICS(PJ_BAR_HEATMAP))[1])
#define PJ_TREE_CHOICES                                        (&(PJ_METRICS(PJ_BAR_TREE))[1])
#define PJ_HEATMAP_WORDS                                       PJ_METRICS(PJ_COMMA_HEATMAP)
#define PJ_HEATMAP_LIST                                        (&(PJ_METRICS(PJ_BLANK_HEATMAP))[1])

#endif

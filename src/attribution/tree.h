/*
 * The spans of a spool as a tree: run > phases > sections and tokens > layers > components >
 * operations, and the run's time cut into leaves. Host spans nest as on their lane (a child has a
 * higher serial number and ended earlier), spans of a device on that device's lane. Outermost spans
 * of a device belong to the host's span that launched them; others, and spans of a thread with
 * nothing open around them, are placed by their context.
 *
 * Every moment of the run belongs to a leaf, on each device: a span without children on its own
 * device, or the time of a span that no span of the same device in it covers. So the host has a
 * leaf while it waits for a device, and the device another one. Time of a device without spans is
 * the device's idle time, in the host's phase, section or token of that moment. Time outside phases
 * is phase `idle`.
 */
#ifndef PJ_ATTRIBUTION_TREE_H
#define PJ_ATTRIBUTION_TREE_H

#include "energy/attribute.h"
#include "trace/run_data.h"
#include "trace/spool.h"

#include <math.h>

enum { PJ_NODE_ROOT = PJ_SPAN_KIND_COUNT, PJ_RECENT_CLASSES = 256 };
enum { PJ_NO_DEVICE = UINT8_MAX };
/* The component of a class: a device's layers in which nothing finer was recorded. */
#define PJ_CLASS_LAYER UINT32_MAX

/* Times of a spool are within [0, PJ_LATEST_NS): differences do not overflow. */
#define PJ_LATEST_NS (INT64_MAX / 4)

typedef struct pj_node {
    int64_t begin_ns, end_ns;
    const pj_record *record; /* in the spool's mapping; NULL: the root and synthesised spans */
    uint32_t id;             /* as in pj_span */
    uint32_t parent;         /* index; 0 is the root */
    uint32_t row;            /* in the table of its kind (tokens: first row of the step) */
    uint32_t text;           /* tokens: first text, UINT32_MAX: none */
    uint8_t kind;            /* pj_span_kind or PJ_NODE_ROOT */
    uint8_t phase;           /* pj_phase */
    uint8_t device;     /* number; PJ_NO_DEVICE: synthesised around spans of devices, without time
                           of its own */
    uint8_t row_device; /* of its row: of synthesised spans, that of the first span in it */
} pj_node;

/* A class of work: leaves of equal device, phase and name, assumed to draw the same power. */
typedef struct pj_tree_class {
    uint32_t component, operation; /* interned names, 0: none; both 0: time between spans */
    uint8_t phase, device;
    double flops, bytes; /* sums over its leaves; NAN: none is known */
} pj_tree_class;

typedef struct pj_tree_text {
    const pj_token_text_record *head; /* the text follows it */
    uint32_t bytes;
    uint32_t next; /* of the same token, UINT32_MAX: none */
} pj_tree_text;

typedef struct pj_tree {
    int64_t begin_ns, end_ns;
    const char **names; /* by id, in the arena given to init */
    uint32_t name_count;
    pj_node *nodes;
    uint32_t node_count, node_capacity;
    pj_tree_text *texts;
    uint32_t text_count, text_capacity;
    pj_arena arena;        /* of the next two */
    uint32_t *children;    /* node indices grouped by parent, in time order */
    uint32_t *child_begin; /* [node_count + 1] into children */
    /* Sorted by begin, with one free slot before and one after, for the time around the run. */
    pj_leaf *leaves;
    uint32_t leaf_count, leaf_capacity;
    pj_tree_class *classes;
    uint32_t class_count, class_capacity;
    uint32_t recent_class[PJ_RECENT_CLASSES]; /* cache, by a hash of the class key */
    /* class of time outside phases, and outside the run */
    uint32_t idle_class;
    /* some span may not be charged to its enclosing span, see pj_tree_stands_apart */
    bool nested;
    bool overlaps;         /* some leaves of one device overlap: several threads or queues */
    uint32_t device_count; /* numbers of the host and of the devices are below */
    uint32_t devices;      /* declared, or with spans: a bit each */
    int64_t clock_error_ns[PJ_MAX_DEVICES]; /* of a device's times, 1 sigma; the largest */
    int64_t busy_ns[PJ_MAX_DEVICES];        /* time in which a device had work */
    const pj_record **notes;                /* facts, rails, warnings and readings, for pj_build */
    uint32_t note_count, note_capacity;
    uint64_t extra_count;            /* of all spans */
    int64_t spool_ns, spool_wall_ns; /* when the spool was made */
    bool ended;                      /* the spool has an END record */
    pj_run_status status;
} pj_tree;

/* Items by a key: those of key k are items[begin[k]] to items[begin[k + 1] - 1], ascending. */
typedef struct pj_groups {
    uint32_t *begin, *items;
} pj_groups;

/* Groups the items `first` to `count` - 1 by their keys, all below `keys`. `key` is that of item 0;
 * each further one lies `stride` bytes on. False: out of memory. */
bool pj_group(const uint32_t *key, size_t stride, uint32_t first, uint32_t count, uint32_t keys,
              pj_arena *arena, pj_groups *groups);

/* Reads the whole spool: all spans into nodes. Names go to `arena`. */
pj_status pj_tree_init(pj_tree *tree, pj_spool_reader *reader, pj_arena *arena, pj_error *err);
/* A device of the run, whether it has spans or not. */
void pj_tree_add_device(pj_tree *tree, uint32_t device);
/* Sets when the run began, as its facts state. */
void pj_tree_begin(pj_tree *tree, int64_t begin_ns);
/* Multiplies the duration of every span by `factor`, before the tree is cut: for benchmarks. */
void pj_tree_stretch(pj_tree *tree, double factor);
/* As if device 1 had computed the layers and components, before the tree is cut: for benchmarks. */
void pj_tree_move_to_device(pj_tree *tree);
/* Cuts the run's time into leaves. Nodes do not change: other threads may read them meanwhile. */
pj_status pj_tree_cut(pj_tree *tree, pj_error *err);
void pj_tree_fini(pj_tree *tree); /* may run twice */
/* Whether a reading's rail and times are possible: damaged spools are read too. */
bool pj_reading_is_sound(const pj_reading *r);
/* "q_proj", "attention/softmax", or "(between)"; writes into `text`. */
void pj_tree_class_name(const pj_tree *tree, const pj_tree_class *class_, char *text, size_t bytes);
/* Whether an inner span's energy is not also charged to the enclosing span, which then has only its
 * own time: so where the inner is no finer than the outer (a component in a component, a token in a
 * token), except for a section in a token or in a section: ranges that programs open within ranges
 * contain them. */
static inline bool pj_tree_stands_apart(uint8_t outer, uint8_t inner)
{
    return inner <= outer && outer != PJ_NODE_ROOT &&
           !(inner == PJ_SPAN_SECTION && (outer == PJ_SPAN_TOKEN || outer == PJ_SPAN_SECTION));
}
/* The nearest ancestor of that kind, UINT32_MAX: none. */
uint32_t pj_tree_ancestor(const pj_tree *tree, uint32_t node, pj_span_kind kind);
static inline uint8_t pj_tree_leaf_device(const pj_tree *tree, const pj_leaf *leaf)
{
    return tree->classes[leaf->class_].device;
}
/* Whether it is a device's time without recorded work. */
static inline bool pj_tree_class_is_idle(const pj_tree_class *class_)
{
    return !class_->component && !class_->operation &&
           (class_->phase == PJ_PHASE_IDLE || class_->device != PJ_HOST);
}
static inline const char *pj_tree_name(const pj_tree *tree, uint32_t id)
{
    return id > 0 && id <= tree->name_count && tree->names[id] ? tree->names[id] : "unnamed";
}

#endif

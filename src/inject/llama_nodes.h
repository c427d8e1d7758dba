/*
 * What a node of a ggml graph belongs to, from its operation and its neighbours. Names of nodes
 * change between versions of llama.cpp, and flash attention removes some, so names are used only
 * for what operation and position do not determine: which projection a matrix product is, and which
 * layer a node belongs to.
 */
#ifndef PJ_INJECT_LLAMA_NODES_H
#define PJ_INJECT_LLAMA_NODES_H

#include <stdbool.h>

enum { PJ_NODE_EMBEDDING = -1, PJ_NODE_AFTER = -2 }; /* outside the layers: before, after */

typedef struct pj_node_class {
    const char *component, *operation; /* static */
    int layer;                         /* or PJ_NODE_EMBEDDING, PJ_NODE_AFTER */
} pj_node_class;

/* Position in the graph of the previous node. Initialise with pj_node_start, not with zeros. */
typedef struct pj_node_walk {
    enum { PJ_STAGE_ATTENTION, PJ_STAGE_ATTENTION_OUT, PJ_STAGE_FEED_FORWARD } stage;
    int layer;
    bool softmax, projected; /* seen in this stage */
} pj_node_walk;

void pj_node_start(pj_node_walk *walk);
/* Whether the operation computes anything; views and reshapes do not. */
bool pj_node_computes(const char *operation);
/* The class of the next node of the graph in the order of execution. */
pj_node_class pj_node_classify(pj_node_walk *walk, const char *operation, const char *name);
/* The part of a layer that ends with this node: attention, o_proj, mlp, norm, logits; or NULL. */
const char *pj_node_boundary(const char *name, int *layer);

#endif

/* Classes of ggml's nodes: tables of operations and names, and a walk through a layer's stages. */
#include "inject/llama_nodes.h"

#include <stddef.h>
#include <string.h>

typedef struct pair {
    const char *from, *to;
} pair;

static const char *find_pair(const pair *table, size_t count, const char *text, bool prefix)
{
    for (size_t i = 0; i < count; i++)
        if (prefix ? !strncmp(text, table[i].from, strlen(table[i].from))
                   : !strcmp(text, table[i].from))
            return table[i].to;
    return NULL;
}

#define FIND(table, text, prefix) find_pair(table, sizeof(table) / sizeof *(table), text, prefix)

/* ggml_op_desc's names; the rest is "other". */
static const char *operation_class(const char *operation)
{
    static const pair classes[] = {{"MUL_MAT", "matmul"},
                                   {"MUL_MAT_ID", "matmul"},
                                   {"OUT_PROD", "matmul"},
                                   {"RMS_NORM", "norm"},
                                   {"NORM", "norm"},
                                   {"L2_NORM", "norm"},
                                   {"GROUP_NORM", "norm"},
                                   {"ROPE", "rope"},
                                   {"FLASH_ATTN_EXT", "flash_attention"},
                                   {"SOFT_MAX", "softmax"},
                                   {"GET_ROWS", "gather"},
                                   {"SET_ROWS", "kv_append"},
                                   {"CPY", "copy"},
                                   {"CONT", "copy"},
                                   {"DUP", "copy"},
                                   {"CONCAT", "copy"},
                                   {"REPEAT", "copy"},
                                   {"PAD", "copy"},
                                   {"ADD", "add"},
                                   {"ADD1", "add"},
                                   {"ADD_ID", "add"},
                                   {"SUB", "add"},
                                   {"MUL", "scale"},
                                   {"DIV", "scale"},
                                   {"SCALE", "scale"},
                                   {"CLAMP", "scale"},
                                   {"SUM_ROWS", "reduce"},
                                   {"ARGSORT", "top_k"},
                                   {"TOP_K", "top_k"},
                                   {"ARGMAX", "top_k"},
                                   {"SSM_CONV", "conv"},
                                   {"CONV_2D", "conv"},
                                   {"IM2COL", "conv"},
                                   {"SSM_SCAN", "scan"},
                                   {"RWKV_WKV6", "scan"},
                                   {"RWKV_WKV7", "scan"},
                                   {"GATED_LINEAR_ATTN", "scan"},
                                   {"GATED_DELTA_NET", "scan"}};
    static const char *const activations[] = {
        "SILU",    "GELU",      "GELU_QUICK", "GELU_ERF", "RELU",      "TANH",
        "SIGMOID", "SWIGLU",    "SWIGLU_OAI", "GEGLU",    "GEGLU_ERF", "GEGLU_QUICK",
        "REGLU",   "HARDSWISH", "UNARY",      "GLU"};
    const char *class = FIND(classes, operation, false);
    for (size_t i = 0; !class && i < sizeof activations / sizeof *activations; i++)
        if (!strcmp(operation, activations[i])) class = "activation";
    return class ? class : "other";
}

bool pj_node_computes(const char *operation)
{
    static const char *const views[] = {"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (!strcmp(operation, views[i])) return false;
    return true;
}

/* The number after the last "-" or "_l": "ffn_up-12", "cache_k_l12 (view)"; -1: none. */
static int layer_in(const char *name)
{
    const char *at = strncmp(name, "cache_", 6) ? strrchr(name, '-') : strstr(name, "_l");
    if (!at) return -1;
    at += *at == '-' ? 1 : 2;
    int layer = *at >= '0' && *at <= '9' ? 0 : -1;
    for (; *at >= '0' && *at <= '9' && layer < 10000; at++) layer = layer * 10 + (*at - '0');
    return *at && *at != ' ' ? -1 : layer;
}

void pj_node_start(pj_node_walk *walk)
{
    *walk = (pj_node_walk){.layer = PJ_NODE_EMBEDDING};
}

static void enter(pj_node_walk *w, int stage)
{
    w->stage = stage;
    w->softmax = w->projected = false;
}

static void follow_layer(pj_node_walk *w, const char *name)
{
    int layer = layer_in(name);
    if (!strncmp(name, "result_norm", 11) || !strncmp(name, "result_output", 13) ||
        !strcmp(name, "norm"))
        layer = PJ_NODE_AFTER;
    else if (layer < 0)
        return;
    if (layer != w->layer) enter(w, PJ_STAGE_ATTENTION);
    w->layer = layer;
}

static const char *attention_component(pj_node_walk *w, const char *class, const char *name)
{
    static const pair names[] = {
        {"Qcur", "q_proj"}, {"Kcur", "k_proj"}, {"Vcur", "v_proj"}, {"wqkv", "qkv_proj"}};
    bool core = !strcmp(class, "flash_attention") || !strcmp(class, "softmax");
    if (!strcmp(class, "matmul") && w->softmax) { /* softmax times values ends the attention core */
        enter(w, PJ_STAGE_ATTENTION_OUT);
        return "attention";
    }
    if (core) {
        if (!strcmp(class, "softmax"))
            w->softmax = true;
        else
            enter(w, PJ_STAGE_ATTENTION_OUT);
        return "attention";
    }
    if (!strcmp(class, "matmul")) {
        const char *found = FIND(names, name, true);
        w->projected = true;
        return found ? found : !strncmp(name, "kq", 2) ? "attention" : "qkv_proj";
    }
    bool first_norm = !w->projected && (!strcmp(class, "norm") || !strcmp(class, "scale"));
    return first_norm ? "input_layernorm" : "attention";
}

static const char *attention_out_component(pj_node_walk *w, const char *class, const char *name)
{
    bool is_sum = !strcmp(class, "add");
    if (!strcmp(class, "matmul")) w->projected = true;
    if (!strncmp(name, "kqv", 3) || !w->projected)
        return is_sum || w->projected ? "o_proj" : "attention";
    if (!strcmp(class, "norm")) return "post_attention_layernorm";
    if (!strncmp(name, "ffn_inp", 7) || (is_sum && strncmp(name, "attn_out", 8) != 0))
        enter(w, PJ_STAGE_FEED_FORWARD);
    return "o_proj";
}

static const char *mlp_component(pj_node_walk *w, const char *operation, const char *class,
                                 const char *name)
{
    static const pair names[] = {{"ffn_up_gate", "gate_up_proj"}, {"ffn_up", "up_proj"},
                                 {"ffn_gate_inp", "router"},      {"ffn_gate", "gate_proj"},
                                 {"ffn_down", "down_proj"},       {"ffn_out", "down_proj"},
                                 {"ffn_moe_logits", "router"},    {"ffn_shexp", "shared_expert"}};
    if (!strcmp(operation, "MUL_MAT_ID")) return w->projected = true, "experts";
    if (!strcmp(class, "softmax") || !strcmp(class, "top_k")) return "router";
    if (!strcmp(class, "activation")) return "act";
    if (!strcmp(class, "matmul")) {
        const char *found = FIND(names, name, true);
        w->projected = true;
        return found ? found : "mlp";
    }
    bool first_norm = !w->projected && (!strcmp(class, "norm") || !strcmp(class, "scale"));
    return first_norm ? "post_attention_layernorm" : "mlp";
}

pj_node_class pj_node_classify(pj_node_walk *w, const char *operation, const char *name)
{
    pj_node_class c = {.operation = operation_class(operation)};
    follow_layer(w, name);
    c.layer = w->layer;
    if (w->layer == PJ_NODE_EMBEDDING)
        c.component = "embed_tokens";
    else if (w->layer == PJ_NODE_AFTER)
        c.component = !strcmp(c.operation, "matmul") ? "logits" : "norm";
    else if (w->stage == PJ_STAGE_ATTENTION)
        c.component = attention_component(w, c.operation, name);
    else if (w->stage == PJ_STAGE_ATTENTION_OUT)
        c.component = attention_out_component(w, c.operation, name);
    else
        c.component = mlp_component(w, operation, c.operation, name);
    return c;
}

const char *pj_node_boundary(const char *name, int *layer)
{
    static const pair ends[] = {
        {"kqv_out-", "attention"}, {"ffn_inp-", "o_proj"}, {"l_out-", "mlp"}};
    *layer = PJ_NODE_AFTER;
    if (!strcmp(name, "result_norm")) return "norm";
    if (!strcmp(name, "result_output")) return "logits";
    const char *part = FIND(ends, name, true);
    *layer = part ? layer_in(name) : -1;
    return *layer >= 0 ? part : NULL;
}

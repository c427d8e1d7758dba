/* A byte trie of added tokens, with sibling lists because tokens are few and long. */
#include "engine/text/tokenizer/parts.h"

static uint32_t new_node(pj_trie *trie, unsigned char byte)
{
    if (trie->count == trie->capacity) {
        uint32_t capacity = trie->capacity ? 2 * trie->capacity : 64;
        pj_trie_node *grown = pj_resize(trie->nodes, capacity, sizeof *grown);
        if (!grown) return 0;
        trie->nodes = grown;
        trie->capacity = capacity;
    }
    trie->nodes[trie->count] = (pj_trie_node){.token = -1, .byte = byte};
    return trie->count++;
}

static uint32_t child_of(const pj_trie *trie, uint32_t node, unsigned char byte)
{
    uint32_t child = trie->nodes[node].child;
    while (child && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
    return child;
}

bool pj_trie_add(pj_trie *trie, const char *text, size_t bytes, int32_t token)
{
    if (bytes == 0) return true;
    if (trie->count == 0 && (new_node(trie, 0), trie->count == 0)) return false;
    uint32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t child = child_of(trie, node, byte);
        if (!child) {
            child = new_node(trie, byte);
            if (!child) return false;
            trie->nodes[child].sibling = trie->nodes[node].child;
            trie->nodes[node].child = child;
        }
        node = child;
    }
    trie->nodes[node].token = token;
    trie->starts[(unsigned char)text[0]] = true;
    return true;
}

void pj_trie_fini(pj_trie *trie)
{
    pj_free(trie->nodes);
    *trie = (pj_trie){0};
}

int32_t pj_trie_longest(const pj_trie *trie, const char *text, size_t bytes, size_t at, size_t *end)
{
    int32_t found = -1;
    uint32_t node = 0;
    for (size_t i = at; i < bytes; i++) {
        node = child_of(trie, node, (unsigned char)text[i]);
        if (!node) break;
        if (trie->nodes[node].token >= 0) {
            found = trie->nodes[node].token;
            *end = i + 1;
        }
    }
    return found;
}

/* The functions of llama.cpp and ggml that ours interpose. */
#ifndef PJ_INJECT_LLAMA_REAL_H
#define PJ_INJECT_LLAMA_REAL_H

#include <stdatomic.h>
#include <string.h>

#define PJ_EXPORT __attribute__((visibility("default")))

/* The original function of that name; NULL: this version has none. */
void *pj_find_real(const char *name);

/* REAL(type, name): the original function, looked up at the first call; NULL: there is none. */
#define REAL(type, name)                                              \
    static _Atomic(void *) known;                                     \
    void *address = atomic_load(&known);                              \
    if (!address) atomic_store(&known, address = pj_find_real(name)); \
    __typeof__(type) real;                                            \
    memcpy(&real, &address, sizeof real)

#endif

/*
 * Readable names of GPU kernels. A kernel's symbol is mangled by the rules of the Itanium C++ ABI
 * and may be kilobytes long; the name is its path without template arguments, parameters and
 * anonymous namespaces: "at::native::vectorized_elementwise_kernel". CUTLASS's wrappers are named
 * by what they wrap.
 */
#ifndef PJ_IMPORT_KERNEL_NAME_H
#define PJ_IMPORT_KERNEL_NAME_H

#include <stddef.h>

enum { PJ_KERNEL_NAME_BYTES = 160 };

/* Any bytes are allowed in `symbol`; what is not a mangled name is kept up to its parameters. */
void pj_kernel_name(const char *symbol, char name[PJ_KERNEL_NAME_BYTES]);

#endif

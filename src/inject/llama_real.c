/* Looks up the next definition after our own object (RTLD_NEXT). A libllama loaded by dlopen is not
 * in the global scope; it is then found by its file name. */
#include "inject/llama_real.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

typedef struct search {
    const char *name;
    void *found;
} search;

static int look_into(struct dl_phdr_info *info, size_t size, void *context)
{
    search *s = context;
    (void)size;
    const char *file = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!file) return 0;
    int llama = strncmp(file, "/libllama.", 10) == 0;
    if (!llama && strncmp(file, "/libggml-base.", 14) != 0) return 0;
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    s->found = library ? dlsym(library, s->name) : NULL;
    if (library) dlclose(library);
    return s->found != NULL;
}

void *pj_find_real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    search s = {.name = name};
    if (!found && dl_iterate_phdr(look_into, &s)) found = s.found;
    return found;
}

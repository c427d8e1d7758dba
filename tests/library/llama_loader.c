/* Runs a plugin linked with libllama, so that its symbols are not in the global scope, as in
 * programs that dlopen their engines. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int (*run)(int, char **);
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = plugin ? dlsym(plugin, "plugin_main") : NULL;
    if (!address) return puts(argc > 1 ? dlerror() : "no plugin"), 1;
    memcpy(&run, &address, sizeof run);
    return run(argc - 1, argv + 1);
}

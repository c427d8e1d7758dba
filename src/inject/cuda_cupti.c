/* Where libcupti is looked for, and becoming its client. */
#include "inject/cuda_cupti.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MULTIPLE_SUBSCRIBERS = 39, NOT_INITIALIZED = 15 };

/* By falling version, since the one that fits the program's CUDA is tried before (see find). */
static const char *const sonames[] = {"libcupti.so.13",   "libcupti.so.12",   "libcupti.so.11.8",
                                      "libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5",
                                      "libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2",
                                      "libcupti.so.11.1", "libcupti.so.11.0", "libcupti.so"};
enum { SONAMES = sizeof sonames / sizeof *sonames };

static void *open_in(const char *folder)
{
    char path[4096];
    void *library = NULL;
    for (int i = 0; i < SONAMES && folder && *folder && !library; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, sonames[i]);
        library = dlopen(path, RTLD_NOW);
    }
    return library;
}

static void *open_in_toolkit(const char *toolkit)
{
    char folder[4000];
    if (!toolkit || !*toolkit) return NULL;
    snprintf(folder, sizeof folder, "%s/extras/CUPTI/lib64", toolkit);
    return open_in(folder);
}

/* The path that the user gave; else the library that the program has loaded, as PyTorch has; else
 * where the loader and the toolkit have it. */
static void *find(void)
{
    const char *given = getenv("PERJOULE_CUPTI");
    if (given && *given) return dlopen(given, RTLD_NOW);
    void *library = NULL;
    for (int i = 0; i < SONAMES && !library; i++)
        library = dlopen(sonames[i], RTLD_NOW | RTLD_NOLOAD);
    for (int i = 0; i < SONAMES && !library; i++) library = dlopen(sonames[i], RTLD_NOW);
    if (!library) library = open_in_toolkit(getenv("CUDA_HOME"));
    if (!library) library = open_in_toolkit(getenv("CUDA_PATH"));
    return library ? library : open_in_toolkit("/usr/local/cuda");
}

static void say_not_found(char *problem, size_t bytes)
{
    const char *given = getenv("PERJOULE_CUPTI");
    if (given && *given)
        snprintf(problem, bytes, "%.300s, which PERJOULE_CUPTI names, cannot be opened", given);
    else
        snprintf(problem, bytes,
                 "libcupti was not found (install nvidia-cuda-cupti for the program's version of "
                 "CUDA, or give its path in PERJOULE_CUPTI)");
}

/* The name of the first function that is missing; NULL: none. */
static const char *look_up(pj_cupti *c, void *library)
{
    const struct {
        const char *name;
        void *at;
        bool is_optional;
    } functions[] = {
        {"cuptiGetVersion", &c->get_version, false},
        {"cuptiSubscribe", &c->subscribe, false},
        {"cuptiSubscribe_v2", &c->subscribe_named, true},
        {"cuptiActivityRegisterCallbacks", &c->register_callbacks, false},
        {"cuptiActivityRegisterTimestampCallback", &c->register_clock, true},
        {"cuptiGetTimestamp", &c->get_time, false},
        {"cuptiSetThreadIdType", &c->set_thread_id_type, true},
        {"cuptiActivityEnable", &c->enable, false},
        {"cuptiActivityGetNextRecord", &c->next_record, false},
        {"cuptiActivityFlushAll", &c->flush_all, false},
        {"cuptiActivityFlushPeriod", &c->flush_period, true},
        {"cuptiActivityGetNumDroppedRecords", &c->get_dropped, false},
        {"cuptiGetResultString", &c->get_result_string, false},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(library, functions[i].name);
        if (!address && !functions[i].is_optional) return functions[i].name;
        memcpy(functions[i].at, &address, sizeof address);
    }
    return NULL;
}

void pj_cupti_name_result(const pj_cupti *c, int result, char *text, size_t bytes)
{
    const char *name = NULL;
    if (c->get_result_string(result, &name) != 0 || !name) name = "error";
    snprintf(text, bytes, "%.80s (%d)", name, result);
}

static void nothing(void) {}

/* A second client would end the first one's recording without a word, so every client has to
 * subscribe before it records, even if it wants no callbacks. All calls are of the interface's
 * first version, which every CUPTI has; the second version of this one names the other client. */
static bool become_client(pj_cupti *c, char *problem, size_t bytes)
{
    struct {
        size_t size;
        const char *name;
        char *other;
        size_t other_bytes;
    } parameters;
    char why[120], other[128] = "";
    void *subscriber = NULL;
    int result = c->subscribe(&subscriber, nothing, NULL);
    if (result == 0) return true;
    pj_cupti_name_result(c, result, why, sizeof why);
    if (result == MULTIPLE_SUBSCRIBERS && c->subscribe_named) {
        memset(&parameters, 0, sizeof parameters);
        parameters.size = sizeof parameters;
        parameters.name = "perjoule";
        parameters.other = other;
        parameters.other_bytes = sizeof other - 1;
        if (c->subscribe_named(&subscriber, nothing, NULL, &parameters) == 0) return true;
        other[sizeof other - 1] = 0;
    }
    if (result == MULTIPLE_SUBSCRIBERS)
        snprintf(problem, bytes, "another profiler%s%.64s%s uses CUPTI: %s", *other ? " (" : "",
                 other, *other ? ")" : "", why);
    else
        snprintf(problem, bytes, "CUPTI %u cannot start: %s%s", c->version, why,
                 result == NOT_INITIALIZED ? "; it may be newer than the driver" : "");
    return false;
}

bool pj_cupti_open(pj_cupti *c, char *problem, size_t bytes)
{
    char why[120];
    void *library = find();
    const char *missing = library ? look_up(c, library) : NULL;
    int result = library && !missing ? c->get_version(&c->version) : 0;
    if (!library)
        say_not_found(problem, bytes);
    else if (missing)
        snprintf(problem, bytes, "libcupti has no function %s: it is too old", missing);
    else if (result == 0)
        return become_client(c, problem, bytes);
    if (result == 0) return false;
    pj_cupti_name_result(c, result, why, sizeof why);
    snprintf(problem, bytes, "CUPTI cannot start: %s", why);
    return false;
}

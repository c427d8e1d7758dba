/* Where libcupti is looked for, and becoming its client. */
#include "inject/cuda_cupti.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MULTIPLE_SUBSCRIBERS = 39, NOT_INITIALIZED = 15 };

/* By falling version. */
static const char *const sonames[] = {"libcupti.so.13",   "libcupti.so.12",   "libcupti.so.11.8",
                                      "libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5",
                                      "libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2",
                                      "libcupti.so.11.1", "libcupti.so.11.0", "libcupti.so"};
enum { SONAMES = sizeof sonames / sizeof *sonames };

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
        {"cuptiActivityDisable", &c->disable, false},
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

static bool use(pj_cupti *c, void *library, char *problem, size_t bytes)
{
    char why[120];
    const char *missing = look_up(c, library);
    int result = missing ? 0 : c->get_version(&c->version);
    if (missing) {
        snprintf(problem, bytes, "libcupti has no function %s: it is too old", missing);
        return false;
    }
    if (result == 0) return become_client(c, problem, bytes);
    pj_cupti_name_result(c, result, why, sizeof why);
    snprintf(problem, bytes, "CUPTI cannot start: %s", why);
    return false;
}

/* ---- where it is ---- */

/* Tries all versions in a folder, NULL: where the loader looks; one that is newer than the driver
 * cannot be used, but an older one can. The first problem is kept. */
static bool use_any_in(pj_cupti *c, const char *folder, char *problem, size_t bytes)
{
    char path[4096], further[400];
    for (int i = 0; i < SONAMES; i++) {
        snprintf(path, sizeof path, "%s%s%s", folder ? folder : "", folder ? "/" : "", sonames[i]);
        void *library = dlopen(path, RTLD_NOW);
        bool is_first = problem[0] == 0;
        if (!library) continue;
        if (use(c, library, is_first ? problem : further, is_first ? bytes : sizeof further))
            return true;
        dlclose(library);
    }
    return false;
}

static bool use_any_of_toolkit(pj_cupti *c, const char *toolkit, char *problem, size_t bytes)
{
    char folder[4000];
    if (!toolkit || !*toolkit) return false;
    snprintf(folder, sizeof folder, "%s/extras/CUPTI/lib64", toolkit);
    return use_any_in(c, folder, problem, bytes);
}

static bool use_given(pj_cupti *c, const char *path, char *problem, size_t bytes)
{
    void *library = dlopen(path, RTLD_NOW);
    if (library) return use(c, library, problem, bytes);
    snprintf(problem, bytes, "%.300s, which PERJOULE_CUPTI names, cannot be opened", path);
    return false;
}

/* The path that the user gave; else the library that the program has loaded, as PyTorch has; else
 * where the loader and the toolkit have it. */
bool pj_cupti_open(pj_cupti *c, char *problem, size_t bytes)
{
    const char *given = getenv("PERJOULE_CUPTI");
    problem[0] = 0;
    if (given && *given) return use_given(c, given, problem, bytes);
    for (int i = 0; i < SONAMES; i++) {
        void *loaded = dlopen(sonames[i], RTLD_NOW | RTLD_NOLOAD);
        if (loaded) return use(c, loaded, problem, bytes);
    }
    if (use_any_in(c, NULL, problem, bytes) ||
        use_any_of_toolkit(c, getenv("CUDA_HOME"), problem, bytes) ||
        use_any_of_toolkit(c, getenv("CUDA_PATH"), problem, bytes) ||
        use_any_of_toolkit(c, "/usr/local/cuda", problem, bytes))
        return true;
    if (!problem[0])
        snprintf(problem, bytes,
                 "libcupti was not found (install nvidia-cuda-cupti for the program's version of "
                 "CUDA, or give its path in PERJOULE_CUPTI)");
    return false;
}

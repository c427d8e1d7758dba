/* Opens libIOReport and CoreFoundation. PERJOULE_IOREPORT names one library in place of both. */
#include "power/ioreport_api.h"

#include <dlfcn.h>

static bool load_symbols(ioreport_api *a)
{
    const struct {
        void *library;
        void **slot;
        const char *name;
        bool needed;
    } symbols[] = {
        {a->foundation, (void **)&a->string_make, "CFStringCreateWithCString", true},
        {a->foundation, (void **)&a->string_get, "CFStringGetCString", true},
        {a->foundation, (void **)&a->release, "CFRelease", true},
        {a->foundation, (void **)&a->dictionary_copy, "CFDictionaryCreateMutableCopy", true},
        {a->foundation, (void **)&a->dictionary_get, "CFDictionaryGetValue", true},
        {a->foundation, (void **)&a->dictionary_set, "CFDictionarySetValue", true},
        {a->foundation, (void **)&a->array_count, "CFArrayGetCount", true},
        {a->foundation, (void **)&a->array_get, "CFArrayGetValueAtIndex", true},
        {a->foundation, (void **)&a->array_make, "CFArrayCreateMutable", true},
        {a->foundation, (void **)&a->array_append, "CFArrayAppendValue", true},
        {a->foundation, (void **)&a->array_callbacks, "kCFTypeArrayCallBacks", true},
        {a->ioreport, (void **)&a->channels_of_group, "IOReportCopyChannelsInGroup", true},
        {a->ioreport, (void **)&a->subscribe, "IOReportCreateSubscription", true},
        {a->ioreport, (void **)&a->samples, "IOReportCreateSamples", true},
        {a->ioreport, (void **)&a->channel_name, "IOReportChannelGetChannelName", true},
        {a->ioreport, (void **)&a->unit_label, "IOReportChannelGetUnitLabel", true},
        {a->ioreport, (void **)&a->unit, "IOReportChannelGetUnit", false},
        {a->ioreport, (void **)&a->value, "IOReportSimpleGetIntegerValue", true},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        *symbols[i].slot = dlsym(symbols[i].library, symbols[i].name);
        if (!*symbols[i].slot && symbols[i].needed) return false;
    }
    return true;
}

pj_status pj_ioreport_load(ioreport_api *a, const pj_power_env *env, pj_source_report *report)
{
    const char *library = env->ioreport_library ? env->ioreport_library : "libIOReport.dylib";
    const char *foundation =
        env->ioreport_library
            ? env->ioreport_library
            : "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation";
    *a = (ioreport_api){.ioreport = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (!a->ioreport)
        return pj_source_explain(report, PJ_E_UNAVAILABLE, PJ_ONLY_MACS,
                                 "there is no %s; it is part of macOS on Apple machines", library);
    a->foundation = dlopen(foundation, RTLD_NOW | RTLD_LOCAL);
    if (a->foundation && load_symbols(a)) return PJ_OK;
    pj_ioreport_unload(a);
    return pj_source_explain(report, PJ_E_UNAVAILABLE, "sudo perjoule setup --write powermetrics",
                             "%s of this macOS lacks calls that are needed", library);
}

void pj_ioreport_unload(ioreport_api *a)
{
    if (a->foundation) dlclose(a->foundation);
    if (a->ioreport) dlclose(a->ioreport);
    *a = (ioreport_api){0};
}

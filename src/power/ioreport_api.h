/* The part of libIOReport and CoreFoundation that is used. Both are opened at run time, and neither
 * has a public header for this: the declarations are our own. Objects are opaque; those that come
 * from a call with Create or Copy in its name are released by us. */
#ifndef PJ_POWER_IOREPORT_API_H
#define PJ_POWER_IOREPORT_API_H

#include "power/source.h"

typedef const void *cf_object;
typedef struct ioreport_subscription ioreport_subscription;

enum { CF_UTF8 = 0x08000100 };

typedef struct ioreport_api {
    void *ioreport, *foundation; /* libraries */
    /* CoreFoundation */
    cf_object (*string_make)(cf_object allocator, const char *text, uint32_t encoding);
    unsigned char (*string_get)(cf_object string, char *text, long bytes, uint32_t encoding);
    void (*release)(cf_object object);
    cf_object (*dictionary_copy)(cf_object allocator, long capacity, cf_object dictionary);
    cf_object (*dictionary_get)(cf_object dictionary, cf_object key);
    void (*dictionary_set)(cf_object dictionary, cf_object key, cf_object value);
    long (*array_count)(cf_object array);
    cf_object (*array_get)(cf_object array, long index);
    cf_object (*array_make)(cf_object allocator, long capacity, const void *callbacks);
    void (*array_append)(cf_object array, cf_object value);
    void *array_callbacks; /* arrays keep what they hold */
    /* IOReport */
    cf_object (*channels_of_group)(cf_object group, cf_object subgroup, uint64_t a, uint64_t b,
                                   uint64_t c);
    ioreport_subscription *(*subscribe)(void *reserved, cf_object wanted, cf_object *got,
                                        uint64_t channel, cf_object options);
    cf_object (*samples)(ioreport_subscription *subscription, cf_object wanted, cf_object options);
    cf_object (*channel_name)(cf_object channel);
    cf_object (*unit_label)(cf_object channel);
    uint64_t (*unit)(cf_object channel); /* NULL: only labels */
    int64_t (*value)(cf_object channel, int32_t index);
} ioreport_api;

/* On failure nothing is held, and the report says what is missing. */
pj_status pj_ioreport_load(ioreport_api *api, const pj_power_env *env, pj_source_report *report);
void pj_ioreport_unload(ioreport_api *api);

#endif

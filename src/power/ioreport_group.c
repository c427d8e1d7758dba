/* Lists a group's channels, keeps those that are wanted and reads them. A subscription to a few
 * channels costs less per read than one to hundreds. */
#include "power/ioreport_group.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char POWERMETRICS[] = "sudo perjoule setup --write powermetrics";

static void get_text(const ioreport_api *api, cf_object string, char *text, size_t bytes)
{
    if (!string || !api->string_get(string, text, (long)bytes, CF_UTF8)) text[0] = 0;
}

static cf_object get_array(const pj_ioreport_group *g, cf_object dictionary)
{
    return dictionary ? g->api->dictionary_get(dictionary, g->key) : NULL;
}

/* ---- which channels ---- */

typedef struct channel_list {
    char names[PJ_IOREPORT_LISTED][PJ_IOREPORT_NAME_BYTES];
    uint32_t count;
} channel_list;

static void list_channels(const pj_ioreport_group *g, cf_object array, channel_list *list)
{
    long count = g->api->array_count(array);
    for (long i = 0; i < count && list->count < PJ_IOREPORT_LISTED; i++)
        get_text(g->api, g->api->channel_name(g->api->array_get(array, i)),
                 list->names[list->count++], PJ_IOREPORT_NAME_BYTES);
}

static double scale_of(const ioreport_api *api, cf_object channel, pj_ioreport_kind kind)
{
    char label[32] = "";
    if (kind == PJ_IOREPORT_READ || kind == PJ_IOREPORT_WRITTEN) return 1;
    get_text(api, api->unit_label(channel), label, sizeof label);
    return pj_ioreport_microjoules(api->unit ? api->unit(channel) : 0, label);
}

static bool is_listed(const pj_ioreport_group *g, const char *name)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (strcmp(g->channels[i].name, name) == 0) return true;
    return false;
}

/* Appends the wanted channels to `kept`, and describes them. */
static void choose_channels(pj_ioreport_group *g, cf_object array, const channel_list *list,
                            uint32_t kinds, cf_object kept)
{
    const ioreport_api *api = g->api;
    for (uint32_t i = 0; i < list->count && g->count < PJ_IOREPORT_CHANNELS; i++) {
        const char *name = list->names[i];
        pj_ioreport_kind kind = pj_ioreport_traffic_kind(name);
        if (kind == PJ_IOREPORT_OTHER)
            kind = pj_ioreport_energy_kind(name, list->names, list->count);
        if (!(kinds >> kind & 1) || kind == PJ_IOREPORT_OTHER || is_listed(g, name)) continue;
        cf_object channel = api->array_get(array, i);
        pj_ioreport_channel *c = &g->channels[g->count];
        *c = (pj_ioreport_channel){.kind = kind, .scale = scale_of(api, channel, kind)};
        if (isnan(c->scale)) continue; /* a unit that is not one of energy */
        snprintf(c->name, sizeof c->name, "%s", name);
        api->array_append(kept, channel);
        g->count++;
    }
}

/* ---- opening ---- */

static pj_status explain_unknown(const char *group, const channel_list *list,
                                 pj_source_report *report)
{
    char some[160] = "";
    for (uint32_t i = 0; i < list->count && i < 4; i++) {
        size_t used = strlen(some);
        snprintf(some + used, sizeof some - used, "%s%.24s", i ? ", " : "", list->names[i]);
    }
    return pj_source_explain(report, PJ_E_UNAVAILABLE, POWERMETRICS,
                             "none of IOReport's %u channels of %s is known here%s%s", list->count,
                             group, some[0] ? ": " : "", some);
}

/* Some versions may refuse a part of a group: then all of it is subscribed to. */
static bool subscribe(pj_ioreport_group *g, cf_object all, cf_object kept)
{
    for (int whole = 0; whole < 2 && !g->subscription; whole++) {
        cf_object got = NULL;
        cf_object wanted = g->api->dictionary_copy(NULL, 0, all);
        if (!wanted) return false;
        if (!whole) g->api->dictionary_set(wanted, g->key, kept);
        g->subscription = g->api->subscribe(NULL, wanted, &got, 0, NULL);
        if (got) g->api->release(got);
        if (g->subscription)
            g->wanted = wanted;
        else
            g->api->release(wanted);
    }
    return g->subscription != NULL;
}

static pj_status open_channels(pj_ioreport_group *g, const char *name, cf_object all,
                               uint32_t kinds, channel_list *list, pj_source_report *report)
{
    cf_object array = get_array(g, all);
    if (!array)
        return pj_source_explain(report, PJ_E_UNAVAILABLE, POWERMETRICS, "IOReport has no group %s",
                                 name);
    cf_object kept = g->api->array_make(NULL, 0, g->api->array_callbacks);
    if (!kept) return pj_source_explain(report, PJ_E_UNAVAILABLE, "", "IOReport gives no memory");
    pj_status status = PJ_OK;
    list_channels(g, array, list);
    choose_channels(g, array, list, kinds, kept);
    if (g->count == 0)
        status = explain_unknown(name, list, report);
    else if (!subscribe(g, all, kept))
        status = pj_source_explain(report, PJ_E_UNAVAILABLE, POWERMETRICS,
                                   "macOS refuses a subscription to %s", name);
    g->api->release(kept);
    return status;
}

pj_status pj_ioreport_group_open(pj_ioreport_group *g, const ioreport_api *api, const char *name,
                                 uint32_t kinds, pj_source_report *report)
{
    *g = (pj_ioreport_group){.api = api};
    channel_list *list = pj_alloc(1, sizeof *list);
    g->key = api->string_make(NULL, "IOReportChannels", CF_UTF8);
    cf_object group = api->string_make(NULL, name, CF_UTF8);
    pj_status status =
        list && g->key && group
            ? PJ_OK
            : pj_source_explain(report, PJ_E_NO_MEMORY, "", "no memory for IOReport's channels");
    if (status == PJ_OK) {
        cf_object all = api->channels_of_group(group, NULL, 0, 0, 0);
        status = open_channels(g, name, all, kinds, list, report);
        if (all) api->release(all);
    }
    if (group) api->release(group);
    pj_free(list);
    if (status != PJ_OK) pj_ioreport_group_close(g);
    return status;
}

void pj_ioreport_group_close(pj_ioreport_group *g)
{
    if (!g->api) return;
    if (g->subscription) g->api->release(g->subscription);
    if (g->wanted) g->api->release(g->wanted);
    if (g->key) g->api->release(g->key);
    *g = (pj_ioreport_group){0};
}

/* ---- reading ---- */

static void take_value(const pj_ioreport_group *g, cf_object channel, uint32_t *next,
                       int64_t *values)
{
    char name[PJ_IOREPORT_NAME_BYTES];
    get_text(g->api, g->api->channel_name(channel), name, sizeof name);
    for (uint32_t k = 0; k < g->count; k++) {
        uint32_t i = (*next + k) % g->count; /* they come in the order in which they were listed */
        if (strcmp(g->channels[i].name, name) != 0) continue;
        values[i] = g->api->value(channel, 0);
        *next = (i + 1) % g->count;
        return;
    }
}

pj_status pj_ioreport_group_read(const pj_ioreport_group *g, int64_t values[PJ_IOREPORT_CHANNELS])
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < g->count; i++) values[i] = PJ_IOREPORT_NO_VALUE;
    cf_object samples = g->api->samples(g->subscription, g->wanted, NULL);
    cf_object array = get_array(g, samples);
    long count = array ? g->api->array_count(array) : 0;
    for (long i = 0; i < count; i++) take_value(g, g->api->array_get(array, i), &next, values);
    if (samples) g->api->release(samples);
    return count > 0 ? PJ_OK : PJ_E_IO;
}

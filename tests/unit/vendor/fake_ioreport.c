/*
 * A stand-in for Apple's libIOReport and the part of CoreFoundation that is used with it, built by
 * the tests as a shared library. The variable FAKE_IOREPORT sets its behaviour, as comma-separated
 * options:
 *
 *   chip=NAME     which channels it lists: m1, m2, m4, m5max, m1ultra, m6, none
 *   refuse=GROUP  a subscription to this group fails; refusepart: one to a part of any group fails
 *   labels        units are given as labels only
 *   slow          channels in mJ are published on every third read only
 *   gap=N         samples are empty on the Nth read; odd=N: the first channel's is INT64_MIN then
 *   resetat=N     counters start anew on the Nth read
 *   process=N     proc_pid_rusage reports N nJ and as many more on each call
 *
 * Names and units are those that were published of these chips; every kind of name is there, not
 * every core. A counter grows by its `step` on every read. fake_ioreport_live says how many objects
 * have not been released.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static const char *option(const char *name)
{
    static _Thread_local char text[256];
    char *rest = NULL;
    const char *all = getenv("FAKE_IOREPORT");
    snprintf(text, sizeof text, "%s", all ? all : "");
    size_t length = strlen(name);
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strncmp(word, name, length) != 0) continue;
        if (word[length] == '=') return word + length + 1;
        if (word[length] == 0) return "1";
    }
    return NULL;
}

static int number(const char *name)
{
    const char *text = option(name);
    return text ? atoi(text) : -1;
}

/* ---- channels ---- */

typedef struct channel {
    const char *chips, *group, *name, *unit; /* chips: "m1 m2" */
    int64_t step;
} channel;

static const char ENERGY[] = "Energy Model", TRAFFIC[] = "AMC Stats";

static const channel channels[] = {
    {"m1 m2 m4 m5max", ENERGY, "CPU Energy", "mJ", 500},
    {"m1", ENERGY, "ECPU", "mJ", 100},
    {"m1", ENERGY, "PCPU", "mJ", 380},
    {"m1", ENERGY, "ECPU0", "mJ", 30},
    {"m1", ENERGY, "ECPU0_SRAM", "mJ", 7},
    {"m1", ENERGY, "PCPU3", "mJ", 90},
    {"m2 m4", ENERGY, "EACC_CPU", "mJ", 120},
    {"m2 m4", ENERGY, "EACC_CPU0", "mJ", 30},
    {"m2 m4", ENERGY, "EACC_CPU0_SRAM", "mJ", 3},
    {"m2 m4", ENERGY, "PACC0_CPU", "mJ", 200},
    {"m2 m4", ENERGY, "PACC1_CPU", "mJ", 180},
    {"m2 m4", ENERGY, "PACC1_CPM", "mJ", 9},
    {"m2 m4", ENERGY, "PACC1_CPU2", "mJ", 60},
    {"m5max", ENERGY, "MCPU0", "mJ", 200},
    {"m5max", ENERGY, "MCPU0_1", "mJ", 50},
    {"m5max", ENERGY, "MCPU0DTL01", "mJ", 77},
    {"m5max", ENERGY, "MCPU0DTL01", "mJ", 77},
    {"m5max", ENERGY, "MCPU1", "mJ", 190},
    {"m5max", ENERGY, "MCPU1_1", "mJ", 40},
    {"m5max", ENERGY, "PCPU", "mJ", 110},
    {"m5max", ENERGY, "PCPUDTL00", "mJ", 77},
    {"m1ultra", ENERGY, "DIE_0_CPU Energy", "mJ", 300},
    {"m1ultra", ENERGY, "DIE_1_CPU Energy", "mJ", 250},
    {"m1ultra", ENERGY, "DIE_0_ECPU", "mJ", 60},
    {"m1ultra", ENERGY, "DIE_0_PCPU1", "mJ", 130},
    {"m1ultra", ENERGY, "DIE_0_PCPU1_CPU0", "mJ", 33},
    {"m1ultra", ENERGY, "DIE_0_PCPU1_CPM", "mJ", 4},
    {"m1ultra", ENERGY, "DIE_1_ECPU", "mJ", 50},
    {"m1 m2 m4 m6", ENERGY, "GPU0", "mJ", 11},
    {"m1 m2 m4 m6", ENERGY, "GPU SRAM0", "mJ", 1},
    {"m5max", ENERGY, "GPU0", "mJ", 11},
    {"m1ultra", ENERGY, "GPU0_0", "mJ", 11},
    {"m1ultra", ENERGY, "GPU SRAM0_0", "mJ", 1},
    {"m1", ENERGY, "ANE", "mJ", 20},
    {"m2 m5max", ENERGY, "ANE0", "mJ", 20},
    {"m2 m5max", ENERGY, "ANE0_SRAM", "mJ", 200},
    {"m4", ENERGY, "ANE0", "mJ", 0},
    {"m1ultra", ENERGY, "ANE0_0", "mJ", 12},
    {"m1ultra", ENERGY, "ANE0_1", "mJ", 4},
    {"m2 m4 m5max", ENERGY, "DRAM0", "mJ", 90},
    {"m2 m4 m5max", ENERGY, "DCS0", "mJ", 30},
    {"m2 m4 m5max", ENERGY, "AMCC0", "mJ", 40},
    {"m1ultra", ENERGY, "DRAM0_0", "mJ", 70},
    {"m1ultra", ENERGY, "DRAM0_1", "mJ", 60},
    {"m1 m2 m4 m5max m1ultra", ENERGY, "GPU Energy", "nJ", 12345678},
    {"m2 m4 m5max m1ultra m6", ENERGY, "apciec0 Energy", "uJ", 9},
    {"m2 m4 m5max m1ultra m6", ENERGY, "PCIe Port 0 Energy", "uJ", 9},
    {"m2", ENERGY, "DISP0", "counts", 5},
    {"m1 m2", TRAFFIC, "DCS RD", "B", 4096},
    {"m1 m2", TRAFFIC, "DCS WR", "B", 1024},
    {"m1 m2", TRAFFIC, "ECPU DCS RD", "B", 99},
    {"m4", TRAFFIC, "DIE0 DCS RD", "B", 2048},
    {"m4", TRAFFIC, "DIE1 DCS RD", "B", 2048},
    {"m4", TRAFFIC, "DIE0 DCS WR", "B", 512},
    {"m6", TRAFFIC, "ANE0 DCS RD", "B", 1},
};
enum { CHANNELS = sizeof channels / sizeof *channels };

static int has_channel(const channel *c, const char *group)
{
    char chip[24];
    const char *wanted = option("chip");
    snprintf(chip, sizeof chip, "%s", wanted ? wanted : "m2");
    size_t length = strlen(chip);
    if (strcmp(c->group, group) != 0) return 0;
    for (const char *at = c->chips; (at = strstr(at, chip)); at += length)
        if ((at == c->chips || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return 1;
    return 0;
}

/* ---- objects ---- */

typedef struct object {
    enum { STRING, ARRAY, DICTIONARY, CHANNEL, SUBSCRIPTION } type;
    int references;
    char text[64];         /* of a string, and of a dictionary its only key */
    struct object **items; /* of an array; of a dictionary its only value */
    long count;
    const channel *channel;
    int64_t value;
} object;

static int live, reads;

static object *make(int type)
{
    object *o = calloc(1, sizeof *o);
    if (!o) abort();
    o->type = type;
    o->references = 1;
    live++;
    return o;
}

static object *keep(object *o)
{
    o->references++;
    return o;
}

API int fake_ioreport_live(void);
API object *CFStringCreateWithCString(void *, const char *, uint32_t);
API unsigned char CFStringGetCString(const object *, char *, long, uint32_t);
API void CFRelease(object *);
API object *CFDictionaryCreateMutableCopy(void *, long, const object *);
API object *CFDictionaryGetValue(const object *, const object *);
API void CFDictionarySetValue(object *, const object *, object *);
API long CFArrayGetCount(const object *);
API object *CFArrayGetValueAtIndex(const object *, long);
API object *CFArrayCreateMutable(void *, long, const void *);
API void CFArrayAppendValue(object *, object *);
API object *IOReportCopyChannelsInGroup(const object *, const object *, uint64_t, uint64_t,
                                        uint64_t);
API object *IOReportCreateSubscription(void *, object *, object **, uint64_t, const void *);
API object *IOReportCreateSamples(object *, object *, const void *);
API object *IOReportChannelGetChannelName(object *);
API object *IOReportChannelGetUnitLabel(object *);
API uint64_t IOReportChannelGetUnit(const object *);
API int64_t IOReportSimpleGetIntegerValue(const object *, int32_t);

API const int kCFTypeArrayCallBacks = 1;

/* Of macOS' C library: ri_energy_nj of rusage_info_v6 lies 336 bytes from its begin. */
API int proc_pid_rusage(int pid, int version, unsigned char *usage);
int proc_pid_rusage(int pid, int version, unsigned char *usage)
{
    static uint64_t calls;
    uint64_t energy_nj = (uint64_t)(number("process") > 0 ? number("process") : 0) * ++calls;
    if (version != 6 || pid <= 0) return -1;
    memset(usage, 0, 464);
    memcpy(usage + 336, &energy_nj, sizeof energy_nj);
    return 0;
}

int fake_ioreport_live(void)
{
    return live;
}

object *CFStringCreateWithCString(void *allocator, const char *text, uint32_t encoding)
{
    object *o = make(STRING);
    snprintf(o->text, sizeof o->text, "%s", text);
    return o;
}

unsigned char CFStringGetCString(const object *string, char *text, long bytes, uint32_t encoding)
{
    if (string->type != STRING) abort();
    return snprintf(text, (size_t)bytes, "%s", string->text) < bytes;
}

void CFRelease(object *o)
{
    if (o->references < 1) abort(); /* released too often */
    if (--o->references > 0) return;
    for (long i = 0; i < o->count; i++) CFRelease(o->items[i]);
    free(o->items);
    free(o);
    live--;
}

object *CFArrayCreateMutable(void *allocator, long capacity, const void *callbacks)
{
    if (callbacks != &kCFTypeArrayCallBacks) abort(); /* it would not keep its values */
    return make(ARRAY);
}

void CFArrayAppendValue(object *array, object *value)
{
    array->items = realloc(array->items, (size_t)(array->count + 1) * sizeof *array->items);
    if (!array->items) abort();
    array->items[array->count++] = keep(value);
}

long CFArrayGetCount(const object *array)
{
    if (array->type != ARRAY) abort();
    return array->count;
}

object *CFArrayGetValueAtIndex(const object *array, long index)
{
    if (array->type != ARRAY || index < 0 || index >= array->count) abort();
    return array->items[index];
}

object *CFDictionaryGetValue(const object *dictionary, const object *key)
{
    if (dictionary->type != DICTIONARY) abort();
    return dictionary->count && strcmp(key->text, dictionary->text) == 0 ? dictionary->items[0]
                                                                         : NULL;
}

void CFDictionarySetValue(object *dictionary, const object *key, object *value)
{
    keep(value);
    if (dictionary->count == 1)
        CFRelease(dictionary->items[0]);
    else
        dictionary->items = calloc(1, sizeof *dictionary->items);
    if (!dictionary->items) abort();
    snprintf(dictionary->text, sizeof dictionary->text, "%s", key->text);
    dictionary->items[0] = value;
    dictionary->count = 1;
}

object *CFDictionaryCreateMutableCopy(void *allocator, long capacity, const object *dictionary)
{
    object *o = make(DICTIONARY), key = {.type = STRING};
    snprintf(key.text, sizeof key.text, "%s", dictionary->text);
    if (dictionary->count) CFDictionarySetValue(o, &key, dictionary->items[0]);
    return o;
}

/* ---- IOReport ---- */

static object *dictionary_of(object *array)
{
    object *o = make(DICTIONARY), key = {.type = STRING, .text = "IOReportChannels"};
    CFDictionarySetValue(o, &key, array);
    CFRelease(array);
    return o;
}

static object *channel_object(const channel *c, int64_t value)
{
    object *o = make(CHANNEL);
    o->channel = c;
    o->value = value;
    return o;
}

static void append_new(object *array, object *value)
{
    CFArrayAppendValue(array, value);
    CFRelease(value);
}

object *IOReportCopyChannelsInGroup(const object *group, const object *subgroup, uint64_t a,
                                    uint64_t b, uint64_t c)
{
    object *array = CFArrayCreateMutable(NULL, 0, &kCFTypeArrayCallBacks);
    for (int i = 0; i < CHANNELS; i++)
        if (has_channel(&channels[i], group->text))
            append_new(array, channel_object(&channels[i], INT64_MIN));
    if (array->count > 0) return dictionary_of(array);
    CFRelease(array);
    return NULL;
}

static long listed(const char *group)
{
    long count = 0;
    for (int i = 0; i < CHANNELS; i++) count += has_channel(&channels[i], group);
    return count;
}

object *IOReportCreateSubscription(void *reserved, object *wanted, object **got, uint64_t id,
                                   const void *options)
{
    const object *array = wanted->items[0];
    const char *group = array->items[0]->channel->group, *refused = option("refuse");
    if (refused && strcmp(refused, group) == 0) return NULL;
    if (option("refusepart") && array->count < listed(group)) return NULL;
    *got = CFDictionaryCreateMutableCopy(NULL, 0, wanted);
    return make(SUBSCRIPTION);
}

static int64_t count_of(const channel *c, int read)
{
    int reset = number("resetat");
    if (reset >= 0 && read >= reset) return c->step * (read - reset);
    if (option("slow") && strcmp(c->unit, "mJ") == 0) read = read / 3 * 3;
    return c->step ? 1000000 + c->step * read : 0;
}

object *IOReportCreateSamples(object *subscription, object *wanted, const void *options)
{
    const object *array = wanted->items[0];
    if (subscription->type != SUBSCRIPTION) abort();
    reads++;
    if (number("gap") == reads) return NULL;
    object *samples = CFArrayCreateMutable(NULL, 0, &kCFTypeArrayCallBacks);
    for (long i = 0; i < array->count; i++) {
        const channel *c = array->items[i]->channel;
        int64_t value = number("odd") == reads && i == 0 ? INT64_MIN : count_of(c, reads);
        append_new(samples, channel_object(c, value));
    }
    return dictionary_of(samples);
}

/* Both live as long as the library, as those of the real one live as long as the channel. */
static object *constant(const char *text)
{
    static object strings[256];
    static int count;
    for (int i = 0; i < count; i++)
        if (strcmp(strings[i].text, text) == 0) return &strings[i];
    object *o = &strings[count++];
    *o = (object){.type = STRING, .references = 1 << 30};
    snprintf(o->text, sizeof o->text, "%s", text);
    return o;
}

object *IOReportChannelGetChannelName(object *c)
{
    return constant(c->channel->name);
}

object *IOReportChannelGetUnitLabel(object *c)
{
    char padded[16];
    snprintf(padded, sizeof padded, "%-6s", c->channel->unit);
    return constant(padded);
}

uint64_t IOReportChannelGetUnit(const object *c)
{
    static const struct {
        const char *unit;
        int exponent;
    } units[] = {{"mJ", -3}, {"uJ", -6}, {"nJ", -9}};
    for (int i = 0; i < 3; i++)
        if (!option("labels") && strcmp(units[i].unit, c->channel->unit) == 0)
            return 3ull << 56 | (uint64_t)(127 + units[i].exponent) << 32;
    return 0;
}

int64_t IOReportSimpleGetIntegerValue(const object *c, int32_t index)
{
    return c->value;
}

/* A stand-in for libcupti, with as much of its interface as perjoule uses. The test program hands
 * it records (fake_cupti_put); like CUPTI it fills buffers that its client gives, and delivers them
 * when they are full or flushed. FAKE_CUPTI=RESULT makes cuptiSubscribe fail. With -DOLD it lacks
 * what old versions lack, its clock is its own, and it never fails. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void request(uint8_t **buffer, size_t *bytes, size_t *most);
typedef void completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static request *get_buffer;
static completed *give_back;
static uint64_t (*client_clock)(void);
static uint8_t *buffer;
static size_t bytes, used, dropped;
static _Atomic uint64_t enabled;
static int is_subscribed;

/* A record is preceded by its size: CUPTI knows it from kind and version. */
int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, void **record)
{
    uint64_t size = 0;
    uint8_t *at = *record ? *record : NULL;
    if (at) memcpy(&size, at - 8, 8);
    at = at ? at + size + 8 : from + 8;
    if (at > from + valid) return 12;
    *record = at;
    return 0;
}

static void deliver(void)
{
    uint8_t *full = buffer;
    size_t size = bytes, valid = used;
    buffer = NULL;
    bytes = used = 0;
    if (full) give_back(NULL, 0, full, size, valid);
}

int cuptiActivityFlushAll(uint32_t flags)
{
    (void)flags;
    pthread_mutex_lock(&mutex);
    deliver();
    pthread_mutex_unlock(&mutex);
    return 0;
}

void fake_cupti_put(uint32_t kind, const void *record, size_t size)
{
    size_t most = 0;
    uint64_t length = size;
    if (!(enabled >> kind & 1) || !get_buffer) return;
    pthread_mutex_lock(&mutex);
    if (buffer && used + size + 8 > bytes) deliver();
    if (!buffer) get_buffer(&buffer, &bytes, &most);
    if (buffer && used + size + 8 <= bytes) {
        memcpy(buffer + used, &length, 8);
        memcpy(buffer + used + 8, record, size);
        used += size + 8;
    } else {
        dropped++;
    }
    pthread_mutex_unlock(&mutex);
}

int fake_cupti_has(uint32_t kind)
{
    return enabled >> kind & 1;
}

int cuptiGetVersion(uint32_t *version)
{
#ifdef OLD
    *version = 12;
#else
    *version = 130000;
#endif
    return 0;
}

int cuptiSubscribe(void **subscriber, void *callback, void *context)
{
    const char *result = getenv("FAKE_CUPTI");
    (void)callback, (void)context;
    *subscriber = &is_subscribed;
#ifdef OLD
    result = NULL;
#endif
    if (result) return atoi(result);
    return is_subscribed++ ? 39 : 0;
}

int cuptiActivityRegisterCallbacks(request *r, completed *c)
{
    get_buffer = r;
    give_back = c;
    return is_subscribed ? 0 : 15;
}

int cuptiActivityEnable(uint32_t kind)
{
#ifdef OLD
    if (kind == 51) return 21;
#endif
    enabled |= UINT64_C(1) << kind;
    return 0;
}

int cuptiActivityDisable(uint32_t kind)
{
    enabled &= ~(UINT64_C(1) << kind);
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    *count = dropped;
    dropped = 0;
    return 0;
}

int cuptiGetResultString(int result, const char **text)
{
    *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_SOME";
    return 0;
}

/* What the test program writes into records: the client's clock, or a day off CLOCK_MONOTONIC. */
int cuptiGetTimestamp(uint64_t *ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *ns = client_clock ? client_clock()
                       : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + 86400000000000u;
    return 0;
}

#ifndef OLD
struct parameters {
    size_t size;
    const char *name;
    char *other;
    size_t other_bytes;
};

int cuptiSubscribe_v2(void **subscriber, void *callback, void *context, struct parameters *p)
{
    (void)subscriber, (void)callback, (void)context;
    strncpy(p->other, "Nsight Stand-in", p->other_bytes);
    return 39;
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
    client_clock = clock;
    return 0;
}

int cuptiSetThreadIdType(uint32_t type)
{
    return type == 1 ? 0 : 7;
}

int cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    (void)milliseconds;
    return 0;
}
#endif

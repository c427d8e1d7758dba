/* UUIDv7, CRC-32C (Castagnoli), FNV-1a. */
#include "base/ids.h"

#include "base/clock.h"
#include "base/random.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool system_random(unsigned char *bytes, size_t count)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, bytes, count) : -1;
    if (fd >= 0) close(fd);
    return got == (ssize_t)count;
}

static void random_bytes(unsigned char *bytes, size_t count)
{
    if (system_random(bytes, count)) return;
    pj_random r = {(uint64_t)pj_clock_ns() ^ (uint64_t)pj_clock_wall_ns() << 1 ^
                   (uint64_t)getpid() << 40};
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)pj_random_u64(&r);
}

void pj_uuid7(char text[PJ_UUID_BYTES])
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t last; /* milliseconds << 12 | counter in rand_a, strictly increasing */
    unsigned char b[16];
    random_bytes(b, sizeof b);
    uint64_t stamp = (uint64_t)(pj_clock_wall_ns() / PJ_NS_PER_MS) << 12;
    pthread_mutex_lock(&lock);
    stamp = stamp > last ? stamp : last + 1;
    last = stamp;
    pthread_mutex_unlock(&lock);
    uint64_t ms = stamp >> 12;
    for (int i = 0; i < 6; i++) b[i] = (unsigned char)(ms >> (40 - 8 * i));
    b[6] = (unsigned char)(0x70 | (stamp >> 8 & 0x0f));
    b[7] = (unsigned char)stamp;
    b[8] = (unsigned char)(0x80 | (b[8] & 0x3f));
    snprintf(text, PJ_UUID_BYTES,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

bool pj_secret_make(char text[PJ_SECRET_BYTES])
{
    unsigned char b[32];
    if (!system_random(b, sizeof b)) return false;
    for (size_t i = 0; i < sizeof b; i++) snprintf(text + 2 * i, 3, "%02x", b[i]);
    return true;
}

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc_by_table(uint32_t crc, const unsigned char *p, size_t count)
{
    pthread_once(&crc_once, make_crc_table);
    while (count--) crc = crc_table[(crc ^ *p++) & 0xff] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)
/* SSE4.2 has the instruction: eight bytes in three cycles instead of one byte in three. */
__attribute__((target("sse4.2,crc32"))) static uint32_t
crc_by_instruction(uint32_t crc, const unsigned char *p, size_t count)
{
    uint64_t c = crc, word;
    for (; count >= 8; count -= 8, p += 8) {
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    crc = (uint32_t)c;
    while (count--) crc = __builtin_ia32_crc32qi(crc, *p++);
    return crc;
}
#endif

uint32_t pj_crc32c(uint32_t crc, const void *bytes, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc_by_instruction(~crc, bytes, count);
#endif
    return ~crc_by_table(~crc, bytes, count);
}

uint64_t pj_hash64(uint64_t seed, const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    uint64_t hash = seed ? seed : 0xcbf29ce484222325u;
    while (count--) hash = (hash ^ *p++) * 0x100000001b3u;
    return hash;
}

/* Reads memory and multiplies at full speed, timed from the start of the first thread to the end of
 * the last. Both are long enough to make dispatch negligible. */
#include "engine/kernels/limits.h"

#include "base/clock.h"

#include <math.h>
#include <stdatomic.h>

/* Streams are within a block: further apart, they would miss the TLB, which products do not. */
enum { LINE = 64, MAX_STREAMS = 16, BLOCK_BYTES = 1 << 20 };

typedef struct reading {
    pj_team *team;
    const char *memory;
    size_t bytes;
    unsigned streams, ahead;
    _Atomic uint64_t sink; /* keeps the reads from being optimised away */
} reading;

/* The sums must stay in registers: an array would be kept on the stack, and reloading a vector
 * stored in pieces (failed store forwarding) takes longer than the cache line to arrive. */
typedef uint64_t words __attribute__((vector_size(16)));

static inline words words_at(const char *at)
{
    words value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static void read_share(void *context, unsigned thread)
{
    reading *r = context;
    size_t begin, end;
    pj_team_share(r->team, thread, r->bytes, LINE * r->streams, &begin, &end);
    words a = {0}, b = a, c = a, d = a;
    for (size_t first = begin; first < end; first += BLOCK_BYTES) {
        size_t bytes = end - first < BLOCK_BYTES ? end - first : BLOCK_BYTES;
        size_t run = bytes / r->streams / LINE * LINE;
        for (size_t at = 0; at < run; at += LINE)
            for (unsigned s = 0; s < r->streams; s++) {
                const char *line = r->memory + first + s * run + at;
                __builtin_prefetch(line + r->ahead);
                a += words_at(line);
                b += words_at(line + 16);
                c += words_at(line + 32);
                d += words_at(line + 48);
            }
    }
    a += b + c + d;
    atomic_fetch_add(&r->sink, a[0] + a[1]);
}

double pj_limits_read(pj_team *team, const void *memory, size_t bytes, unsigned streams,
                      unsigned ahead)
{
    reading r = {
        .team = team, .memory = memory, .bytes = bytes, .streams = streams, .ahead = ahead};
    int64_t begin = pj_clock_ns();
    pj_team_run(team, read_share, &r);
    return (double)bytes * 1e9 / (double)(pj_clock_ns() - begin);
}

typedef struct multiplying {
    double (*run)(size_t rounds);
    size_t rounds;
    double operations[PJ_TEAM_MAX_THREADS];
} multiplying;

static void multiply(void *context, unsigned thread)
{
    multiplying *m = context;
    m->operations[thread] = m->run(m->rounds);
}

double pj_limits_peak(const pj_kernels *kernels, pj_team *team, pj_form form, int64_t duration_ns)
{
    enum { ATTEMPTS = 3 };
    multiplying m = {.run = kernels->peak[form], .rounds = 1000};
    double best = 0;
    for (int attempts = 0; attempts < ATTEMPTS;) {
        double all = 0;
        int64_t begin = pj_clock_ns();
        pj_team_run(team, multiply, &m);
        int64_t took = pj_clock_ns() - begin;
        for (unsigned t = 0; t < pj_team_threads(team); t++) all += m.operations[t];
        best = fmax(best, all * 1e9 / (double)took);
        /* A few rounds may take long because other work got the processor: they are repeated. */
        if (took >= duration_ns / (2 * ATTEMPTS))
            attempts++;
        else
            m.rounds *= took < duration_ns / (16 * ATTEMPTS) ? 8 : 2;
    }
    return best;
}

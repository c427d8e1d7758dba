/*
 * Runs a fuzz target without a fuzzer:
 *
 *   replay CORPUS...            every file of these folders, and empty input
 *   PJ_FUZZ_SECONDS=1 replay…   then mutations of them for a second of processor time
 *
 * The mutations are the same on every run and machine, as far as it gets in that time; PJ_FUZZ_SEED
 * chooses others. An input that a sanitizer or the target objects to is written into the current
 * folder.
 */
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
enum { MOST_INPUTS = 4096, MOST_BYTES = 1 << 16 };

typedef struct input {
    char *bytes;
    size_t size;
} input;

static input inputs[MOST_INPUTS];
static size_t input_count;
static uint8_t mutant[MOST_BYTES];
static size_t mutant_bytes;
static const char *target = "input";

/* ---- corpus ---- */

static void take_file(const char *path)
{
    input *next = &inputs[input_count];
    pj_error err;
    if (input_count < MOST_INPUTS &&
        pj_file_read(path, 64u << 20, &next->bytes, &next->size, &err) == PJ_OK)
        input_count++;
    else
        fprintf(stderr, "%s is left out\n", path);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void take_folder(const char *path)
{
    struct dirent **names;
    int count = scandir(path, &names, NULL, by_name); /* sorted: the same on every file system */
    for (int i = 0; i < count; i++) {
        char file[4096];
        if (names[i]->d_name[0] != '.' && pj_path_join(file, sizeof file, path, names[i]->d_name))
            take_file(file);
        free(names[i]);
    }
    if (count >= 0) free(names);
}

/* ---- mutations ---- */

static size_t below(pj_random *r, size_t limit)
{
    return limit ? (size_t)(pj_random_u64(r) % limit) : 0;
}

/* Replaces `removed` bytes at `at` by `count` bytes from `from`, as far as there is room. */
static void splice(size_t at, size_t removed, const void *from, size_t count)
{
    size_t rest = mutant_bytes - at - removed;
    if (at + count + rest > MOST_BYTES) return;
    memmove(mutant + at + count, mutant + at + removed, rest);
    memcpy(mutant + at, from, count);
    mutant_bytes = at + count + rest;
}

static void change_number(pj_random *r, size_t at)
{
    static const uint64_t values[] = {0,          1,          0x7f,      0x80,
                                      0xff,       0x7fff,     0xffff,    0x7fffffff,
                                      0x80000000, 0xffffffff, INT64_MAX, UINT64_MAX};
    size_t width = (size_t)1 << below(r, 4), left = mutant_bytes - at;
    uint64_t value = values[below(r, sizeof values / sizeof *values)];
    memcpy(mutant + at, &value, width < left ? width : left);
}

static void mutate_once(pj_random *r)
{
    static const char *const words[] = {
        "0",       "-1", "1e999", "NaN", "null", "99999999999999999999",
        "\"",      "{",  "[",     "}",   "]",    "\r\n",
        "\\u0000", "{%", "%}",    "<",   "\xff", "\xed\xa0\x80"};
    enum { LONGEST = 64 };
    uint8_t copy[LONGEST];
    size_t at = below(r, mutant_bytes), left = mutant_bytes - at;
    size_t count = below(r, left < LONGEST ? left + 1 : LONGEST);
    const char *word = words[below(r, sizeof words / sizeof *words)];
    switch (below(r, 8)) {
    case 0:
        if (left) mutant[at] ^= (uint8_t)(1 << below(r, 8));
        break;
    case 1:
        if (left) mutant[at] = (uint8_t)pj_random_u64(r);
        break;
    case 2: change_number(r, at); break;
    case 3: splice(at, 0, word, strlen(word)); break;
    case 4: splice(at, count, word, strlen(word)); break;
    case 5: splice(at, count, "", 0); break;
    case 6: /* the same bytes again */
        memcpy(copy, mutant + at, count);
        splice(at, 0, copy, count);
        break;
    default: { /* a part of another input */
        const input *other = &inputs[below(r, input_count)];
        size_t from = below(r, other->size), most = other->size - from;
        splice(at, count, other->bytes + from,
               below(r, most < LONGEST       ? most + 1
                        : 4 * LONGEST < most ? 4 * LONGEST
                                             : most));
    }
    }
}

static void mutate(pj_random *r)
{
    const input *from = &inputs[below(r, input_count)];
    mutant_bytes = from->size < MOST_BYTES ? from->size : MOST_BYTES;
    memcpy(mutant, from->bytes, mutant_bytes);
    for (size_t i = 1 + below(r, 6); i-- > 0;) mutate_once(r);
}

static void write_finding(void)
{
    char path[256];
    snprintf(path, sizeof path, "fuzz-finding-%s", target);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(mutant, 1, mutant_bytes, file);
    fclose(file);
    fprintf(stderr, "the input is in %s\n", path);
}

/* A target aborts where a property of its own is broken, sanitizers with abort_on_error=1. */
static void on_abort(int number)
{
    write_finding();
    signal(number, SIG_DFL);
    raise(number);
}

static unsigned long long fuzz(double seconds)
{
    const char *seed = getenv("PJ_FUZZ_SEED");
    pj_random random = {seed ? strtoull(seed, NULL, 10) : 1};
    unsigned long long count = 0;
    signal(SIGABRT, on_abort);
    clock_t begin = clock();
    while (input_count && (double)(clock() - begin) / CLOCKS_PER_SEC < seconds) {
        mutate(&random);
        /* of its own size, so that a read beyond the end is seen */
        uint8_t *own = malloc(mutant_bytes ? mutant_bytes : 1);
        if (!own) abort();
        memcpy(own, mutant, mutant_bytes);
        LLVMFuzzerTestOneInput(own, mutant_bytes);
        free(own);
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    const char *seconds = getenv("PJ_FUZZ_SECONDS");
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/');
        target = slash ? slash + 1 : argv[i];
        if (pj_dir_exists(argv[i]))
            take_folder(argv[i]);
        else
            take_file(argv[i]);
    }
    for (size_t i = 0; i < input_count; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)inputs[i].bytes, inputs[i].size);
    printf("%zu inputs replayed\n", input_count + 1);
    if (seconds) printf("%llu mutations\n", fuzz(atof(seconds)));
    for (size_t i = 0; i < input_count; i++) pj_free(inputs[i].bytes);
    return input_count == 0 && argc > 1;
}

/* Gains of sensors that a user entered: parsing, storing and applying them. */
#include "power/gain.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GAINS = 32 };

typedef struct gain_entry {
    char source[16];
    double gain, sd;
} gain_entry;

static pj_status gain_refuse(const char *text, pj_error *err)
{
    return pj_fail(err, PJ_E_INVALID,
                   "%.60s is not a gain such as 1.02+-0.01 (reading / true value, "
                   "0.1 to 10)",
                   text);
}

pj_status pj_gain_parse(const char *text, double *gain, double *sd, pj_error *err)
{
    char *end;
    errno = 0;
    *gain = strtod(text, &end);
    *sd = 0;
    if (end == text || errno || !(*gain >= 0.1) || !(*gain <= 10)) return gain_refuse(text, err);
    if (!*end) return PJ_OK;
    if (strncmp(end, "+-", 2) != 0 && strncmp(end, "\xc2\xb1", 2) != 0)
        return gain_refuse(text, err);
    const char *from = end + 2;
    double absolute = strtod(from, &end);
    if (end == from || *end || errno || !(absolute >= 0) || !(absolute < *gain))
        return gain_refuse(text, err);
    *sd = fmax(absolute / *gain, 1e-6);
    return PJ_OK;
}

bool pj_gain_path(char *path, size_t bytes)
{
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int written = -1;
    if (folder && *folder == '/')
        written = snprintf(path, bytes, "%s/perjoule/gains", folder);
    else if (home && *home)
        written = snprintf(path, bytes, "%s/.config/perjoule/gains", home);
    return written > 0 && (size_t)written < bytes;
}

static int gain_read_entries(gain_entry *entries)
{
    char path[4096], line[256];
    int count = 0;
    FILE *file = pj_gain_path(path, sizeof path) ? fopen(path, "r") : NULL;
    while (file && count < MOST_GAINS && fgets(line, sizeof line, file)) {
        gain_entry *e = &entries[count];
        if (sscanf(line, "%15s %lf %lf", e->source, &e->gain, &e->sd) == 3 && e->gain >= 0.1 &&
            e->gain <= 10 && e->sd >= 0 && e->sd < 1)
            count++;
    }
    if (file) fclose(file);
    return count;
}

static pj_status write_entries(const gain_entry *entries, int count, pj_error *err)
{
    char path[4096], text[MOST_GAINS * 80] = "";
    size_t used = 0;
    if (!pj_gain_path(path, sizeof path))
        return pj_fail(err, PJ_E_UNAVAILABLE, "no folder for configuration: set HOME");
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %.9g %.9g\n",
                                 entries[i].source, entries[i].gain, entries[i].sd);
    *strrchr(path, '/') = 0;
    pj_status status = pj_dir_make(path, err);
    if (status != PJ_OK) return status;
    path[strlen(path)] = '/';
    return pj_file_write(path, text, used, err);
}

pj_status pj_gain_store(const char *assignment, pj_error *err)
{
    gain_entry entries[MOST_GAINS + 1], given = {.gain = NAN};
    const char *equals = strchr(assignment, '=');
    size_t length = equals ? (size_t)(equals - assignment) : 0;
    if (length == 0 || length >= sizeof given.source || strcspn(assignment, " \t\n") < length)
        return pj_fail(err, PJ_E_INVALID,
                       "%.60s must have the form SOURCE=GAIN, for example rapl=1.02+-0.01",
                       assignment);
    memcpy(given.source, assignment, length);
    bool forget = strcmp(equals + 1, "none") == 0;
    if (!forget) {
        pj_status status = pj_gain_parse(equals + 1, &given.gain, &given.sd, err);
        if (status != PJ_OK) return status;
    }
    int count = gain_read_entries(entries), kept = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(entries[i].source, given.source) != 0) entries[kept++] = entries[i];
    if (!forget) entries[kept++] = given;
    if (kept > MOST_GAINS)
        return pj_fail(err, PJ_E_INVALID, "gains of more than %d sources", MOST_GAINS);
    return write_entries(entries, kept, err);
}

void pj_gain_apply(pj_rail *rails, uint32_t count)
{
    gain_entry entries[MOST_GAINS];
    int known = gain_read_entries(entries);
    for (uint32_t r = 0; r < count; r++)
        for (int i = 0; i < known; i++)
            if (strcmp(entries[i].source, rails[r].source) == 0) {
                rails[r].gain = entries[i].gain;
                rails[r].gain_sd = entries[i].sd;
            }
}

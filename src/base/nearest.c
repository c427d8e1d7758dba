/* Edit distance with transpositions (Damerau-Levenshtein, optimal string alignment). */
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

enum { MAX_WORD = 40 };

static size_t nearest_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, substitutions and transpositions of neighbours that turn a into b. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][MAX_WORD + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = nearest_least(nearest_least(last[j] + 1, row[j - 1] + 1),
                                   last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = nearest_least(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

void pj_nearest_begin(pj_nearest *nearest, const char *wanted)
{
    *nearest = (pj_nearest){.wanted = wanted, .distance = (size_t)-1};
}

void pj_nearest_offer(pj_nearest *nearest, const char *word, size_t length)
{
    size_t wanted = strlen(nearest->wanted);
    if (!wanted || wanted > MAX_WORD || !length || length > MAX_WORD) return;
    size_t d = 1, most = (wanted + 2) / 3,
           differ = wanted > length ? wanted - length : length - wanted;
    /* an abbreviation counts as one edit */
    if (wanted < 2 || wanted >= length || strncmp(word, nearest->wanted, wanted) != 0) {
        if (differ > most || differ >= nearest->distance) return; /* lower bound of the distance */
        d = distance(nearest->wanted, wanted, word, length);
    }
    if (d > most || d >= nearest->distance) return;
    nearest->distance = d;
    nearest->word = word;
    nearest->length = length;
}

void pj_nearest_offer_list(pj_nearest *nearest, const char *words)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        pj_nearest_offer(nearest, words, length);
        words += length + (words[length] == ' ');
    }
}

void pj_nearest_write(const pj_nearest *nearest, const char *prefix, char *text, size_t bytes)
{
    *text = 0;
    if (nearest->word)
        snprintf(text, bytes, "; did you mean %s%.*s?", prefix, (int)nearest->length,
                 nearest->word);
}

void pj_nearest_hint(const char *wanted, const char *words, char *text, size_t bytes)
{
    pj_nearest nearest;
    pj_nearest_begin(&nearest, wanted);
    pj_nearest_offer_list(&nearest, words);
    pj_nearest_write(&nearest, "", text, bytes);
}

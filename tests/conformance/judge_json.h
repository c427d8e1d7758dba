/* Reference results in JSON, as the engine's conformance programs read them. */
#ifndef PJ_TESTS_JUDGE_JSON_H
#define PJ_TESTS_JUDGE_JSON_H

#include "judge.h"

#include <jansson.h>

static inline json_t *judge_json(const char *folder, const char *name)
{
    char path[PATH_MAX];
    json_error_t error;
    json_t *json = json_load_file(judge_join(path, folder, name), JSON_ALLOW_NUL, &error);
    if (!json) fail_msg("%s: %s", path, error.text);
    return json;
}

/* Reads a list of at most `most` token ids; returns their number. */
static inline uint32_t judge_ids(const json_t *list, int32_t *ids, size_t most)
{
    size_t n = json_array_size(list);
    assert_in_range(n, 1, most);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (uint32_t)n;
}

#endif

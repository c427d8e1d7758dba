/* Reads a file of tasks line by line. */
#include "analysis/tasks.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>

enum { USUAL_TOKENS = 32, MOST_TOKENS = 4096 };

/* The line being read. */
typedef struct tasks_line {
    const char *file;
    uint32_t number;
    pj_arena *arena;
    pj_error *err;
} tasks_line;

static pj_status tasks_bad(const tasks_line *l, const char *what)
{
    return pj_fail(l->err, PJ_E_INVALID, "%.200s, line %u: %s", l->file, l->number, what);
}

static const char *tasks_keep(const tasks_line *l, const json_t *text)
{
    return pj_arena_strndup(l->arena, json_string_value(text), json_string_length(text));
}

static bool tasks_is_text(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           strlen(json_string_value(value)) == json_string_length(value);
}

/* A text, or a list of texts, as a NULL-terminated list. */
static pj_status tasks_read_texts(const tasks_line *l, const json_t *value, const char *bad,
                                  const char *const **out)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    const char **texts = pj_arena_alloc(l->arena, count + 1, sizeof *texts);
    if (!texts) return pj_fail_memory(l->err, "the tasks");
    if (count < 1 || count > PJ_TASK_MAX_TEXTS) return tasks_bad(l, bad);
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_is_array(value) ? json_array_get(value, i) : value;
        if (!tasks_is_text(text)) return tasks_bad(l, bad);
        texts[i] = tasks_keep(l, text);
        if (!texts[i]) return pj_fail_memory(l->err, "the tasks");
    }
    *out = texts;
    return PJ_OK;
}

static bool tasks_has(const char *const *texts, const char *text)
{
    for (; *texts; texts++)
        if (strcmp(*texts, text) == 0) return true;
    return false;
}

static pj_status tasks_read_choices(const tasks_line *l, const json_t *value, pj_task *t)
{
    static const char bad[] = "choices must be 2 to 64 different texts";
    if (!value) return PJ_OK;
    if (!json_is_array(value) || json_array_size(value) < 2) return tasks_bad(l, bad);
    pj_status status = tasks_read_texts(l, value, bad, &t->choices);
    for (uint32_t i = 0; status == PJ_OK && t->choices[i]; i++)
        if (tasks_has(t->choices + i + 1, t->choices[i])) return tasks_bad(l, bad);
    if (status == PJ_OK && (t->answers[1] || !tasks_has(t->choices, t->answers[0])))
        return tasks_bad(l, "answer must be one of the choices");
    return status;
}

static pj_status tasks_read_rest(const tasks_line *l, const json_t *tree, pj_task *t)
{
    static const char *const line_end[] = {"\n", NULL};
    const json_t *stop = json_object_get(tree, "stop"), *chat = json_object_get(tree, "chat"),
                 *most = json_object_get(tree, "max_tokens");
    json_int_t tokens = most ? json_integer_value(most) : USUAL_TOKENS;
    if (t->choices && (stop || most))
        return tasks_bad(l, "stop and max_tokens are for answers that the model writes");
    if (tokens < 1 || tokens > MOST_TOKENS)
        return tasks_bad(l, "max_tokens must be an integer from 1 to 4096");
    if (chat && !json_is_boolean(chat)) return tasks_bad(l, "chat must be true or false");
    t->max_tokens = (uint32_t)tokens;
    t->chat = json_is_true(chat);
    t->stop = line_end;
    return stop ? tasks_read_texts(l, stop, "stop must be a text or a list of texts", &t->stop)
                : PJ_OK;
}

static pj_status tasks_check_members(const tasks_line *l, json_t *tree)
{
    static const char *const known[] = {"prompt",     "answer", "choices", "stop",
                                        "max_tokens", "chat",   NULL};
    const char *name;
    json_t *value;
    json_object_foreach(tree, name, value)
    {
        if (tasks_has(known, name)) continue;
        return pj_fail(l->err, PJ_E_INVALID,
                       "%.200s, line %u: unknown member %.64s; known: prompt, answer, choices, "
                       "stop, max_tokens and chat",
                       l->file, l->number, name);
    }
    return PJ_OK;
}

static pj_status tasks_read_task(const tasks_line *l, json_t *tree, pj_task *t)
{
    const json_t *prompt = json_object_get(tree, "prompt"),
                 *answer = json_object_get(tree, "answer");
    *t = (pj_task){.line = l->number};
    pj_status status = tasks_check_members(l, tree);
    if (status != PJ_OK) return status;
    if (!tasks_is_text(prompt)) return tasks_bad(l, "prompt must be a text");
    t->prompt = tasks_keep(l, prompt);
    if (!t->prompt) return pj_fail_memory(l->err, "the tasks");
    status = tasks_read_texts(l, answer, "answer must be a text or a list of texts", &t->answers);
    if (status == PJ_OK) status = tasks_read_choices(l, json_object_get(tree, "choices"), t);
    return status == PJ_OK ? tasks_read_rest(l, tree, t) : status;
}

static bool tasks_is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!isspace((unsigned char)text[i])) return false;
    return true;
}

static pj_status tasks_read_line(const tasks_line *l, const char *text, size_t bytes,
                                 pj_tasks *tasks)
{
    json_error_t where;
    if (tasks->count == PJ_TASK_MAX_COUNT) return tasks_bad(l, "there are more than 10000 tasks");
    pj_task *more = pj_arena_more(l->arena, tasks->items, tasks->count, sizeof *more);
    if (!more) return pj_fail_memory(l->err, "the tasks");
    tasks->items = more;
    json_t *tree = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    pj_status status = json_is_object(tree)
                           ? tasks_read_task(l, tree, &tasks->items[tasks->count])
                           : tasks_bad(l, tree ? "this is not a JSON object" : where.text);
    json_decref(tree);
    tasks->count += status == PJ_OK;
    return status;
}

pj_status pj_tasks_parse(const char *text, size_t bytes, const char *name, pj_arena *arena,
                         pj_tasks *tasks, pj_error *err)
{
    tasks_line line = {.file = name, .arena = arena, .err = err};
    pj_status status = PJ_OK;
    *tasks = (pj_tasks){0};
    bool marked = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0; /* a byte order mark */
    for (const char *at = text + 3 * marked, *end = text + bytes; at < end && status == PJ_OK;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        line.number++;
        if (!tasks_is_blank(at, length)) status = tasks_read_line(&line, at, length, tasks);
        at += length + 1;
    }
    if (status == PJ_OK && !tasks->count)
        return pj_fail(err, PJ_E_INVALID, "%.200s has no tasks", name);
    return status;
}

bool pj_task_is_solved_by(const pj_task *task, const char *text, size_t bytes)
{
    for (; bytes && isspace((unsigned char)*text); bytes--) text++;
    while (bytes && isspace((unsigned char)text[bytes - 1])) bytes--;
    for (const char *const *answer = task->answers; *answer; answer++) {
        const char *from = *answer;
        while (isspace((unsigned char)*from)) from++;
        size_t length = strlen(from);
        while (length && isspace((unsigned char)from[length - 1])) length--;
        if (length == bytes && memcmp(from, text, bytes) == 0) return true;
    }
    return false;
}

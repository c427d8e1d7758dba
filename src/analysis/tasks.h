/*
 * A set of tasks that shows what a setting costs in quality: one JSON object a line
 * (docs/formats.md, "Tasks"). A task with `choices` is solved if the right one has the largest
 * likelihood after the prompt; another if the generated text is one of its answers exactly. Pure.
 */
#ifndef PJ_ANALYSIS_TASKS_H
#define PJ_ANALYSIS_TASKS_H

#include "base/error.h"
#include "base/memory.h"

enum { PJ_TASK_MAX_COUNT = 10000, PJ_TASK_MAX_TEXTS = 64 };

typedef struct pj_task {
    const char *prompt;
    const char *const *answers; /* NULL-terminated; of a choice: one of them */
    const char *const *choices; /* NULL-terminated; NULL: the model writes the answer */
    const char *const *stop;    /* NULL-terminated; the answer ends before them */
    uint32_t max_tokens;        /* of a written answer */
    uint32_t line;              /* in the file, from 1 */
    bool chat;                  /* the prompt is a message for the model's chat template */
} pj_task;

typedef struct pj_tasks {
    pj_task *items;
    uint32_t count;
} pj_tasks;

/* Texts live in the arena. The error names `name` and the line. */
pj_status pj_tasks_parse(const char *text, size_t bytes, const char *name, pj_arena *arena,
                         pj_tasks *tasks, pj_error *err);
/* Whether a generated text is the answer: equal to one of them, white space at the ends apart. */
bool pj_task_is_solved_by(const pj_task *task, const char *text, size_t bytes);

#endif

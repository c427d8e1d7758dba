/*
 * What templates can call: methods of Python's types, filters, and tests. Each is a row of a table
 * (name, function), so that what is supported can be listed and everything else is refused by name.
 */
#ifndef PJ_LLM_JINJA_LIBRARY_H
#define PJ_LLM_JINJA_LIBRARY_H

#include "llm/jinja/value.h"

typedef jv jv_function(jv_run *run, jv self, const jv_arguments *arguments);

typedef struct jv_entry {
    const char *name;
    jv_function *function;
} jv_entry;

/* Argument `index`, or the one of this name; `missing` when neither was given. */
jv jv_argument(const jv_arguments *arguments, size_t index, const char *name, jv missing);
/* The same, when there must be one. */
jv jv_needed(jv_run *run, const jv_arguments *arguments, size_t index, const char *name);
const jv_string *jv_needed_string(jv_run *run, const jv_arguments *arguments, size_t index,
                                  const char *name);

/* The method of a value's type; NULL: it has none of this name. */
jv_function *jv_method(jv self, const char *name);
/* The filter of this name; NULL: not supported. */
jv_function *jv_filter(const char *name);
/* The test of this name, which gives a boolean; NULL: not supported. */
jv_function *jv_test(const char *name);

/* a[key] or a.key as templates see it: undefined when it is not there. */
jv jv_member(jv_run *run, jv self, jv key);

/* String operations that filters and methods share. */
jv jv_strip(jv_run *run, const jv_string *s, const jv_string *characters, bool left, bool right);
jv jv_replace(jv_run *run, const jv_string *s, const jv_string *old, const jv_string *new,
              int64_t count);
jv jv_join(jv_run *run, const jv_list *items, const jv_string *separator);
/* JV_TITLE: Python's str.title; JV_WORDS: the filter, whose words begin after blanks and brackets.
 */
typedef enum jv_case { JV_UPPER, JV_LOWER, JV_TITLE, JV_WORDS, JV_CAPITAL } jv_case;
jv jv_change_case(jv_run *run, const jv_string *s, jv_case to);

/* For HTML, as the reference's Markup does it: a safe string is not escaped again. */
jv jv_escape(jv_run *run, jv string);
jv jv_mark_safe(jv_run *run, jv string);

#endif

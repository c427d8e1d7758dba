/* Functions for templates: methods of Python's types, filters, and tests. Each is a table row
 * (name, function), so that the supported ones can be listed and everything else is rejected by
 * name. */
#ifndef PJ_TEXT_JINJA_LIBRARY_H
#define PJ_TEXT_JINJA_LIBRARY_H

#include "engine/text/jinja/value.h"

typedef jv jv_function(jv_run *run, jv self, const jv_arguments *arguments);

/* `how` is for functions that several names share. */
typedef struct jv_entry {
    const char *name;
    jv_function *function;
    int how;
} jv_entry;

/* By name; NULL: not in the table, which ends with an entry without a name. */
const jv_entry *jv_find(const jv_entry *table, const char *name);
jv jv_call(jv_run *run, const jv_entry *entry, jv self, const jv_arguments *arguments);

/* Argument `index`, or the one of this name; `missing` if neither was given. */
jv jv_argument(const jv_arguments *arguments, size_t index, const char *name, jv missing);
bool jv_flag(const jv_arguments *arguments, size_t index, const char *name); /* false: missing */
/* The same for a required argument. */
jv jv_needed(jv_run *run, const jv_arguments *arguments, size_t index, const char *name);
const jv_string *jv_needed_string(jv_run *run, const jv_arguments *arguments, size_t index,
                                  const char *name);

/* A method of a value's type; NULL: no such method. */
const jv_entry *jv_method(jv self, const char *name);
/* A filter by name; NULL: not supported. */
const jv_entry *jv_filter(const char *name);
/* A test by name, which returns a boolean; NULL: not supported. */
const jv_entry *jv_test(const char *name);

/* a[key] or a.key in templates: undefined if absent. */
jv jv_member(jv_run *run, jv self, jv key);

/* String operations shared by filters and methods. */
bool jv_is_blank(uint32_t code);    /* str.isspace() */
enum { JV_LEFT = 1, JV_RIGHT = 2 }; /* sides to strip */
jv jv_strip(jv_run *run, const jv_string *s, const jv_string *characters, int sides);
jv jv_replace(jv_run *run, const jv_string *s, const jv_string *old, const jv_string *new,
              int64_t count);
jv jv_join(jv_run *run, const jv_list *items, const jv_string *separator);
/* JV_TITLE: Python's str.title; JV_WORDS: the filter, whose words begin after blanks and
 * brackets. */
typedef enum jv_case { JV_UPPER, JV_LOWER, JV_TITLE, JV_WORDS, JV_CAPITAL } jv_case;
jv_function jv_change_case; /* of str(self) to arguments->how */
jv_function jv_is_case;     /* whether all letters of str(self) have the case arguments->how */

/* format % values; a tuple holds several values, a dictionary named ones. */
jv jv_percent(jv_run *run, const jv_string *format, jv values);
/* A value as str.format writes it, by what follows ":" in its field. */
void jv_add_formatted(jv_builder *out, jv value, const char *specification, size_t bytes);

/* HTML escaping as in the reference's Markup: a safe string is not escaped again. */
jv jv_escape(jv_run *run, jv string);
jv jv_mark_safe(jv_run *run, jv string);

#endif

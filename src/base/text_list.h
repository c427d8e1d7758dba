/* A short list of borrowed texts: values of an option that may be repeated. */
#ifndef PJ_BASE_TEXT_LIST_H
#define PJ_BASE_TEXT_LIST_H

enum { PJ_LIST_MAX = 64 };

typedef struct pj_text_list {
    const char *items[PJ_LIST_MAX + 1]; /* NULL-terminated */
    int count;
} pj_text_list;

#endif

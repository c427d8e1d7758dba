/* One value of a row, on its way between memory, the database and exports. */
#ifndef PJ_STORE_VALUE_H
#define PJ_STORE_VALUE_H

#include <stddef.h>
#include <stdint.h>

typedef enum pj_value_type {
    PJ_VALUE_NULL,
    PJ_VALUE_INT,
    PJ_VALUE_DOUBLE,
    PJ_VALUE_TEXT,
    PJ_VALUE_BLOB /* series of numbers, and text that is not valid UTF-8 */
} pj_value_type;

typedef struct pj_value {
    pj_value_type type;
    int64_t integer;
    double number;
    const char *text; /* bytes of a blob too */
    size_t bytes;
} pj_value;

#endif

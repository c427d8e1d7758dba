/* One value of a row, on its way between memory, the database and exports. */
#ifndef PJ_STORE_VALUE_H
#define PJ_STORE_VALUE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

static inline pj_value pj_value_int(int64_t integer)
{
    return (pj_value){.type = PJ_VALUE_INT, .integer = integer};
}

static inline pj_value pj_value_double(double number) /* NAN: NULL */
{
    return (pj_value){.type = isnan(number) ? PJ_VALUE_NULL : PJ_VALUE_DOUBLE, .number = number};
}

static inline pj_value pj_value_bytes(pj_value_type type, const void *bytes, size_t count)
{
    return (pj_value){.type = bytes ? type : PJ_VALUE_NULL, .text = bytes, .bytes = count};
}

static inline pj_value pj_value_text(const char *text) /* NULL: NULL */
{
    return pj_value_bytes(PJ_VALUE_TEXT, text, text ? strlen(text) : 0);
}

#endif

/* Texts in comma-separated values: RFC 4180, and inert in spreadsheets. */
#ifndef PJ_BASE_CSV_H
#define PJ_BASE_CSV_H

#include "base/buffer.h"

/* Quoted where necessary; one that a spreadsheet would take for a formula is preceded by an
 * apostrophe. */
void pj_csv_put_text(pj_buffer *line, const char *text, size_t bytes);

#endif

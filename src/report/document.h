/* A document that becomes HTML (one file, inline SVG, no script) or Markdown, from the same calls.
 */
#ifndef PJ_REPORT_DOCUMENT_H
#define PJ_REPORT_DOCUMENT_H

#include "base/buffer.h"

#include <stdint.h>

typedef struct pj_document {
    pj_buffer *out;
    bool html;
    uint32_t column; /* of the table row that is open */
} pj_document;

void pj_document_begin(pj_document *d, pj_buffer *out, bool html, const char *title);
void pj_document_end(pj_document *d);
void pj_document_heading(pj_document *d, const char *text);
/* The main conclusion, highlighted. */
void pj_document_verdict(pj_document *d, const char *text);
void pj_document_text(pj_document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pj_document_item(pj_document *d, const char *title, const char *text);
void pj_document_code(pj_document *d, const char *text);

/* Tables: heads separated by '|', then cells until the row ends. */
void pj_document_table(pj_document *d, const char *heads);
void pj_document_row(pj_document *d);
void pj_document_cell(pj_document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pj_document_row_end(pj_document *d);
void pj_document_table_end(pj_document *d);

typedef struct pj_document_part {
    const char *name;
    double value, lo, hi; /* lo, hi: NAN where there is no interval. value NAN: unavailable */
} pj_document_part;

/* A stacked bar of the parts of a total. Markdown: a table with shares. */
void pj_document_stack(pj_document *d, const pj_document_part *parts, uint32_t count,
                       const char *unit);
/* Horizontal bars with intervals; omitted in Markdown, where a table has the same figures.
 * `log_ratio`: ratios on a logarithmic axis centred on 1. */
void pj_document_bars(pj_document *d, const char *caption, const pj_document_part *parts,
                      uint32_t count, const char *unit, bool log_ratio);
/* A line chart of values by index. */
void pj_document_line(pj_document *d, const char *caption, const double *values, uint32_t count,
                      const char *unit);

#endif

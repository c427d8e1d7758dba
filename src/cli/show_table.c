/* Tables for people. */
#include "cli/show_table.h"

#include "cli/terminal.h"
#include "cli/wrap.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

static int table_width(const pj_show_table *t, int *highest)
{
    int width = -1;
    *highest = 0;
    for (uint32_t i = 0; t->columns[i].heading; i++) {
        if (t->hidden >> i & 1) continue;
        width += 1 + abs(t->columns[i].width);
        if (t->columns[i].rank > *highest) *highest = t->columns[i].rank;
    }
    return width;
}

static void table_hide(pj_show_table *t, int rank)
{
    for (uint32_t i = 0; t->columns[i].heading; i++)
        if (t->columns[i].rank == rank) t->hidden |= 1u << i;
}

static void table_fit(pj_show_table *t)
{
    int reading = pj_wrapping_width(stdout), room = reading ? reading : INT_MAX, highest;
    while (table_width(t, &highest) > room && highest) table_hide(t, highest);
}

static int line_columns(const pj_show_table *t)
{
    return pj_columns_of(pj_buffer_get(&t->line), (int)t->line.length);
}

static void table_end_row(pj_show_table *t, pj_style style)
{
    const char *text = pj_buffer_get(&t->line);
    int length = (int)t->line.length;
    while (length > 0 && text[length - 1] == ' ') length--;
    pj_print(stdout, "%s%.*s%s\n", pj_style_on(stdout, style), length, text, pj_style_off(stdout));
    pj_buffer_clear(&t->line);
    t->next = 0;
    t->at = 0;
}

static void table_add(pj_show_table *t, const char *text, pj_style style)
{
    const pj_show_column *c = &t->columns[t->next];
    if (!(t->hidden >> t->next & 1)) {
        int width = abs(c->width), used = line_columns(t),
            own = pj_columns_of(text, (int)strlen(text));
        int from = c->width < 0 ? t->at : t->at + width - own;
        int least = used ? used + 1 : 0;
        pj_buffer_printf(&t->line, "%*s%s", (from > least ? from : least) - used, "", text);
        t->at += width + 1;
    }
    t->next++;
    if (!t->columns[t->next].heading) table_end_row(t, style);
}

void pj_show_table_begin(pj_show_table *t, const pj_show_column *columns)
{
    *t = (pj_show_table){.columns = columns};
    pj_buffer_init(&t->line, LINE_BYTES);
    table_fit(t);
    putchar('\n');
    for (uint32_t i = 0; columns[i].heading; i++) table_add(t, columns[i].heading, PJ_STYLE_BOLD);
}

void pj_show_cell(pj_show_table *t, const char *text)
{
    table_add(t, text, PJ_STYLE_PLAIN);
}

void pj_show_number(pj_show_table *t, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    pj_show_cell(t, text);
}

void pj_show_table_end(pj_show_table *t)
{
    pj_buffer_fini(&t->line);
}

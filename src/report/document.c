/* Writes a document as HTML or as Markdown. */
#include "report/document.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 720, ROW = 22, LABEL = 200, COLOURS = 8 };

/* A palette for colour-blind readers (Okabe and Ito). */
static const char *const colours[COLOURS] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                             "#56b4e9", "#d55e00", "#f0e442", "#888888"};

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#667;--line:#ccd}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#14171a;--soft:#9aa4b0;"
    "--line:#3a4048}}"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "max-width:46em;margin:2em auto;padding:0 1em}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.6em;break-after:avoid}"
    ".verdict{font-size:1.2em;font-weight:600;border-left:4px solid #0072b2;padding-left:.7em}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92em}"
    "th,td{border-bottom:1px solid var(--line);padding:.25em .5em;text-align:right}"
    "th:first-child,td:first-child{text-align:left}tr{break-inside:avoid}"
    "pre{border:1px solid var(--line);padding:.6em;white-space:pre-wrap;overflow-wrap:anywhere}"
    "figure{margin:1em 0;break-inside:avoid}figcaption{color:var(--soft);font-size:.9em}"
    ".wide,figure{overflow-x:auto}figure svg{min-width:36em}"
    "svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}"
    "svg .soft{stroke:var(--soft)}"
    "@page{size:A4;margin:16mm}@media print{:root{--ink:#000;--paper:#fff;--soft:#555;--line:#bbb}"
    "body{max-width:none;margin:0;padding:0;font-size:10.5pt}"
    ".wide,figure{overflow:visible}figure svg{min-width:0}}";

/* ---- text ----------------------------------------------------------------------------------- */

/* Escapes text for the output format; cells of Markdown tables may not contain bars or newlines.
 * A character that a limit of length has cut is left out. */
static void escaped_bytes(pj_document *d, const char *text, size_t bytes)
{
    uint32_t c;
    for (size_t i = 0, n; i < bytes; i += n ? n : 1) {
        n = pj_utf8_next(text + i, bytes - i, &c);
        if (!n) continue;
        const char *entity = !d->html   ? NULL
                             : c == '&' ? "&amp;"
                             : c == '<' ? "&lt;"
                             : c == '>' ? "&gt;"
                             : c == '"' ? "&quot;"
                                        : NULL;
        if (entity)
            pj_buffer_text(d->out, entity);
        else if (c < ' ' || (!d->html && c == '|'))
            pj_buffer_char(d->out, c == '|' ? '/' : ' ');
        else
            pj_buffer_append(d->out, text + i, n);
    }
}

static void escaped(pj_document *d, const char *text)
{
    escaped_bytes(d, text, strlen(text));
}

static void wrapped(pj_document *d, const char *open, const char *text, const char *close)
{
    pj_buffer_text(d->out, open);
    escaped(d, text);
    pj_buffer_text(d->out, close);
}

void pj_document_begin(pj_document *d, pj_buffer *out, bool html, const char *title)
{
    *d = (pj_document){.out = out, .html = html};
    if (html) {
        wrapped(d,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width\"><title>",
                title, "</title>\n<style>");
        pj_buffer_text(out, style);
        pj_buffer_text(out, "</style></head>\n<body>\n");
    }
    wrapped(d, html ? "<h1>" : "# ", title, html ? "</h1>\n" : "\n");
}

void pj_document_end(pj_document *d)
{
    if (d->html) pj_buffer_text(d->out, "</body></html>\n");
}

void pj_document_heading(pj_document *d, const char *text)
{
    wrapped(d, d->html ? "<h2>" : "\n## ", text, d->html ? "</h2>\n" : "\n\n");
}

void pj_document_verdict(pj_document *d, const char *text)
{
    wrapped(d, d->html ? "<p class=\"verdict\">" : "\n**", text, d->html ? "</p>\n" : "**\n");
}

void pj_document_text(pj_document *d, const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    wrapped(d, d->html ? "<p>" : "\n", text, d->html ? "</p>\n" : "\n");
}

void pj_document_item(pj_document *d, const char *title, const char *text)
{
    wrapped(d, d->html ? "<p><b>" : "\n- **", title, d->html ? "</b>. " : "**. ");
    wrapped(d, "", text, d->html ? "</p>\n" : "\n");
}

void pj_document_code(pj_document *d, const char *text)
{
    pj_buffer_text(d->out, d->html ? "<pre>" : "\n");
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        pj_buffer_text(d->out, d->html ? "" : "    ");
        escaped_bytes(d, at, length);
        pj_buffer_char(d->out, '\n');
        at += length + (at[length] == '\n');
    }
    if (d->html) pj_buffer_text(d->out, "</pre>\n");
}

/* ---- tables --------------------------------------------------------------------------------- */

void pj_document_table(pj_document *d, const char *heads)
{
    uint32_t columns = 0;
    pj_buffer_text(d->out, d->html ? "<div class=\"wide\"><table><tr>" : "\n|");
    for (const char *at = heads; *at; columns++) {
        char head[64];
        size_t length = strcspn(at, "|");
        snprintf(head, sizeof head, "%.*s", (int)length, at);
        wrapped(d, d->html ? "<th>" : " ", head, d->html ? "</th>" : " |");
        at += length + (at[length] == '|');
    }
    pj_buffer_text(d->out, d->html ? "</tr>\n" : "\n|");
    for (uint32_t i = 0; i < columns && !d->html; i++) pj_buffer_text(d->out, i ? "---:|" : "---|");
    if (!d->html) pj_buffer_char(d->out, '\n');
}

void pj_document_row(pj_document *d)
{
    pj_buffer_text(d->out, d->html ? "<tr>" : "|");
}

void pj_document_cell(pj_document *d, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    wrapped(d, d->html ? "<td>" : " ", text, d->html ? "</td>" : " |");
}

void pj_document_row_end(pj_document *d)
{
    pj_buffer_text(d->out, d->html ? "</tr>\n" : "\n");
}

void pj_document_table_end(pj_document *d)
{
    if (d->html) pj_buffer_text(d->out, "</table></div>\n");
}

/* ---- charts --------------------------------------------------------------------------------- */

static void svg_begin(pj_document *d, const char *caption, uint32_t height)
{
    wrapped(d, "<figure><figcaption>", caption, "</figcaption>");
    pj_buffer_printf(
        d->out, "<svg viewBox=\"0 0 %d %u\" width=\"%d\" height=\"%u\" role=\"img\" aria-label=\"",
        WIDTH, height, WIDTH, height);
    wrapped(d, "", caption, "\">\n");
}

static void svg_end(pj_document *d)
{
    pj_buffer_text(d->out, "</svg></figure>\n");
}

static double sum_of(const pj_document_part *parts, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (parts[i].value > 0) sum += parts[i].value;
    return sum;
}

static void stack_bar(pj_document *d, const pj_document_part *parts, uint32_t count, double sum)
{
    double x = 0;
    svg_begin(d, "The whole, part by part", 46);
    for (uint32_t i = 0; i < count; i++) {
        double width = parts[i].value > 0 ? parts[i].value / sum * WIDTH : 0;
        if (!(width > 0)) continue;
        pj_buffer_printf(
            d->out, "<rect x=\"%.2f\" y=\"8\" width=\"%.2f\" height=\"30\" fill=\"%s\"><title>", x,
            width, colours[i % COLOURS]);
        wrapped(d, "", parts[i].name, "</title></rect>\n");
        x += width;
    }
    svg_end(d);
}

void pj_document_stack(pj_document *d, const pj_document_part *parts, uint32_t count,
                       const char *unit)
{
    char heads[96];
    double sum = sum_of(parts, count);
    if (!(sum > 0)) return;
    if (d->html) stack_bar(d, parts, count, sum);
    snprintf(heads, sizeof heads, "part|%s|share", unit);
    pj_document_table(d, heads);
    for (uint32_t i = 0; i < count; i++) {
        if (isnan(parts[i].value)) continue;
        pj_document_row(d);
        if (d->html) {
            pj_buffer_printf(d->out,
                             "<td><svg width=\"11\" height=\"11\"><rect width=\"11\" height=\"11\" "
                             "fill=\"%s\"/></svg> ",
                             colours[i % COLOURS]);
            wrapped(d, "", parts[i].name, "</td>");
        } else {
            pj_document_cell(d, "%s", parts[i].name);
        }
        pj_document_cell(d, "%.5g", parts[i].value);
        pj_document_cell(d, "%.1f %%", 100 * parts[i].value / sum);
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

typedef struct axis {
    double from, to;
    bool logarithmic;
} axis;

static double place(const axis *a, double value)
{
    double f = a->logarithmic ? (log(value) - log(a->from)) / (log(a->to) - log(a->from))
                              : (value - a->from) / (a->to - a->from);
    return LABEL + fmin(fmax(f, 0), 1) * (WIDTH - LABEL - 90);
}

static axis axis_of(const pj_document_part *parts, uint32_t count, bool log_ratio)
{
    axis a = {log_ratio ? 0.9 : 0, log_ratio ? 1.1 : 0, log_ratio};
    for (uint32_t i = 0; i < count; i++) {
        double lo = isnan(parts[i].lo) ? parts[i].value : parts[i].lo;
        double hi = isnan(parts[i].hi) ? parts[i].value : parts[i].hi;
        if (!log_ratio) a.from = fmin(a.from, fmin(lo, parts[i].value));
        if (log_ratio && lo > 0.01) a.from = fmin(a.from, lo);
        if (hi < 100 || !log_ratio)
            a.to = fmax(a.to, fmin(hi, log_ratio ? 100 : fabs(parts[i].value) * 3));
    }
    if (!(a.to > a.from)) a.to = a.from + 1;
    return a;
}

static void bar(pj_document *d, const axis *a, const pj_document_part *p, uint32_t row,
                const char *unit)
{
    double y = 4 + row * ROW, zero = place(a, a->logarithmic ? 1 : 0);
    pj_buffer_printf(d->out, "<text x=\"0\" y=\"%.0f\">", y + 13);
    char name[40];
    snprintf(name, sizeof name, "%.32s", p->name);
    wrapped(d, "", name, "</text>");
    if (isnan(p->value)) {
        pj_buffer_printf(
            d->out,
            "<rect x=\"%d\" y=\"%.0f\" width=\"60\" height=\"14\" fill=\"none\" class=\"soft\" "
            "stroke-dasharray=\"3 3\"/><text x=\"%d\" y=\"%.0f\">unavailable</text>\n",
            LABEL, y + 2, LABEL + 70, y + 13);
        return;
    }
    double at = place(a, p->value);
    pj_buffer_printf(d->out,
                     "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>",
                     fmin(zero, at), y + 2, fabs(at - zero),
                     p->value < (a->logarithmic ? 1 : 0) ? colours[2] : colours[0]);
    if (!isnan(p->lo) && !isnan(p->hi) && (!a->logarithmic || p->lo > 0))
        pj_buffer_printf(
            d->out,
            "<path class=\"soft\" stroke-width=\"1.5\" fill=\"none\" d=\"M%.1f %.0fH%.1f\"/>",
            place(a, p->lo), y + 9, place(a, p->hi));
    pj_buffer_printf(d->out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%.4g %s</text>\n",
                     WIDTH, y + 13, p->value, unit);
}

void pj_document_bars(pj_document *d, const char *caption, const pj_document_part *parts,
                      uint32_t count, const char *unit, bool log_ratio)
{
    axis a = axis_of(parts, count, log_ratio);
    if (!d->html || !count) return;
    svg_begin(d, caption, 10 + count * ROW);
    for (uint32_t i = 0; i < count; i++) bar(d, &a, &parts[i], i, unit);
    pj_buffer_printf(d->out, "<path class=\"soft\" d=\"M%.1f 0V%u\"/>\n",
                     place(&a, log_ratio ? 1 : 0), 8 + count * ROW);
    svg_end(d);
}

void pj_document_line(pj_document *d, const char *caption, const double *values, uint32_t count,
                      const char *unit)
{
    enum { HEIGHT = 140, MOST = 600 };
    double top = 0;
    uint32_t step = count / MOST + 1;
    if (!d->html || count < 2) return;
    for (uint32_t i = 0; i < count; i++)
        if (values[i] > top) top = values[i];
    if (!(top > 0)) return;
    svg_begin(d, caption, HEIGHT + 20);
    pj_buffer_printf(d->out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
                     colours[0]);
    for (uint32_t i = 0; i < count; i += step)
        if (!isnan(values[i]))
            pj_buffer_printf(d->out, "%.1f,%.1f ", (double)i / (count - 1) * WIDTH,
                             8 + HEIGHT * (1 - values[i] / top));
    pj_buffer_printf(
        d->out, "\"/><path class=\"soft\" d=\"M0 %dH%d\"/><text x=\"0\" y=\"12\">%.4g %s</text>\n",
        HEIGHT + 8, WIDTH, top, unit);
    svg_end(d);
}

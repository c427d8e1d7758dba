/* A terminal scroll region keeps the text above the bottom row. */
#include "cli/run_live.h"

#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <sys/ioctl.h>

enum { DRAW_EVERY_NS = 200 * 1000 * 1000 };

void pj_run_live_begin(pj_run_live *live, uint32_t run, uint32_t runs)
{
    struct winsize size;
    FILE *out = pj_terminal_is(stdout) ? stdout : stderr;
    *live = (pj_run_live){.out = out, .run = run, .runs = runs, .power_mw = NAN, .energy_mj = NAN};
    if (!pj_terminal_is(out) || ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_row < 4)
        return;
    live->rows = size.ws_row;
    /* New line, back up, scroll region without the last row, restore the cursor. */
    fprintf(out, "\n\033[A\0337\033[1;%dr\0338", live->rows - 1);
    fflush(out);
}

void pj_run_live_end(pj_run_live *live)
{
    if (!live->rows) return;
    fprintf(live->out, "\0337\033[r\033[%d;1H\033[2K\0338", live->rows);
    fflush(live->out);
    live->rows = 0;
}

static void run_live_take_power(void *context, const char *run_id, const pj_live_power *samples,
                                uint32_t count)
{
    pj_run_live *live = context;
    if (count) atomic_store(&live->power_mw, samples[count - 1].mw[PJ_RAIL_TOTAL]);
}

static void take_load(void *context, const char *run_id, const pj_live_load *load)
{
    pj_run_live *live = context;
    atomic_store(&live->loading.total, load->total);
    atomic_store(&live->loading.done, load->done);
}

static void take_token(void *context, const char *run_id, const pj_live_token *token)
{
    pj_run_live *live = context;
    double sum = atomic_load(&live->energy_mj);
    atomic_fetch_add(&live->tokens, 1);
    if (!isnan(token->energy_mj))
        atomic_store(&live->energy_mj, (isnan(sum) ? 0 : sum) + token->energy_mj);
}

pj_live_sink pj_run_live_sink(pj_run_live *live)
{
    return (pj_live_sink){.version = PJ_LIVE_SINK_VERSION,
                          .context = live,
                          .power = run_live_take_power,
                          .token = take_token,
                          .load_progress = take_load};
}

void pj_run_live_draw(pj_run_live *live, uint32_t tokens, double tokens_per_second)
{
    int64_t now_ns = pj_clock_ns();
    if (!live->rows || now_ns - live->drawn_ns < DRAW_EVERY_NS) return;
    char line[160], run[40] = "";
    uint32_t counted = atomic_load(&live->tokens);
    live->drawn_ns = now_ns;
    if (live->runs > 1) snprintf(run, sizeof run, " run %u of %u ", live->run, live->runs);
    double power_mw = atomic_load(&live->power_mw);
    double mj = counted ? atomic_load(&live->energy_mj) / counted : NAN;
    int used = snprintf(line, sizeof line, "%s %u token%s ", run, tokens, tokens == 1 ? "" : "s");
    if (tokens_per_second > 0) /* of the tokens after the first */
        used += snprintf(line + used, sizeof line - used, " %.1f tokens/s ", tokens_per_second);
    if (!isnan(power_mw))
        used += snprintf(line + used, sizeof line - used, " %s ", pj_power_text(power_mw).s);
    if (!isnan(mj))
        snprintf(line + used, sizeof line - used, " %s per token ", pj_energy_text(mj).s);
    fprintf(live->out, "\0337\033[%d;1H\033[2K\033[7m%.*s\033[0m\0338", live->rows,
            (int)pj_bytes_of_columns(line, pj_terminal_width(live->out)), line);
    fflush(live->out);
}

/* Writes commands from the settings of runs and the plan of an experiment. */
#include "report/report_repeat.h"

#include "base/shell.h"
#include "trace/json_member.h"

#include <perjoule.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20, LONGEST_PROMPT = 2000 };

static void add_option(pj_buffer *out, const char *option, const char *value)
{
    if (!*value) return;
    pj_buffer_printf(out, " %s ", option);
    pj_shell_word(out, value);
}

/* Settings that are not the usual ones. */
static void add_settings(pj_buffer *out, const json_t *settings)
{
    static const struct {
        const char *setting, *option, *unit;
        double usual;
    } numbers[] = {{"interval_ms", "--interval", "ms", 0},
                   {"temperature", "--temp", "", 0},
                   {"top_k", "--top-k", "", 0},
                   {"top_p", "--top-p", "", 1},
                   {"min_p", "--min-p", "", 0},
                   {"typical_p", "--typical-p", "", 1},
                   {"repetition_penalty", "--repeat-penalty", "", 1},
                   {"frequency_penalty", "--frequency-penalty", "", 0},
                   {"presence_penalty", "--presence-penalty", "", 0},
                   {"seed", "--seed", "", 0},
                   {"draft_tokens", "--draft-tokens", "", 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = pj_member_number(settings, numbers[i].setting);
        if (!isnan(value) && value != numbers[i].usual)
            pj_buffer_printf(out, " %s %.15g%s", numbers[i].option, value, numbers[i].unit);
    }
    if (json_is_true(json_object_get(settings, "chat"))) pj_buffer_text(out, " --chat");
    if (json_is_true(json_object_get(settings, "ignore_eos"))) pj_buffer_text(out, " --ignore-eos");
    add_option(out, "--dtype", pj_member_text(settings, "dtype"));
    add_option(out, "--system", pj_member_text(settings, "system"));
    add_option(out, "--draft", pj_member_text(settings, "draft_model"));
    add_option(out, "--power", pj_member_text(settings, "power"));
}

/* Token ids are kept as "1,2,3". What is private, long, or of several lines is not repeated here.
 */
static void add_prompt(pj_buffer *out, const char *prompt)
{
    size_t length = strlen(prompt);
    if (!length || length > LONGEST_PROMPT || strpbrk(prompt, "\n\r\t"))
        pj_buffer_text(out, " -f prompt.txt");
    else if (prompt[strspn(prompt, "0123456789,")] == 0 && strchr(prompt, ','))
        add_option(out, "--ids", prompt);
    else
        add_option(out, "-p", prompt);
}

static void write_command(pj_document *d, const json_t *run)
{
    pj_buffer out;
    const json_t *settings = json_object_get(run, "settings");
    double batch = pj_member_number(run, "batch_size");
    pj_buffer_init(&out, MOST_BYTES);
    pj_buffer_text(&out, "perjoule run");
    add_option(&out, "-m", pj_member_text(run, "model_path"));
    pj_buffer_printf(&out, " -n %.0f --threads %.0f", pj_member_number(settings, "max_tokens"),
                     pj_member_number(run, "threads"));
    if (batch > 1) pj_buffer_printf(&out, " --batch %.0f", batch);
    add_option(&out, "--depth", pj_member_text(run, "profiling_depth"));
    const char *kv = pj_member_text(json_object_get(run, "model"), "kv_type");
    if (strcmp(kv, "f32") == 0 || strcmp(kv, "f16") == 0) add_option(&out, "--kv", kv);
    add_settings(&out, settings);
    pj_buffer_text(&out, " --repeat 5 --warmup 1");
    add_prompt(&out, pj_member_text(run, "prompt"));
    pj_document_code(d, pj_buffer_get(&out));
    pj_buffer_fini(&out);
}

static void write_again(pj_document *d, const char *name)
{
    pj_buffer out;
    pj_buffer_init(&out, MOST_BYTES);
    pj_buffer_text(&out, "perjoule experiment --name ");
    pj_shell_word(&out, name);
    pj_buffer_text(&out, " --again");
    pj_document_code(d, pj_buffer_get(&out));
    pj_buffer_fini(&out);
}

void pj_report_repeat_run(pj_document *d, const json_t *run)
{
    const json_t *settings = json_object_get(run, "settings");
    if (json_is_integer(json_object_get(settings, "experiment_cell"))) {
        pj_document_text(d, "The run belongs to an experiment, all of which is repeated by:");
        write_again(d, pj_member_text(run, "experiment_name"));
    } else if (strcmp(pj_member_text(run, "engine"), "perjoule") != 0) {
        pj_document_text(d, "Repeat the same request to %s under perjoule %s, power sources %s.",
                         pj_member_text(run, "engine"), pj_version(),
                         pj_member_text(run, "power_sources"));
        return;
    } else {
        write_command(d, run);
    }
    pj_document_text(d, "perjoule %s, engine %s, instruction set %s, power sources %s.",
                     pj_version(), pj_member_text(run, "engine"), pj_member_text(run, "isa"),
                     pj_member_text(run, "power_sources"));
}

/* One line per member of the plan. */
static void write_plan(pj_document *d, const json_t *plan)
{
    pj_buffer out;
    const char *name;
    json_t *value;
    pj_buffer_init(&out, MOST_BYTES);
    json_object_foreach((json_t *)(uintptr_t)plan, name, value)
    {
        char *one = json_dumps(value, JSON_ENCODE_ANY);
        pj_buffer_printf(&out, "%s\n \"%s\": ", out.length ? "," : "{", name);
        pj_buffer_text(&out, one ? one : "null");
        free(one);
    }
    pj_buffer_text(&out, "\n}");
    pj_document_code(d, pj_buffer_get(&out));
    pj_buffer_fini(&out);
}

void pj_report_repeat_experiment(pj_document *d, const json_t *view)
{
    pj_document_heading(d, "How to repeat");
    write_plan(d, json_object_get(view, "plan"));
    write_again(d, pj_member_text(view, "name"));
    pj_document_text(d, "perjoule %s.", pj_version());
}

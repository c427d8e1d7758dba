/* perjoule devices: lists what can compute on this machine, and the rail that measures each. */
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "generate/devices.h"

#include <stdio.h>

static void devices_print_memory(const pj_device_entry *e)
{
    if (!e->memory_bytes) return;
    pj_print(stdout, "  memory %sB", pj_count_text((double)e->memory_bytes).s);
    if (e->free_bytes) pj_print(stdout, ", %sB free", pj_count_text((double)e->free_bytes).s);
    pj_print(stdout, "\n");
}

static void devices_print_driver(const pj_device_entry *e)
{
    if (!e->driver[0]) return;
    pj_print(stdout, "  driver %s, %s%s%s\n", e->driver, e->api, e->vendor ? "; vendor " : "",
             e->vendor ? e->vendor : "");
    if (e->pci[0]) pj_print(stdout, "  PCI %s\n", e->pci);
    pj_print(stdout, "  UUID %s%s\n", e->uuid,
             e->uuid_is_shared ? ", which names no card: it is zero, or others have it" : "");
}

static void devices_print_entry(const pj_device_entry *e)
{
    pj_print(stdout, "%s%s%s  %s (%s)\n", pj_style_on(stdout, PJ_STYLE_BOLD), e->id,
             pj_style_off(stdout), e->name, e->kind);
    devices_print_memory(e);
    devices_print_driver(e);
    if (e->fast_paths[0]) pj_print(stdout, "  fast paths: %s\n", e->fast_paths);
    if (e->rail[0])
        pj_print(stdout, "  measured by rail %s (%s)\n", e->rail, e->rail_source);
    else
        pj_print(stdout, "  not measured: %s\n", e->rail_reason);
    if (e->reason[0]) pj_print(stdout, "  %s%s\n", e->usable ? "" : "cannot be used: ", e->reason);
}

static void devices_print(const pj_device_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) devices_print_entry(&list->items[i]);
    if (list->no_vulkan[0]) pj_print(stdout, "No GPU: %s\n", list->no_vulkan);
}

static int run_devices(const pj_command *command, int argc, char **argv)
{
    const char *power = NULL;
    bool json = false;
    pj_device_list list;
    pj_json_out out;
    pj_error err;
    const pj_option options[] = {
        PJ_OPTION_POWER(&power), {"json", 0, PJ_OPTION_FLAG, &json, NULL, "one JSON object"}, {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_device_list_read(&list, power);
    if (!json) {
        devices_print(&list);
        return PJ_EXIT_OK;
    }
    pj_device_list_json(&list, pj_json_out_begin(&out));
    if (pj_json_out_end(&out, PJ_OK, &err) != PJ_OK) return pj_command_failed(command, &err);
    return PJ_EXIT_OK;
}

const pj_command pj_command_devices = {
    .name = "devices",
    .summary = "list what can compute here, and the rail that measures it",
    .run = run_devices,
    .usage = "[options]",
    .text =
        "The CPU, and every device with a Vulkan driver: memory, driver, addresses, what it has of "
        "the fast paths that kernels use, and the power rail that measures it or why none does. A "
        "rail is found by the device's UUID (NVML) or PCI address (hwmon); the only GPU is "
        "measured by the only GPU rail, unless that has another one's address. Drivers that "
        "compute on the CPU are listed as software.\n\n"
        "Only sources that can be asked at once are searched for rails: powermetrics is not "
        "started unless --power names it.",
    .examples = "perjoule devices\nperjoule devices --json\n",
};

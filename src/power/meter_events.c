/* Events of the meter: those found when opening it, then those from the samplers, each cause once
 * between start and stop; and their sentences for people. */
#include "power/meter_impl.h"

#include <stdio.h>
#include <string.h>

void pj_meter_note(pj_meter *meter, pj_meter_event_kind kind, uint32_t source, double value)
{
    meter->notes[meter->note_count++] = (pj_meter_event){.at_ns = pj_clock_ns(),
                                                         .value = value,
                                                         .kind = kind,
                                                         .source = (uint16_t)source,
                                                         .rail = UINT16_MAX};
}

/* The next event of any kind. */
static bool meter_events_take_event(pj_meter *meter, pj_meter_event *event)
{
    if (meter->note_next < meter->note_count) {
        *event = meter->notes[meter->note_next++];
        return true;
    }
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        if (pj_ring_read(&meter->samplers[i]->events, event, 1) == 1) return true;
    return false;
}

/* Whether the event is the first of its cause since the meter was started. A suspend concerns all
 * sources at once; a rejected value and the counter reset after it have one cause; a sensor that
 * freezes and thaws repeatedly is reported once. */
static bool is_news(pj_meter *meter, const pj_meter_event *event)
{
    uint32_t rail = event->rail < PJ_MAX_RAILS ? event->rail : PJ_MAX_RAILS;
    if (event->kind == PJ_METER_SUSPENDED) rail = PJ_MAX_RAILS;
    if (event->kind == PJ_METER_SOURCE_SKIPPED) return true; /* every one is reported */
    if (event->kind == PJ_METER_SOURCE_LOST || event->kind == PJ_METER_SOURCE_RESTARTED) {
        uint32_t source = 1u << event->source;
        bool again = event->kind == PJ_METER_SOURCE_LOST && meter->lost_sources & source;
        meter->lost_sources = event->kind == PJ_METER_SOURCE_LOST ? meter->lost_sources | source
                                                                  : meter->lost_sources & ~source;
        return !again; /* one that cannot be opened for the run was lost before */
    }
    uint32_t bit = 1u << event->kind, cause = bit;
    if (event->kind == PJ_METER_RESET) cause |= 1u << PJ_METER_REJECTED;
    bool news = (meter->reported[rail] & cause) == 0;
    meter->reported[rail] |= bit;
    if (!news && event->kind != PJ_METER_SUSPENDED && event->kind != PJ_METER_THAWED)
        meter->suppressed[rail]++;
    return news;
}

bool pj_meter_next_event(pj_meter *meter, pj_meter_event *event)
{
    while (meter_events_take_event(meter, event))
        if (is_news(meter, event)) return true;
    for (uint32_t r = 0; !meter->running && r < meter->rail_count; r++) {
        if (meter->suppressed[r] == 0) continue;
        *event = (pj_meter_event){.at_ns = pj_clock_ns(),
                                  .value = meter->suppressed[r],
                                  .kind = PJ_METER_REPEATED,
                                  .source = meter->rail_source[r],
                                  .rail = (uint16_t)r};
        meter->suppressed[r] = 0;
        return true;
    }
    return false;
}

void pj_meter_forget_events(pj_meter *meter)
{
    memset(meter->reported, 0, sizeof meter->reported);
    memset(meter->suppressed, 0, sizeof meter->suppressed);
    meter->lost_sources = 0;
}

const char *pj_meter_event_code(pj_meter_event_kind kind)
{
    static const char *const codes[PJ_METER_EVENT_COUNT] = {
        [PJ_METER_SOURCE_RESTARTED] = "source_restarted",
        [PJ_METER_SOURCE_LOST] = "source_lost",
        [PJ_METER_RAIL_LOST] = "rail_lost",
        [PJ_METER_FROZEN] = "sensor_frozen",
        [PJ_METER_THAWED] = "sensor_thawed",
        [PJ_METER_RESET] = "counter_reset",
        [PJ_METER_REJECTED] = "value_rejected",
        [PJ_METER_DISAGREES] = "sensors_disagree",
        [PJ_METER_REPEATED] = "warnings_repeated",
        [PJ_METER_PERIOD_CHANGED] = "sensor_period_changed",
        [PJ_METER_SUSPENDED] = "time_stood_still",
        [PJ_METER_LIMIT_CHANGED] = "power_limit_changed",
        [PJ_METER_SOURCE_SKIPPED] = "source_skipped",
    };
    return (unsigned)kind < PJ_METER_EVENT_COUNT ? codes[kind] : "unknown";
}

int pj_meter_event_text(const pj_meter *meter, const pj_meter_event *event, char *text,
                        size_t bytes)
{
    const char *source =
        event->source < meter->sampler_count ? meter->samplers[event->source]->source->name : "?";
    const char *rail = event->rail < meter->rail_count ? meter->rails[event->rail].name : source;
    bool counter =
        event->rail < meter->rail_count && meter->rails[event->rail].kind == PJ_RAIL_COUNTER;
    bool has_log = counter && pj_rail_log_of(meter->rails, meter->rail_count, event->rail) >= 0;
    double value = event->value;
    switch (event->kind) {
    case PJ_METER_SOURCE_RESTARTED:
        return snprintf(text, bytes,
                        "The power source %s failed and was restarted; the energy between is "
                        "unknown.",
                        source);
    case PJ_METER_SOURCE_LOST:
        return snprintf(text, bytes,
                        "The power source %s was lost; `perjoule sensors` shows what it needs.",
                        source);
    case PJ_METER_RAIL_LOST:
        return snprintf(text, bytes, "The rail %s no longer gives values.", rail);
    case PJ_METER_FROZEN:
        return snprintf(text, bytes, "The sensor of %s has not changed for %.1f s; its energy %s.",
                        rail, value * 1e-9,
                        has_log ? "is that of the driver's log until it changes"
                                : "is unknown until it changes");
    case PJ_METER_THAWED: return snprintf(text, bytes, "The sensor of %s changes again.", rail);
    case PJ_METER_RESET:
        return snprintf(text, bytes,
                        "The energy counter of %s restarted; the energy of the gap is "
                        "unknown.",
                        rail);
    case PJ_METER_REJECTED:
        return snprintf(text, bytes,
                        "The rail %s gave an implausible value (%.6g %s), which was not used; "
                        "later ones are only counted.",
                        rail, value * (counter ? 1e-6 : 1e-3), counter ? "J on its counter" : "W");
    case PJ_METER_DISAGREES:
        return snprintf(text, bytes,
                        "The energy counter and the power reading of %s differ by %.0f %%; "
                        "the counter is used.",
                        source, value * 100);
    case PJ_METER_REPEATED:
        return snprintf(text, bytes,
                        "The condition reported for %s above occurred %.0f more times.", rail,
                        value);
    case PJ_METER_PERIOD_CHANGED:
        return snprintf(text, bytes, "The sensor of %s now publishes every %.3g ms.", rail,
                        value * 1e-6);
    case PJ_METER_SUSPENDED:
        return snprintf(text, bytes,
                        "The machine or this process was suspended for %.2f s; energy of that "
                        "time may be missing.",
                        value * 1e-9);
    case PJ_METER_LIMIT_CHANGED:
        return snprintf(
            text, bytes,
            "The power limit of %s was changed to %.4g W; what ran before and after cannot be "
            "compared.",
            rail, value * 1e-3);
    case PJ_METER_SOURCE_SKIPPED:
        return snprintf(text, bytes, "The power source %s is not used: %s.",
                        meter->skipped[event->source].source->name,
                        meter->skipped[event->source].text);
    default: return snprintf(text, bytes, "Unknown event.");
    }
}

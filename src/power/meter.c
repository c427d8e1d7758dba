/* Opens sources and merges them into one meter. Sampling is in sampler.c, idle power in baseline.c,
 * event messages in meter_events.c. */
#include "power/gain.h"
#include "power/meter_impl.h"

#include "base/clock.h"
#include "base/memory.h"
#include "power/characterise.h"
#include "power/containment.h"
#include "power/sim_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t POLL_MIN_NS = PJ_NS_PER_MS;
static const int64_t POLL_MAX_NS = 10 * PJ_NS_PER_MS;
static const int64_t POLL_LONG_NS = 25 * PJ_NS_PER_MS; /* of averages over many periods */
static const int64_t POLL_RARE_NS = 50 * PJ_NS_PER_MS;
enum { LONG_AVERAGE_PERIODS = 8 };
static const double MAX_DISAGREEMENT = 0.05;

/* ---- which rails are kept ---- */

/* The rail of an earlier source that already provides this one, or -1. GPUs are identified by
 * device, since two sources may see different ones; the machine has one CPU column, whatever the
 * number of packages. */
static int offered_already(const pj_meter *m, uint16_t source, const pj_rail *rail)
{
    bool platform = rail->rail_class == PJ_RAIL_PLATFORM, gpu = rail->rail_class == PJ_RAIL_GPU;
    for (uint32_t i = 0; i < m->rail_count; i++) {
        const pj_rail *other = &m->rails[i];
        if (m->rail_source[i] == source || other->rail_class != rail->rail_class) continue;
        bool same_device = strcmp(other->device, rail->device) == 0;
        if (rail->quality == PJ_MODELLED && !platform) return (int)i;
        if (gpu && same_device) return (int)i;
        if (platform && same_device && strcmp(other->name, rail->name) == 0) return (int)i;
        if (!gpu && !platform) return (int)i;
    }
    return -1;
}

/* A second measurement is kept for comparison and counts for nothing. A modelled or simulated one
 * is not worth comparing. */
static bool worth_comparing(const pj_meter *m, const pj_rail *rail, int other)
{
    return rail->quality == PJ_MEASURED && rail->rail_class != PJ_RAIL_PLATFORM &&
           m->rails[other].quality == PJ_MEASURED;
}

static bool name_taken(const pj_meter *m, const char *name)
{
    for (uint32_t i = 0; i < m->rail_count; i++)
        if (strcmp(m->rails[i].name, name) == 0) return true;
    return false;
}

/* GPUs are numbered across sources; other duplicate names get the source's name appended. */
static void make_name_unique(const pj_meter *m, pj_rail *rail)
{
    char name[PJ_RAIL_NAME_BYTES], wanted[PJ_RAIL_NAME_BYTES];
    if (!name_taken(m, rail->name)) return;
    memcpy(wanted, rail->name, sizeof wanted);
    bool gpu = rail->rail_class == PJ_RAIL_GPU && strncmp(wanted, "gpu", 3) == 0;
    for (int n = 0; n <= PJ_MAX_RAILS; n++) {
        if (gpu)
            snprintf(name, sizeof name, "gpu%d", n);
        else if (n == 0)
            snprintf(name, sizeof name, "%.18s-%.12s", wanted, rail->source);
        else
            snprintf(name, sizeof name, "%.18s-%d", wanted, n + 1);
        if (!name_taken(m, name)) break;
    }
    memcpy(rail->name, name, sizeof name);
}

/* The nearest ancestor that was kept, as an index in the meter, or -1. */
static int kept_parent(const pj_power_sampler *s, int parent)
{
    for (int hops = 0; parent >= 0 && parent < (int)s->rail_count && hops < PJ_MAX_RAILS; hops++) {
        if (s->kept[parent] >= 0) return s->kept[parent];
        parent = s->rails[parent].parent;
    }
    return -1;
}

static void note_still(pj_meter *m, const pj_rail *rail)
{
    size_t used = strlen(m->still);
    snprintf(m->still + used, sizeof m->still - used, "%s%s", used ? ", " : "", rail->name);
}

/* What else reads the power that a counter counts: the log of its device, or a field. Or -1. */
static int stand_in_of(const pj_power_sampler *s, uint32_t counter)
{
    const pj_rail *c = &s->rails[counter];
    int found = pj_rail_log_of(s->rails, s->rail_count, counter);
    for (uint32_t i = 0; found < 0 && i < s->rail_count; i++)
        if (s->rails[i].parent == (int)counter && s->rails[i].kind != PJ_RAIL_COUNTER &&
            s->rails[i].scope == c->scope && strcmp(s->rails[i].device, c->device) == 0)
            found = (int)i;
    return found;
}

/* It takes the place of a counter that stands still. */
static void replace_dead_counters(pj_power_sampler *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        int other = s->dead >> i & 1 ? stand_in_of(s, i) : -1;
        if (other < 0) continue;
        pj_rail *dead = &s->rails[i], *rail = &s->rails[other];
        rail->rail_class = dead->rail_class;
        rail->parent = dead->parent;
        memcpy(rail->name, dead->name, sizeof rail->name);
        for (uint32_t k = 0; k < s->rail_count; k++)
            if (k != (uint32_t)other && s->rails[k].parent == (int)i) s->rails[k].parent = other;
        size_t used = strlen(dead->name);
        snprintf(dead->name + used, sizeof dead->name - used, "-counter");
        s->renamed |= 1ull << i | 1ull << other;
    }
}

static void merge_rails(pj_meter *m, pj_power_sampler *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        s->kept[i] = -1;
        if (s->dead >> i & 1) {
            note_still(m, &s->rails[i]);
            continue;
        }
        int other = offered_already(m, s->index, &s->rails[i]);
        bool twin = other >= 0 && worth_comparing(m, &s->rails[i], other);
        if (m->rail_count == PJ_MAX_RAILS || (other >= 0 && !twin)) continue;
        pj_rail *rail = &m->rails[m->rail_count];
        *rail = s->rails[i];
        if (twin) rail->twin_class = (int)rail->rail_class + 1;
        if (twin) rail->rail_class = PJ_RAIL_PLATFORM;
        make_name_unique(m, rail);
        m->contacts[m->rail_count] = s->contacts[i];
        m->rail_source[m->rail_count] = s->index;
        s->kept[i] = (int16_t)m->rail_count++;
    }
}

/* Every rail gets a power limit, so that no jump passes as energy: the device's own limit if it
 * reports one, else that of its class. */
static void prepare_rails(pj_meter *m, pj_power_sampler *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        pj_rail *rail = &s->rails[i];
        bool is_log = rail->log_ns > 0; /* passes as it is: it distributes a counter's energy */
        pj_coarsen_init(&s->coarsen[i], rail, !s->unstated[i], is_log ? 0 : m->env.interval_ns);
        if (s->kept[i] >= 0) {
            m->rails[s->kept[i]].parent = kept_parent(s, rail->parent);
            pj_coarsen_describe(&s->coarsen[i], &m->rails[s->kept[i]]);
        }
        if (!(rail->max_mw > 0)) rail->max_mw = pj_rail_class_most_mw(rail->rail_class);
        pj_filter_init(&s->filters[i], rail);
        int log = pj_rail_log_of(s->rails, s->rail_count, i);
        /* a source that pushes its readings is not asked for a counter once its log is there */
        bool waits = log >= 0 && s->kept[log] >= 0 && s->source->select;
        pj_poll_init(&s->polls[i], rail, waits, s->contacts[i].cost_ns);
    }
}

static bool any_kept(const pj_power_sampler *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (s->kept[i] >= 0) return true;
    return false;
}

/* ---- opening ---- */

/* Ten polls per update period for slow sensors: updates are then located to a twentieth of it. A
 * long average need not be placed so well, least of all one that counts in no total. */
static int64_t rail_poll_interval(const pj_rail *rail)
{
    bool is_long =
        rail->kind == PJ_RAIL_AVERAGE && rail->window_ns >= LONG_AVERAGE_PERIODS * rail->period_ns;
    if (rail->period_ns <= 0) return POLL_MAX_NS;
    if (is_long && rail->rail_class == PJ_RAIL_PLATFORM && !rail->twin_class)
        return rail->period_ns / 2 < POLL_RARE_NS ? rail->period_ns / 2 : POLL_RARE_NS;
    if (is_long) return rail->period_ns / 4 < POLL_LONG_NS ? rail->period_ns / 4 : POLL_LONG_NS;
    return rail->period_ns / 10 < POLL_MAX_NS ? rail->period_ns / 10 : POLL_MAX_NS;
}

static int64_t own_poll_interval(const pj_power_sampler *s)
{
    int64_t shortest = 0;
    if (s->source->flags & PJ_SOURCE_STREAM) return POLL_MAX_NS;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        int64_t interval = rail_poll_interval(&s->rails[i]);
        bool is_rare = s->source->select && pj_cost_is_high(&s->rails[i], s->contacts[i].cost_ns);
        if (s->kept[i] >= 0 && !is_rare && (shortest == 0 || interval < shortest))
            shortest = interval;
    }
    return shortest > 0 ? shortest : POLL_MAX_NS;
}

static bool only_counters(const pj_power_sampler *s)
{
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (s->kept[i] >= 0 && s->rails[i].kind != PJ_RAIL_COUNTER) return false;
    return !(s->source->flags & PJ_SOURCE_STREAM);
}

/* A counter may be polled as rarely as requested without losing energy. A power reading may not: it
 * is polled at its update rate and its samples are averaged (coarsen.c). */
static int64_t poll_interval(const pj_power_sampler *s, int64_t requested_ns)
{
    int64_t interval = own_poll_interval(s);
    int64_t least = s->source->min_poll_ns > 0 ? s->source->min_poll_ns : POLL_MIN_NS;
    int64_t most = s->source->max_gap_ns > 0 ? s->source->max_gap_ns / 2 : INT64_MAX;
    if (requested_ns > 0 && (requested_ns < interval || only_counters(s))) interval = requested_ns;
    if (interval > most) interval = most;
    return interval < least ? least : interval;
}

static void remember_skipped(pj_meter *m, const pj_power_source *source, const char *reason,
                             const char *remedy)
{
    pj_skipped *skipped = &m->skipped[m->skipped_count];
    skipped->source = source;
    snprintf(skipped->text, sizeof skipped->text, "%s%s%s", reason, remedy[0] ? "; " : "", remedy);
    pj_meter_note(m, PJ_METER_SOURCE_SKIPPED, m->skipped_count++, NAN);
}

static pj_status characterise(pj_meter *m, pj_power_sampler *s, pj_error *err)
{
    if (m->skip_characterise || (s->source->flags & PJ_SOURCE_STREAM)) return PJ_OK;
    pj_status status = pj_characterise(s, err);
    double worst = 0;
    for (uint32_t i = 0; i < s->rail_count && status == PJ_OK; i++)
        worst = fmax(worst, s->contacts[i].disagreement);
    if (worst > MAX_DISAGREEMENT) pj_meter_note(m, PJ_METER_DISAGREES, s->index, worst);
    return status;
}

/* A part of a CPU, or what contains one, is measured: where nothing gives the CPU itself, a total
 * lacks it. */
static void note_unmeasured_cpu(pj_meter *m)
{
    static const char *const names[] = {"core", "uncore", "package", "psys"};
    for (uint32_t i = 0; i < m->rail_count; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (m->rails[i].rail_class == PJ_RAIL_PLATFORM && !m->rails[i].twin_class &&
                strncmp(m->rails[i].name, names[k], strlen(names[k])) == 0) {
                m->unread_classes |= 1u << PJ_RAIL_CPU;
            }
}

/* Names the classes that no other source provides after all. */
static void settle_unread(pj_meter *m)
{
    unsigned given = 0;
    for (uint32_t i = 0; i < m->rail_count; i++) {
        const pj_rail *rail = &m->rails[i];
        bool all = rail->rail_class == PJ_RAIL_TOTAL ||
                   (rail->rail_class == PJ_RAIL_GPU && rail->scope == PJ_SCOPE_MODULE);
        given |= all ? ~0u : 1u << rail->rail_class;
    }
    if (m->rail_count == 0) return; /* there is no total at all */
    /* a machine has a CPU, whether or not a sensor for it exists */
    bool has_cpu = false;
    for (uint32_t i = 0; i < m->rail_count; i++) has_cpu |= pj_rail_covers_cpu(&m->rails[i]);
    if (!has_cpu) m->unread_classes |= 1u << PJ_RAIL_CPU;
    for (int c = 0; c < PJ_RAIL_TOTAL; c++) {
        size_t used = strlen(m->unread);
        if (m->unread_classes & ~given & 1u << c)
            snprintf(m->unread + used, sizeof m->unread - used, "%s%s", used ? "," : "",
                     pj_rail_class_name((pj_rail_class)c));
    }
}

/* All of its rails stand still. */
static pj_status explain_dead(const pj_power_sampler *s, pj_source_report *why)
{
    uint32_t rail = 0;
    while (rail + 1 < s->rail_count && !(s->dead >> rail & 1)) rail++;
    why->unread = true;
    return pj_source_explain(why, PJ_E_UNAVAILABLE, "",
                             "%s has not moved for a second, as in a virtual machine whose host "
                             "does not pass it on",
                             s->rails[rail].name);
}

/* `why` is set if the source itself cannot be used. */
static pj_status meter_open_source(pj_meter *m, const pj_power_choice *choice,
                                   pj_source_report *why, pj_error *err)
{
    pj_power_sampler *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "a power source");
    s->source = choice->source;
    s->env = &m->env;
    s->argument = choice->argument;
    s->index = (uint16_t)m->sampler_count;
    s->state = pj_alloc(1, choice->source->state_bytes ? choice->source->state_bytes : 1);
    pj_status status =
        s->state ? pj_power_sampler_init(s, err) : pj_fail_memory(err, "a power source");
    if (status == PJ_OK) status = s->source->open(s->state, &m->env, s->argument, why);
    if (status != PJ_OK) goto fail;
    s->open = true;
    s->rail_count = s->source->rails(s->state, s->rails);
    int misplaced = pj_rails_misplaced(s->rails, s->rail_count);
    if (misplaced >= 0) {
        status = pj_fail(err, PJ_E_INTERNAL, "the rail %s of the source %s contains itself",
                         s->rails[misplaced].name, s->source->name);
        goto fail;
    }
    pj_gain_apply(s->rails, s->rail_count);
    for (uint32_t i = 0; i < s->rail_count; i++) {
        s->unstated[i] = s->rails[i].period_ns == 0;
        s->contacts[i].disagreement = NAN;
    }
    status = characterise(m, s, err);
    if (status != PJ_OK) goto fail;
    replace_dead_counters(s);
    merge_rails(m, s);
    if (!any_kept(s)) {
        if (s->dead)
            status = explain_dead(s, why);
        else if (choice->by_name && s->rail_count > 0)
            remember_skipped(m, s->source,
                             "sources named before it already provide all of its rails", "");
        goto fail;
    }
    s->interval_ns = poll_interval(s, m->env.interval_ns);
    prepare_rails(m, s);
    m->samplers[m->sampler_count++] = s;
    return PJ_OK;
fail:
    pj_power_sampler_fini(s);
    pj_free(s);
    return status;
}

/* Whether rails of earlier sources already give all that the source counts for. */
static bool is_spared(const pj_meter *m, const pj_power_choice *choice)
{
    unsigned given = 0;
    if (choice->by_name || !(choice->source->flags & PJ_SOURCE_SPARE)) return false;
    for (uint32_t i = 0; i < m->rail_count; i++) given |= 1u << m->rails[i].rail_class;
    return (choice->source->counts_for & ~given) == 0;
}

/* Opens one choice; an absent source is recorded, not an error. */
static pj_status try_choice(pj_meter *m, const pj_power_choice *choice, pj_source_report *report,
                            pj_error *err)
{
    pj_source_report why = {0};
    pj_status status = meter_open_source(m, choice, &why, err);
    if (why.state == PJ_SOURCE_USABLE) return status;
    if (report) *report = why;
    if (status == PJ_E_INVALID || status == PJ_E_NOT_FOUND || status == PJ_E_NO_MEMORY)
        return pj_fail(err, status, "%s", why.reason);
    bool denied = status == PJ_E_DENIED;
    m->any_denied |= denied;
    if (denied || why.unread) m->unread_classes |= choice->source->counts_for;
    if (denied || choice->by_name) remember_skipped(m, choice->source, why.reason, why.remedy);
    return PJ_OK;
}

static void write_sources(pj_meter *m)
{
    for (uint32_t i = 0; i < m->sampler_count; i++) {
        size_t used = strlen(m->sources);
        snprintf(m->sources + used, sizeof m->sources - used, "%s%s", used ? "," : "",
                 m->samplers[i]->source->name);
    }
}

/* Without any sensor: the remedy, permissions before absences. */
static void write_remedy(pj_meter *m)
{
    if (m->rail_count > 0) return;
    if (m->skipped_count > 0 && (m->any_denied || m->list.named))
        snprintf(m->remedy, sizeof m->remedy, "%s: %.900s.", m->skipped[0].source->name,
                 m->skipped[0].text);
    else if (m->list.count > 0)
        snprintf(m->remedy, sizeof m->remedy,
                 "No power sensor works on this machine; `perjoule sensors` shows what each source "
                 "lacks, and `--power estimate` models the CPU's power from its utilisation.");
    else
        snprintf(m->remedy, sizeof m->remedy,
                 "Power measurement is switched off (--power none); leave the option out to use "
                 "the machine's sensors.");
}

pj_status pj_meter_open(const pj_meter_options *options, pj_meter **meter, pj_error *err)
{
    *meter = NULL;
    pj_meter *m = pj_alloc(1, sizeof *m);
    if (!m) return pj_fail_memory(err, "the power meter");
    if (options->env)
        m->env = *options->env;
    else
        pj_power_env_get(&m->env);
    if (!m->env.sysfs_root) m->env.sysfs_root = "";
    if (!m->env.procfs_root) m->env.procfs_root = "";
    m->skip_characterise = options->skip_characterise;
    pj_status status = pj_power_list_parse(options->sources ? options->sources : pj_power_default(),
                                           &m->list, err);
    for (uint32_t i = 0; i < m->list.count && status == PJ_OK; i++)
        if (!is_spared(m, &m->list.choices[i]))
            status = try_choice(m, &m->list.choices[i], options->report, err);
    if (status != PJ_OK) goto fail;
    pj_rails_contain(m->rails, m->rail_count);
    note_unmeasured_cpu(m);
    settle_unread(m);
    write_sources(m);
    write_remedy(m);
    if (m->list.named && m->rail_count == 0) {
        status = pj_fail(err, m->any_denied ? PJ_E_DENIED : PJ_E_UNAVAILABLE, "%s", m->remedy);
        goto fail;
    }
    *meter = m;
    return PJ_OK;
fail:
    pj_meter_close(m);
    return status;
}

void pj_meter_close(pj_meter *meter)
{
    if (!meter) return;
    for (uint32_t i = 0; i < meter->sampler_count; i++) {
        pj_power_sampler_stop(meter->samplers[i]);
        pj_characterise_keep(meter->samplers[i]);
        pj_power_sampler_fini(meter->samplers[i]);
        pj_free(meter->samplers[i]);
    }
    pj_free(meter);
}

/* ---- running ---- */

pj_status pj_meter_start(pj_meter *meter, pj_error *err)
{
    pj_meter_forget_events(meter);
    meter->running = true;
    for (uint32_t i = 0; i < meter->sampler_count; i++) {
        pj_status status = pj_power_sampler_start(meter->samplers[i], err);
        if (status == PJ_OK) continue;
        pj_meter_stop(meter);
        return status;
    }
    /* On a busy machine a thread may begin long after it was started; what happens before a
     * sensor's first reading has no energy. */
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        pj_power_sampler_await_first(meter->samplers[i]);
    return PJ_OK;
}

void pj_meter_stop(pj_meter *meter)
{
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        atomic_store(&meter->samplers[i]->stop, true); /* stop all first, then join */
    for (uint32_t i = 0; i < meter->sampler_count; i++) pj_power_sampler_stop(meter->samplers[i]);
    meter->running = false;
}

size_t pj_meter_read(pj_meter *meter, pj_reading *readings, size_t max)
{
    size_t count = 0;
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        count += pj_ring_read(&meter->samplers[i]->readings, readings + count, max - count);
    if (meter->subscriber && count > 0)
        meter->subscriber(meter->subscriber_context, readings, count);
    return count;
}

pj_status pj_meter_fill(pj_meter *meter, pj_curve *const *curves, pj_error *err)
{
    pj_reading readings[256];
    for (size_t count; (count = pj_meter_read(meter, readings, 256)) > 0;)
        for (size_t i = 0; i < count; i++) {
            pj_status status = pj_curve_add(curves[readings[i].rail], &readings[i], err);
            if (status != PJ_OK) return status;
        }
    return PJ_OK;
}

void pj_meter_subscribe(pj_meter *meter, pj_meter_subscriber_fn *subscriber, void *context)
{
    meter->subscriber = subscriber;
    meter->subscriber_context = context;
}

void pj_meter_want(pj_meter *meter, int64_t at_ns)
{
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        pj_power_sampler_want(meter->samplers[i], at_ns);
}

void pj_meter_want_from(pj_meter *meter, int64_t at_ns)
{
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        pj_power_sampler_want_from(meter->samplers[i], at_ns);
}

void pj_meter_set_pace(pj_meter *meter, int64_t pace_ns)
{
    for (uint32_t i = 0; i < meter->sampler_count; i++) {
        pj_power_sampler *s = meter->samplers[i];
        int64_t most = s->source->max_gap_ns > 0 ? s->source->max_gap_ns / 2 : INT64_MAX;
        /* A stream that is not read would fill its buffers. */
        bool delivers = s->source->flags & PJ_SOURCE_STREAM;
        s->pace_ns = delivers ? 0 : pace_ns < most ? pace_ns : most;
    }
}

int64_t pj_meter_settle_ns(const pj_meter *meter)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < meter->rail_count; i++) {
        const pj_rail *rail = &meter->rails[i];
        int64_t poll = meter->samplers[meter->rail_source[i]]->interval_ns;
        int64_t settle = rail->period_ns + rail->period_ns / 4 + rail->delay_ns + 2 * poll;
        if (rail->kind == PJ_RAIL_AVERAGE) settle += rail->window_ns / 2;
        if (settle > longest) longest = settle;
    }
    return longest;
}

int64_t pj_meter_memory_ns(const pj_meter *meter)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < meter->rail_count; i++) {
        const pj_rail *rail = &meter->rails[i];
        int64_t memory = rail->kind == PJ_RAIL_AVERAGE ? rail->window_ns : 3 * rail->lag_ns;
        if (memory > longest) longest = memory;
    }
    return longest;
}

int64_t pj_meter_period_ns(const pj_meter *meter)
{
    int64_t longest = 0;
    for (uint32_t i = 0; i < meter->rail_count; i++)
        if (meter->rails[i].period_ns > longest) longest = meter->rails[i].period_ns;
    return longest;
}

/* ---- queries ---- */

const pj_rail *pj_meter_rails(const pj_meter *meter, uint32_t *count)
{
    *count = meter->rail_count;
    return meter->rails;
}

const char *pj_meter_sources(const pj_meter *meter)
{
    return meter->sources;
}

const char *pj_meter_unread(const pj_meter *meter)
{
    return meter->unread;
}

const pj_rail_contact *pj_meter_contact(const pj_meter *meter, uint32_t rail)
{
    return &meter->contacts[rail];
}

const char *pj_meter_still(const pj_meter *meter)
{
    return meter->still;
}

const char *pj_meter_remedy(const pj_meter *meter)
{
    return meter->remedy;
}

pj_source_quality pj_meter_quality(const pj_meter *meter)
{
    pj_source_quality worst = PJ_UNAVAILABLE;
    for (uint32_t i = 0; i < meter->rail_count; i++) {
        pj_source_quality q = meter->rails[i].quality;
        if (worst == PJ_UNAVAILABLE || q < worst) worst = q;
    }
    return worst;
}

/* Median and 99th percentile over the ticks of all samplers. */
void pj_meter_get_cost(const pj_meter *meter, pj_meter_cost *cost)
{
    uint64_t lateness[PJ_LATENESS_BUCKETS] = {0};
    double call_ns = 0;
    *cost = (pj_meter_cost){0};
    for (uint32_t i = 0; i < meter->sampler_count; i++) {
        const pj_power_sampler *s = meter->samplers[i];
        double elapsed = (double)atomic_load(&s->elapsed_ns);
        if (elapsed > 0) cost->cpu_share += (double)atomic_load(&s->cpu_ns) / elapsed;
        call_ns += (double)atomic_load(&s->call_ns);
        cost->ticks += atomic_load(&s->ticks);
        cost->missed += atomic_load(&s->missed);
        cost->readings += atomic_load(&s->passed);
        cost->lost += pj_ring_lost(&s->readings);
        for (int b = 0; b < PJ_LATENESS_BUCKETS; b++) lateness[b] += atomic_load(&s->lateness[b]);
    }
    cost->jitter_us = pj_lateness_quantile(lateness, 0.5) * 1e-3;
    cost->jitter_p99_us = pj_lateness_quantile(lateness, 0.99) * 1e-3;
    cost->call_us = cost->ticks ? call_ns * 1e-3 / (double)cost->ticks : NAN;
}

/* ---- simulated sensors ---- */

static pj_power_sampler *sim_sampler(const pj_meter *meter)
{
    for (uint32_t i = 0; i < meter->sampler_count; i++)
        if (strcmp(meter->samplers[i]->source->name, "sim") == 0) return meter->samplers[i];
    return NULL;
}

const pj_sim_spec *pj_meter_sim(const pj_meter *meter)
{
    const pj_power_sampler *s = sim_sampler(meter);
    return s ? pj_sim_source_spec(s->state) : NULL;
}

void pj_meter_set_activity(pj_meter *meter, double net_mw)
{
    pj_power_sampler *s = sim_sampler(meter);
    if (s) pj_sim_source_set_activity(s->state, net_mw);
}

/*
 * Timestamps of the device on CLOCK_MONOTONIC.
 *
 * A point is a reading of both clocks at about the same time. Clocks drift against each other by
 * some microseconds a second, so points are taken again while the device works, often at first.
 * Once they span a second, times are on the line through the latest ones; before, they are measured
 * from the nearest point.
 */
#include "engine/vulkan/api.h"

#include "base/clock.h"

#include <math.h>
#include <time.h>

static const double clock_drift = 20e-6; /* of a device's clock, at most */
static const int64_t clock_least_age_ns = 20 * PJ_NS_PER_MS;
static const int64_t clock_line_ns = PJ_NS_PER_S; /* span that a line needs */

/* ---- points and lines ---- */

static const pj_vk_clock_point *clock_point(const pj_vk_clock *c, uint32_t back)
{
    return &c->points[(c->count - 1 - back) % PJ_VK_CLOCK_POINTS];
}

static uint32_t clock_kept(const pj_vk_clock *c)
{
    return c->count < PJ_VK_CLOCK_POINTS ? c->count : PJ_VK_CLOCK_POINTS;
}

/* Signed ticks from one count to another; counts of fewer than 64 bits wrap around. */
static double clock_ticks_since(const pj_vk_clock *c, uint64_t ticks, uint64_t since)
{
    uint64_t passed = (ticks - since) & c->mask;
    return passed > c->mask / 2 ? -(double)((since - ticks) & c->mask) : (double)passed;
}

static double clock_span_ns(const pj_vk_clock *c)
{
    if (c->count == 0) return 0;
    return (double)(clock_point(c, 0)->host_ns - clock_point(c, clock_kept(c) - 1)->host_ns);
}

typedef struct clock_sums {
    double x, y, xx, xy;
} clock_sums;

static clock_sums clock_add_up(const pj_vk_clock *c, uint32_t n)
{
    const pj_vk_clock_point *newest = clock_point(c, 0);
    clock_sums s = {0};
    for (uint32_t i = 0; i < n; i++) {
        const pj_vk_clock_point *p = clock_point(c, i);
        double x = clock_ticks_since(c, p->ticks, newest->ticks);
        double y = (double)(p->host_ns - newest->host_ns);
        s.x += x / n;
        s.y += y / n;
        s.xx += x * x / n;
        s.xy += x * y / n;
    }
    return s;
}

/* Least squares; the residual is the largest. */
static void clock_fit(pj_vk_clock *c)
{
    uint32_t n = clock_kept(c);
    const pj_vk_clock_point *newest = clock_point(c, 0);
    c->has_line = n >= 3 && clock_span_ns(c) >= (double)clock_line_ns;
    if (!c->has_line) return;
    clock_sums s = clock_add_up(c, n);
    c->slope = (s.xy - s.x * s.y) / (s.xx - s.x * s.x);
    c->offset = s.y - c->slope * s.x;
    c->residual_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        const pj_vk_clock_point *p = clock_point(c, i);
        double at = c->offset + c->slope * clock_ticks_since(c, p->ticks, newest->ticks);
        c->residual_ns = fmax(c->residual_ns, fabs((double)(p->host_ns - newest->host_ns) - at));
    }
}

/* Counts of fewer than 64 bits tell a time only near that of the other: after a long pause there
 * are no points yet. */
static bool clock_has_wrapped(const pj_vk_clock *c, const pj_vk_clock_point *next)
{
    if (c->count == 0) return false;
    double passed_ns = (double)(next->host_ns - clock_point(c, clock_kept(c) - 1)->host_ns);
    return passed_ns / c->tick_ns > (double)(c->mask / 4);
}

void pj_vk_clock_add(pj_vk_clock *clock, pj_vk_clock_point point)
{
    if (clock_has_wrapped(clock, &point)) clock->count = 0;
    clock->points[clock->count++ % PJ_VK_CLOCK_POINTS] = point;
    if (clock->count == 1 || point.deviation_ns < clock->least_deviation_ns)
        clock->least_deviation_ns = point.deviation_ns;
    clock_fit(clock);
}

static int64_t clock_map_near(const pj_vk_clock *c, uint64_t ticks)
{
    const pj_vk_clock_point *nearest = clock_point(c, 0);
    for (uint32_t i = 1; i < clock_kept(c); i++) {
        const pj_vk_clock_point *p = clock_point(c, i);
        if (fabs(clock_ticks_since(c, ticks, p->ticks)) <
            fabs(clock_ticks_since(c, ticks, nearest->ticks)))
            nearest = p;
    }
    return nearest->host_ns +
           (int64_t)llround(clock_ticks_since(c, ticks, nearest->ticks) * c->tick_ns);
}

int64_t pj_vk_clock_map(const pj_vk_clock *clock, uint64_t ticks)
{
    if (!clock->has_line) return clock_map_near(clock, ticks);
    const pj_vk_clock_point *newest = clock_point(clock, 0);
    double passed = clock_ticks_since(clock, ticks, newest->ticks);
    return newest->host_ns + (int64_t)llround(clock->offset + clock->slope * passed);
}

static int64_t clock_due_age_ns(const pj_vk_clock *c)
{
    double age = clock_span_ns(c) / 8;
    if (age < (double)clock_least_age_ns) return clock_least_age_ns;
    return age > (double)PJ_NS_PER_S ? PJ_NS_PER_S : (int64_t)age;
}

/* Drift counts for as long as the last point may be old. */
double pj_vk_clock_error(const pj_vk_clock *clock)
{
    double deviation = 0;
    for (uint32_t i = 0; i < clock_kept(clock); i++)
        deviation = fmax(deviation, clock_point(clock, i)->deviation_ns);
    if (clock->has_line) return deviation + clock->residual_ns + clock->tick_ns;
    return deviation + clock_drift * (double)clock_due_age_ns(clock) + clock->tick_ns;
}

/* ---- where a time is taken ---- */

/*
 * A time at a stage is taken when what was recorded before has passed this stage: after the kernels
 * at that of kernels, and at any time at the top of the pipe. A barrier before it does not change
 * this: Intel's driver applies one with the next dispatch, and a time at the top is that of a
 * command stream which runs ahead of the kernels. On an NVIDIA card a barrier stops this stream, so
 * that both are the same; there the top costs a twentieth of a microsecond, other stages one.
 */
VkPipelineStageFlagBits pj_vk_stamp_stage(const pj_vk_info *info)
{
    enum { NVIDIA = 0x10de };
    return info->vendor_id == NVIDIA ? VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT
                                     : VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
}

/* ---- readings ---- */

static int64_t clock_read(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * PJ_NS_PER_S + t.tv_nsec;
}

/* pj_clock_ns may differ from CLOCK_MONOTONIC by tens of nanoseconds, and MONOTONIC_RAW by much. */
static int64_t clock_to_ours(clockid_t id, int64_t ns)
{
    int64_t before = pj_clock_ns(), there = clock_read(id), after = pj_clock_ns();
    return ns + before + (after - before) / 2 - there;
}

static bool clock_calibrate(const pj_vk *vk, pj_vk_clock_point *point)
{
    const pj_vk_clock *c = &vk->clock;
    bool raw = c->source == PJ_VK_CLOCK_MONOTONIC_RAW;
    VkCalibratedTimestampInfoEXT infos[2] = {
        {.sType = VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT,
         .timeDomain = VK_TIME_DOMAIN_DEVICE_EXT},
        {.sType = VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT,
         .timeDomain =
             raw ? VK_TIME_DOMAIN_CLOCK_MONOTONIC_RAW_EXT : VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT}};
    uint64_t times[2] = {0, 0}, deviation = 0;
    int64_t before = pj_clock_ns();
    uint32_t count = c->source == PJ_VK_CLOCK_BRACKET ? 1 : 2;
    if (vk->instance.fn.GetCalibratedTimestampsEXT(vk->device, count, infos, times, &deviation) !=
        VK_SUCCESS)
        return false;
    int64_t after = pj_clock_ns();
    *point = (pj_vk_clock_point){times[0] & c->mask, before + (after - before) / 2,
                                 (double)(after - before) / 2};
    if (c->source == PJ_VK_CLOCK_BRACKET) return true;
    clockid_t id = raw ? CLOCK_MONOTONIC_RAW : CLOCK_MONOTONIC;
    point->host_ns = clock_to_ours(id, (int64_t)times[1]);
    point->deviation_ns = (double)deviation;
    return true;
}

/* Their commands have finished. The driver is not asked to wait: it would do so forever for a stamp
 * that was never written. */
static pj_status clock_read_stamps(pj_vk *vk, uint32_t first, uint32_t count, uint64_t *ticks,
                                   pj_error *err)
{
    static const struct timespec pause = {.tv_nsec = 50000};
    int64_t last = pj_clock_ns() + vk->options.timeout_ns;
    VkResult result;
    while ((result = vk->instance.fn.GetQueryPoolResults(
                vk->device, vk->queries, first, count, count * sizeof *ticks, ticks, sizeof *ticks,
                VK_QUERY_RESULT_64_BIT)) == VK_NOT_READY &&
           pj_clock_ns() < last)
        nanosleep(&pause, NULL);
    if (result == VK_SUCCESS) return PJ_OK;
    pj_vk_fail_recording(vk, result == VK_NOT_READY ? VK_TIMEOUT : result, "its timestamps");
    if (err) *err = vk->failure;
    return vk->failure.status;
}

/* The query after those of pj_vk_stamp. */
static bool clock_submit(pj_vk *vk, pj_vk_clock_point *point)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    uint64_t ticks = 0;
    if (pj_vk_wait(vk, NULL) != PJ_OK) return false;
    fn->ResetQueryPool(vk->device, vk->queries, PJ_VK_MAX_STAMPS, 1);
    VkCommandBuffer commands = pj_vk_command_after(vk, PJ_VK_COMPUTES);
    if (!commands) return false;
    fn->CmdWriteTimestamp(commands, pj_vk_stamp_stage(&vk->physical.info), vk->queries,
                          PJ_VK_MAX_STAMPS);
    int64_t before = pj_clock_ns();
    if (pj_vk_wait(vk, NULL) != PJ_OK) return false;
    int64_t after = pj_clock_ns();
    if (clock_read_stamps(vk, PJ_VK_MAX_STAMPS, 1, &ticks, NULL) != PJ_OK) return false;
    *point = (pj_vk_clock_point){ticks & vk->clock.mask, before + (after - before) / 2,
                                 (double)(after - before) / 2};
    return true;
}

/* The best of some readings; the first is good enough if it is near the best that there was. */
static bool clock_take_point(pj_vk *vk, pj_vk_clock_point *best)
{
    enum { MOST = 16 };
    pj_vk_clock *c = &vk->clock;
    bool any = false;
    for (int i = 0; i < MOST; i++) {
        pj_vk_clock_point point;
        bool ok = c->source == PJ_VK_CLOCK_SUBMISSION ? clock_submit(vk, &point)
                                                      : clock_calibrate(vk, &point);
        if (!ok) break;
        if (!any || point.deviation_ns < best->deviation_ns) *best = point;
        any = true;
        if (c->count && best->deviation_ns <= c->least_deviation_ns * 1.25 + 1) break;
    }
    return any;
}

pj_status pj_vk_clock_update(pj_vk *vk, int64_t age_ns, pj_error *err)
{
    pj_vk_clock *c = &vk->clock;
    pj_vk_clock_point point;
    if (!c->mask)
        return pj_fail(err, PJ_E_UNSUPPORTED, "%s: its queue has no timestamps",
                       vk->physical.info.name);
    if (c->count && pj_clock_ns() - clock_point(c, 0)->host_ns <= age_ns) return PJ_OK;
    if (!clock_take_point(vk, &point))
        return pj_fail(err, PJ_E_UNAVAILABLE, "%s: its clock cannot be read",
                       vk->physical.info.name);
    pj_vk_clock_add(c, point);
    return PJ_OK;
}

double pj_vk_clock_error_ns(const pj_vk *vk)
{
    return pj_vk_clock_error(&vk->clock);
}

static pj_vk_clock_source clock_choose(const pj_vk *vk)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    VkTimeDomainEXT domains[16];
    uint32_t count = sizeof domains / sizeof *domains, found = 0;
    if (!vk->physical.info.calibrated_clock || !fn->GetCalibratedTimestampsEXT ||
        !fn->GetPhysicalDeviceCalibrateableTimeDomainsEXT ||
        fn->GetPhysicalDeviceCalibrateableTimeDomainsEXT(vk->physical.handle, &count, domains) < 0)
        return PJ_VK_CLOCK_SUBMISSION;
    for (uint32_t i = 0; i < count; i++) found |= domains[i] < 32 ? 1u << domains[i] : 0;
    if (!(found >> VK_TIME_DOMAIN_DEVICE_EXT & 1)) return PJ_VK_CLOCK_SUBMISSION;
#ifdef __linux__
    if (found >> VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT & 1) return PJ_VK_CLOCK_MONOTONIC;
    if (found >> VK_TIME_DOMAIN_CLOCK_MONOTONIC_RAW_EXT & 1) return PJ_VK_CLOCK_MONOTONIC_RAW;
#endif
    return PJ_VK_CLOCK_BRACKET; /* elsewhere drivers mean other clocks by these names */
}

pj_status pj_vk_clock_open(pj_vk *vk, pj_error *err)
{
    const pj_vk_functions *fn = &vk->instance.fn;
    uint32_t bits = vk->physical.stamp_bits;
    vk->clock.tick_ns = vk->physical.info.tick_ns;
    if (bits == 0) return PJ_OK;
    vk->clock.mask = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
    VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                  .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                  .queryCount = PJ_VK_MAX_STAMPS + 1};
    VkResult result = fn->CreateQueryPool(vk->device, &info, NULL, &vk->queries);
    if (result != VK_SUCCESS) return pj_vk_fail(vk, result, err, "its timestamps");
    fn->ResetQueryPool(vk->device, vk->queries, 0, PJ_VK_MAX_STAMPS + 1);
    vk->clock.source = clock_choose(vk);
    return pj_vk_clock_update(vk, 0, err);
}

void pj_vk_clock_close(pj_vk *vk)
{
    if (vk->queries) vk->instance.fn.DestroyQueryPool(vk->device, vk->queries, NULL);
}

/* ---- stamps ---- */

uint32_t pj_vk_stamp(pj_vk *vk)
{
    if (!vk->queries || vk->stamps >= PJ_VK_MAX_STAMPS) return UINT32_MAX;
    VkCommandBuffer commands = pj_vk_command_after(vk, PJ_VK_COMPUTES);
    if (!commands) return UINT32_MAX;
    vk->instance.fn.CmdWriteTimestamp(commands, pj_vk_stamp_stage(&vk->physical.info), vk->queries,
                                      vk->stamps);
    return vk->stamps++;
}

pj_status pj_vk_stamps_read(pj_vk *vk, uint32_t first, uint32_t count, int64_t *times_ns,
                            pj_error *err)
{
    if (count == 0) return PJ_OK;
    if (first > vk->stamps || count > vk->stamps - first)
        return pj_fail(err, PJ_E_INVALID, "%s: there are no such timestamps",
                       vk->physical.info.name);
    pj_status status = pj_vk_clock_update(vk, clock_due_age_ns(&vk->clock), err);
    if (status != PJ_OK) return status;
    status = clock_read_stamps(vk, first, count, (uint64_t *)times_ns, err);
    if (status != PJ_OK) return status;
    for (uint32_t i = 0; i < count; i++)
        times_ns[i] = pj_vk_clock_map(&vk->clock, (uint64_t)times_ns[i] & vk->clock.mask);
    return PJ_OK;
}

uint32_t pj_vk_stamps(const pj_vk *vk)
{
    return vk->stamps;
}

void pj_vk_stamps_clear(pj_vk *vk)
{
    if (vk->stamps) vk->instance.fn.ResetQueryPool(vk->device, vk->queries, 0, vk->stamps);
    vk->stamps = 0;
}

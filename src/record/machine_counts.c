/* Reads the machine's counters for runs. */
#include "record/machine_counts.h"

#include "power/process_energy.h"

#include <math.h>
#include <unistd.h>

pj_machine_counts pj_machine_counts_get(pj_session *session)
{
    pj_machine_counts counts = {NAN, NAN, NAN};
    if (!session->meter) return counts; /* no power was requested */
    pthread_mutex_lock(&session->conditions_mutex);
    if (session->traffic)
        pj_memory_traffic_read(session->traffic, &counts.read_bytes, &counts.written_bytes);
    pthread_mutex_unlock(&session->conditions_mutex);
    counts.process_mj = pj_process_energy_mj(&session->power_env, (int)getpid());
    return counts;
}

/* A counter that went back was reset: what it counted is unknown. */
static void tell(double *figure, double begin, double end)
{
    if (isnan(*figure) && end >= begin) *figure = end - begin;
}

void pj_machine_counts_tell(pj_session *session, const pj_machine_counts *begin, pj_run_info *info)
{
    pj_machine_counts end = pj_machine_counts_get(session);
    tell(&info->memory_read_bytes, begin->read_bytes, end.read_bytes);
    tell(&info->memory_written_bytes, begin->written_bytes, end.written_bytes);
    tell(&info->process_mj, begin->process_mj, end.process_mj);
}

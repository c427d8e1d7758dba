/* Ownership of a finished run: everything lies in its arena. */
#include "trace/run_data.h"

void pj_run_data_fini(pj_run_data *data)
{
    pj_arena_fini(&data->arena);
    *data = (pj_run_data){0};
}

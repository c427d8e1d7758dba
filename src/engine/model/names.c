/* Spellings of the names that the engine records. */
#include "engine/model/names.h"

static const char *const name_texts[PJ_N_COUNT] = {
#define X(symbol, text) [PJ_N_##symbol] = text,
    PJ_INSTRUMENT_NAMES(X)
#undef X
};

const char *pj_instrument_text(pj_instrument_name name)
{
    return name_texts[name];
}

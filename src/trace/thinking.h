/*
 * Tokens between a model's reasoning marks, which a reader usually never sees: how many, and the
 * energy and time of their decoding. The marks are those that models use: <think>, <thinking>,
 * <reasoning>, [THINK], <seed:think>, and the analysis channel of harmony-like formats. A sequence
 * that closes a mark that it did not open began inside it (some templates end with the opening
 * mark). Servers that send reasoning apart from content have it counted by the client instead
 * (`reasoning_tokens` of the run's settings).
 *
 * Calls of tools have marks as well: <tool_call>, <function=, <invoke name=, [TOOL_CALLS],
 * <|python_tag|> and others, one for each call. They are counted in the same texts.
 */
#ifndef PJ_TRACE_THINKING_H
#define PJ_TRACE_THINKING_H

#include "base/error.h"
#include "trace/run_data.h"

/* A client's count of the calls of tools that a server gave apart from the text. */
#define PJ_SETTING_TOOL_CALLS "tool_calls"

/* A client's count of the reasoning tokens at the start of each answer, in a run's settings. */
#define PJ_SETTING_REASONING "reasoning_tokens"

/* Sets the run's figures of thinking, and the number of tools that its answers call, from its token
 * and phase rows. Unavailable without a mark: whether such a model thought is not known. The first
 * token counts, but its energy is the prompt's. */
pj_status pj_thinking_find(pj_run_data *data, pj_error *err);

#endif

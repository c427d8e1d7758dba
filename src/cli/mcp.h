/* The tools that the server of the Model Context Protocol (cmd_mcp.c) offers. They only read stored
 * runs. */
#ifndef PJ_CLI_MCP_H
#define PJ_CLI_MCP_H

#include "base/json.h"

#include <jansson.h>

typedef struct pj_mcp {
    const char *db, *models; /* NULL: the usual ones */
} pj_mcp;

/* The array of tools/list. */
void pj_mcp_tools_write(pj_json *json);
bool pj_mcp_tool_exists(const char *name);
/* Calls a tool; writes its result as one JSON object. */
pj_status pj_mcp_tool_call(const pj_mcp *mcp, const char *name, json_t *arguments, pj_json *json,
                           pj_error *err);

#endif

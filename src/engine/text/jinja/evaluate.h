/* Executes a template's syntax tree. */
#ifndef PJ_TEXT_JINJA_EVALUATE_H
#define PJ_TEXT_JINJA_EVALUATE_H

#include "engine/text/jinja/syntax.h"
#include "engine/text/jinja/value.h"

/* Executes the tree with the variables of a dictionary; errors are kept in the run. */
void jv_execute(jv_run *run, const ji_node *root, jv variables, jv_builder *out);

#endif

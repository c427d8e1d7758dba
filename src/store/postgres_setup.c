/* The SQL that an owner runs once on a server: roles, tables, grants, and distribution with
 * Citus. */
#include "store/postgres.h"
#include "store/schema.h"

#include <stdio.h>

/* One statement per line: a semicolon outside quotes and $$ ends one. */
static void put_statements(pj_buffer *out, const char *text)
{
    bool in_quotes = false, in_dollars = false;
    for (const char *c = text; *c; c++) {
        if (!in_dollars && *c == '\'') in_quotes = !in_quotes;
        if (!in_quotes && c[0] == '$' && c[1] == '$') {
            in_dollars = !in_dollars;
            pj_buffer_char(out, *c++);
        }
        pj_buffer_char(out, *c);
        if (*c == ';' && !in_quotes && !in_dollars) pj_buffer_char(out, '\n');
    }
}

static void put_roles(pj_buffer *out, const char *schema)
{
    static const char *const roles[] = {"perjoule_owner", "perjoule_writer", "perjoule_reader"};
    pj_buffer_text(out,
                   "-- The owner may change the schema, writers are the machines that measure, "
                   "readers only read.\n");
    for (int i = 0; i < 3; i++)
        pj_buffer_printf(out,
                         "DO $$BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '%s') "
                         "THEN CREATE ROLE %s NOLOGIN; END IF; END$$;\n",
                         roles[i], roles[i]);
    pj_buffer_printf(out,
                     "CREATE SCHEMA IF NOT EXISTS %s;\n"
                     "GRANT perjoule_owner TO CURRENT_USER;\n"
                     "GRANT USAGE, CREATE ON SCHEMA %s TO perjoule_owner;\n"
                     "GRANT USAGE ON SCHEMA %s TO perjoule_writer, perjoule_reader;\n"
                     "SET search_path = %s;\n"
                     "-- Searches in prompts; without it they read all of them.\n"
                     "DO $$BEGIN CREATE EXTENSION IF NOT EXISTS pg_trgm; EXCEPTION WHEN OTHERS "
                     "THEN NULL; END$$;\n"
                     "SET ROLE perjoule_owner;\n",
                     schema, schema, schema, schema);
}

static void put_tables(pj_buffer *out)
{
    pj_buffer schema;
    pj_buffer_init(&schema, out->max_bytes);
    pj_schema_write(&schema, &pj_postgres_dialect);
    put_statements(out, pj_buffer_get(&schema));
    out->failed |= schema.failed;
    pj_buffer_fini(&schema);
    pj_buffer_printf(
        out, "INSERT INTO perjoule_schema (application, version) VALUES ('perjoule', %d);\n",
        (int)pj_postgres_dialect.version);
}

static void postgres_setup_put_list(pj_buffer *out)
{
    pj_buffer_text(out, "profiling_runs, experiments, run_queue, machine_states");
    for (const pj_schema_table *table = pj_schema_tables + 1; table->run; table++)
        pj_buffer_printf(out, ", %s", table->name);
}

static void put_grants(pj_buffer *out)
{
    pj_buffer_text(out, "GRANT SELECT ON perjoule_schema, ");
    postgres_setup_put_list(out);
    for (const pj_schema_view *view = pj_schema_views; view->name; view++)
        pj_buffer_printf(out, ", %s", view->name);
    pj_buffer_text(out, " TO perjoule_writer, perjoule_reader;\n");
    pj_buffer_text(out, "GRANT INSERT, UPDATE, DELETE ON ");
    postgres_setup_put_list(out);
    pj_buffer_text(out, " TO perjoule_writer;\n"
                        "GRANT USAGE ON SEQUENCE run_charts_id TO perjoule_writer;\n"
                        "GRANT EXECUTE ON FUNCTION perjoule_make_partitions(date), "
                        "perjoule_reserve(text[], bigint[]) TO perjoule_writer;\n");
}

/* Rows of one run are on one node: every join of the views is between rows of one run. */
static void put_distribution(pj_buffer *out)
{
    pj_buffer_text(out, "RESET ROLE;\nCREATE EXTENSION IF NOT EXISTS citus;\n"
                        "SET ROLE perjoule_owner;\n"
                        "SELECT create_distributed_table('profiling_runs', 'id');\n");
    for (const pj_schema_table *table = pj_schema_tables + 1; table->run; table++)
        pj_buffer_printf(out,
                         "SELECT create_distributed_table('%s', 'run_id', colocate_with => "
                         "'profiling_runs');\n",
                         table->name);
    pj_buffer_text(out, "SELECT create_reference_table('experiments');\n"
                        "SELECT create_reference_table('machine_states');\n"
                        "SELECT create_reference_table('run_queue');\n");
}

void pj_pg_setup(pj_buffer *out, const char *schema, bool is_distributed)
{
    pj_buffer_text(out, "-- For psql, once, by a role that may create roles, in a database with "
                        "encoding UTF8.\n\\set ON_ERROR_STOP on\nBEGIN;\n");
    put_roles(out, schema);
    put_tables(out);
    put_grants(out);
    if (is_distributed) put_distribution(out);
    pj_buffer_text(out, "RESET ROLE;\nCOMMIT;\n"
                        "-- Then give people and machines their roles, for example:\n"
                        "-- CREATE ROLE bench01 LOGIN; GRANT perjoule_writer TO bench01;\n");
}

/*
 * The schema on PostgreSQL, and how databases of earlier versions are brought to it.
 *
 * Every table of a run carries run_id and machine_id. Tables are partitioned by the month of the
 * run: a run's id is a UUIDv7, which begins with its time, so that a range of ids is a range of
 * times, and a condition on run_id finds the partition. Rows have consecutive ids, unique in their
 * table, from sequences that perjoule_reserve advances by whole runs.
 *
 * Where the server has the Citus extension, tables are distributed by run_id (postgres_setup.c):
 * joins are between rows of one run, and there are no triggers.
 */
#include "store/postgres.h"
#include "store/schema.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
#define TEXT "text COLLATE \"C\""
/* The machine of the rows that the connection writes, as a session variable. */
#define MACHINE_ID                                                                           \
    "machine_id bigint NOT NULL DEFAULT"                                                     \
    " coalesce(nullif(current_setting('perjoule.machine_id', true), ''), '0')::bigint"

/* Lists: an index with what they are filtered and sorted by, a tenth as large as the runs (which have
 * their prompts, models and settings with them). A B-tree's entry is at most a third of a page, so
 * that it leaves out runs with very long names; the index of their length finds these, and gives the
 * planner its statistics of how few they are. The ids in the others let the engine pass over fifty
 * thousand runs without reading them. Lists sort descending with NULLs last, for which an ascending
 * index read backwards has the NULLs at the wrong end. Names and tags of any length have hashes. */
#define SORTED(name, column)                                                                 \
    "CREATE INDEX IF NOT EXISTS " name " ON profiling_runs(" column ", created_ns DESC)"     \
    " INCLUDE (id);"                                                                         \
    "CREATE INDEX IF NOT EXISTS " name "_down ON profiling_runs(" column " DESC NULLS LAST," \
    " created_ns DESC) INCLUDE (id);"
static const char indices[] =
    "CREATE UNIQUE INDEX IF NOT EXISTS runs_by_id ON profiling_runs(id);"
    "CREATE INDEX IF NOT EXISTS runs_by_date ON profiling_runs(created_ns, id);"
    SORTED("runs_by_duration", "total_duration_ms") SORTED("runs_by_energy", "total_energy_mj")
    SORTED("runs_by_speed", "tokens_per_second") SORTED("runs_by_cost", "joules_per_token")
    "CREATE INDEX IF NOT EXISTS runs_listed ON profiling_runs(created_ns) INCLUDE (id, machine,"
    " model_name, engine, dtype, experiment_name, status, energy_source, scope, level,"
    " total_duration_ms, total_energy_mj, tokens_per_second, joules_per_token)"
    " WHERE " PJ_PG_LISTED_RUNS ";"
    "CREATE INDEX IF NOT EXISTS runs_by_names ON profiling_runs ((" PJ_PG_BYTES_OF_NAMES "));"
    "CREATE INDEX IF NOT EXISTS runs_by_machine ON profiling_runs(machine_id, created_ns);"
    "CREATE INDEX IF NOT EXISTS runs_by_model ON profiling_runs USING hash (model_name);"
    "CREATE INDEX IF NOT EXISTS runs_by_experiment ON profiling_runs USING hash (experiment_name)"
    " WHERE experiment_name IS NOT NULL;"
    "CREATE INDEX IF NOT EXISTS runs_by_group ON profiling_runs USING hash (repeat_group)"
    " WHERE repeat_group IS NOT NULL;"
    "CREATE UNIQUE INDEX IF NOT EXISTS tags_once ON run_tags (md5(tag), run_id, machine_id);"
    "CREATE INDEX IF NOT EXISTS runs_by_tag ON run_tags USING hash (tag);"
    "CREATE INDEX IF NOT EXISTS tokens_by_step ON tokens(step_id) WHERE step_id IS NOT NULL;"
    /* The largest tables are appended to in the order of runs: an index of block ranges. */
    "CREATE INDEX IF NOT EXISTS samples_by_run ON power_samples USING brin (run_id);"
    "CREATE INDEX IF NOT EXISTS layers_by_run ON layer_metrics USING brin (run_id);"
    "CREATE INDEX IF NOT EXISTS components_by_run ON component_metrics USING brin (run_id);"
    "CREATE INDEX IF NOT EXISTS operations_by_run ON deep_operation_metrics USING brin (run_id);"
    /* Searches of prompts by any three characters, where the server has the extension and the role
     * may use it; elsewhere a search reads all prompts. */
    "DO $$BEGIN BEGIN CREATE EXTENSION IF NOT EXISTS pg_trgm; EXCEPTION WHEN OTHERS THEN NULL; END;"
    " IF EXISTS (SELECT 1 FROM pg_opclass WHERE opcname = 'gin_trgm_ops' AND"
    "  pg_opclass_is_visible(oid)) THEN CREATE INDEX IF NOT EXISTS runs_by_prompt ON"
    "  profiling_runs USING gin (lower(prompt) gin_trgm_ops);"
    " END IF; END$$;"
    "CREATE INDEX IF NOT EXISTS runs_described ON profiling_runs (id)"
    " WHERE name IS NOT NULL OR note IS NOT NULL;";

/* SQLite's functions that statements and views use. */
static const char functions[] =
    "CREATE AGGREGATE total(double precision)"
    " (sfunc = float8pl, stype = double precision, initcond = '0', parallel = safe,"
    "  combinefunc = float8pl);"
    "CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE"
    " AS 'SELECT strpos($1, $2)';";

static const char storage[] =
    "ALTER TABLE run_charts ALTER COLUMN id SET DEFAULT nextval('run_charts_id');"
    /* Packed numbers are stored uncompressed: compression costs more than it saves. */
    "ALTER TABLE run_charts ALTER COLUMN data SET STORAGE EXTERNAL;"
    "ALTER TABLE run_rails ALTER COLUMN power_mw SET STORAGE EXTERNAL;";

/* SECURITY DEFINER, so that writers need no privilege to create tables. */
#define AS_OWNER " LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS "

static const char attach_partition[] =
    /* The lowest UUIDv7 of a month. */
    "CREATE FUNCTION perjoule_first_id(month date) RETURNS text LANGUAGE sql IMMUTABLE AS"
    " $$SELECT substr(h, 1, 8) || '-' || substr(h, 9) FROM (SELECT lpad(to_hex("
    "  (extract(epoch FROM month::timestamp) * 1000)::bigint), 12, '0') AS h) AS hex$$;"
    /* The partitions that hold a range of ids; without a default one, attaching locks nothing
     * that others read or write. */
    "CREATE FUNCTION perjoule_attach(name text, of text, low text, high text) RETURNS void"
    " LANGUAGE plpgsql AS $$BEGIN IF to_regclass(quote_ident(name)) IS NULL THEN"
    "  EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', name, of);"
    "  EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', of,"
    "   name, low, high); END IF; END$$;";

/* Both around the array of the tables of runs. */
static const char make_month[] =
    "CREATE FUNCTION perjoule_make_partitions(month date) RETURNS void" AS_OWNER
    " $$DECLARE name text; first date := date_trunc('month', month); BEGIN"
    "  PERFORM pg_advisory_xact_lock(5785247, 2);"
    "  FOREACH name IN ARRAY %s LOOP"
    "   PERFORM perjoule_attach(name || to_char(first, '_YYYY_MM'), name,"
    "    quote_literal(perjoule_first_id(first)),"
    "    quote_literal(perjoule_first_id((first + interval '1 month')::date)));"
    "  END LOOP; END$$;";
/* For ids outside the range of months, which other programs may have made. */
static const char make_ends[] =
    "DO $$DECLARE name text; BEGIN FOREACH name IN ARRAY %s LOOP"
    "  PERFORM perjoule_attach(name || '_before', name, 'MINVALUE',"
    "   quote_literal(perjoule_first_id('2020-01-01')));"
    "  PERFORM perjoule_attach(name || '_after', name,"
    "   quote_literal(perjoule_first_id('2100-01-01')), 'MAXVALUE');"
    "  EXECUTE format('CREATE SEQUENCE %%I', name || '_rows'); END LOOP; END$$;";

static const char reserve_ids[] =
    /* Reserves the ids of a run's rows; they are used up even if the run is not stored. */
    "CREATE FUNCTION perjoule_reserve(tables text[], counts bigint[]) RETURNS bigint[]" AS_OWNER
    " $$DECLARE firsts bigint[]; first bigint; BEGIN"
    "  PERFORM pg_advisory_lock(5785247, 3);"
    "  FOR i IN 1 .. array_length(tables, 1) LOOP"
    "   first := nextval(quote_ident(tables[i] || '_rows'));"
    "   PERFORM setval(quote_ident(tables[i] || '_rows'), first + greatest(counts[i] - 1, 0),"
    "    counts[i] > 0);"
    "   firsts[i] := first;"
    "  END LOOP;"
    "  PERFORM pg_advisory_unlock(5785247, 3);"
    "  RETURN firsts; END$$;"
    "REVOKE ALL ON FUNCTION perjoule_make_partitions(date) FROM PUBLIC;"
    "REVOKE ALL ON FUNCTION perjoule_reserve(text[], bigint[]) FROM PUBLIC;";

/* ---- earlier versions ------------------------------------------------------------------------ */

static const char drop_indices_5[] =
    "DROP INDEX runs_by_model; DROP INDEX runs_by_experiment; DROP INDEX runs_by_group;"
    "ALTER TABLE run_tags DROP CONSTRAINT run_tags_pkey;";
static const char drop_indices_6[] =
    "DROP INDEX IF EXISTS runs_by_date, runs_by_duration, runs_by_duration_down, runs_by_energy,"
    " runs_by_energy_down, runs_by_speed, runs_by_speed_down, runs_by_cost, runs_by_cost_down;";
/* If the roles of `perjoule setup --postgres` exist already, they get their grants here. */
static const char grant_machine_states[] =
    "DO $$BEGIN IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'perjoule_writer') THEN"
    "  GRANT SELECT, INSERT, UPDATE, DELETE ON machine_states TO perjoule_writer; END IF;"
    " IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'perjoule_reader') THEN"
    "  GRANT SELECT ON machine_states TO perjoule_reader; END IF; END$$;";
/* clang-format on */

/* ---- the dialect --------------------------------------------------------------------------- */

/* Tags of any length have an index of hashes instead (tags_once): a B-tree takes no key of more
 * than a third of a page. */
static bool has_long_key(const pj_schema_table *table)
{
    return table->key && strncmp(table->key, "tag,", 4) == 0;
}

static void end_table(pj_buffer *out, const pj_schema_table *table)
{
    if (!table->run) {
        pj_buffer_printf(out, ", PRIMARY KEY (%s));", table->key);
        return;
    }
    if (table->rows == &pj_run_table) pj_buffer_text(out, ", rowid bigint NOT NULL");
    pj_buffer_text(out, ", " MACHINE_ID);
    if (table->unique) pj_buffer_printf(out, ", UNIQUE (%s)", table->unique);
    if (!has_long_key(table))
        pj_buffer_printf(out, ", PRIMARY KEY (%s, machine_id)",
                         table->key ? table->key : "id, run_id");
    pj_buffer_printf(out, ") PARTITION BY RANGE (%s);", table->run);
}

/* The columns of a view can only grow: it keeps its grants, and the views that others made of it.
 */
static void write_view(pj_buffer *out, const char *name, const char *select)
{
    pj_buffer_printf(out, "CREATE OR REPLACE VIEW %s AS ", name);
    pj_pg_translate(select, out);
    pj_buffer_char(out, ';');
}

static void write_before(pj_buffer *out, int64_t version)
{
    if (!version)
        pj_buffer_text(out, "CREATE SEQUENCE run_charts_id;"
                            "CREATE TABLE perjoule_schema (application text PRIMARY KEY,"
                            " version bigint NOT NULL);");
    else if (version < 6)
        pj_buffer_text(out, drop_indices_5);
    if (version && version < 7) pj_buffer_text(out, drop_indices_6);
    if (version && version < 8)
        pj_buffer_text(out, "ALTER TABLE run_queue DROP COLUMN IF EXISTS machine_id;");
}

static void write_partitions(pj_buffer *out)
{
    pj_buffer tables;
    pj_buffer_init(&tables, 4096);
    for (const pj_schema_table *table = pj_schema_tables; table->name; table++)
        if (table->run)
            pj_buffer_printf(&tables, "%s'%s'", tables.length ? ", " : "ARRAY[", table->name);
    pj_buffer_char(&tables, ']');
    pj_buffer_text(out, attach_partition);
    pj_buffer_printf(out, make_month, pj_buffer_get(&tables));
    pj_buffer_printf(out, make_ends, pj_buffer_get(&tables));
    out->failed |= tables.failed;
    pj_buffer_fini(&tables);
}

static void write_after(pj_buffer *out, int64_t version)
{
    pj_buffer_text(out, indices);
    if (version) {
        if (version < 2) pj_buffer_text(out, grant_machine_states);
        return;
    }
    pj_buffer_text(out, functions);
    pj_buffer_text(out, storage);
    write_partitions(out);
    pj_buffer_text(out, reserve_ids);
}

const pj_dialect pj_postgres_dialect = {.version = 10,
                                        .types = {TEXT, "double precision", "bigint", "bytea"},
                                        .id_type = "bigint NOT NULL",
                                        .has_run_everywhere = true,
                                        .end_table = end_table,
                                        .write_view = write_view,
                                        .write_before = write_before,
                                        .write_after = write_after};

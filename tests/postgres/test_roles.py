#!/usr/bin/env python3
"""The statements printed by `setup --postgres [--citus]` work as they are: roles with minimal privileges; distributed
tables."""
import sqlite3

import server as servers
from common import HOME, call, record

RUN_TABLES = ["profiling_runs", "run_rails", "power_samples", "run_rail_energy", "run_phases", "run_classes", "tokens",
              "pipeline_sections", "layer_metrics", "component_metrics", "deep_operation_metrics", "run_warnings",
              "run_conditions"]

with_server = servers.started(settings=["fsync=off"])
try:
    with_server.psql("CREATE DATABASE fleet")
    with_server.psql(call("setup", "--postgres")[0], "fleet")
    # A column missing from PostgreSQL's schema would be added by the first writer, who lacks the privilege.
    record(HOME / "local.db")
    with sqlite3.connect(HOME / "local.db") as local:
        for table in RUN_TABLES:
            there = with_server.psql(f"SELECT string_agg(column_name, ' ') FROM information_schema.columns"
                                     f" WHERE table_name = '{table}'", "fleet").split()
            missing = {row[1] for row in local.execute(f"PRAGMA table_info({table})")} - set(there)
            assert there and not missing, (table, missing)
    with_server.psql("CREATE ROLE machine LOGIN; GRANT perjoule_writer TO machine;"
                     "CREATE ROLE analyst LOGIN; GRANT perjoule_reader TO analyst", "fleet")
    writer, reader = (with_server.url("fleet", user) for user in ("machine", "analyst"))
    run, err = record(writer, "--depth", "deep")
    assert not err.strip(), err
    assert run in call("ls", "--db", reader, "--json")[0]
    call("show", "--db", reader, run)
    code, _, err = call("rm", "--db", reader, "--yes", run, code=None)
    assert code and run in call("ls", "--db", reader, "--json")[0], err
    # Searches use the trigram index on prompts where the server has the extension.
    if with_server.psql("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_trgm'", "fleet") == "1":
        plan = with_server.psql("SET enable_seqscan = off; EXPLAIN SELECT id FROM profiling_runs"
                                " WHERE lower(prompt) LIKE lower('%HEL%') ESCAPE '\\'", "fleet", "analyst")
        assert "lower" in plan and "Index" in plan, plan
    assert run in call("ls", "--db", reader, "--json", "--search", "HELL")[0]
    assert run not in call("ls", "--db", reader, "--json", "--search", "nowhere")[0]
    for statement in ("DROP TABLE tokens", "CREATE TABLE public.mine (id int)", "UPDATE perjoule_schema SET version = 2",
                      "ALTER TABLE tokens ADD COLUMN x int"):
        assert with_server.psql(statement, "fleet", "machine", check=False) is None, statement
    for statement in ("DELETE FROM tokens", "SELECT perjoule_make_partitions('2030-01-01')",
                      "INSERT INTO experiments VALUES ('x', 1, 'y')"):
        assert with_server.psql(statement, "fleet", "analyst", check=False) is None, statement
    # A database of an earlier version is brought up to date by its owner; nobody else may, and is told so.
    with_server.psql("ALTER TABLE profiling_runs DROP COLUMN overhead_share", "fleet")
    for user in (writer, reader):
        code, _, err = call("ls", "--db", user, code=None)
        assert code and "has an older schema: its owner has to migrate it" in err and err.count("\n") == 1, err
    call("ls", "--db", with_server.url("fleet"))
    assert run in call("ls", "--db", reader, "--json")[0]
    record(writer)
    # Citus requires the distribution column in every unique index. Without Citus, fake functions of the same names
    # check this.
    with_server.psql("CREATE DATABASE wide")
    with_server.psql("""
        CREATE TABLE calls (name text, distributed_by text);
        GRANT ALL ON calls TO PUBLIC;
        CREATE FUNCTION create_distributed_table(name text, key text, colocate_with text DEFAULT 'default')
        RETURNS void LANGUAGE plpgsql AS $$DECLARE lacking text; BEGIN
          SELECT indexrelid::regclass INTO lacking FROM pg_index i WHERE indrelid = name::regclass AND indisunique
            AND NOT EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                            AND a.attname = key);
          IF lacking IS NOT NULL THEN RAISE EXCEPTION '% lacks %', lacking, key; END IF;
          IF EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = name::regclass AND NOT tgisinternal)
            THEN RAISE EXCEPTION '% has triggers', name; END IF;
          INSERT INTO calls VALUES (name, key); END$$;
        CREATE FUNCTION create_reference_table(name text) RETURNS void LANGUAGE sql
        AS $$INSERT INTO calls VALUES (name, NULL)$$;""", "wide")
    script = call("setup", "--postgres", "--citus")[0].replace("CREATE EXTENSION IF NOT EXISTS citus;", "")
    with_server.psql(script, "wide")
    assert with_server.psql("SELECT count(*) FROM calls WHERE distributed_by IS NOT NULL", "wide") == "17"
    record(with_server.url("wide"))
    print("roles and distribution work")
finally:
    with_server.close()

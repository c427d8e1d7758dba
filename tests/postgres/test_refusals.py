#!/usr/bin/env python3
"""Bad servers and bad addresses: one message each, never with a password, and nothing lost."""
import base64
import json
import random
import socket
import struct
import threading
import time

import server as servers
from common import ROOT, call, record, waiting


def refused(db, word, *words):
    code, out, err = call(*(words or ["ls"]), "--db", db, code=None)
    assert code not in (0, None) and code > 0, (db, code, out)
    assert len(err.strip().splitlines()) == 1 and word in err, (db, err)
    assert "s3cret" not in err + out, err


def old_server():
    """Performs the protocol's startup handshake as PostgreSQL 9.6."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            while True:
                length, code = struct.unpack("!ii", client.recv(8))
                client.recv(length - 8)
                if code != 196608:
                    client.sendall(b"N")  # no TLS, no GSSAPI
                    continue
                break
            def message(kind, body):
                return kind + struct.pack("!i", len(body) + 4) + body
            client.sendall(message(b"R", struct.pack("!i", 0))
                           + message(b"S", b"server_version\x009.6.24\x00")
                           + message(b"S", b"server_encoding\x00UTF8\x00")
                           + message(b"S", b"client_encoding\x00UTF8\x00") + message(b"Z", b"I"))
            client.recv(100)
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


with_server = servers.started(settings=["fsync=off"])
try:
    refused("postgresql://u:s3cret@127.0.0.1/x", "pgpass")
    refused("postgresql:///x?password=s3cret", "pgpass")
    refused("postgresql://[broken?s3cret", "address")
    refused(f"postgresql://u@127.0.0.1:{old_server()}/x?sslmode=disable", "PostgreSQL 9")
    refused(with_server.url("nowhere"), "nowhere")
    refused(with_server.url(user="nobody_here"), "nobody_here")
    with_server.psql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    refused(with_server.url("latin"), "UTF8")
    with_server.psql("CREATE DATABASE foreign_one")
    with_server.psql("CREATE TABLE tokens (id int)", "foreign_one")
    refused(with_server.url("foreign_one"), "another program")
    assert with_server.psql("SELECT count(*) FROM pg_class WHERE relname = 'profiling_runs'", "foreign_one") == "0"
    # Unrelated tables with other names do not matter.
    with_server.psql("CREATE DATABASE shared")
    with_server.psql("CREATE TABLE unrelated (id int)", "shared")
    record(with_server.url("shared"))
    present = with_server.psql("SELECT version FROM perjoule_schema", "shared")
    with_server.psql("UPDATE perjoule_schema SET version = 99", "shared")
    refused(with_server.url("shared"), "newer perjoule")
    # A database of version 6, opened by several processes at once, of which one brings it up to date.
    with_server.psql("DROP INDEX runs_listed, runs_by_names, runs_by_date;"
                     "CREATE INDEX runs_by_date ON profiling_runs(created_ns);"
                     "UPDATE perjoule_schema SET version = 6", "shared")
    opening = [call("ls", "--db", with_server.url("shared"), "--json", wait=False) for _ in range(3)]
    for process in opening:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0 and len(json.loads(out)) == 1, err
    assert with_server.psql("SELECT version FROM perjoule_schema", "shared") == present
    assert "INCLUDE" in with_server.psql("SELECT indexdef FROM pg_indexes WHERE indexname = 'runs_listed'", "shared")
    # A role without privileges is refused on connecting; the run is kept locally.
    with_server.psql("CREATE ROLE guest LOGIN", "shared")
    refused(with_server.url("shared", "guest"), "setup --postgres")
    with_server.psql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest", "shared")
    guest = with_server.url("shared", "guest")
    call("ls", "--db", guest)
    run, err = record(guest)
    assert "kept" in err, err
    assert waiting(guest) == 1
    code, out, err = call("push", "--db", guest, code=None)
    assert code != 0 and "privilege" in err and len(err.strip().splitlines()) == 1, err
    with_server.psql("GRANT ALL ON ALL TABLES IN SCHEMA public TO guest;"
                     "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO guest;"
                     "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO guest", "shared")
    out, _ = call("push", "--db", guest)
    assert out.split() == [run] and waiting(guest) == 0
    # The server reports a full disk: the run is kept locally and transferred once there is space.
    shared = with_server.url("shared")
    with_server.psql("""CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION
        'could not extend file "base/1": No space left on device' USING ERRCODE = '53100'; END$$;
        CREATE TRIGGER full_disk BEFORE INSERT ON profiling_runs FOR EACH ROW EXECUTE FUNCTION full_disk()""", "shared")
    run, err = record(shared)
    assert "kept" in err and waiting(shared) == 1, err
    code, out, err = call("push", "--db", shared, code=None)
    assert code != 0 and "disk is full" in err and len(err.strip().splitlines()) == 1, err
    with_server.psql("DROP FUNCTION full_disk() CASCADE", "shared")
    assert call("push", "--db", shared)[0].split() == [run] and waiting(shared) == 0
    # A statement that exceeds statement_timeout.
    lock = threading.Thread(target=with_server.psql, args=(
        "BEGIN; LOCK TABLE profiling_runs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(300)", "shared"),
        kwargs=dict(check=False))
    lock.start()
    locked = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted" \
             " AND relation = 'profiling_runs'::regclass"
    for _ in range(450):
        if with_server.psql(locked, "shared") == "1":
            break
        time.sleep(0.1)
    refused(with_server.url("shared", options="-cstatement_timeout%3D500ms"), "timed out", "ls")
    with_server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(300)%'"
                     " AND pid <> pg_backend_pid()", "shared")
    lock.join()
    assert run in call("ls", "--db", shared, "--json")[0]
    # Write transactions get a timeout of half an hour, for large runs on slow servers. A limit set by the user is kept.
    with_server.psql("CREATE TABLE limits (t text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
                     " $$BEGIN INSERT INTO limits VALUES (current_setting('statement_timeout')); RETURN NEW; END$$;"
                     "CREATE TRIGGER note BEFORE INSERT ON profiling_runs FOR EACH ROW EXECUTE FUNCTION note()", "shared")
    record(shared)
    record(with_server.url("shared", options="-cstatement_timeout%3D7min"))
    assert with_server.psql("SELECT t FROM limits", "shared").split() == ["30min", "7min"]
    with_server.psql("DROP FUNCTION note() CASCADE; DROP TABLE limits", "shared")
    # Quotes in the name of a database, an experiment, a tag, and in a prompt.
    with_server.psql('CREATE DATABASE "o\'brien ""x"""')
    odd = with_server.url("o'brien%20%22x%22")
    run, err = record(odd, "--tag", "it's; DROP TABLE tokens; --", "--experiment", 'a"b\'c')
    assert not err.strip() and run in call("ls", "--db", odd, "--json", "--tag", "it's; DROP TABLE tokens; --")[0], err
    # Names too long for a B-tree index, and a duplicate tag.
    long = base64.b64encode(random.Random(3).randbytes(6000)).decode()
    run, err = record(odd, "--tag", long, "--tag", "x", "--tag", "x", "--experiment", long)
    assert not err.strip() and waiting(odd) == 0, err
    # It is found by them among others with short ones.
    short, _ = record(odd, "--experiment", "short", "--tag", "x")
    for words, expected in ((("--experiment", long), [run]), (("--experiment", "short"), [short]),
                            (("--engine", "perjoule", "--tag", "x"), [short, run]), (("--tag", long), [run])):
        found = [item["run_id"] for item in json.loads(call("ls", "--db", odd, "--json", *words)[0])]
        assert found == expected, (words, found, expected)
    _, out, err = call("experiment", "--db", odd, "--models", ROOT / "models" / "demo", "--name", "n" * 3000, code=None)
    assert err.count("\n") == 1 and "longer than" in err, err
    log = with_server.log.read_text()
    assert "s3cret" not in log
    print("refused as they should be")
finally:
    with_server.close()

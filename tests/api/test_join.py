"""Live streams of joined machines relayed by one server: several watchers, restarts, no load without watchers."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
import urllib.parse

import beside
import harness


def name_of(server):
    """The machine's name, once the server has stored it in its own database."""
    found = []
    server.wait_until(lambda: found.extend(server.get("/api/profiling/machines").json()) or found, "a machine")
    return found[0]["name"]


def watch(server, machine, **more):
    return harness.Socket(server.port, "?" + urllib.parse.urlencode({"machine": machine} | more))


def readers(server):
    return int(re.search(r"perjoule_live_readers (\d+)", server.get("/metrics").body.decode())[1])


class TlsProxy:
    """Terminates TLS in front of a server, as a reverse proxy does, with a self-signed certificate."""

    def __init__(self, port, name="localhost"):
        self.folder = tempfile.mkdtemp(prefix="perjoule-tls-")
        self.certificate = str(pathlib.Path(self.folder) / "certificate.pem")
        key = str(pathlib.Path(self.folder) / "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                        "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", self.certificate],
                       check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        # One thread for both directions: an SSL socket is not thread-safe.
        with contextlib.suppress(OSError):
            raw = self.context.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self.target))
            raw.settimeout(0.02)
            server.settimeout(0.02)
            open_ends = True
            while open_ends:
                for source, target in ((raw, server), (server, raw)):
                    try:
                        data = source.recv(65536)
                        target.settimeout(30)
                        target.sendall(data)
                        target.settimeout(0.02)
                        open_ends = open_ends and bool(data)
                    except TimeoutError:
                        pass
            raw.close()
            server.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Join(unittest.TestCase):
    def joined(self, central, machine):
        def is_live():
            with watch(central, machine) as s:
                return s.status == 101
        central.wait_until(is_live, "the machine joins")

    def test_watched_through_another_server(self):
        with harness.Server() as central, \
                harness.Server("--join", f"http://127.0.0.1:{central.port}") as machine:
            name = name_of(machine)
            self.joined(central, name)
            with watch(central, name) as one, watch(central, name) as other:
                self.assertEqual(one.message()["type"], "hello")
                self.assertEqual(other.message()["type"], "hello")
                # With only these watchers, the machine itself serves a single reader.
                machine.wait_until(lambda: readers(machine) == 1, "the machine's reader")
                run = machine.generate(max_length=16).json()
                seen = one.until("inference_complete", run["id"])
                self.assertEqual([m["type"] for m in seen if m["type"] == "run_started"], ["run_started"])
                tokens = [m for m in seen if m["type"] == "token_complete"]
                self.assertEqual(len(tokens), len([m for m in other.until("inference_complete", run["id"])
                                                   if m["type"] == "token_complete"]))
                self.assertGreaterEqual(len(tokens), run["output_tokens"])
                self.assertAlmostEqual(seen[-1]["summary"]["total_energy_mj"], run["total_energy_mj"])
                numbers = [m["seq"] for m in seen]
                self.assertEqual(numbers, sorted(set(numbers)))
            # Without watchers, the server disconnects from the machine within seconds; watching again reconnects.
            machine.wait_until(lambda: readers(machine) == 0, "nobody watches")
            self.joined(central, name)
            # None of it appears in the central server's own stream.
            self.assertEqual(central.get(f"/api/profiling/run/{run['id']}/live").status, 404)

    def test_shows_in_the_list_of_a_shared_database(self):
        with harness.Server() as central, \
                harness.Server("--join", f"http://127.0.0.1:{central.port}", db=central.db) as machine:
            name = name_of(machine)
            central.wait_until(lambda: any(m["live"] for m in central.get("/api/profiling/machines").json()
                                           if m["name"] == name), "live in the list")
            self.assertFalse(any(m["live"] for m in machine.get("/api/profiling/machines").json()))

    def test_continues_when_the_machine_is_back(self):
        with harness.Server() as central:
            url = f"http://127.0.0.1:{central.port}"
            with harness.Server("--join", url) as machine:
                name = name_of(machine)
                self.joined(central, name)
                s = watch(central, name)
                self.assertEqual(s.message()["type"], "hello")
            gone = s.until("warning")[-1]
            self.assertEqual(gone["code"], "machine_away")
            with harness.Server("--join", url) as machine:
                machine.wait_until(lambda: readers(machine) == 1, "watched again")
                run = machine.generate().json()
                self.assertEqual(s.until("inference_complete")[-1]["run_id"], run["id"])
            s.s.close()

    def test_tokens(self):
        with harness.Server("--token", "fleet") as central:
            url = f"http://127.0.0.1:{central.port}"
            with harness.Server("--join", url, environment={"PERJOULE_JOIN_TOKEN": "wrong"}) as refused:
                self.assertIn("rejected the token", refused.process.stderr.readline())
            with harness.Server("--join", url, "--join-token", "fleet") as machine:
                self.assertIn("--join-token-file", machine.process.stderr.readline())
                name = name_of(machine)
                query = "?" + urllib.parse.urlencode({"machine": name, "token": "fleet"})

                def is_live():
                    with harness.Socket(central.port, query) as s:
                        return s.status == 101
                central.wait_until(is_live, "the machine joins")

    def join(self, central, machine, **headers):
        """A machine's connection and the status of the answer."""
        s = socket.create_connection(("127.0.0.1", central.port))
        s.settimeout(60 * harness.SLOW)
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        s.sendall((f"GET /ws/join?machine={machine} HTTP/1.1\r\nHost: {harness.NAME}:{central.port}\r\n"
                   "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                   f"Sec-WebSocket-Key: cGVyam91bGUtbWFjaGluZQ==\r\n{lines}\r\n").encode())
        return s, int(s.recv(1000).split()[1])

    def test_machines_that_leave_are_forgotten(self):
        """Neither sockets nor places stay: containers have a new name at each start."""
        with harness.Server() as central:
            def sockets():
                folder = f"/proc/{central.process.pid}/fd"
                count = 0
                for fd in os.listdir(folder):
                    with contextlib.suppress(FileNotFoundError):  # closed in between
                        count += os.readlink(os.path.join(folder, fd)).startswith("socket:")
                return count
            before = sockets()
            for first in range(0, 4500, 100):  # more than there are places
                joined = [self.join(central, f"pod-{first + i}") for i in range(100)]
                self.assertEqual({status for _, status in joined}, {101})
                for s, _ in joined:
                    s.close()
                central.wait_until(lambda: sockets() <= before, "their sockets are closed")
            last, status = self.join(central, "last")
            self.assertEqual(status, 101)
            self.joined(central, "last")
            last.close()

    def test_a_living_name_is_taken(self):
        with harness.Server() as central:
            alpha, status = self.join(central, "alpha", X_Perjoule_Machine_Key="0123")
            self.assertEqual(status, 101)
            watchers = []

            def is_watched():
                watchers.append(watch(central, "alpha"))
                return watchers[-1].status == 101
            central.wait_until(is_watched, "it has joined")
            self.assertEqual(alpha.recv(100), b"\x81\x05watch")
            for headers in ({}, {"X_Perjoule_Machine_Key": "4567"}):
                other, status = self.join(central, "alpha", **headers)
                self.assertEqual(status, 409)
                other.close()
                self.assertIn("refused a machine that joins as alpha, from 127.0.0.1: another machine has",
                              central.process.stderr.readline())
            # The machine itself opens its next idle connection.
            spare, status = self.join(central, "alpha", X_Perjoule_Machine_Key="0123")
            self.assertEqual(status, 101)
            spare.close()
            for watcher in watchers:
                watcher.s.close()
            alpha.close()

            def is_free():
                other, status = self.join(central, "alpha", X_Perjoule_Machine_Key="4567")
                other.close()
                return status == 101
            central.wait_until(is_free, "the name is free when the machine has left")

    def test_join_tokens_only_join(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="perjoule-secrets-"))
        (folder / "token").write_text("an-admin-s-secret\n")
        (folder / "join").write_text("# machines\nalpha=alpha-s-secret\nbeta=YmV0YQ==\n\n")
        with harness.Server("--token-file", str(folder / "token"), "--join-token-file", str(folder / "join"),
                            "--join-token", "gamma=g") as central:
            self.assertIn("--join-token is visible to other users", central.process.stderr.readline())
            for machine, token, expected in (("alpha", "alpha-s-secret", 101), ("beta", "YmV0YQ==", 101),
                                             ("gamma", "g", 101), ("delta", "alpha-s-secret", 401),
                                             ("beta2", "alpha-s-secret", 401), ("alpha", "an-admin-s-secret", 401),
                                             ("alpha2", "", 401)):
                s, status = self.join(central, machine, Authorization=f"Bearer {token}")
                self.assertEqual((machine, token, status), (machine, token, expected))
                s.close()
            for method, path in (("GET", "/api/profiling/runs"), ("DELETE", "/api/profiling/runs?keep=0"),
                                 ("GET", "/metrics"), ("POST", "/session")):
                answer = central.ask(method, path, headers={"Authorization": "Bearer alpha-s-secret"})
                self.assertEqual((path, answer.status), (path, 401))
            runs = central.get("/api/profiling/runs", Authorization="Bearer an-admin-s-secret")
            self.assertEqual(runs.status, 200)
        shutil.rmtree(folder)

    @unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make a certificate with")
    def test_watched_over_tls(self):
        with harness.Server() as central, TlsProxy(central.port) as proxy:
            url = f"https://localhost:{proxy.port}"
            trusted = {"CURL_CA_BUNDLE": proxy.certificate}
            with harness.Server("--join", url, environment=trusted) as machine:
                name = name_of(machine)
                self.joined(central, name)
                with watch(central, name) as one:
                    self.assertEqual(one.message()["type"], "hello")
                    machine.wait_until(lambda: readers(machine) == 1, "the machine's reader")
                    # read meanwhile: a watcher that does not is cut off, on a busy machine before the run has ended
                    run = machine.generate(max_length=64, profiling_depth="deep", wait=False).json()["run_id"]
                    seen = one.until("inference_complete", run)
                    numbers = [m["seq"] for m in seen]
                    self.assertEqual(numbers, sorted(set(numbers)))
                    self.assertGreaterEqual(sum(m["type"] == "token_complete" for m in seen),
                                            seen[-1]["summary"]["output_tokens"])
                machine.wait_until(lambda: readers(machine) == 0, "nobody watches")
                self.joined(central, name)
            # An untrusted certificate is refused with the reason, and the server keeps running.
            with harness.Server("--join", url) as machine:
                self.assertIn("certificate", machine.process.stderr.readline())
                self.assertEqual(machine.get("/healthz").status, 200)
            # So is a trusted certificate for another host name.
            with TlsProxy(central.port, "elsewhere.test") as other, \
                    harness.Server("--join", f"https://localhost:{other.port}",
                                   environment={"CURL_CA_BUNDLE": other.certificate}) as machine:
                self.assertRegex(machine.process.stderr.readline(), "localhost.*(match|name)")

    def test_refusals(self):
        with harness.Server() as central:
            with watch(central, "nobody") as s:
                self.assertEqual(s.status, 404)
            with watch(central, "x" * 300) as s:
                self.assertEqual(s.status, 404)
            self.assertEqual(central.get("/ws/join?machine=a").status, 426)
            with harness.Server("--token", "fleet") as closed:
                self.assertEqual(closed.get("/ws/join?machine=a").status, 401)
            self.assertEqual(central.get("/ws/join").status, 400)
            with self.assertRaises(RuntimeError) as refused:
                harness.Server("--join", "https://x?token=1")
            self.assertIn("query", str(refused.exception))

    def test_what_a_joined_machine_sends_is_checked(self):
        """Only complete messages reach watchers, whatever the machine sends."""
        def text(payload):
            return bytes([0x81, 126]) + len(payload).to_bytes(2, "big") + payload
        good = text(b'{"seq":7,"type":"warning","run_id":null,"t_ms":null,"code":"x","text":"good"}')
        with harness.Server() as central:
            for number, bad in enumerate((b"\x81\x05[1,2]", text(b'{"seq":1,"type":"x"'), text(b'{"type":"x"}'),
                                          text(b'{"seq":1,"type":5}'), text(b'{"seq":1,"type":"x","t":"\xff"}'))):
                name = f"machine{number}"
                s = socket.create_connection(("127.0.0.1", central.port))
                s.sendall((f"GET /ws/join?machine={name} HTTP/1.1\r\nHost: {harness.NAME}:{central.port}\r\n"
                           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: cGVyam91bGUtbWFjaGluZQ==\r\n\r\n").encode())
                self.assertIn(b"101", s.recv(1000))
                sockets = []

                def is_watched():
                    sockets.append(watch(central, name))
                    return sockets[-1].status == 101
                central.wait_until(is_watched, "it has joined")
                self.assertEqual(s.recv(100), b"\x81\x05watch")
                self.assertEqual(sockets[-1].message()["type"], "hello")  # from here on it receives everything
                s.sendall(bad + good)
                self.assertEqual((number, sockets[-1].message()["text"]), (number, "good"))
                s.sendall(b"\x01\x00")  # a fragmented frame, which hubs never send
                self.assertEqual(sockets[-1].message()["code"], "machine_away")
                for each in (s, *(reader.s for reader in sockets)):
                    each.close()
            self.assertEqual(central.get("/healthz").status, 200)


beside.main()

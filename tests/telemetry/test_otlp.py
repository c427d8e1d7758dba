#!/usr/bin/env python3
"""OTLP/HTTP: metrics named by the hardware semantic conventions and a span per run and phase reach a collector, also
after it was down; figures agree with the API; unavailable figures are not sent."""
import ctypes.util
import http.server
import json
import os
import threading
import unittest

import beside
import harness

os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "200"
os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer abc,x-tenant=team"


class Collector:
    """A fake collector that accepts documents or fails on demand."""

    def __init__(self, port=0):
        self.documents, self.headers, self.status = [], [], 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append(dict(self.headers))
                if collector.status == 200:
                    collector.documents.append((self.path, json.loads(body)))
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [span for path, d in list(self.documents) if path.endswith("/v1/traces")
                for span in d["resourceSpans"][0]["scopeSpans"][0]["spans"]]

    def metrics(self):
        """The metrics of the last document."""
        last = [d for path, d in list(self.documents) if path.endswith("/v1/metrics")][-1]
        return {m["name"]: m for m in last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}


def attributes(of):
    return {a["key"]: next(iter(a["value"].values())) for a in of["attributes"]}


@unittest.skipUnless(ctypes.util.find_library("curl") or ctypes.util.find_library("curl-gnutls"),
                     "there is no libcurl here")
class Otlp(unittest.TestCase):
    def serve(self, collector, *options, power="sim:seed=3"):
        return harness.Server("--otlp", f"http://127.0.0.1:{collector.port}/", *options, power=power)

    def test_metrics(self):
        with Collector() as collector, self.serve(collector) as server:
            server.wait_until(lambda: any("hw.host.power" in collector.metrics() for _ in collector.documents[:1]),
                              "power")
            metrics = collector.metrics()
            points = metrics["hw.energy"]["sum"]["dataPoints"]
            rails = [k for k in server.get("/metrics").body.decode().splitlines()
                     if k.startswith("perjoule_rail_joules_total{")]
            self.assertEqual(len(points), len(rails))
            self.assertTrue(metrics["hw.energy"]["sum"]["isMonotonic"])
            self.assertEqual(metrics["hw.energy"]["sum"]["aggregationTemporality"], 2)
            self.assertEqual((metrics["hw.energy"]["unit"], metrics["hw.power"]["unit"]), ("J", "W"))
            for point in points:
                self.assertLess(int(point["startTimeUnixNano"]), int(point["timeUnixNano"]))
                self.assertLessEqual({"hw.id", "hw.name", "hw.type", "perjoule.energy.source"}, set(attributes(point)))
            self.assertEqual(len(metrics["hw.host.energy"]["sum"]["dataPoints"]), 1)
            self.assertIn("gauge", metrics["hw.host.power"])
            self.assertEqual(collector.headers[0]["Content-Type"], "application/json")
            self.assertEqual(collector.headers[0]["authorization"], "Bearer abc")
            self.assertEqual(collector.headers[0]["x-tenant"], "team")

    def test_a_span_per_run_and_phase(self):
        with Collector() as collector, self.serve(collector) as server:
            run = server.generate(max_length=16).json()
            server.wait_until(lambda: len(collector.spans()) >= 3, "spans")
            phases = server.get(f"/api/profiling/run/{run['id']}/pipeline").json()["phases"]
            whole, *parts = collector.spans()
            self.assertEqual(len(parts), len(phases))
            self.assertEqual(whole["traceId"], run["id"].replace("-", ""))
            self.assertNotIn("parentSpanId", whole)
            told = attributes(whole)
            self.assertAlmostEqual(told["gen_ai.infrastructure.energy"], run["total_energy_mj"] / 1e3)
            self.assertEqual(int(told["gen_ai.usage.output_tokens"]), run["output_tokens"])
            self.assertEqual(told["gen_ai.request.model"], run["model_name"])
            self.assertEqual(told["perjoule.energy.source"], run["energy_source"])
            for part, phase in zip(parts, phases):
                self.assertEqual((part["parentSpanId"], part["traceId"]), (whole["spanId"], whole["traceId"]))
                self.assertEqual(part["name"], phase["phase"])
                ms = (int(part["endTimeUnixNano"]) - int(part["startTimeUnixNano"])) / 1e6
                self.assertAlmostEqual(ms, phase["duration_ms"], places=3)
                self.assertAlmostEqual(attributes(part)["gen_ai.infrastructure.energy"], phase["energy_mj"] / 1e3)
            ids = [s["spanId"] for s in [whole, *parts]]
            self.assertEqual(len(set(ids)), len(ids))

    def test_other_names(self):
        with Collector() as collector, \
                self.serve(collector, "--otlp-name", "hw.energy=acme.energy", "--otlp-name",
                           "gen_ai.infrastructure.energy=acme.joules") as server:
            server.generate()
            server.wait_until(lambda: collector.spans(), "spans")
            self.assertIn("acme.energy", collector.metrics())
            self.assertNotIn("hw.energy", collector.metrics())
            self.assertIn("acme.joules", attributes(collector.spans()[0]))

    def test_without_sensors_nothing_is_made_up(self):
        with Collector() as collector, self.serve(collector, power="none") as server:
            server.generate()
            server.wait_until(lambda: collector.spans(), "spans")
            self.assertEqual([name for name in collector.metrics() if name.startswith("hw.")], [])
            self.assertNotIn("gen_ai.infrastructure.energy", attributes(collector.spans()[0]))
            self.assertEqual(attributes(collector.spans()[0])["perjoule.energy.source"], "unavailable")

    def test_a_collector_that_is_away(self):
        with Collector() as collector:
            port = collector.port
            with self.serve(collector) as server:
                collector.status = 503
                runs = [server.generate().json()["id"].replace("-", "") for _ in range(2)]
                server.wait_until(lambda: len(collector.headers) > 2, "refused requests")
                collector.status = 200
                server.wait_until(lambda: {s["traceId"] for s in collector.spans()} == set(runs), "spans of both runs",
                                  seconds=90)
                roots = [s["traceId"] for s in collector.spans() if "parentSpanId" not in s]
                self.assertEqual(roots, runs)  # in order, exactly once
                self.assertEqual(server.stop(), 0)
                self.assertIn("telemetry could not be sent", server.errors)
                self.assertEqual(server.port > 0, port > 0)

    def test_what_could_not_be_sent_is_reported(self):
        with Collector() as collector, self.serve(collector) as server:
            collector.status = 503
            server.generate()
            self.assertEqual(server.stop(), 0)
            self.assertIn("telemetry of 1 run was not sent", server.errors)

    def test_bad_options(self):
        for words, said in ((["--otlp", "collector:4318"], "http://"),
                            (["--otlp", "http://127.0.0.1:1", "--otlp-name", "x=y"], "hw.energy"),
                            (["--otlp", "http://127.0.0.1:1", "--otlp-name", "hw.energy="], "OLD=NEW")):
            with self.assertRaises(RuntimeError) as refused:
                harness.Server(*words)
            self.assertIn(said, str(refused.exception))
        for name, value in (("OTEL_METRIC_EXPORT_INTERVAL", "soon"), ("OTEL_METRIC_EXPORT_INTERVAL", "1"),
                            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,secret"), ("OTEL_EXPORTER_OTLP_HEADERS", "=b")):
            with self.assertRaises(RuntimeError) as refused:
                harness.Server("--otlp", "http://127.0.0.1:1", environment={name: value})
            self.assertIn(f"environment's {name}", str(refused.exception))
            self.assertNotIn("secret", str(refused.exception))


beside.main()

"""Answers are compressed for clients that accept it: the same bytes, whole and streamed, and said to caches."""
import gzip
import unittest

import beside
import harness


class Compressed(unittest.TestCase):
    def test_same_bytes_for_whom_asks(self):
        with harness.Server() as server:
            run = server.generate(max_length=48).json()["run_id"]
            for path in (f"/api/profiling/run/{run}/tokens", f"/api/profiling/export/{run}?format=json",
                         f"/api/profiling/export/{run}?format=folded", "/metrics"):
                plain = server.get(path)
                packed = server.get(path, **{"Accept-Encoding": "br;q=0.3, gzip"})
                self.assertNotIn("Content-Encoding", plain.headers, path)
                self.assertEqual(packed.headers["Content-Encoding"], "gzip", path)
                self.assertEqual((plain.headers["Vary"], packed.headers["Vary"]), ("Accept-Encoding",) * 2, path)
                if path != "/metrics":
                    self.assertEqual(gzip.decompress(packed.body), plain.body, path)
                    self.assertLess(3 * len(packed.body), len(plain.body), path)

    def test_left_alone(self):
        with harness.Server() as server:
            run = server.generate(max_length=4).json()["run_id"]
            takes = {"Accept-Encoding": "gzip"}
            csv = server.get(f"/api/profiling/export/{run}?format=csv", **takes)
            self.assertEqual(csv.body[:2], b"PK")
            self.assertNotIn("Content-Encoding", csv.headers)
            missing = server.get("/api/profiling/run/none", **takes)
            self.assertGreaterEqual(missing.status, 400)
            self.assertIn("detail", missing.json())
            for refusal in ("gzip;q=0", "identity, gzip;q=0.5", "deflate"):
                answer = server.get(f"/api/profiling/export/{run}?format=json", **{"Accept-Encoding": refusal})
                self.assertNotIn("Content-Encoding", answer.headers, refusal)
                self.assertEqual(answer.json()["format"], "perjoule-run")
            head = server.ask("HEAD", f"/api/profiling/export/{run}?format=json", headers=takes)
            self.assertEqual((head.status, head.body), (200, b""))


beside.main()

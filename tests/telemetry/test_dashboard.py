#!/usr/bin/env python3
"""The Grafana dashboard against the schema of Grafana's dashboards (version 38 and later), for the panel types used,
and every metric queried by it or by the rules against those the server exposes."""
import json
import re
import unittest

import beside
import harness

DASHBOARD = harness.SOURCE / "packaging/grafana/perjoule.json"
RULES = harness.SOURCE / "packaging/prometheus/perjoule.rules.yml"
COLUMNS = 24  # columns of Grafana's grid

# Field: type, or a tuple of allowed values, or a nested table; "?" marks optional ones.
POINT = {"x": int, "y": int, "w": int, "h": int}
SOURCE = {"type": ("prometheus",), "uid": str}
TARGET = {"datasource": SOURCE, "expr": str, "legendFormat": str, "refId": str, "range": bool, "editorMode": ("code",)}
PANEL = {"id": int, "type": ("timeseries", "stat"), "title": str, "description": str, "datasource": SOURCE,
         "gridPos": POINT, "targets": [TARGET], "fieldConfig": {"defaults": dict, "overrides": list}, "options": dict}
VARIABLE = {"name": str, "label": str, "type": ("query", "datasource"), "hide": (0, 1, 2), "includeAll": bool,
            "multi": bool, "refresh": (0, 1, 2), "regex": str, "skipUrlSync": bool, "options": list, "current": dict,
            "query": (str, dict), "datasource?": SOURCE, "definition?": str, "allValue?": str, "sort?": int}
WHOLE = {"title": str, "uid": str, "description": str, "tags": [str], "schemaVersion": int, "version": int,
         "editable": bool, "graphTooltip": (0, 1, 2), "fiscalYearStartMonth": int, "liveNow": bool, "weekStart": str,
         "timezone": ("", "utc", "browser"), "refresh": str, "style": ("dark", "light"),
         "time": {"from": str, "to": str}, "timepicker": dict, "links": list, "annotations": {"list": list},
         "templating": {"list": [VARIABLE]}, "panels": [PANEL]}
UNITS = {"watt", "joule", "short", "percentunit"}  # Grafana's unit ids


def faults(value, schema, where):
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        names = {name.rstrip("?"): part for name, part in schema.items()}
        found = [f"{where}.{name} is missing" for name in schema if name[-1] != "?" and name not in value]
        found += [f"{where}.{name} is not in the schema" for name in value if name not in names]
        return found + [fault for name in value if name in names
                        for fault in faults(value[name], names[name], f"{where}.{name}")]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{where} is no list, or empty"]
        return [fault for i, item in enumerate(value) for fault in faults(item, schema[0], f"{where}[{i}]")]
    if isinstance(schema, tuple) and not isinstance(schema[0], type):
        return [] if value in schema else [f"{where} is {value!r}, not one of {schema}"]
    wanted = schema if isinstance(schema, tuple) else (schema,)
    good = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
    return [] if good else [f"{where} is {value!r:.40}"]


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(DASHBOARD.read_text())

    def test_follows_the_schema(self):
        self.assertEqual(faults(self.dashboard, WHOLE, "dashboard"), [])
        self.assertGreaterEqual(self.dashboard["schemaVersion"], 38)
        ids = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in self.dashboard["panels"]:
            self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS)
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(refs, [chr(ord("A") + i) for i in range(len(refs))])

    def test_the_schema_refuses(self):
        for change in (lambda d: d.pop("panels"), lambda d: d["panels"][0].pop("gridPos"),
                       lambda d: d["panels"][0].update(type="graph"), lambda d: d.update(schemaVersion="38"),
                       lambda d: d["panels"][0]["targets"][0].update(query="x"), lambda d: d.update(refresh=True)):
            broken = json.loads(DASHBOARD.read_text())
            change(broken)
            self.assertNotEqual(faults(broken, WHOLE, "dashboard"), [])

    def test_panels_do_not_overlap(self):
        taken = set()
        for panel in self.dashboard["panels"]:
            p = panel["gridPos"]
            self.assertLessEqual(p["x"] + p["w"], COLUMNS)
            cells = {(x, y) for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells

    def test_asks_for_what_is_there(self):
        variables = {variable["name"] for variable in self.dashboard["templating"]["list"]}
        texts = [t["expr"] for p in self.dashboard["panels"] for t in p["targets"]]
        for name in re.findall(r"\$\{?(\w+)", DASHBOARD.read_text()):
            self.assertIn(name, variables | {"__rate_interval"})
        asked = set(re.findall(r"\bperjoule_\w+", " ".join(texts) + RULES.read_text()))
        with harness.Server() as server:
            there = set(re.findall(r"^perjoule_\w+", server.get("/metrics").body.decode(), re.M))
        self.assertGreater(len(asked), 8)
        self.assertEqual(asked - there, set())


beside.main()

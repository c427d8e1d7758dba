"""openapi.json against the server: every route and parameter of its table is described, and every response has exactly
the described fields and types; and docs/api.md names every route."""
import re
import subprocess
import unittest

import beside
import harness

TYPES = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}


def is_a(value, name):
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


class Checker:
    def __init__(self, document):
        self.schemas = document["components"]["schemas"]
        self.wrong = []

    def resolve(self, schema):
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
        if "allOf" not in schema:
            return schema
        merged = {"type": "object", "properties": {}, "required": []}
        for part in map(self.resolve, schema["allOf"]):
            merged["properties"] |= part["properties"]
            merged["required"] += part["required"]
        return merged

    def check(self, value, schema, where):
        schema = self.resolve(schema)
        names = schema.get("type", [])
        names = [names] if isinstance(names, str) else names
        if names and not any(is_a(value, n) for n in names):
            self.wrong.append(f"{where} is {value!r:.40}, not {names}")
        elif "enum" in schema and value not in schema["enum"]:
            self.wrong.append(f"{where} is {value!r}, not one of {schema['enum']}")
        elif isinstance(value, list) and "items" in schema:
            for i, item in enumerate(value[:40]):
                self.check(item, schema["items"], f"{where}[{i}]")
        elif isinstance(value, dict) and "properties" in schema:
            self.wrong += [f"{where}.{k} is missing" for k in schema.get("required", []) if k not in value]
            for key, item in value.items():
                if key in schema["properties"]:
                    self.check(item, schema["properties"][key], f"{where}.{key}")
                elif schema is not self.schemas["LiveMessage"]:
                    self.wrong.append(f"{where}.{key} is not described")


class OpenApi(unittest.TestCase):
    def test_every_answer(self):
        for power in ("sim:seed=2", "none"):
            with harness.Server(power=power) as server:
                self.answers(server)

    def answers(self, server):
        document = server.get("/api/openapi.json").json()
        checker = Checker(document)
        runs = [server.generate(**fields).json() for fields in (
            dict(profiling_depth="deep", tags=["a", "session=task", "commit=1111aaaa"]), dict(batch_size=2), dict(profiling_depth="off"))]
        ids = ",".join(r["id"] for r in runs)
        subprocess.run([harness.PROGRAM, "experiment", "--models", str(harness.MODELS / "demo"), "--outputs", "2",
                        "--batches", "1,2", "--repeat", "2", "--power", "none", "--name", "sweep", "--db", server.db],
                       check=True, capture_output=True)
        for path, operations in document["paths"].items():
            get = operations.get("get")
            schema = get and get["responses"].get("200", {}).get("content", {}).get("application/json", {}) \
                .get("schema")
            if not schema:
                continue
            path = path.replace("experiments/{id}", "experiments/sweep")
            for run in runs if "{id}" in path else runs[:1]:
                for query in self.queries(get, ids):
                    answer = server.get(path.replace("{id}", run["id"]) + query)
                    self.assertEqual(answer.status, 200, (path, query, answer.body))
                    checker.check(answer.json(), schema, path + query)
        generated = document["components"]["schemas"]["Generated"]
        for run in runs:
            checker.check(run, generated, "generate")
        checker.check(server.generate(wait=False).json(), {"$ref": "#/components/schemas/Queued"}, "queued")
        checker.check(server.get("/api/x").json(), {"$ref": "#/components/schemas/Problem"}, "problem")
        self.assertFalse(checker.wrong, "\n".join(checker.wrong[:20]))

    @staticmethod
    def queries(get, ids):
        """No parameters, then every choice of every single parameter."""
        names = {p["name"]: p["schema"] for p in get.get("parameters", []) if p["in"] == "query"}
        if "ids" in names:
            return [f"?ids={ids}"]
        if {"a", "b"} <= set(names):
            first, rest = ids.split(",", 1)
            return [f"?a={first}&b={rest.split(',')[0]}", f"?a={rest}&b={first}"]
        if "input" in names:
            return ["?input=8&output=8", "?model=synthetic:smollm2-135m,layers=2&input=8&output=8&batch=2&dtype=q8_0"]
        if "by" in names and "enum" not in names["by"]:
            return ["?by=dtype", "?by=batch&disturbed=keep", "?by=tag"]
        return [""] + [f"?{name}={value}" for name, schema in names.items()
                       for value in schema.get("enum", [])[:9] if value != "f32"]

    def test_every_route_is_described(self):
        table = (harness.SOURCE / "src/net/routes.c").read_text()
        text = (harness.SOURCE / "docs/api.md").read_text()
        with harness.Server(power="none") as server:
            paths = server.get("/api/openapi.json").json()["paths"]
        routes = {(m.lower(), ("/api/profiling/" if api else "") + p) for m, api, p in
                  re.findall(r'\{"(GET|POST|PATCH|DELETE)",\s+(API )?"([^"]+)"', table)}
        self.assertGreater(len(routes), 20)
        self.assertEqual(routes, {(m, p) for p, operations in paths.items() for m in operations})
        for _, path in routes:
            short = path.removeprefix("/api/profiling/run/{id}") if "{id}/" in path else path
            self.assertTrue(short in text, f"docs/api.md does not name {path}")
        rules = dict(re.findall(r"pj_param_rule (\w+)_rules\[\] = \{(.*?)\{0\}\}", table, re.S))
        described = {p["name"] for o in paths.values() for x in o.values() for p in x.get("parameters", [])
                     if p["in"] == "query"}
        checked = set(re.findall(r'\{"(\w+)"|COUNT\("(\w+)"', " ".join(rules.values())))
        checked = {a or b for a, b in checked} | {"usd_per_kwh", "g_per_kwh", "phase", "disturbances"}
        self.assertEqual(described, checked)


beside.main()

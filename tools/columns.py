#!/usr/bin/env python3
"""Copies the columns of stored rows (src/store/rows.c) into files that are not C: the schema of an exported run, the
description of the API, and the page's type of a run; names what the API's document lacks. Descriptions and choices that a file adds to a column are kept.
Usage: columns.py ROOT [--write]; without --write it only reports stale files.
"""
import json
import pathlib
import re
import sys

ROWS_FILE = "src/store/rows.c"
EXPORT_FILE = "docs/schema/run-export.schema.json"
API_FILE = "src/net/openapi.json"
PAGE_FILE = "ui/src/api/columns.ts"
DOCUMENT = "docs/api.md"
# Which it describes in one sentence for all.
DEVIATION = re.compile(r"_sd(_random|_bias|_gain)?_mj$")
STATISTIC = re.compile(r'^ {4}X\(\w+, \w+, (FLOAT|U32), "(\w+)"', re.M)
NUMBER, INTEGER, TEXT = ["number", "null"], ["integer", "null"], ["string", "null"]
TYPES = {"TEXT": TEXT, "LIST": TEXT, "JSON": ["object", "null"], "EXTRAS": ["object", "null"], "DOUBLE": NUMBER,
         "FLOAT": NUMBER, "NJ": NUMBER, "NS": NUMBER, "SOME": NUMBER, "SOME_NJ": NUMBER, "STAT_FLOAT": NUMBER, "I64": "integer", "U64": "integer",
         "U32": "integer", "U16": "integer", "COUNT": INTEGER, "COUNT64": INTEGER, "I32": INTEGER, "STAT_U32": INTEGER,
         "REFERENCE": INTEGER, "BOOL": "boolean", "NAME": "string", "ARRAY": "string"}
# Which schemas of the API are rows, and what their columns are called there (views_run.c).
ROW_SCHEMAS = {"run_rails": "RailRow", "power_samples": "PowerSampleRow", "run_rail_energy": "RailEnergyRow",
               "run_classes": "ClassRow", "tokens": "StoredToken", "pipeline_sections": "StoredSection",
               "layer_metrics": "StoredLayer", "component_metrics": "StoredComponent",
               "deep_operation_metrics": "StoredOperation", "run_warnings": "WarningRow"}
WITHOUT_ID = {"run_rails", "run_rail_energy", "run_classes", "run_warnings"}
RENAMED = {("run_rails", "rail_index"): ("index", "integer"), ("run_rails", "rail_name"): ("name", "string"),
           ("run_rails", "rail_class"): ("class", "string"), ("run_rails", "parent_index"): ("parent", TEXT),
           ("run_rail_energy", "rail_index"): ("rail", "string"), ("run_classes", "class_name"): ("name", TEXT)}
# What an exported run and its rows have besides columns.
ID = {"type": "integer", "minimum": 0}
BESIDE_RUN = {"id": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
              "created_at": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
              "output_text": {"type": TEXT}, "machine_info": {"type": ["object", "null"]}}
# In exports of long runs, instead of rows; described in docs/formats.md.
BLOCK = {"type": "object", "properties": {"rows": {"type": "integer", "minimum": 1}}, "required": ["rows"]}
BESIDE_RAILS = {"power_mw": {"type": ["array", "null"], "items": {"type": NUMBER}}}


# ---- rows.c -------------------------------------------------------------------------------------

class Column:
    def __init__(self, name, kind, names=None, shown=None):
        self.name, self.kind, self.names, self.shown = name, kind, names, shown


def calls(text):
    """(name, arguments) of the macro calls in a text, in order."""
    for match in re.finditer(r"\b([A-Z_]+)\(", text):
        if match.start() < getattr(calls, "end", 0) and calls.text is text:
            continue
        depth, begin, arguments, quoted = 1, match.end(), [], False
        for at in range(match.end(), len(text)):
            c = text[at]
            if c == '"':
                quoted = not quoted
            elif not quoted and c == "(":
                depth += 1
            elif not quoted and (c == ")" or c == "," and depth == 1):
                depth -= c == ")"
                if depth <= 1 and (c == "," or depth == 0):
                    arguments.append(text[begin:at].strip())
                    begin = at + 1
                if depth == 0:
                    calls.text, calls.end = text, at
                    break
        yield match[1], arguments


def literal(text):
    """The value of string literals side by side; None: NULL."""
    return None if text == "NULL" else "".join(re.findall(r'"([^"]*)"', text))


def columns_of(text, macros, statistics):
    for name, a in calls(text):
        if name in ("COLUMN", "ARRAY"):
            yield Column(literal(a[0]), "ARRAY" if name == "ARRAY" else a[1])
        elif name in ("REFERENCE", "OWNER"):
            yield Column(literal(a[0]), "REFERENCE")
        elif name == "NAMED":
            yield Column(literal(a[0]), "NAME", a[1])
        elif name == "SHOWN":
            yield Column(literal(a[1]), a[2], shown=literal(a[0]))
        elif name == "NEEDED":
            yield Column(literal(a[1]), a[2], a[3].removeprefix("PJ_NAMES_"), literal(a[0]))
        elif name == "STATS":
            prefix = "activation_" if a[1] == "PJ_ACTIVATION" else "tensor_"
            for kind, statistic in statistics:
                yield Column((prefix if kind == "FLOAT" else "") + statistic, "STAT_" + kind)
        elif name in macros:
            parameters, body = macros[name]
            for parameter, argument in zip(parameters, a):
                body = re.sub(rf"\b{parameter}\b(?![^\"]*\"(?:[^\"]*\"[^\"]*\")*[^\"]*$)",
                              lambda m, argument=argument: argument, body)
            yield from columns_of(body, macros, statistics)


def tables(root):
    """{table: [Column]} in the order of the list of tables, the runs' first."""
    text = re.sub(r"/\*.*?\*/", "", (root / ROWS_FILE).read_text(), flags=re.S)
    statistics = STATISTIC.findall((root / "src/trace/statistics.h").read_text())
    macros = {m[1]: (re.findall(r"\w+", m[2]), re.sub(r"\\\n", " ", m[3]))
              for m in re.finditer(r"#define (\w+)\(([^)]*)\)((?:[^\n]*\\\n)*[^\n]*)\n", text)}
    arrays = {m[1]: list(columns_of(m[2], macros, statistics))
              for m in re.finditer(r"pj_column (\w+)\[\] = \{(.*?)\n\};", text, re.S)}
    found = {"profiling_runs": arrays["run_columns"]}
    for m in re.finditer(r'=\s*TABLE(?:_STATS)?\(\s*"(\w+)",\s*(\w+)', text):
        found[m[1]] = arrays[m[2]]
    return found


def choices(root):
    """{names: values} of the enumerations that are closed."""
    text = (root / "src/trace/names.c").read_text()
    found = {m[1]: re.findall(r'"(\w*)"', m[2]) for m in re.finditer(r"(\w+)_names\[\] = \{(.*?)\};", text, re.S)}
    phases = re.findall(r'X\(\w+, "(\w+)"\)', (root / "src/trace/phases.h").read_text())
    absence = [None] + found["absence"][1:]
    return {"PHASE": phases + ["run"], "ABSENCE": absence, "STATUS": found["status"],
            "DEPTH": found["depth"], "QUALITY": found["quality"]}


# ---- schemas ------------------------------------------------------------------------------------

def described(column, enums, before):
    """The schema of a column, with what the file says of it besides its type."""
    if "$ref" in before:
        return before
    made = {"type": TYPES[column.kind]}
    if column.kind == "NAME" and column.names in enums:
        values = enums[column.names]
        made = {"type": TEXT if None in values else "string", "enum": values}
    elif "enum" in before and made["type"] == TEXT:
        made["enum"] = before["enum"]
    return made | {k: v for k, v in before.items() if k == "description"}


def an_object(properties, closed=False):
    made = {"type": "object", "properties": properties, "required": list(properties)}
    return made | {"additionalProperties": False} if closed else made


IN_BLOCKS = {"power_samples", "layer_metrics", "component_metrics", "deep_operation_metrics"}  # of a long run


def export_schema(found, enums, before):
    def of(name, beside, old):
        return an_object(beside | {c.name: described(c, enums, old.get(c.name, {})) for c in found[name]}, True)
    properties = {k: before["properties"][k] for k in ("format", "version", "generator")}
    properties["profiling_run"] = of("profiling_runs", BESIDE_RUN, before["properties"]["profiling_run"]["properties"])
    for name in list(found)[1:]:
        old = before["properties"].get(name, {"items": {"properties": {}}})["items"]
        old = old.get("anyOf", [old])[0]["properties"]
        items = of(name, {"id": ID} | (BESIDE_RAILS if name == "run_rails" else {}), old)
        if name in IN_BLOCKS:
            items = {"anyOf": [items, {"$ref": "#/$defs/block"}]}
        properties[name] = {"type": "array", "items": items}
    properties["version"] = {"enum": [1, 2]}
    return before | {"properties": properties, "$defs": {"block": BLOCK}, "required": [k for k in properties if k != "generator"]}


def run_schema(found, enums, before):
    """The columns of a run as its summary shows them, some of them in objects of their own."""
    properties, inside = {}, {}
    shown = enums | {"STATUS": ["queued"] + enums["STATUS"]}
    old = before.get("properties", {})
    for c in found["profiling_runs"]:
        path = c.name if c.shown is None else c.shown
        if "." in path:
            group, name = path.split(".")
            inside.setdefault(group, {})[name] = described(c, shown, old.get(group, {}).get("properties", {}).get(name, {}))
        elif path:
            properties[path] = described(c, shown, old.get(path, {}))
            if c.kind == "LIST":
                properties[path] |= {"type": "array", "items": {"type": "string"}}
    return an_object(properties | {group: an_object(members) for group, members in inside.items()})


def row_schema(name, columns, enums, before):
    properties = {} if name in WITHOUT_ID else {"id": {"type": "integer"}}
    for c in columns:
        shown, kind = RENAMED.get((name, c.name), (c.name, None))
        properties[shown] = {"type": kind} if kind else described(c, enums, before.get("properties", {}).get(shown, {}))
    return an_object(properties)


def api_schemas(found, enums, before):
    schemas = before["components"]["schemas"]
    schemas["RunColumns"] = run_schema(found, enums, schemas.get("RunColumns", {}))
    for name, schema in ROW_SCHEMAS.items():
        schemas[schema] = row_schema(name, found[name], enums, schemas.get(schema, {}))
    return before


WIDTH = 118


def write(value, indent=0):
    """JSON with what fits on a line on one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, list) and not any(isinstance(v, (dict, list)) for v in value):
        lines = [""]
        for item in (json.dumps(v, ensure_ascii=False) for v in value):
            if len(inner + lines[-1] + item) + 2 > WIDTH:
                lines.append("")
            lines[-1] += (" " if lines[-1] else "") + item + ","
        return "[\n" + "\n".join(inner + line for line in lines)[:-1] + "\n" + " " * indent + "]"
    if isinstance(value, list):
        parts, marks = [write(v, indent + 1) for v in value], "[]"
    else:
        parts = []
        for key, v in value.items():
            head = json.dumps(key, ensure_ascii=False) + ": "
            fits = len(inner + head + json.dumps(v, ensure_ascii=False)) + 1 <= WIDTH
            parts.append(head + (json.dumps(v, ensure_ascii=False) if fits else write(v, indent + 1)))
        marks = "{}"
    return marks[0] + "\n" + ",\n".join(inner + p for p in parts) + "\n" + " " * indent + marks[1]


# ---- the page -----------------------------------------------------------------------------------

WORDS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null",
         "object": "Record<string, unknown>"}


def type_of(schema, indent):
    if "$ref" in schema:
        return "Record<string, unknown> | null"
    if "enum" in schema:
        return " | ".join("null" if v is None else f"'{v}'" for v in schema["enum"])
    if "properties" in schema:
        return "{\n" + members(schema, indent + "  ") + indent + "}"
    if schema["type"] == "array":
        return f"{type_of(schema['items'], indent)}[]"
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " | ".join(WORDS[n] for n in names)


def members(schema, indent):
    lines = []
    for name, of in schema["properties"].items():
        if "description" in of:
            lines.append(f"{indent}/** {of['description']} */")
        lines.append(f"{indent}{name}: {type_of(of, indent)};")
    return "\n".join(lines) + "\n"


def nothing(schema, indent="  "):
    """A value of the type that says as little as possible."""
    if "properties" in schema:
        inside = "".join(f"{indent}  {k}: {nothing(v)},\n" for k, v in schema["properties"].items())
        return "{\n" + inside + indent + "}"
    names = schema.get("type", "null")
    if "null" in names:
        return "null"
    if "enum" in schema:
        return f"'{schema['enum'][0]}'"
    return {"array": "[]", "boolean": "false", "integer": "0", "number": "0", "string": "''"}[names]


def page(schema):
    values = "\n".join(f"  {k}: {nothing(v)}," for k, v in schema["properties"].items())
    return f"""// Made by tools/columns.py from src/store/rows.c: change it there. Descriptions come from src/net/openapi.json.

/** The columns of a run, as its summary shows them. null means "unavailable" and stays null. */
export interface RunColumns {{
{members(schema, "  ")}}}

/** A run of which nothing is known. */
export const NO_COLUMNS: RunColumns = {{
{values}
}};
"""


# ---- the document -------------------------------------------------------------------------------

def undocumented(text, schema):
    """Names of a run's summary that its section of the document does not have."""
    section = text[text.index("### Run summary"):]
    section = section[:section.index("\n### ", 1)]
    names = [n for k, v in schema["properties"].items() for n in [k, *v.get("properties", {})]]
    return [n for n in names if f"`{n}`" not in section and not DEVIATION.search(n)]


def main():
    root, writes = pathlib.Path(sys.argv[1]), "--write" in sys.argv[2:]
    found, enums = tables(root), choices(root)
    if len(found) != 13 or not all(len(columns) > 2 for columns in found.values()):
        sys.exit(f"{ROWS_FILE}: the tables were not understood")
    api = api_schemas(found, enums, json.loads((root / API_FILE).read_text()))
    export = export_schema(found, enums, json.loads((root / EXPORT_FILE).read_text()))
    run = api["components"]["schemas"]["RunColumns"]
    wanted = {API_FILE: write(api) + "\n", EXPORT_FILE: write(export) + "\n", PAGE_FILE: page(run)}
    missing = undocumented((root / DOCUMENT).read_text(), run)
    stale = [name for name, text in wanted.items()
             if not (root / name).exists() or (root / name).read_text() != text]
    for name in stale:
        if writes:
            (root / name).write_text(wanted[name])
        print(f"{name}: {'written' if writes else 'stale, run tools/columns.py . --write'}")
    for name in missing:
        print(f"{DOCUMENT}: the run summary lacks `{name}`")
    if not stale and not missing:
        print(f"columns: {sum(map(len, found.values()))} of {len(found)} tables, the same everywhere")
    return 1 if missing or stale and not writes else 0


sys.exit(main())

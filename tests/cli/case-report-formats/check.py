"""Checks the reports of this case in the current folder."""
import json
import math
import os
import pathlib
import re
import runpy


def load(name):
    return json.loads(pathlib.Path(name).read_text())


def validate(name, schema, base):
    import jsonschema
    text = {path.name: json.loads(path.read_text()) for path in pathlib.Path(base).glob("*.json")}
    resolver = jsonschema.RefResolver(text[schema].get("$id", ""), text[schema],
                                      store={t["$id"]: t for t in text.values() if "$id" in t})
    kind = jsonschema.validators.validator_for(text[schema])
    kind(text[schema], resolver=resolver).validate(load(name))


# names, types and enumerations of all, and that a misspelt or missing one is noticed
shapes = runpy.run_path(str(pathlib.Path(__file__).with_name("shapes.py")))
for name in ("cyclonedx", "spdx", "sci", "eu", "inferencex"):
    for find in ("wrong", "missed"):
        assert not shapes[find](load(name + ".json"), shapes[name]), shapes[find](load(name + ".json"), shapes[name])
    example = pathlib.Path(__file__).parents[3] / "docs" / "reports" / (name + ".json")
    assert not shapes["wrong"](load(example), shapes[name]), (example, shapes["wrong"](load(example), shapes[name]))
assert not shapes["wrong"](load("given.json"), shapes["sci"])


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-5)


runs = {r["id"]: r for r in load("runs.json")}
q8 = next(r for r in runs.values() if r["dtype"] == "q8_0")
bf16 = [r for r in runs.values() if r["dtype"] == "bf16" and r["request_energy_mj"] is not None]
# means of runs are geometric, as in comparisons
joules = [math.prod(r["request_energy_mj"] for r in bf16) ** (1 / len(bf16)) / 1e3, q8["request_energy_mj"] / 1e3]
dtypes = ["bf16", "q8_0"]


def order(texts):
    """Measurements are in the order of the runs given."""
    return [0 if "bf16" in t else 1 for t in texts]


bom = load("cyclonedx.json")
assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.7", 1)
assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", bom["serialNumber"])
assert bom["metadata"]["tools"]["components"][0]["name"] == "perjoule"
(model,) = bom["components"]
assert model["type"] == "machine-learning-model" and model["name"] == "demo"
entries = model["modelCard"]["considerations"]["environmentalConsiderations"]["energyConsumptions"]
facts = [{p["name"]: p["value"] for p in e["properties"]} for e in entries]
assert len(entries) == 2 and all(isinstance(v, str) for f in facts for v in f.values())
for entry, fact, i in zip(entries, facts, order(f["perjoule:functional_unit"] for f in facts)):
    assert set(entry) == {"activity", "energyProviders", "activityEnergyCost", "co2CostEquivalent", "properties"}
    assert entry["activity"] == "inference" and entry["activityEnergyCost"]["unit"] == "kWh"
    assert close(entry["activityEnergyCost"]["value"], joules[i] / 3.6e6)
    assert entry["co2CostEquivalent"]["unit"] == "tCO2eq"
    assert close(entry["co2CostEquivalent"]["value"], joules[i] / 3.6e6 * 400 / 1e6)
    (provider,) = entry["energyProviders"]
    assert provider["energySource"] == "unknown" and provider["organization"] == {"name": "unknown"}
    assert provider["energyProvided"] == entry["activityEnergyCost"]
    assert float(fact["perjoule:joules_lo_95"]) < joules[i] < float(fact["perjoule:joules_hi_95"])
    assert fact["perjoule:pue"] == "unknown" and fact["perjoule:energy_source"] == "modelled"
    assert "without loading the model" in fact["perjoule:boundary"]

names = ["functional_unit", "boundary", "energy_source", "runs", "joules", "joules_lo_95", "joules_hi_95",
         "joules_per_token", "joules_per_token_lo_95", "joules_per_token_hi_95", "seconds",
         "disturbed_share", "engine", "machine", "pue", "g_co2eq_per_kwh", "embodied"]
names = ["perjoule:" + name for name in names]
assert all(list(fact) == names for fact in facts)
for fact, i in zip(facts, order(f["perjoule:functional_unit"] for f in facts)):
    per_token = [float(fact["perjoule:joules_per_token" + end]) for end in ("_lo_95", "", "_hi_95")]
    assert sorted(per_token) == per_token and close(per_token[1], joules[i] / 8)
    assert fact["perjoule:runs"] == str([len(bf16), 1][i]) and fact["perjoule:g_co2eq_per_kwh"] == "400"

spdx = load("spdx.json")
assert spdx["@context"] == "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"
graph = {e["type"]: e for e in spdx["@graph"]}
assert set(graph) == {"CreationInfo", "SoftwareAgent", "SpdxDocument", "ai_AIPackage"}
assert graph["CreationInfo"]["specVersion"] == "3.0.1"
assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", graph["CreationInfo"]["created"])
assert graph["CreationInfo"]["createdBy"] == [graph["SoftwareAgent"]["spdxId"]]
assert all(e["creationInfo"] == "_:creationinfo" for e in spdx["@graph"][1:])
package = graph["ai_AIPackage"]
assert graph["SpdxDocument"]["rootElement"] == [package["spdxId"]]
assert graph["SpdxDocument"]["element"] == [package["spdxId"]]
assert graph["SpdxDocument"]["profileConformance"] == ["core"] and spdx["@graph"][0]["@id"] == "_:creationinfo"
assert len({e["spdxId"] for e in spdx["@graph"][1:]}) == 3
assert package["software_primaryPurpose"] == "model" and package["name"] == "demo"
metrics = package["ai_metric"]
assert all(list(m) == ["type", "key", "value"] and m["type"] == "DictionaryEntry" for m in metrics)
assert [m["key"] for m in metrics] == names * 2
assert sorted(m["value"] for m in metrics) == sorted(v for fact in facts for v in fact.values())
assert package["ai_energyConsumption"]["type"] == "ai_EnergyConsumption"
energies = package["ai_energyConsumption"]["ai_inferenceEnergyConsumption"]
assert len(energies) == 2 and all(e["type"] == "ai_EnergyConsumptionDescription" for e in energies)
assert all(re.fullmatch(r"[0-9]+\.[0-9]*", e["ai_energyQuantity"]) and e["ai_energyUnit"] == "kilowattHour"
           for e in energies)
assert close(sorted(float(e["ai_energyQuantity"]) for e in energies)[0], min(joules) / 3.6e6)

sci = load("sci.json")["scores"]
for score, i in zip(sci, order(s["task"] for s in sci)):
    assert score["functional_unit"] == "output token" and score["pue"] is None
    assert score["m_g"] is score["sci_g"] is score["m_terms"]["te_kg"] is None
    assert score["e_kwh_lo"] < score["e_kwh"] < score["e_kwh_hi"] and score["i_source"].startswith("default")
    assert close(score["e_kwh"], joules[i] / 8 / 3.6e6) and score["i_g_per_kwh"] == 400
    assert all(close(score["o_g" + end], score["e_kwh" + end] * 400) for end in ("_lo", "", "_hi"))
    assert score["sci_g_lo"] is score["sci_g_hi"] is score["m_terms"]["el_years"] is score["m_terms"]["rr_of_tor"] is None
    assert score["energy_source"] == "modelled" and "PUE unknown" in score["boundary"] and score["runs"] == [2, 1][i]
(given,) = load("given.json")["scores"]
e = q8["request_energy_mj"] / 1e3 / 8 / 3.6e6 * 1.5
m = 1500e3 * q8["request_duration_ms"] / 1e3 / (4 * 365.25 * 86400) / 8
assert close(given["e_kwh"], e) and close(given["m_g"], m) and close(given["sci_g"], e * 300 + m), given
assert given["i_source"] == "given" and given["pue"] == 1.5
assert given["m_terms"]["te_kg"] == 1500 and given["m_terms"]["el_years"] == 4 and given["m_terms"]["rr_of_tor"] == 1
assert close(given["m_terms"]["tir_s"], q8["request_duration_ms"] / 1e3 / 8)
assert given["sci_g_lo"] < given["sci_g"] < given["sci_g_hi"]

eu = load("eu.json")
assert eu["training"] is None and len(eu["inference"]) == 2
for entry, i in zip(eu["inference"], order(s["task"] for s in eu["inference"])):
    assert close(entry["energy_kwh"], float(f"{joules[i] / 8 * 1e5 / 3.6e6:.1e}"))
    assert entry["computational_task"].startswith("generating 100000 tokens") and entry["hardware"]
    assert entry["energy_kwh_lo"] <= entry["energy_kwh"] <= entry["energy_kwh_hi"] and entry["pue"] is None
    assert all(v == float(f"{v:.1e}") for v in (entry["energy_kwh_lo"], entry["energy_kwh_hi"], entry["parameters"]))
    assert entry["energy_source"] == "modelled" and entry["parameters"] > 1e6 and entry["runs"] == [2, 1][i]
    assert entry["computation_basis"] == "counted"
    assert entry["computation_flops"] == float(f"{entry['computation_flops']:.1e}") > 1e9

for row, i in zip(load("inferencex.json"), order(r["precision"] for r in load("inferencex.json"))):
    assert (row["isl"], row["osl"], row["conc"]) == (q8["input_tokens"], 8, 1)
    assert row["power_valid"] == 0 and row["total_gpu_energy_j"] is None and row["power_metric_schema_version"] == 2
    assert row["power_invalid_reasons"] == [["no_gpu_sensor"], ["gpu_energy_not_measured"]][i]
    gpu = ["avg_power_w", "avg_total_gpu_power_w", "joules_per_successful_query", "joules_per_input_token",
           "joules_per_output_token", "joules_per_total_token"]
    assert all(row[name] is None for name in gpu) and row["num_gpus"] == [0, 1][i]
    own = row["perjoule"]
    assert close(own["joules_per_request"], joules[i]) and close(own["joules_per_token"], joules[i] / 8)
    for name in ("joules_per_request", "joules_per_token"):
        assert own[name + "_lo"] < own[name] < own[name + "_hi"]
    assert own["energy_source"] == "modelled" and own["pue"] is None and own["runs"] == [2, 1][i]

if os.environ.get("SCHEMAS"):
    validate("cyclonedx.json", "bom-1.7.schema.json", os.environ["SCHEMAS"])
    validate("spdx.json", "schema-v3.0.1.json", os.environ["SCHEMAS"])
print("reports are as they should be")

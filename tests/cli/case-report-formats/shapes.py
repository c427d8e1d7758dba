"""The published rules of the formats, as far as reports use them: names, types, enumerations, what is required.

A shape is a type, a pattern that a text matches, a set of values, a list with the shape of every item, or a dictionary
of members; "name?" need not be there. What no shape names is refused, as the published schemas refuse it.
"""
import copy
import re

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
number = (int, float)
maybe = (int, float, type(None))


def wrong(value, shape, at="$"):
    """What is wrong with a value, or None."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{at} is no object"
        required = [name for name in shape if not name.endswith("?")]
        names = {name.rstrip("?"): of for name, of in shape.items()}
        for name in required:
            if name not in value:
                return f"{at} lacks {name}"
        for name in value:
            if name not in names:
                return f"{at}.{name} is unknown"
        return next(filter(None, (wrong(v, names[k], f"{at}.{k}") for k, v in value.items())), None)
    if isinstance(shape, list):
        if not isinstance(value, list) or not value:
            return f"{at} is no list with items"
        return next(filter(None, (wrong(v, shape[0], f"{at}[{i}]") for i, v in enumerate(value))), None)
    if isinstance(shape, set):
        return None if isinstance(value, str) and value in shape else f"{at} is {value!r}, not one of {sorted(shape)}"
    if isinstance(shape, str):
        return None if isinstance(value, str) and re.fullmatch(shape, value) else f"{at} is {value!r}, not {shape}"
    if callable(shape) and not isinstance(shape, type):
        return shape(value, at)
    return None if isinstance(value, shape) and not isinstance(value, bool) else f"{at} is {value!r}"


# ---- CycloneDX 1.7 ----

pairs = [{"name": str, "value": str}]
kwh = {"value": number, "unit": {"kWh"}}
co2 = {"value": number, "unit": {"tCO2eq"}}
provider = {"organization": {"name": str},
            "energySource": {"coal", "oil", "natural-gas", "nuclear", "wind", "solar", "geothermal", "hydropower",
                             "biofuel", "unknown", "other"},
            "energyProvided": kwh}
consumption = {"activity": {"design", "data-collection", "data-preparation", "training", "fine-tuning", "validation",
                            "deployment", "inference", "other"},
               "energyProviders": [provider], "activityEnergyCost": kwh, "co2CostEquivalent?": co2,
               "properties?": pairs}
cyclonedx = {"bomFormat": {"CycloneDX"}, "specVersion": {"1.7"}, "serialNumber": "urn:uuid:" + UUID, "version": int,
             "metadata": {"timestamp": TIME,
                          "tools": {"components": [{"type": {"application"}, "name": str, "version": str}]}},
             "components": [{"type": {"machine-learning-model"}, "bom-ref": str, "name": str,
                             "modelCard": {"considerations": {
                                 "environmentalConsiderations": {"energyConsumptions": [consumption]}}}}]}

# ---- SPDX 3.0.1, as JSON-LD ----

IRI = "urn:uuid:" + UUID + "#.+"
DECIMAL = r"\d+\.\d+"
common = {"spdxId": IRI, "creationInfo": "_:creationinfo"}
energy = {"type": {"ai_EnergyConsumptionDescription"}, "ai_energyQuantity": DECIMAL,
          "ai_energyUnit": {"kilowattHour", "megajoule", "other"}}
elements = {
    "CreationInfo": {"type": str, "@id": "_:creationinfo", "specVersion": r"3\.0\.1", "created": TIME,
                     "createdBy": [IRI]},
    "SoftwareAgent": {"type": str, **common, "name": str},
    "SpdxDocument": {"type": str, **common, "rootElement": [IRI], "element": [IRI],
                     "profileConformance": [{"core", "software", "ai", "dataset", "security", "build", "lite",
                                             "simpleLicensing", "expandedLicensing", "extension"}]},
    "ai_AIPackage": {"type": str, **common, "name": str, "comment": str, "software_primaryPurpose": {"model"},
                     "ai_energyConsumption": {"type": {"ai_EnergyConsumption"},
                                              "ai_inferenceEnergyConsumption": [energy]},
                     "ai_metric": [{"type": {"DictionaryEntry"}, "key": str, "value": str}]}}


def element(value, at):
    of = elements.get(value.get("type")) if isinstance(value, dict) else None
    return wrong(value, of, at) if of else f"{at} is of no known type"


spdx = {"@context": r"https://spdx\.org/rdf/3\.0\.1/spdx-context\.jsonld", "@graph": [element]}

# ---- formats without a published schema: names and types, as the documents have them ----

source = {"measured", "modelled"}
stated = {"boundary": str, "energy_source": source, "runs": int, "hardware": str, "engine": str}
sci = {"standard": "ISO/IEC 21031:2024, .*", "formula": r"SCI = .*", "created": TIME, "generator": "perjoule .*",
       "scores": [{"model": str, "functional_unit": {"output token"}, "task": str, **stated,
                   "e_kwh": number, "e_kwh_lo": number, "e_kwh_hi": number, "pue": maybe, "i_g_per_kwh": number,
                   "i_source": str, "o_g": number, "o_g_lo": number, "o_g_hi": number, "m_g": maybe,
                   "m_terms": {"te_kg": maybe, "tir_s": number, "el_years": maybe, "rr_of_tor": maybe},
                   "sci_g": maybe, "sci_g_lo": maybe, "sci_g_hi": maybe}]}
eu = {"form": "Model Documentation Form .*", "created": TIME, "generator": "perjoule .*", "precision": str,
      "training": type(None),
      "inference": [{"model_name": str, "parameters": maybe, "computational_task": "generating 100000 tokens .*",
                     "computation_flops": maybe, "computation_basis": (str, type(None)), "energy_kwh": number,
                     "energy_kwh_lo": number, "energy_kwh_hi": number, "pue": maybe, "task": str, **stated}]}
inferencex = [{"model": str, "hardware": str, "framework": str, "precision": (str, type(None)), "isl": int, "osl": int, "conc": int,
               "num_gpus": int, "power_metric_schema_version": int, "power_valid": int, "power_invalid_reasons": [str],
               "avg_power_w": maybe, "avg_total_gpu_power_w": maybe, "total_gpu_energy_j": maybe,
               "joules_per_successful_query": maybe, "joules_per_input_token": maybe, "joules_per_output_token": maybe,
               "joules_per_total_token": maybe,
               "perjoule": {"task": str, **stated, "pue": maybe, "joules_per_token": number,
                            "joules_per_token_lo": number, "joules_per_token_hi": number,
                            "joules_per_request": number, "joules_per_request_lo": number,
                            "joules_per_request_hi": number}}]


# ---- the rules themselves ----

def damaged(value):
    """Copies with one member misspelt, gone or of another type, and how; of items with equal members, of one."""
    if isinstance(value, list) and value:
        kinds = {tuple(item) if isinstance(item, dict) else None: i for i, item in enumerate(value)}
        for i in kinds.values():
            for item, how in damaged(value[i]):
                yield [*value[:i], item, *value[i + 1:]], how
        yield [], "no items"
    elif isinstance(value, dict):
        for name in value:
            for item, how in damaged(value[name]):
                yield {**value, name: item}, f"{name}: {how}"
            misspelt = copy.deepcopy(value)
            misspelt[name + "s"] = misspelt.pop(name)
            yield misspelt, f"{name} misspelt"
            yield {**value, name: True}, f"{name} of another type"
            yield {k: v for k, v in value.items() if k != name}, f"{name} gone"


def missed(report, shape):
    """The damages that the shape lets pass; what is optional may be gone."""
    return [how for bad, how in damaged(report) if not wrong(bad, shape) and how.split(": ")[-1] not in MAY_BE_GONE]


MAY_BE_GONE = {"co2CostEquivalent gone", "properties gone"}

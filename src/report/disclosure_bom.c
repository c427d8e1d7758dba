/* Bills of materials: CycloneDX 1.7 and SPDX 3.0.1. */
#include "report/disclosure_forms.h"

#include <math.h>
#include <stdio.h>

/* ---- facts that neither format has a place for ---------------------------------------------- */

typedef void fact_fn(void *context, const char *key, const char *value);

static void give(fact_fn *put, void *context, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    put(context, key, isfinite(value) ? text : "unknown");
}

static void each_fact(const pj_disclosure_item *i, const pj_disclosure_terms *t, fact_fn *put,
                      void *context)
{
    char text[400];
    const pj_run_info *run = i->first;
    pj_disclosure_task(i, text, sizeof text);
    put(context, "functional_unit", text);
    pj_disclosure_boundary(i, t, text, sizeof text);
    put(context, "boundary", text);
    put(context, "energy_source", pj_quality_name(run->quality));
    give(put, context, "runs", i->runs);
    give(put, context, "joules", i->joules.value);
    give(put, context, "joules_lo_95", i->joules.lo);
    give(put, context, "joules_hi_95", i->joules.hi);
    give(put, context, "joules_per_token", i->joules_per_token.value);
    give(put, context, "joules_per_token_lo_95", i->joules_per_token.lo);
    give(put, context, "joules_per_token_hi_95", i->joules_per_token.hi);
    give(put, context, "seconds", i->seconds);
    give(put, context, "disturbed_share", run->disturbed_share);
    put(context, "engine", run->engine ? run->engine : "unknown");
    put(context, "machine", run->machine ? run->machine : "unknown");
    give(put, context, "pue", t->pue);
    give(put, context, "g_co2eq_per_kwh", t->g_per_kwh);
    put(context, "embodied", "not included");
}

/* ---- CycloneDX ------------------------------------------------------------------------------ */

static void put_property(void *context, const char *key, const char *value)
{
    char name[64];
    snprintf(name, sizeof name, "perjoule:%s", key);
    pj_json_object_begin(context);
    pj_json_kv_string(context, "name", name);
    pj_json_kv_string(context, "value", value);
    pj_json_object_end(context);
}

static void write_measure(pj_json *json, const char *key, double value, const char *unit)
{
    pj_json_kv_object_begin(json, key);
    pj_json_kv_double(json, "value", value);
    pj_json_kv_string(json, "unit", unit);
    pj_json_object_end(json);
}

static void write_consumption(const pj_disclosure *x, const pj_disclosure_item *i, pj_json *json)
{
    double kwh = pj_disclosure_kwh(i->joules.value, x->terms);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "activity", "inference");
    pj_json_kv_array_begin(json, "energyProviders");
    pj_json_object_begin(json);
    pj_json_kv_object_begin(json, "organization");
    pj_json_kv_string(json, "name", "unknown");
    pj_json_object_end(json);
    pj_json_kv_string(json, "energySource", "unknown");
    write_measure(json, "energyProvided", kwh, "kWh");
    pj_json_object_end(json);
    pj_json_array_end(json);
    write_measure(json, "activityEnergyCost", kwh, "kWh");
    write_measure(json, "co2CostEquivalent", kwh * x->terms->g_per_kwh / 1e6, "tCO2eq");
    pj_json_kv_array_begin(json, "properties");
    each_fact(i, x->terms, put_property, json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static void write_model(const pj_disclosure *x, uint32_t first, pj_json *json)
{
    const pj_disclosure_item *item = &x->items[first];
    char reference[24];
    snprintf(reference, sizeof reference, "model-%u", first + 1);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", "machine-learning-model");
    pj_json_kv_string(json, "bom-ref", reference);
    pj_json_kv_string(json, "name", pj_disclosure_model(item));
    pj_json_kv_object_begin(json, "modelCard");
    pj_json_kv_object_begin(json, "considerations");
    pj_json_kv_object_begin(json, "environmentalConsiderations");
    pj_json_kv_array_begin(json, "energyConsumptions");
    for (uint32_t i = first; i < x->count; i++)
        if (pj_disclosure_same_model(&x->items[i], item)) write_consumption(x, &x->items[i], json);
    pj_json_array_end(json);
    pj_json_object_end(json);
    pj_json_object_end(json);
    pj_json_object_end(json);
    pj_json_object_end(json);
}

void pj_disclosure_cyclonedx(const pj_disclosure *x, pj_json *json)
{
    char serial[64];
    snprintf(serial, sizeof serial, "urn:uuid:%s", x->id);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "bomFormat", "CycloneDX");
    pj_json_kv_string(json, "specVersion", "1.7");
    pj_json_kv_string(json, "serialNumber", serial);
    pj_json_kv_int(json, "version", 1);
    pj_json_kv_object_begin(json, "metadata");
    pj_json_kv_string(json, "timestamp", x->now);
    pj_json_kv_object_begin(json, "tools");
    pj_json_kv_array_begin(json, "components");
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", "application");
    pj_json_kv_string(json, "name", "perjoule");
    pj_json_kv_string(json, "version", PJ_VERSION_TEXT);
    pj_json_object_end(json);
    pj_json_array_end(json);
    pj_json_object_end(json);
    pj_json_object_end(json);
    pj_json_kv_array_begin(json, "components");
    for (uint32_t i = 0; i < x->count; i++)
        if (!pj_disclosure_is_known_model(x, i)) write_model(x, i, json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- SPDX ----------------------------------------------------------------------------------- */

static void put_entry(void *context, const char *key, const char *value)
{
    char name[64];
    snprintf(name, sizeof name, "perjoule:%s", key);
    pj_json_object_begin(context);
    pj_json_kv_string(context, "type", "DictionaryEntry");
    pj_json_kv_string(context, "key", name);
    pj_json_kv_string(context, "value", value);
    pj_json_object_end(context);
}

/* A decimal number without an exponent, with six significant digits. */
static void write_decimal(pj_json *json, const char *key, double value)
{
    char text[64];
    int places = value > 0 ? (int)fmin(fmax(5 - floor(log10(value)), 0), 30) : 0;
    snprintf(text, sizeof text, "%.*f", places, value);
    pj_json_kv_string(json, key, text);
}

static void begin_element(const pj_disclosure *x, const char *type, const char *name, pj_json *json)
{
    char id[96];
    snprintf(id, sizeof id, "urn:uuid:%s#%s", x->id, name);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", type);
    pj_json_kv_string(json, "spdxId", id);
    pj_json_kv_string(json, "creationInfo", "_:creationinfo");
}

static void write_reference(const pj_disclosure *x, const char *name, pj_json *json)
{
    char id[96];
    snprintf(id, sizeof id, "urn:uuid:%s#%s", x->id, name);
    pj_json_string(json, id);
}

static void write_references(const pj_disclosure *x, const char *key, pj_json *json)
{
    char name[24];
    pj_json_kv_array_begin(json, key);
    for (uint32_t i = 0; i < x->count; i++) {
        snprintf(name, sizeof name, "model-%u", i + 1);
        if (!pj_disclosure_is_known_model(x, i)) write_reference(x, name, json);
    }
    pj_json_array_end(json);
}

/* A measurement is an entry of the energy consumption; its facts are metrics, numbered alike. */
static void write_package(const pj_disclosure *x, uint32_t first, pj_json *json)
{
    const pj_disclosure_item *item = &x->items[first];
    char name[24];
    snprintf(name, sizeof name, "model-%u", first + 1);
    begin_element(x, "ai_AIPackage", name, json);
    pj_json_kv_string(json, "name", pj_disclosure_model(item));
    pj_json_kv_string(json, "software_primaryPurpose", "model");
    pj_json_kv_string(json, "comment",
                      "Energy of one request each, in the order of the metrics. Supplier, version, "
                      "licence, release and place of download are unknown to the measurement.");
    pj_json_kv_object_begin(json, "ai_energyConsumption");
    pj_json_kv_string(json, "type", "ai_EnergyConsumption");
    pj_json_kv_array_begin(json, "ai_inferenceEnergyConsumption");
    for (uint32_t i = first; i < x->count; i++) {
        if (!pj_disclosure_same_model(&x->items[i], item)) continue;
        pj_json_object_begin(json);
        pj_json_kv_string(json, "type", "ai_EnergyConsumptionDescription");
        write_decimal(json, "ai_energyQuantity",
                      pj_disclosure_kwh(x->items[i].joules.value, x->terms));
        pj_json_kv_string(json, "ai_energyUnit", "kilowattHour");
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
    pj_json_kv_array_begin(json, "ai_metric");
    for (uint32_t i = first; i < x->count; i++)
        if (pj_disclosure_same_model(&x->items[i], item))
            each_fact(&x->items[i], x->terms, put_entry, json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static void write_creation(const pj_disclosure *x, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", "CreationInfo");
    pj_json_kv_string(json, "@id", "_:creationinfo");
    pj_json_kv_string(json, "specVersion", "3.0.1");
    pj_json_kv_string(json, "created", x->now);
    pj_json_kv_array_begin(json, "createdBy");
    write_reference(x, "perjoule", json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

void pj_disclosure_spdx(const pj_disclosure *x, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "@context", "https://spdx.org/rdf/3.0.1/spdx-context.jsonld");
    pj_json_kv_array_begin(json, "@graph");
    write_creation(x, json);
    begin_element(x, "SoftwareAgent", "perjoule", json);
    pj_json_kv_string(json, "name", "perjoule " PJ_VERSION_TEXT);
    pj_json_object_end(json);
    begin_element(x, "SpdxDocument", "document", json);
    pj_json_kv_array_begin(json, "profileConformance");
    pj_json_string(json, "core");
    pj_json_array_end(json);
    write_references(x, "rootElement", json);
    write_references(x, "element", json);
    pj_json_object_end(json);
    for (uint32_t i = 0; i < x->count; i++)
        if (!pj_disclosure_is_known_model(x, i)) write_package(x, i, json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

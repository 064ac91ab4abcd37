/* SPDX-License-Identifier: Apache-2.0 */
/* scenario_read.c - scenarios in JSON files, and their settings by name.
 *
 *   {"schema": 1, "about": "...",
 *    "model": {"name": "gpt-175b", "seq": 2048},
 *    "layout": {"gpus": 96, "tp": 8, "pp": 12},
 *    "training": {"micro_batch": 1, "global_batch": 96},
 *    "system": {"cluster": "a100-80", "era": "megatron-2022"}}
 *
 * A model is the catalogue's, an imported config.json's or neither; members beside "name" and
 * "config" change it. Whether the settings fit each other is tess_scenario_fill's question.
 */
#include "fields.h"

#include "tessera/advanced/nearest.h"
#include "tessera/advanced/sim_detail.h"

#include <string.h>

enum { NAMES_MAX = 128, PATH_BYTES = 4096 };

static const char *const groups[] = {"model", "layout", "training", "system", "sampling"};
enum { GROUPS = 5 };

/* ---- one setting ----------------------------------------------------------------------------- */

static int is_path(const char *name)
{
    const size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

/* A text, a number, true or false as text. */
static tess_status scalar_text(tess__json_node node, char *text, size_t bytes)
{
    const json_t *value = node.value;
    char number[TESS_REAL_TEXT];
    if (json_is_string(value) && strlen(json_string_value(value)) < bytes)
        strcpy(text, json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, bytes, "%s", tess__real_text(json_real_value(value), 0, number));
    else if (json_is_boolean(value))
        snprintf(text, bytes, "%s", json_is_true(value) ? "true" : "false");
    else
        return tess__json_fail(node, "\"%s\" must be a number, a short text, true or false",
                               node.key ? node.key : "");
    return TESS_OK;
}

static tess_status unknown_member(tess__json_node node, const char *group, const char *key)
{
    const char *names[NAMES_MAX];
    int n = 0;
    for (int i = 0; i < tess__n_fields && n < NAMES_MAX; i++)
        if (strcmp(tess__fields[i].group, group) == 0)
            names[n++] = tess__fields[i].name;
    const char *near = tess_nearest(key, names, n);
    if (near)
        return tess__json_fail(node, "unknown member \"%.60s\"; did you mean \"%s\"?", key, near);
    return tess__json_fail(node, "unknown member \"%.60s\" of \"%s\"", key, group);
}

tess_status tess__field_read(const tess__json_node *object, const char *group, const char *key,
                             tess_scenario *scenario)
{
    const tess__json_node node = tess__json_member(object, key);
    const tess__field *field = tess__field_find(group, key);
    char text[256], sentence[512];
    const int removed = strcmp(group, "training") == 0 && strcmp(key, "offload") == 0;
    if (!field && !removed)
        return unknown_member(node, group, key);
    TESS_TRY(scalar_text(node, text, sizeof text));
    if (removed) /* files of earlier versions have it, off or by default */
        return strcmp(text, "off") == 0 || strcmp(text, "auto") == 0
                   ? TESS_OK
                   : tess__json_fail(node,
                                     "training.offload is \"%s\", must be off or auto: the "
                                     "simulator does not model it",
                                     text);
    if (tess__field_set(scenario, field, text) == TESS_OK)
        return TESS_OK;
    snprintf(sentence, sizeof sentence, "%s", tess_last_error());
    return tess__json_fail(node, "%s", sentence);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A path beside the scenario's own file, unless it is absolute. */
static tess_status beside(tess__json_node node, const char *base, const char *path, char *out)
{
    const char *slash = strrchr(base, '/');
    const int folder = slash && *path != '/' ? (int)(slash - base) + 1 : 0;
    const int n = snprintf(out, PATH_BYTES, "%.*s%s", folder, base, path);
    return n < PATH_BYTES ? TESS_OK : tess__json_fail(node, "the path is too long");
}

/* "name" and "config" come first, wherever they stand: the other members change what they give. */
static tess_status read_origin(tess_ctx *ctx, const tess__json_node *object, const char *base,
                               tess_scenario *scenario)
{
    const char *name = NULL, *config = NULL;
    char path[PATH_BYTES], sentence[512];
    const tess__json_node n = tess__json_optional(object, "name");
    const tess__json_node c = tess__json_optional(object, "config");
    TESS_TRY(tess__json_string(n, &name));
    TESS_TRY(tess__json_string(c, &config));
    if (name && config)
        return tess__json_fail(c, "a model has a \"name\" or a \"config\", not both");
    if (config) {
        TESS_TRY(beside(c, base, config, path));
        return tess__model_import(ctx, path, NULL, 0, scenario);
    }
    if (!name)
        return TESS_OK;
    const tess_status status = tess__model_use(ctx, name, scenario);
    if (status != TESS_EINVAL)
        return status;
    snprintf(sentence, sizeof sentence, "%s", tess_last_error());
    return tess__json_fail(n, "%s", sentence);
}

static tess_status read_group(tess_ctx *ctx, tess__json_node node, int group, const char *base,
                              tess_scenario *scenario)
{
    tess__json_node object;
    TESS_TRY(tess__json_object(node, NULL, 0, &object));
    if (!object.value)
        return TESS_OK;
    if (group == 0)
        TESS_TRY(read_origin(ctx, &object, base, scenario));
    const char *key;
    json_t *item;
    json_object_foreach(object.value, key, item) if (group != 0 || (strcmp(key, "name") != 0 &&
                                                                    strcmp(key, "config") != 0))
        TESS_TRY(tess__field_read(&object, groups[group], key, scenario));
    return TESS_OK;
}

static tess_status read_scenario(tess_ctx *ctx, const tess__json *doc, tess_scenario *scenario)
{
    static const char *const members[] = {"schema", "about",    "source", "model",
                                          "layout", "training", "system", "sampling"};
    const tess__json_node top = tess__json_root(doc);
    tess__json_node root;
    int schema;
    const char *about = NULL;
    TESS_TRY(tess__json_object(top, members, 8, &root));
    TESS_TRY(tess__json_int(tess__json_member(&root, "schema"), 1, 1, &schema));
    TESS_TRY(tess__json_string(tess__json_optional(&root, "about"), &about));
    for (int i = 0; i < GROUPS; i++) {
        const tess__json_node node =
            i == 0 ? tess__json_member(&root, groups[i]) : tess__json_optional(&root, groups[i]);
        TESS_TRY(read_group(ctx, node, i, doc->name, scenario));
    }
    return TESS_OK;
}

tess_status tess__scenario_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess_scenario *scenario)
{
    tess__json doc;
    tess_scenario made = {0};
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_scenario(ctx, &doc, &made);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *scenario = made;
    return status;
}

/* ---- public ---------------------------------------------------------------------------------- */

tess_status tess_scenario_load(tess_ctx *ctx, const char *name, tess_scenario *scenario)
{
    TESS_REQUIRE(ctx, name, scenario);
    if (is_path(name))
        return tess__scenario_parse(ctx, name, NULL, 0, scenario);
    const char *names[NAMES_MAX];
    int n = 0;
    for (; n < tess__n_shipped_scenarios && n < NAMES_MAX; n++) {
        const tess__shipped *file = &tess__shipped_scenarios[n];
        names[n] = file->name;
        if (strcmp(name, file->name) == 0)
            return tess__scenario_parse(ctx, file->name, (const char *)file->text, file->bytes,
                                        scenario);
    }
    const char *near = tess_nearest(name, names, n);
    if (near)
        return tess__invalid(__func__, "no scenario \"%.64s\"; did you mean \"%s\"?", name, near);
    return tess__invalid(__func__, "no scenario \"%.64s\"; a file needs a '/' or .json", name);
}

static tess_status unknown_key(const char *key)
{
    char texts[NAMES_MAX][48];
    const char *names[NAMES_MAX];
    int n = 0;
    for (; n < tess__n_fields && n < NAMES_MAX - 2; n++) {
        snprintf(texts[n], sizeof texts[n], "%s.%s", tess__fields[n].group, tess__fields[n].name);
        names[n] = texts[n];
    }
    names[n++] = "model.name";
    names[n++] = "model.config";
    const char *near = tess_nearest(key, names, n);
    if (near)
        return tess__fail(TESS_EINVAL, "no setting \"%.60s\"; did you mean \"%s\"?", key, near);
    return tess__fail(TESS_EINVAL, "no setting \"%.60s\"", key);
}

tess_status tess_scenario_set(tess_ctx *ctx, tess_scenario *scenario, const char *key,
                              const char *value)
{
    TESS_REQUIRE(ctx, scenario, key, value);
    if (strcmp(key, "model.name") == 0)
        return tess__model_use(ctx, value, scenario);
    if (strcmp(key, "model.config") == 0)
        return tess__model_import(ctx, value, NULL, 0, scenario);
    const char *dot = strchr(key, '.');
    if (dot)
        for (int i = 0; i < tess__n_fields; i++)
            if (strcmp(tess__fields[i].name, dot + 1) == 0 &&
                strlen(tess__fields[i].group) == (size_t)(dot - key) &&
                strncmp(tess__fields[i].group, key, (size_t)(dot - key)) == 0)
                return tess__field_set(scenario, &tess__fields[i], value);
    return unknown_key(key);
}

int tess_scenario_settings(void)
{
    return tess__n_fields;
}

tess_status tess_scenario_get(const tess_scenario *scenario, int index,
                              tess_scenario_setting *setting)
{
    TESS_REQUIRE(scenario, setting);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, tess__n_fields - 1));
    const tess__field *field = &tess__fields[index];
    *setting = (tess_scenario_setting){.group = field->group,
                                       .name = field->name,
                                       .help = field->help,
                                       .given = !tess__field_unset(scenario, field)};
    tess__field_text(scenario, field, setting->value, sizeof setting->value);
    return TESS_OK;
}

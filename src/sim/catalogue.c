/* SPDX-License-Identifier: Apache-2.0 */
/* catalogue.c - models by name: the families in share/models, compiled in.
 *
 *   {"schema": 1, "about": "...", "models": {"gpt-175b": {"source": "...", "layers": 96, ...}}}
 *
 * A model's members are the settings of the group "model". The files are small and are parsed when
 * a name is looked up; names are found in the text alone.
 */
#include "fields.h"

#include "tessera/advanced/nearest.h"

#include <string.h>

enum { NAMES_MAX = 256 };

/* The object "models" of a family; the document is the caller's to close. */
static tess_status open_family(tess_ctx *ctx, int family, tess__json *doc, tess__json_node *models)
{
    static const char *const members[] = {"schema", "about", "models"};
    const tess__shipped *file = &tess__shipped_models[family];
    TESS_TRY(tess__json_open(ctx, file->name, (const char *)file->text, file->bytes, doc));
    const tess__json_node top = tess__json_root(doc);
    tess__json_node root;
    tess_status status = tess__json_object(top, members, 3, &root);
    if (status == TESS_OK)
        status = tess__json_object(tess__json_member(&root, "models"), NULL, 0, models);
    models->parent = NULL; /* which lies on this frame */
    if (status != TESS_OK)
        tess__json_close(doc);
    return status;
}

static tess_status fail_name(tess_ctx *ctx, const char *name)
{
    char texts[NAMES_MAX][48];
    const char *names[NAMES_MAX];
    int n = 0;
    for (int i = 0; i < tess__n_shipped_models; i++) {
        tess__json doc;
        tess__json_node models;
        TESS_TRY(open_family(ctx, i, &doc, &models));
        const char *key;
        json_t *item;
        json_object_foreach(models.value, key, item) if (n < NAMES_MAX)
        {
            snprintf(texts[n], sizeof texts[n], "%s", key);
            names[n] = texts[n];
            n++;
        }
        tess__json_close(&doc);
    }
    const char *near = tess_nearest(name, names, n);
    if (near)
        return tess__fail(TESS_EINVAL, "model.name is \"%.60s\"; did you mean \"%s\"?", name, near);
    return tess__fail(TESS_EINVAL, "model.name is \"%.60s\", which the catalogue does not have",
                      name);
}

static tess_status read_model(tess__json_node node, tess_scenario *scenario)
{
    tess__json_node object;
    TESS_TRY(tess__json_object(node, NULL, 0, &object));
    scenario->model = (tess_sim_model){0};
    const char *key;
    json_t *item;
    json_object_foreach(object.value, key, item)
    {
        if (strcmp(key, "source") == 0)
            continue;
        TESS_TRY(tess__field_read(&object, "model", key, scenario));
    }
    return TESS_OK;
}

tess_status tess__model_use(tess_ctx *ctx, const char *name, tess_scenario *scenario)
{
    for (int i = 0; i < tess__n_shipped_models; i++) {
        tess__json doc;
        tess__json_node models;
        TESS_TRY(open_family(ctx, i, &doc, &models));
        tess_status status = TESS_OK;
        const int here = json_object_get(models.value, name) != NULL;
        if (here)
            status = read_model(tess__json_member(&models, name), scenario);
        tess__json_close(&doc);
        if (here)
            return status;
    }
    return fail_name(ctx, name);
}

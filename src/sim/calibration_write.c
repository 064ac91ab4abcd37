/* SPDX-License-Identifier: Apache-2.0 */
/* calibration_write.c - the parameter file with the fitted values. */
#include "calibration.h"

#include "file/json.h"

#include <string.h>

static int is_owner(json_t *scalar, const char *owner)
{
    const char *system = json_string_value(json_object_get(scalar, "system"));
    const char *era = json_string_value(json_object_get(scalar, "era"));
    char text[160];
    snprintf(text, sizeof text, "%s %s", system ? system : "", era ? era : "");
    return strcmp(text, owner) == 0;
}

/* Puts a value where the file has it, or where it would have it. */
static void set_value(json_t *root, const tess_sim_param *p)
{
    if (strcmp(p->group, "scalar") == 0) {
        json_t *item;
        size_t i;
        json_array_foreach(json_object_get(root, "scalars"), i, item) if (is_owner(item, p->owner))
            json_object_set_new(item, "value", json_real(p->value));
        return;
    }
    const char *software = json_object_get(root, "eras") ? "eras" : "software";
    json_t *group = json_object_get(root, strcmp(p->group, "era") == 0 ? software : "hardware");
    json_t *values = json_object_get(json_object_get(group, p->owner), "values");
    json_t *entry = json_object_get(values, p->name);
    if (entry)
        json_array_set_new(entry, 0, json_real(p->value));
    else
        json_object_set_new(values, p->name, json_pack("[fs]", p->value, "fitted"));
}

tess_status tess_calibration_write(const tess_calibration *calibration, const char *path)
{
    TESS_REQUIRE(calibration, path);
    const tess_calibration *k = calibration;
    const tess__shipped *file = &tess__shipped_simulator[0];
    tess__json doc;
    TESS_TRY(tess__json_open(k->ctx, k->from ? k->from : file->name,
                             k->from ? NULL : (const char *)file->text, file->bytes, &doc));
    const int first_overlap = tess_sim_params_count(k->params) - (int)k->params->overlaps.n;
    for (int i = 0; i < k->n; i++) {
        tess_sim_param p;
        (void)tess_sim_params_query(k->params, k->index[i], &p);
        if (k->index[i] >= first_overlap)
            tess__overlap_write(json_object_get(json_object_get(doc.root, "hardware"), p.owner),
                                &k->params->overlaps.items[k->index[i] - first_overlap]);
        else
            set_value(doc.root, &p);
    }
    const tess_status status = tess__json_write(k->ctx, path, doc.root);
    tess__json_close(&doc);
    return status;
}

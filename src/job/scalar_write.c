/* SPDX-License-Identifier: Apache-2.0 */
/* scalar_write.c - a file of parameters with one scalar of (system, software) set. */
#include "file/json.h"
#include "job_internal.h"
#include "sim/sim_internal.h"
#include "tessera/advanced/run_log.h"

#include <string.h>

static int is_text(const json_t *object, const char *member, const char *text)
{
    const char *value = json_string_value(json_object_get(object, member));
    return value && strcmp(value, text) == 0;
}

/* The scalar's object: the one of this pair, or a new one at the end. */
static json_t *find_scalar(json_t *root, const char *system, const char *software)
{
    json_t *scalars = json_object_get(root, "scalars"), *item;
    size_t i;
    json_array_foreach(scalars, i, item) if (is_text(item, "system", system) &&
                                             is_text(item, "era", software)) return item;
    item = json_pack("{s:s, s:s}", "system", system, "era", software);
    return json_array_append_new(scalars, item) == 0 ? item : NULL;
}

tess_status tess_sim_scalar_write(tess_ctx *ctx, const char *from, const char *system,
                                  const char *software, double value, const char *origin,
                                  const char *path)
{
    TESS_REQUIRE(ctx, system, software, origin, path);
    TESS_TRY(tess__check_number(__func__, "value", value, 0.2, 5));
    const tess__shipped *file = &tess__shipped_simulator[0];
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, from ? from : file->name, from ? NULL : (const char *)file->text,
                             file->bytes, &doc));
    json_t *scalar = find_scalar(doc.root, system, software);
    tess_status status = TESS_OK;
    if (!scalar || json_object_set_new(scalar, "value", json_real(value)) != 0 ||
        json_object_set_new(scalar, "origin", json_string(origin)) != 0)
        status = tess__nomem(strlen(origin));
    if (status == TESS_OK)
        status = tess__json_write(ctx, path, doc.root);
    tess__json_close(&doc);
    return status;
}

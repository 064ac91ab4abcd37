/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c - tess_listing: names of software, models, clusters and scenarios, from the files that
 * define them. A listing is read when it is asked for; the cost is that of parsing these files. */
#include "fields.h"
#include "sim_internal.h"

#include "tessera/advanced/listing.h"

#include <string.h>

struct tess_listing {
    tess_ctx *ctx;
    tess__arena arena;
    tess_listing_entry *entries;
    int n;
    int64_t room;
};

/* ---- entries --------------------------------------------------------------------------------- */

static tess_status copy(tess_listing *l, const char *text, const char **out)
{
    *out = tess__arena_string(&l->arena, text, strlen(text));
    return *out ? TESS_OK : TESS_ENOMEM;
}

static tess_status add(tess_listing *l, const char *name, const char *about, const char *family,
                       int is_default)
{
    tess_listing_entry e = {.is_default = is_default};
    TESS_TRY(copy(l, name, &e.name));
    TESS_TRY(copy(l, about, &e.about));
    TESS_TRY(copy(l, family, &e.family));
    TESS_TRY(tess__grow(l->ctx, &l->entries, sizeof *l->entries, l->n, l->n + 1, &l->room));
    l->entries[l->n++] = e;
    return TESS_OK;
}

/* The text of a member, or "". */
static const char *text_of(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text ? text : "";
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static tess_status list_software(tess_listing *l, const tess_sim_params *given)
{
    tess_sim_params *own = NULL;
    if (!given)
        TESS_TRY(tess_sim_params_load(l->ctx, NULL, &own));
    const tess_sim_params *p = given ? given : own;
    tess_status status = TESS_OK;
    for (int i = 0; status == TESS_OK && i < p->n_eras; i++)
        status = add(l, p->eras[i].name, p->eras[i].about, "", i == p->default_era);
    tess_sim_params_destroy(own);
    return status;
}

static tess_status add_models(tess_listing *l, const tess__json *doc, const char *family)
{
    const char *name;
    json_t *model;
    json_object_foreach(json_object_get(doc->root, "models"), name, model)
        TESS_TRY(add(l, name, text_of(model, "source"), family, 0));
    return TESS_OK;
}

/* Shipped files: each an entry, or a family of models. */
static tess_status list_files(tess_listing *l, const tess__shipped *files, int n, int models)
{
    tess_status status = TESS_OK;
    for (int i = 0; status == TESS_OK && i < n; i++) {
        tess__json doc;
        TESS_TRY(tess__json_open(l->ctx, files[i].name, (const char *)files[i].text, files[i].bytes,
                                 &doc));
        status = models ? add_models(l, &doc, files[i].name)
                        : add(l, files[i].name, text_of(doc.root, "about"), "", 0);
        tess__json_close(&doc);
    }
    return status;
}

static tess_status list(tess_listing *l, tess_listing_kind kind, const tess_sim_params *params)
{
    switch (kind) {
    case TESS_LISTING_MODELS: return list_files(l, tess__shipped_models, tess__n_shipped_models, 1);
    case TESS_LISTING_CLUSTERS:
        return list_files(l, tess__shipped_clusters, tess__n_shipped_clusters, 0);
    case TESS_LISTING_SCENARIOS:
        return list_files(l, tess__shipped_scenarios, tess__n_shipped_scenarios, 0);
    default: return list_software(l, params);
    }
}

/* ---- public ---------------------------------------------------------------------------------- */

tess_status tess_listing_create(tess_ctx *ctx, tess_listing_kind kind,
                                const tess_sim_params *params, tess_listing **listing)
{
    TESS_REQUIRE(ctx, listing);
    TESS_TRY(tess__check_range(__func__, "kind", (int)kind, 0, TESS_LISTINGS - 1));
    tess_listing *l = tess__alloc(ctx, sizeof *l);
    if (!l)
        return TESS_ENOMEM;
    *l = (tess_listing){.ctx = ctx, .arena = {.ctx = ctx}};
    const tess_status status = list(l, kind, params);
    if (status == TESS_OK)
        *listing = l;
    else
        tess_listing_destroy(l);
    return status;
}

void tess_listing_destroy(tess_listing *listing)
{
    if (!listing)
        return;
    tess_ctx *ctx = listing->ctx;
    tess__free(ctx, listing->entries);
    tess__arena_free(&listing->arena);
    tess__free(ctx, listing);
}

int tess_listing_count(const tess_listing *listing)
{
    return listing ? listing->n : 0;
}

tess_status tess_listing_query(const tess_listing *listing, int index, tess_listing_entry *entry)
{
    TESS_REQUIRE(listing, entry);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, listing->n - 1));
    *entry = listing->entries[index];
    return TESS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_list.c - tessera simulate --list: the names that a scenario may use. */
#include "cmd/cmd_simulate.h"

#include "choices.h"
#include "tessera/advanced/listing.h"

#include <string.h>

const char *const simulate_lists[] = {"software", "models", "clusters", "scenarios", NULL};

static void print_entries(cli *c, const tess_listing *listing)
{
    tess_listing_entry e;
    size_t width = 0;
    for (int i = 0; tess_listing_query(listing, i, &e) == TESS_OK; i++)
        width = strlen(e.name) > width ? strlen(e.name) : width;
    for (int i = 0; tess_listing_query(listing, i, &e) == TESS_OK; i++)
        fprintf(c->out, "%-*s  %s%s\n", (int)width, e.name, e.about,
                e.is_default ? " (default)" : "");
}

static void set_entries(cli *c, const tess_listing *listing, const char *kind)
{
    json_t *all = json_array();
    tess_listing_entry e;
    for (int i = 0; tess_listing_query(listing, i, &e) == TESS_OK; i++) {
        json_t *one = json_object();
        out_set(c, one, "name", out_text(e.name));
        out_set(c, one, "about", out_text(e.about));
        out_set(c, one, "default", json_boolean(e.is_default));
        if (*e.family)
            out_set(c, one, "family", out_text(e.family));
        out_append(c, all, one);
    }
    out_set(c, c->json, "list", out_text(kind));
    out_set(c, c->json, "entries", all);
}

tess_status simulate_list(cli *c, const simulate_values *v)
{
    tess_sim_params *params = NULL;
    tess_listing *listing = NULL;
    tess_status status = TESS_OK;
    if (v->params)
        status = tess_sim_params_load(c->ctx, v->params, &params);
    if (status == TESS_OK)
        status = tess_listing_create(
            c->ctx, (tess_listing_kind)choices_find(simulate_lists, v->list), params, &listing);
    if (status == TESS_OK && c->json)
        set_entries(c, listing, v->list);
    else if (status == TESS_OK)
        print_entries(c, listing);
    tess_listing_destroy(listing);
    tess_sim_params_destroy(params);
    return status;
}

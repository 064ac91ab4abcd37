/* SPDX-License-Identifier: Apache-2.0 */
/* search_file.c - the checkpoint of a search: how far it is, and which combinations it kept.
 *
 * What was kept is simulated again after reading, so that the file holds numbers of combinations
 * and no results; docs/formats.md lists the members.
 */
#include "search_internal.h"

#include "file/json.h"

#include <stdio.h>
#include <string.h>

static const int64_t NUMBER_MAX = INT64_MAX / 2, KEPT_MAX = 10000000;

static tess_status read_kept(tess_ctx *ctx, tess__json_node node, tess__search_state *state)
{
    tess__json_node array;
    size_t n;
    TESS_TRY(tess__json_array(node, 0, (size_t)KEPT_MAX, &array, &n));
    state->kept = TESS_ALLOC(ctx, n * sizeof *state->kept);
    for (size_t i = 0; i < n; i++) {
        const tess__json_node item = tess__json_element(&array, i);
        TESS_TRY(tess__json_int64(item, 0, NUMBER_MAX, &state->kept[i]));
        if (i > 0 && state->kept[i] <= state->kept[i - 1])
            return tess__json_fail(item, "\"kept\" must ascend");
    }
    state->n_kept = (int64_t)n;
    return TESS_OK;
}

static tess_status read_state(tess_ctx *ctx, const tess__json *doc, tess__search_state *state)
{
    static const char *const members[] = {"schema",  "search",  "next", "evaluated", "feasible",
                                          "refused", "nearest", "late", "kept"};
    tess__json_node root;
    const char *search;
    int schema;
    TESS_TRY(tess__json_object(tess__json_root(doc), members, 9, &root));
    TESS_TRY(tess__json_int(tess__json_member(&root, "schema"), 1, 1, &schema));
    const tess__json_node name = tess__json_member(&root, "search");
    TESS_TRY(tess__json_string(name, &search));
    if (strlen(search) >= sizeof state->search)
        return tess__json_fail(name, "\"search\" must be of at most 19 characters");
    snprintf(state->search, sizeof state->search, "%s", search);
    TESS_TRY(tess__json_int64(tess__json_member(&root, "next"), 0, NUMBER_MAX, &state->next));
    const struct {
        const char *name;
        int64_t *value;
    } counts[] = {{"evaluated", &state->evaluated},
                  {"feasible", &state->feasible},
                  {"refused", &state->refused}};
    for (int i = 0; i < 3; i++)
        TESS_TRY(tess__json_int64(tess__json_member(&root, counts[i].name), 0, state->next,
                                  counts[i].value));
    TESS_TRY(
        tess__json_int64(tess__json_member(&root, "nearest"), -1, NUMBER_MAX, &state->nearest));
    TESS_TRY(tess__json_int64(tess__json_member(&root, "late"), -1, NUMBER_MAX, &state->late));
    return read_kept(ctx, tess__json_member(&root, "kept"), state);
}

tess_status tess__search_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess__search_state *state)
{
    tess__json doc;
    tess__search_state made = {0};
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_state(ctx, &doc, &made);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *state = made;
    else
        tess__search_state_free(ctx, &made);
    return status;
}

static void add_state(tess__jw *w, const void *user)
{
    const tess__search_state *state = user;
    tess__jw_begin(w, NULL, '{');
    tess__jw_int(w, "schema", 1);
    tess__jw_text(w, "search", state->search);
    tess__jw_int(w, "next", state->next);
    tess__jw_int(w, "evaluated", state->evaluated);
    tess__jw_int(w, "feasible", state->feasible);
    tess__jw_int(w, "refused", state->refused);
    tess__jw_int(w, "nearest", state->nearest);
    tess__jw_int(w, "late", state->late);
    tess__jw_row_i64(w, "kept", state->kept, (size_t)state->n_kept);
    tess__jw_end(w, '}');
}

tess_status tess__search_save(tess_ctx *ctx, const char *path, const tess__search_state *state)
{
    return tess__json_save(ctx, path, add_state, state);
}

void tess__search_state_free(tess_ctx *ctx, tess__search_state *state)
{
    tess__free(ctx, state->kept);
    *state = (tess__search_state){0};
}

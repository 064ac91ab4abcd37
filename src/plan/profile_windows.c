/* SPDX-License-Identifier: Apache-2.0 */
/* profile_windows.c - a density profile from the windows of sliding tile attention.
 *
 *   {"0_0_0": [3, 3, 5], "0_0_1": [5, 1, 10], ...}      step_layer_head: frames, rows, columns
 *
 * A window is moved inside at the edges, so that every tile of queries sees as many tiles of keys:
 *
 *   density = product over the three axes of min(window, tiles) / tiles
 *
 * The windows become a table of densities, which is read as any other.
 */
#include "work.h"

#include "file/json.h"
#include "file/json_write.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 3 * 11 + TESS_REAL_TEXT }; /* bytes of a line: three numbers, and a density */

/* The numbers of a name such as 0_12_3: up to 10^9, without zeros before them, so that no two names
 * mean the same head. */
static int read_name(const char *name, long long key[3])
{
    const char *at = name;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        if (*at < '0' || *at > '9' || (*at == '0' && at[1] >= '0' && at[1] <= '9'))
            return 0;
        key[i] = strtoll(at, &end, 10);
        if (key[i] > 1000000000 || *end != (i < 2 ? '_' : '\0'))
            return 0;
        at = end + 1;
    }
    return 1;
}

static tess_status add_window(const tess__json_node *root, const char *name, const int tiles[3],
                              char *text, size_t *used)
{
    const tess__json_node node = tess__json_member(root, name);
    tess__json_node list;
    size_t three = 0;
    long long key[3];
    double density = 1.0;
    if (!read_name(name, key))
        return tess__json_fail(node, "\"%.60s\" must be step_layer_head, such as 0_12_3", name);
    TESS_TRY(tess__json_array(node, 3, 3, &list, &three));
    for (size_t i = 0; i < three; i++) {
        int window = 0;
        TESS_TRY(tess__json_int(tess__json_element(&list, i), 1, 1000000, &window));
        density *= (double)TESS_MIN(window, tiles[i]) / tiles[i];
    }
    char real[TESS_REAL_TEXT]; /* with a point in every locale */
    *used += (size_t)snprintf(text + *used, LINE, "%lld,%lld,%lld,%s\n", key[0], key[1], key[2],
                              tess__real_text(density, 0, real));
    return TESS_OK;
}

tess_status tess__profile_windows(tess_ctx *ctx, const char *path, const int tiles[3],
                                  tess_profile **profile)
{
    tess__json doc;
    const char *name;
    json_t *value;
    TESS_TRY(tess__json_open(ctx, path, NULL, 0, &doc));
    const tess__json_node whole = tess__json_root(&doc);
    tess_status status = json_is_object(whole.value) && json_object_size(whole.value) > 0
                             ? TESS_OK
                             : tess__json_fail(whole, "must be an object of windows, "
                                                      "{\"step_layer_head\": [3, 3, 5], ...}");
    const size_t bytes = (json_object_size(whole.value) + 1) * LINE;
    char *text = status == TESS_OK ? tess__alloc(ctx, bytes) : NULL;
    size_t used = 0;
    if (status == TESS_OK && !text)
        status = TESS_ENOMEM;
    if (status == TESS_OK)
        used = (size_t)snprintf(text, LINE, "step,layer,head,kept\n");
    if (status == TESS_OK)
        json_object_foreach(whole.value, name, value)
        {
            status = add_window(&whole, name, tiles, text, &used);
            if (status != TESS_OK)
                break;
        }
    if (status == TESS_OK)
        status = tess__profile_read(ctx, path, text, used,
                                    &(tess_profile_opts){.column = "kept", .meaning = 1}, profile);
    tess__free(ctx, text);
    tess__json_close(&doc);
    return status;
}

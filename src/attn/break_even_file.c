/* SPDX-License-Identifier: Apache-2.0 */
/* break_even_file.c - measurements of break_even.c on disk, one JSON file each.
 *
 *   {"format": 1,
 *    "key": "AMD EPYC, avx2, tessera 0.1.0: head_dim 128, 4096 x 4096 tokens, group 64, ...",
 *    "ns_dense": 2.3e6, "ns_sparse_fixed": 1.1e5, "ns_sparse_per_density": 4.6e6}
 *
 * The file's name has a hash of the key, and the file has the key itself: what is read must be of
 * this machine and this shape, however it came there.
 */
#include "break_even.h"

#include "file/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FORMAT = 1, KEY_MAX = 512 };

/* Everything a time depends on, in one line. */
static tess_status key_text(tess_ctx *ctx, const tess_attn_rates_shape *s, char text[KEY_MAX])
{
    tess_machine machine;
    const char *isa = NULL;
    TESS_TRY(tess_machine_query(ctx, &machine));
    if (s->precision == TESS_PRECISION_BF16)
        tess__products_of(ctx, &isa);
    snprintf(text, KEY_MAX,
             "%s, %s, tessera %s: head_dim %d, %lld x %lld tokens, group %d, unit %d, "
             "compensate %d, proj_dim %d, backward %d%s%s",
             machine.cpu, ctx->isa, tess_version(), s->head_dim, (long long)s->queries,
             (long long)s->keys, (int)s->group, (int)s->unit, s->compensate, s->proj_dim,
             s->backward, isa ? ", bf16 by " : "", isa ? isa : "");
    return TESS_OK;
}

tess_status tess__break_even_path(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                  const char *folder, char path[TESS_BREAK_EVEN_PATH])
{
    char key[KEY_MAX];
    TESS_TRY(key_text(ctx, shape, key));
    const uint64_t hash = tess__hash(0, key, strlen(key));
    const int n =
        snprintf(path, TESS_BREAK_EVEN_PATH, "%s/break-even-%016" PRIx64 ".json", folder, hash);
    if (n >= TESS_BREAK_EVEN_PATH)
        return tess__fail(TESS_ENOTSUP, "%.80s...: the path is longer than %d bytes", folder,
                          TESS_BREAK_EVEN_PATH - 1);
    return TESS_OK;
}

static tess_status read_members(const tess__json *doc, const char *key,
                                tess_break_even_result *result)
{
    static const char *const members[] = {"format", "key", "ns_dense", "ns_sparse_fixed",
                                          "ns_sparse_per_density"};
    tess__json_node root = tess__json_root(doc), file;
    int format;
    const char *of;
    TESS_TRY(tess__json_object(root, members, 5, &file));
    TESS_TRY(tess__json_int(tess__json_member(&file, "format"), FORMAT, FORMAT, &format));
    TESS_TRY(tess__json_string(tess__json_member(&file, "key"), &of));
    if (strcmp(of, key) != 0)
        return tess__json_fail(tess__json_member(&file, "key"),
                               "\"key\" is \"%.300s\", must be \"%s\"", of, key);
    TESS_TRY(tess__json_double(tess__json_member(&file, "ns_dense"), 0, 1e18, &result->ns_dense));
    TESS_TRY(tess__json_double(tess__json_member(&file, "ns_sparse_fixed"), 0, 1e18,
                               &result->ns_sparse_fixed));
    return tess__json_double(tess__json_member(&file, "ns_sparse_per_density"), 0, 1e18,
                             &result->ns_sparse_per_density);
}

tess_status tess__break_even_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                   const char *key, tess_break_even_result *result)
{
    tess__json doc;
    tess_break_even_result read = {.cached = 1};
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_members(&doc, key, &read);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *result = read;
    return status;
}

tess_status tess__break_even_read(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                  const char *path, tess_break_even_result *result)
{
    char key[KEY_MAX];
    TESS_TRY(key_text(ctx, shape, key));
    return tess__break_even_parse(ctx, path, NULL, 0, key, result);
}

tess_status tess__break_even_write(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                   const char *path, const tess_break_even_result *result)
{
    char key[KEY_MAX];
    TESS_TRY(key_text(ctx, shape, key));
    json_t *file = json_pack("{s:i, s:s, s:f, s:f, s:f}", "format", FORMAT, "key", key, "ns_dense",
                             result->ns_dense, "ns_sparse_fixed", result->ns_sparse_fixed,
                             "ns_sparse_per_density", result->ns_sparse_per_density);
    const tess_status status = tess__json_write(ctx, path, file);
    json_decref(file);
    return status;
}

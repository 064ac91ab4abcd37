/* SPDX-License-Identifier: Apache-2.0 */
/* table_columns.c - names of canonical columns that are no settings of a scenario, and the nearest
 * to a name that is not known: of a measurement a measurement, of a collective a collective. */
#include "case.h"

#include "tessera/advanced/nearest.h"

#include <string.h>

static const char *const members[] = {"collective.op",    "collective.bytes", "collective.gpus",
                                      "collective.nodes", "product.m",        "product.n",
                                      "product.k",        "product.batch",    "product.weight",
                                      "overlap.kernel",   "overlap.share",    "overlap.alone_ns"};

enum { MEMBERS = sizeof members / sizeof *members, NAMES = MEMBERS + TESS__MEASURED_COUNT };

/* The nearest name of the same kind, which is what stands in front of the point; NULL: none. */
static const char *nearest_column(const char *key)
{
    const char *names[NAMES];
    const size_t kind = strcspn(key, ".") + 1;
    int n = 0;
    for (int i = 0; i < NAMES; i++) {
        const char *name = i < MEMBERS ? members[i] : tess__measured_defs[i - MEMBERS].key;
        if (strncmp(name, key, kind) == 0)
            names[n++] = name;
    }
    return tess_nearest(key, names, n);
}

int tess__column_measured(const char *key)
{
    for (int i = 0; i < TESS__MEASURED_COUNT; i++)
        if (strcmp(key, tess__measured_defs[i].key) == 0)
            return 1;
    return 0;
}

tess_status tess__column_check(const char *key)
{
    static const char *const kinds[] = {"collective.", "product.", "overlap."};
    int ours = 0;
    for (int i = 0; i < 3; i++)
        ours |= strncmp(key, kinds[i], strlen(kinds[i])) == 0;
    for (int i = 0; i < MEMBERS; i++)
        if (strcmp(key, members[i]) == 0)
            return TESS_OK;
    return ours ? tess__column_unknown(key) : TESS_OK;
}

tess_status tess__column_unknown(const char *key)
{
    const char *near = nearest_column(key);
    if (near)
        return tess__fail(TESS_EINVAL, "no column \"%.60s\"; did you mean \"%s\"?", key, near);
    return tess__fail(TESS_EINVAL, "no column \"%.60s\"", key);
}

void tess__column_warn(tess_ctx *ctx, const char *table, const char *key)
{
    const char *near = nearest_column(key);
    tess__log(ctx, TESS_LOG_WARN, "%s: column \"%.60s\" is not known and left out%s%s%s", table,
              key, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

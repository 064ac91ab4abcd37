/* SPDX-License-Identifier: Apache-2.0 */
/* overlap_params.c - slowdowns by kernel, by class of kernels, or one for all.
 *
 * A list of some tens of entries, searched from its beginning: the engine asks once for each name.
 */
#include "overlap_internal.h"

#include <string.h>

/* Where the name itself begins and ends: behind the last "::" or space before the first "<" or "(",
 * which "(anonymous namespace)" is not. */
static const char *base_name(const char *full, size_t *length)
{
    static const char anonymous[] = "(anonymous namespace)";
    const char *begin = full, *at = full;
    while (*at && *at != '<' && *at != '(') {
        if (*at == ':' || *at == ' ')
            begin = at + 1;
        at++;
        if (strncmp(at, anonymous, sizeof anonymous - 1) == 0)
            at += sizeof anonymous - 1;
    }
    *length = (size_t)(at - begin);
    return begin;
}

int tess__overlap_names(const char *full, const char *kernel)
{
    size_t n;
    const char *base = base_name(full, &n);
    return strcmp(full, kernel) == 0 || (strlen(kernel) == n && strncmp(base, kernel, n) == 0);
}

static int is_for(const tess__overlap_param *p, int hardware, tess__overlap_kind kind,
                  const char *kernel, int kernel_class)
{
    return p->hardware == hardware && p->kind == kind &&
           (kind != TESS__OVERLAP_KERNEL || tess__overlap_names(kernel, p->kernel)) &&
           (kind != TESS__OVERLAP_CLASS || p->kernel_class == kernel_class);
}

static tess__overlap_param *find(const tess__overlap_list *list, int hardware,
                                 tess__overlap_kind kind, const char *kernel, int kernel_class)
{
    for (int64_t i = 0; i < list->n; i++)
        if (is_for(&list->items[i], hardware, kind, kernel, kernel_class))
            return &list->items[i];
    return NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

double tess__overlap_find(const tess__overlap_list *list, int hardware, const char *kernel,
                          int kernel_class)
{
    static const tess__overlap_kind order[] = {TESS__OVERLAP_KERNEL, TESS__OVERLAP_CLASS,
                                               TESS__OVERLAP_CONSTANT};
    for (int k = 0; k < 3; k++) {
        const tess__overlap_param *p = find(list, hardware, order[k], kernel, kernel_class);
        if (p)
            return p->value;
    }
    return 0.0;
}

double tess__overlap_comm(const tess__overlap_list *list, int hardware)
{
    const tess__overlap_param *p = find(list, hardware, TESS__OVERLAP_COMM, "", 0);
    return p ? p->value : 0.0;
}

double tess__overlap_ratio(double share, double slowdown)
{
    return 1.0 / ((1.0 - share) + share / (1.0 + slowdown));
}

/* ---- setting --------------------------------------------------------------------------------- */

/* "overlap.classes.gemm": where the file has it. */
static const char *full_name(tess__arena *arena, const tess__overlap_param *p)
{
    char text[256];
    snprintf(text, sizeof text, "overlap.%s%.200s",
             p->kind == TESS__OVERLAP_KERNEL     ? "kernels."
             : p->kind == TESS__OVERLAP_CLASS    ? "classes."
             : p->kind == TESS__OVERLAP_CONSTANT ? "constant"
                                                 : "communication",
             p->kind == TESS__OVERLAP_KERNEL  ? p->kernel
             : p->kind == TESS__OVERLAP_CLASS ? tess_kernel_class_name(p->kernel_class)
                                              : "");
    return tess__arena_string(arena, text, strlen(text));
}

tess_status tess__overlap_put(tess__overlap_list *list, tess__arena *arena,
                              const tess__overlap_param *param)
{
    tess__overlap_param *known =
        find(list, param->hardware, param->kind, param->kernel, param->kernel_class);
    tess__overlap_param made = *param;
    made.origin = TESS_TAKE_STRING(arena, param->origin, strlen(param->origin));
    if (known) {
        known->value = made.value;
        known->origin = made.origin;
        return TESS_OK;
    }
    made.kernel = TESS_TAKE_STRING(arena, param->kernel, strlen(param->kernel));
    made.name = TESS_MEMORY(full_name(arena, param));
    TESS_GROW(list->ctx, list->items, list->n, list->n + 1, list->room);
    list->items[list->n++] = made;
    return TESS_OK;
}

tess_status tess__overlap_inherit(tess__overlap_list *list, tess__arena *arena, int from, int to)
{
    const int64_t n = list->n;
    for (int64_t i = 0; i < n; i++) {
        tess__overlap_param copy = list->items[i];
        if (copy.hardware != from)
            continue;
        copy.hardware = to;
        TESS_TRY(tess__overlap_put(list, arena, &copy));
    }
    return TESS_OK;
}

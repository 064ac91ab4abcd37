/* SPDX-License-Identifier: Apache-2.0 */
/* overlap_read.c - "overlap" of an entry of hardware in the file of parameters, from and to JSON.
 */
#include "overlap_internal.h"

#include <string.h>

enum { KERNELS_MAX = 4096 };

/* [s, origin]; a node without a value: nothing. */
static tess_status read_pair(tess__overlap_list *list, tess__arena *arena, tess__json_node node,
                             tess__overlap_param param)
{
    tess__json_node pair;
    size_t n = 0;
    if (!node.value)
        return TESS_OK;
    TESS_TRY(tess__json_array(node, 2, 2, &pair, &n));
    TESS_TRY(tess__json_double(tess__json_element(&pair, 0), 0, TESS__OVERLAP_MAX, &param.value));
    TESS_TRY(tess__json_string(tess__json_element(&pair, 1), &param.origin));
    return tess__overlap_put(list, arena, &param);
}

static tess_status read_kernels(tess__overlap_list *list, tess__arena *arena, int hardware,
                                tess__json_node node)
{
    tess__json_node all;
    TESS_TRY(tess__json_object(node, NULL, 0, &all));
    if (!all.value)
        return TESS_OK;
    const size_t n = json_object_size(all.value);
    if (n > KERNELS_MAX)
        return tess__json_fail(all, "has %zu members, must have at most %d", n, KERNELS_MAX);
    const char *key;
    json_t *value;
    json_object_foreach(all.value, key, value) TESS_TRY(read_pair(
        list, arena, tess__json_member(&all, key),
        (tess__overlap_param){.hardware = hardware, .kind = TESS__OVERLAP_KERNEL, .kernel = key}));
    return TESS_OK;
}

static tess_status read_classes(tess__overlap_list *list, tess__arena *arena, int hardware,
                                tess__json_node node)
{
    const char *names[TESS_KERNEL_CLASSES];
    int classes[TESS_KERNEL_CLASSES], n = 0;
    tess__json_node all;
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++)
        if (k != TESS_KERNEL_COMMUNICATION && k != TESS_KERNEL_OTHER) {
            classes[n] = k;
            names[n++] = tess_kernel_class_name((tess_kernel_class)k);
        }
    TESS_TRY(tess__json_object(node, names, n, &all));
    for (int i = 0; all.value && i < n; i++)
        TESS_TRY(read_pair(list, arena, tess__json_optional(&all, names[i]),
                           (tess__overlap_param){.hardware = hardware,
                                                 .kind = TESS__OVERLAP_CLASS,
                                                 .kernel = "",
                                                 .kernel_class = classes[i]}));
    return TESS_OK;
}

tess_status tess__overlap_read(tess__overlap_list *list, tess__arena *arena, int hardware,
                               tess__json_node node)
{
    static const char *const members[] = {"kernels", "classes", "constant", "communication"};
    tess__json_node all;
    TESS_TRY(tess__json_object(node, members, 4, &all));
    if (!all.value)
        return TESS_OK;
    TESS_TRY(read_kernels(list, arena, hardware, tess__json_optional(&all, "kernels")));
    TESS_TRY(read_classes(list, arena, hardware, tess__json_optional(&all, "classes")));
    TESS_TRY(read_pair(
        list, arena, tess__json_optional(&all, "constant"),
        (tess__overlap_param){.hardware = hardware, .kind = TESS__OVERLAP_CONSTANT, .kernel = ""}));
    return read_pair(
        list, arena, tess__json_optional(&all, "communication"),
        (tess__overlap_param){.hardware = hardware, .kind = TESS__OVERLAP_COMM, .kernel = ""});
}

/* The member `name` of an object, made where it is missing. */
static json_t *object_of(json_t *parent, const char *name)
{
    if (!json_object_get(parent, name))
        json_object_set_new(parent, name, json_object());
    return json_object_get(parent, name);
}

void tess__overlap_write(json_t *hardware, const tess__overlap_param *param)
{
    json_t *overlap = object_of(hardware, "overlap");
    json_t *pair = json_pack("[fs]", param->value, param->origin);
    if (param->kind == TESS__OVERLAP_KERNEL)
        json_object_set_new(object_of(overlap, "kernels"), param->kernel, pair);
    else if (param->kind == TESS__OVERLAP_CLASS)
        json_object_set_new(object_of(overlap, "classes"),
                            tess_kernel_class_name((tess_kernel_class)param->kernel_class), pair);
    else
        json_object_set_new(
            overlap, param->kind == TESS__OVERLAP_CONSTANT ? "constant" : "communication", pair);
}

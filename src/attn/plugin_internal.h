/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_internal.h - selectors of others: the object, and what recorded masks do for it. */
#ifndef TESS_PLUGIN_INTERNAL_H
#define TESS_PLUGIN_INTERNAL_H

#include "select_internal.h"
#include "tessera/advanced/plugin.h"
#include "tessera/file.h"

struct tess_plugin {
    tess_ctx *ctx;
    char *path;
    void *handle; /* of dlopen; NULL: masks */
    tess_selector_fn select;
    tess_file *file;
    const uint8_t *mask; /* (layers, heads, rows, units), in the file */
    tess_plugin_info info;
    tess__buffer counts, keys, offsets;
};

/* plugin_masks.c: opens a file of masks; chooses by it, as a tess_selector_fn does. The failure of
 * a group is in the last error. */
tess_status tess__masks_open(tess_plugin *plugin);
tess_status tess__masks_check(const tess_plugin *plugin, const tess_selector_task *task);
void tess__masks_select(const tess_plugin *plugin, const tess_selector_task *task, int32_t *counts,
                        int32_t *keys);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - selectors of others: shared objects with a function of tessera/selector.h, and masks
 * recorded in a file, behind one call.
 *
 *   tess_plugin *plugin;
 *   tess_plugin_open(ctx, "./mine.so", &plugin);
 *   tess_plugin_run(plugin, &task, sel);                  // lists of one head, checked
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_PLUGIN_H
#define TESSERA_PLUGIN_H

#include "../attn.h"
#include "../selector.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tess_plugin tess_plugin;

/* A shared object, or a tensor file with masks of BOOL or U8: (layers, heads, cubes, tokens), or
 * (..., cubes, cubes) where whole cubes of keys are chosen; 1 layer or head stands for all, and
 * without layers three dimensions. Tokens and cubes are in the order of selector.h. EFORMAT, EIO:
 * the sentence names the file and what it lacks. */
TESS_API tess_status tess_plugin_open(tess_ctx *ctx, const char *path, tess_plugin **plugin);

typedef struct {
    int masks;           /* 1: recorded masks */
    int layers, heads;   /* of the masks */
    int64_t rows, units; /* of the masks: their last two dimensions */
    int64_t longest;     /* units of their longest row */
} tess_plugin_info;

TESS_API tess_status tess_plugin_query(const tess_plugin *plugin, tess_plugin_info *info);

/* Chooses for all groups of a task, whose first and groups are not read, on the context's threads,
 * checks what was chosen, and sets the lists of sel: one sample, one head, the groups of bounds_q,
 * units of one key. Buffers grow to the largest call and stay. On failure sel stays as it was. */
TESS_API tess_status tess_plugin_run(tess_plugin *plugin, const tess_selector_task *task,
                                     tess_selection *sel);
TESS_API void tess_plugin_close(tess_plugin *plugin);

#ifdef __cplusplus
}
#endif

#endif

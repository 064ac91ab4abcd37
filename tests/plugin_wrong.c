/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_wrong.c - a selector whose layers each do something else, most of them wrong; with
 * WRONG_VERSION of another version, with WRONG_SYMBOL none at all. For test_plugin.c. */
#include <tessera/selector.h>

static int by_layer(const tess_selector_task *task, int32_t *counts, int32_t *keys)
{
    for (int32_t i = 0; i < task->groups; i++) {
        int32_t *list = keys + (int64_t)i * task->keys;
        const int32_t group = task->first + i;
        counts[i] = 2;
        list[0] = 5; /* not ascending: sorted */
        list[1] = group % 5;
        if (group < 20)
            continue; /* the rest are wrong */
        switch (task->layer) {
        case 1: list[0] = (int32_t)task->tokens_k; break;
        case 2: list[1] = 5; break;
        case 3: counts[i] = 0; break;
        case 4: counts[i] = task->keys + 1; break;
        case 5: return 7;
        case 6: list[1] = -1; break;
        default: break;
        }
    }
    return 0;
}

#if defined(WRONG_VERSION)
__attribute__((visibility("default"))) const tess_selector_plugin tessera_selector = {99, by_layer};
#elif defined(WRONG_SYMBOL)
int plugin_wrong_unused(void);
int plugin_wrong_unused(void)
{
    return by_layer(0, 0, 0);
}
#else
TESS_SELECTOR(by_layer);
#endif

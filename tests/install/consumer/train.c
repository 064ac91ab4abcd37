/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - uses libtessera_train. */
#include <stdio.h>
#include <tessera/advanced/clip.h>
#include <tessera/advanced/machine.h>
#include <tessera/media.h>
#include <tessera/tessera.h>

int main(void)
{
    tess_component component;
    if (tess_train_component_count() < 1 || tess_train_component_query(0, &component) != TESS_OK) {
        fprintf(stderr, "%s\n", tess_last_error());
        return 1;
    }
    printf("use_train: tessera %s\n", tess_version());
    return 0;
}

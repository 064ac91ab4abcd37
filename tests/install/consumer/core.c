/* SPDX-License-Identifier: Apache-2.0 */
/* core.c - uses libtessera alone. */
#include <stdio.h>
#include <tessera/advanced/collectives.h>
#include <tessera/tessera.h>

int main(void)
{
    tess_ctx *ctx = NULL;
    tess_comm *comm = NULL;
    if (tess_ctx_create(NULL, &ctx) != TESS_OK || tess_comm_self(ctx, &comm) != TESS_OK) {
        fprintf(stderr, "%s\n", tess_last_error());
        return 1;
    }
    tess_comm_destroy(comm);
    tess_ctx_destroy(ctx);
    printf("use_core: tessera %s\n", tess_version());
    return 0;
}

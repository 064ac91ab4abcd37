/* SPDX-License-Identifier: Apache-2.0 */
/* core.cpp - uses libtessera from C++. */
#include <cstdio>
#include <tessera/tessera.h>

int main()
{
    tess_ctx *ctx = nullptr;
    if (tess_ctx_create(nullptr, &ctx) != TESS_OK) {
        std::fprintf(stderr, "%s\n", tess_last_error());
        return 1;
    }
    tess_ctx_destroy(ctx);
    std::printf("use_core_cxx: tessera %s\n", tess_version());
}

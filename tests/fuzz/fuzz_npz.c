/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_npz.c - any bytes as a .npz file. */
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file("fuzz.npz", data, size);
    return 0;
}

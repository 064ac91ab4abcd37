/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_npy.c - any bytes as a .npy file. */
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file("fuzz.npy", data, size);
    return 0;
}

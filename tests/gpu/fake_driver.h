/* SPDX-License-Identifier: Apache-2.0 */
/* fake_driver.h - how the driver of tests is set up. */
#ifndef TESS_FAKE_DRIVER_H
#define TESS_FAKE_DRIVER_H

#include <stddef.h>

typedef struct {
    int version, devices, major, minor, shared_bytes;
    int unified;       /* 1: memory of the process counts as that of device 0 */
    int load_result;   /* of cuModuleLoadData; 0: success */
    int launch_result; /* of cuLaunchKernel, after the kernel has run; 0: success */
    unsigned seed;     /* of the emulation's order */
    long launches;     /* counted */
    int spoil;   /* of every copy to the host: 1: a high bit of its middle, 2: of its first byte,
                          3: of the middle of every third copy */
    long copies; /* to the host, counted */
} fake_driver_setup;

extern fake_driver_setup fake_driver;

/* Memory of a device of the fake driver, NaN patterns; freed by cuMemFree_v2. */
void *fake_memory(size_t bytes, int device);
void fake_free(void *memory);
long fake_allocations(void); /* in use */
int fake_contexts(void);     /* retained and not released */

#endif

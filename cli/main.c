/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command `tessera`. */
#include "tessera/tessera.h"

#include <stdio.h>

int main(void)
{
    printf("tessera %s\n", tess_version());
    return 0;
}

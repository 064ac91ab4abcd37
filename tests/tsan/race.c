/* SPDX-License-Identifier: Apache-2.0 */
/* race.c - a program with a race: threads add to one counter. ThreadSanitizer must report it. */
#include <stdio.h>

int main(void)
{
    int sum = 0;
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < 10000; i++)
        sum += i;
    printf("%d\n", sum);
    return 0;
}

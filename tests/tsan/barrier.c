/* SPDX-License-Identifier: Apache-2.0 */
/* barrier.c - a correct program: two loops over the same array in opposite order, kept apart by
 * the barrier at the end of the first. ThreadSanitizer must not report it; it exits with 66 if so.
 */
int main(void)
{
    enum { N = 1000 };
    static int a[N], b[N];
#pragma omp parallel num_threads(4)
    {
#pragma omp for
        for (int i = 0; i < N; i++)
            a[i] = i;
#pragma omp for
        for (int i = 0; i < N; i++)
            b[i] = a[N - 1 - i];
    }
    return b[0] == N - 1 && b[N - 1] == 0 ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* student.c - means with intervals, by Student's t.
 *
 * For n numbers with mean m and standard deviation s (of n - 1 degrees of freedom), the interval is
 * m -+ t s / sqrt(n), t the number that |T| exceeds with probability 1 - confidence. With theta =
 * atan(t / sqrt(f)), f degrees of freedom, P(|T| <= t) has a closed form (Abramowitz and Stegun
 * 26.7.3, 26.7.4):
 *
 *   f odd:   2/pi (theta + sin (cos + 2/3 cos^3 + ... + 2 4 .. (f-3) / (3 5 .. (f-2)) cos^(f-2)))
 *   f even:  sin (1 + 1/2 cos^2 + ... + 1 3 .. (f-3) / (2 4 .. (f-2)) cos^(f-2))
 *
 * It grows with theta, so that bisection finds t to the last bits. Cost: 60 sums of f / 2 terms.
 */
#include "compare_internal.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* P(|T| <= sqrt(f) tan theta). */
static double inside(double theta, int f)
{
    const double c = cos(theta), s = sin(theta);
    const int odd = f % 2;
    double term = odd ? c : 1, sum = 0;
    for (int k = odd ? 1 : 0; k <= f - 2; k += 2) {
        sum += term;
        term *= c * c * (k + 1) / (k + 2);
    }
    return odd ? 2 / pi * (theta + s * sum) : s * sum;
}

double tess__student(double confidence, int freedom)
{
    double low = 0, high = pi / 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        *(inside(middle, freedom) < confidence ? &low : &high) = middle;
    }
    return sqrt(freedom) * tan((low + high) / 2);
}

tess_estimate tess__estimate(const double *x, int n, double confidence)
{
    tess_estimate e = {.mean = NAN, .low = NAN, .high = NAN};
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i])) {
            sum += x[i];
            e.n++;
        }
    if (e.n == 0)
        return e;
    e.mean = sum / e.n;
    if (e.n < 2)
        return e;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]))
            squares += (x[i] - e.mean) * (x[i] - e.mean);
    const double half = tess__student(confidence, e.n - 1) * sqrt(squares / (e.n - 1)) / sqrt(e.n);
    e.low = e.mean - half;
    e.high = e.mean + half;
    return e;
}

tess_verdict tess_estimate_judge(const tess_estimate *change, double margin)
{
    if (!change || isnan(change->low) || isnan(change->high))
        return TESS_VERDICT_NONE;
    if (change->low >= -margin && change->high <= margin)
        return TESS_VERDICT_INSIDE;
    return change->high < -margin ? TESS_VERDICT_BETTER
           : change->low > margin ? TESS_VERDICT_WORSE
                                  : TESS_VERDICT_OPEN;
}

const char *tess_verdict_name(tess_verdict verdict)
{
    static const char *const names[] = {"none", "inside", "better", "worse", "open"};
    return (unsigned)verdict < sizeof names / sizeof *names ? names[verdict] : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* sample_compare.c - a sparse clip compared with the dense one: PSNR, densities.
 *
 * PSNR is 10 log10(peak^2 / mean squared difference), of the pixels (peak 255) where the model
 * makes them, else of the latents, with the range of the dense one as the peak.
 */
#include "cmd_sample.h"

#include "tessera/plan.h"

#include <math.h>
#include <stdlib.h>

static double decibel(double peak, double squares, double n)
{
    return squares > 0.0 ? 10.0 * log10(peak * peak * n / squares) : (double)INFINITY;
}

static double psnr_latents(const float *sparse, const float *dense, int64_t n)
{
    double least = INFINITY, most = -INFINITY, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)dense[i], d = (double)sparse[i] - x;
        least = x < least ? x : least;
        most = x > most ? x : most;
        squares += d * d;
    }
    return decibel(most - least, squares, (double)n);
}

static tess_status psnr_pixels(sample_job *j)
{
    const tess_data_info *d = &j->trained.data;
    const int64_t size = j->size;
    uint8_t *pixels = malloc(2 * (size_t)size);
    double squares = 0.0;
    tess_status status = pixels ? TESS_OK : sample_no_memory(j);
    for (int64_t i = 0; i < j->clips && status == TESS_OK; i++) {
        status = tess_data_pixels(d, j->latents + i * size, pixels);
        if (status == TESS_OK)
            status = tess_data_pixels(d, j->dense + i * size, pixels + size);
        for (int64_t p = 0; p < size && status == TESS_OK; p++) {
            const double apart = (double)pixels[p] - (double)pixels[size + p];
            squares += apart * apart;
        }
    }
    free(pixels);
    if (status == TESS_OK)
        j->psnr = decibel(255.0, squares, (double)(j->clips * size));
    return status;
}

tess_status sample_psnr(sample_job *j)
{
    const tess_data_info *d = &j->trained.data;
    if (d->channels == 3 * d->pack * d->pack)
        return psnr_pixels(j);
    j->psnr = psnr_latents(j->latents, j->dense, j->clips * j->size);
    return TESS_OK;
}

/* ---- densities ------------------------------------------------------------------------------- */

double sample_density_mean(const sample_densities *d)
{
    const int64_t n = (int64_t)d->steps * d->layers * d->heads;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += d->sum[i];
    return sum / ((double)n * (double)d->clips);
}

tess_status sample_density_write(const sample_job *j)
{
    const sample_densities *d = &j->densities;
    const int64_t n = (int64_t)d->steps * d->layers * d->heads;
    const int most = d->steps > d->layers ? d->steps : d->layers;
    double *mean = malloc((size_t)n * sizeof *mean);
    int64_t *numbers = malloc((size_t)most * sizeof *numbers);
    tess_status status;
    if (!mean || !numbers) {
        status = sample_no_memory(j);
    } else {
        for (int64_t i = 0; i < n; i++) {
            /* A mean of ones may exceed 1 by its rounding. */
            const double x = d->sum[i] / (double)d->clips;
            mean[i] = x < 1.0 ? x : 1.0;
        }
        for (int i = 0; i < most; i++)
            numbers[i] = i;
        status = tess_profile_write(
            j->c->ctx, j->v->density_out,
            &(tess_profile_view){d->steps, d->layers, d->heads, numbers, numbers, mean});
    }
    free(mean);
    free(numbers);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* software.c - which software profile is meant where a scenario names none.
 *
 * Profiles list the hardware whose default they are and the month they begin with: of those of the
 * hardware the newest that is not after the job's date, or the newest of all. Where clips are
 * sampled it is the first profile of sampling, whatever the hardware. A table's row says in
 * words where it comes from; the longest pattern of all profiles that fits these words decides.
 */
#include "sim/sim_internal.h"
#include "sim/table.h"

#include <string.h>

int tess__software_default(const tess_sim_params *params, int hardware, const char *date)
{
    int best = -1, oldest = -1;
    for (int i = 0; i < params->n_eras; i++) {
        const tess__param_set *set = &params->eras[i];
        if (!(set->defaults >> hardware & 1))
            continue;
        if (oldest < 0 || strcmp(set->from, params->eras[oldest].from) < 0)
            oldest = i;
        if (*date && strncmp(set->from, date, strlen(date)) > 0)
            continue;
        if (best < 0 || strcmp(set->from, params->eras[best].from) > 0)
            best = i;
    }
    return best >= 0 ? best : oldest >= 0 ? oldest : params->default_era;
}

int tess__software_sampling(const tess_sim_params *params)
{
    for (int i = 0; i < params->n_eras; i++)
        if (params->eras[i].samples)
            return i;
    return params->default_era;
}

int tess__software_of(const tess_sim_params *params, const char *text)
{
    size_t longest = 0;
    int best = -1;
    for (int i = 0; i < params->n_eras; i++)
        for (int k = 0; k < params->eras[i].n_match; k++) {
            const char *pattern = params->eras[i].match[k];
            if (strlen(pattern) > longest && tess__pattern_fits(pattern, text)) {
                longest = strlen(pattern);
                best = i;
            }
        }
    return best;
}

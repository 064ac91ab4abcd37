/* SPDX-License-Identifier: Apache-2.0 */
/* job_entries.c - pairs and entries of a job, and rules that make entries of pairs. */
#include "job_internal.h"

#include "tessera/advanced/listing.h"
#include "tessera/advanced/sim_detail.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- pairs ----------------------------------------------------------------------------------- */

static tess_status copy(tess_job *job, const char *text, const char **out)
{
    *out = tess__arena_string(&job->arena, text, strlen(text));
    return *out ? TESS_OK : TESS_ENOMEM;
}

tess_status tess__job_pair_add(tess_job *job, const char *key, const char *value, int line)
{
    tess__job_pair p = {.line = line};
    if (job->n_pairs == TESS__JOB_PAIRS)
        return tess__fail(TESS_EFORMAT, "%s: line %d: more than %d keys", job->name, line,
                          TESS__JOB_PAIRS);
    TESS_TRY(copy(job, key, &p.key));
    TESS_TRY(copy(job, value, &p.value));
    TESS_TRY(tess__grow(job->ctx, &job->pairs, sizeof *job->pairs, job->n_pairs, job->n_pairs + 1,
                        &job->pair_room));
    job->pairs[job->n_pairs++] = p;
    return TESS_OK;
}

const tess__job_pair *tess__job_find(tess_job *job, const char *key)
{
    const tess__job_pair *found = NULL;
    for (int i = 0; i < job->n_pairs; i++)
        if (strcmp(job->pairs[i].key, key) == 0) {
            job->pairs[i].used = 1;
            found = &job->pairs[i];
        }
    return found;
}

const tess__job_pair *tess__job_either(tess_job *job, const char *key, const char *other)
{
    const tess__job_pair *second = tess__job_find(job, other);
    const tess__job_pair *first = tess__job_find(job, key);
    return first ? first : second;
}

int64_t tess__job_int(const tess__job_pair *pair, int64_t otherwise)
{
    char *end;
    if (!pair || !*pair->value || strlen(pair->value) > 15)
        return otherwise;
    const long long value = strtoll(pair->value, &end, 10);
    return *end ? otherwise : value;
}

/* ---- entries --------------------------------------------------------------------------------- */

static tess_status add(tess_job *job, const tess_job_entry *entry)
{
    TESS_TRY(
        tess__grow(job->ctx, &job->entries, sizeof *job->entries, job->n, job->n + 1, &job->room));
    job->entries[job->n++] = *entry;
    return TESS_OK;
}

tess_status tess__job_read(tess_job *job, const tess__job_pair *pair, const char *setting,
                           const char *value)
{
    tess_job_entry e = {.kind = TESS_JOB_READ,
                        .line = pair->line,
                        .key = pair->key,
                        .given = pair->value,
                        .why = ""};
    TESS_TRY(copy(job, setting, &e.setting));
    TESS_TRY(copy(job, value, &e.value));
    return add(job, &e);
}

tess_status tess__job_assume(tess_job *job, const char *setting, const char *value, const char *why)
{
    tess_job_entry e = {.kind = TESS_JOB_ASSUMED, .key = "", .given = ""};
    TESS_TRY(copy(job, setting, &e.setting));
    TESS_TRY(copy(job, value, &e.value));
    TESS_TRY(copy(job, why, &e.why));
    return add(job, &e);
}

tess_status tess__job_assume_int(tess_job *job, const char *setting, int64_t value, const char *why)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return tess__job_assume(job, setting, text, why);
}

tess_status tess__job_note(tess_job *job, tess_job_kind kind, const tess__job_pair *pair,
                           const char *why)
{
    tess_job_entry e = {.kind = kind,
                        .line = pair->line,
                        .key = pair->key,
                        .given = pair->value,
                        .setting = "",
                        .value = ""};
    TESS_TRY(copy(job, why, &e.why));
    return add(job, &e);
}

tess_status tess__job_steps(tess_job *job, const tess__job_pair *pair)
{
    const int64_t steps = tess__job_int(pair, 0);
    job->steps = (double)TESS_MAX(steps, 0);
    return pair && steps < 1
               ? tess__job_note(job, TESS_JOB_UNKNOWN, pair, "is no number of steps above 0")
               : TESS_OK;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static int fits(const char *pattern, const char *key)
{
    const size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(key, pattern, n - 1) == 0 : strcmp(key, pattern) == 0;
}

/* The word of a list "from=to,from=to" that a value stands for. 0: none. */
static int translate(const char *words, const char *value, char *out, size_t bytes)
{
    const size_t n = strlen(value);
    for (const char *at = words; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, value, n) == 0 && at[n] == '=') {
            snprintf(out, bytes, "%.*s", (int)strcspn(at + n + 1, ","), at + n + 1);
            return 1;
        }
    return 0;
}

tess_status tess__job_use(tess_job *job, const tess__job_pair *pair, const tess__job_rule *rule)
{
    char value[64], why[128];
    if (!rule->setting)
        return tess__job_note(job, rule->kind, pair,
                              rule->kind == TESS_JOB_UNMODELLED ? "the simulator has no setting "
                                                                  "for it"
                                                                : "");
    if (strchr(pair->value, '$')) {
        snprintf(why, sizeof why, "a value that the file does not assign; use --set %s=VALUE",
                 rule->setting);
        return tess__job_note(job, TESS_JOB_UNKNOWN, pair, why);
    }
    if (!rule->words)
        return tess__job_read(job, pair, rule->setting, pair->value);
    if (translate(rule->words, pair->value, value, sizeof value))
        return tess__job_read(job, pair, rule->setting, value);
    snprintf(why, sizeof why, "a value that is not known here; use --set %s=VALUE", rule->setting);
    return tess__job_note(job, TESS_JOB_UNKNOWN, pair, why);
}

/* Whether a later pair has the same key: the last one holds. */
static int replaced(const tess_job *job, int i)
{
    for (int k = i + 1; k < job->n_pairs; k++)
        if (strcmp(job->pairs[k].key, job->pairs[i].key) == 0)
            return 1;
    return 0;
}

tess_status tess__job_rules(tess_job *job, const tess__job_rule *rules, int n)
{
    for (int i = 0; i < job->n_pairs; i++) {
        const tess__job_pair pair = job->pairs[i];
        const tess__job_rule *rule = NULL;
        if (pair.used || replaced(job, i))
            continue;
        for (int k = 0; k < n && !rule; k++)
            if (fits(rules[k].key, pair.key))
                rule = &rules[k];
        TESS_TRY(rule ? tess__job_use(job, &pair, rule)
                      : tess__job_note(job, TESS_JOB_UNKNOWN, &pair, ""));
    }
    return TESS_OK;
}

/* ---- software -------------------------------------------------------------------------------- */

tess_status tess__job_software(tess_job *job, const char *beginning)
{
    tess_listing *listing = NULL;
    tess_listing_entry e;
    char name[64] = "", why[160];
    TESS_TRY(tess_listing_create(job->ctx, TESS_LISTING_SOFTWARE, NULL, &listing));
    for (int i = 0; tess_listing_query(listing, i, &e) == TESS_OK; i++) {
        const size_t n = strlen(e.name);
        if (strncmp(e.name, beginning, strlen(beginning)) == 0 && n > 4 && n < sizeof name &&
            strcmp(e.name + n - 4, *name ? name + strlen(name) - 4 : "") > 0)
            memcpy(name, e.name, n + 1); /* names end in a year */
    }
    tess_listing_destroy(listing);
    if (*name) {
        snprintf(why, sizeof why, "the newest software that begins with %s", beginning);
        return tess__job_assume(job, "system.era", name, why);
    }
    snprintf(why, sizeof why, "no software begins with %s: the default", beginning);
    return tess__job_assume(job, "system.era", "", why);
}

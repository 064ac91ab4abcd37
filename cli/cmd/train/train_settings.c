/* SPDX-License-Identifier: Apache-2.0 */
/* train_settings.c - options from a JSON file, and back.
 *
 *   {"preset": "small", "steps": 1500, "lr": 0.003, "recompute": false, "seed": 0, ...}
 *
 * Members are options by their names, without those of the run's folder and its start.
 * They become words of a command line, "--lr=0.003", in front of those the user wrote: the last
 * one of an option wins, and one parser with one set of rules reads them all.
 */
#include "cmd_train.h"

#include "file/json_write.h"
#include "tessera/advanced/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const opt *find(const opt *table, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

/* Whether an option is a setting: not where a run lies, nor what is done with it and by whom. */
static int is_setting(const opt *o)
{
    static const char *const others[] = {
        "out",     "resume", "settings",  "dry-run",     "branch",     "ranks-context",  "strategy",
        "cluster", "speeds", "trace-out", "trace-ranks", "trace-rank", "trace-together", "until"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(o->name, others[i]) == 0)
            return 0;
    return 1;
}

/* The option of a settings' member, or NULL; of the common ones the seed alone. */
static const opt *setting(const command *cmd, const char *name)
{
    int n;
    const opt *shared = opt_common(cmd, &n);
    const opt *o = find(cmd->options, cmd->n_options, name);
    if (o)
        return is_setting(o) ? o : NULL;
    return strcmp(name, "seed") == 0 ? find(shared, n, name) : NULL;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* The name that was probably meant: by few edits, or the beginning of the one that was written, as
 * of batch_size. Names of settings have dashes. */
static const char *meant(const char *key, const char *const *names, int n)
{
    char dashed[80];
    snprintf(dashed, sizeof dashed, "%s", key);
    for (char *p = dashed; *p; p++)
        *p = *p == '_' ? '-' : *p;
    const char *near = tess_nearest(dashed, names, n);
    for (int i = 0; i < n && !near; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(dashed, names[i], length) == 0 && dashed[length] == '-')
            near = names[i];
    }
    return near ? near : strncmp(dashed, "learning", 8) == 0 ? "lr" : NULL;
}

static tess_status unknown(cli *c, const char *path, const char *key)
{
    const char *names[128];
    int n = 0;
    for (int i = 0; i < c->cmd->n_options && n < 127; i++)
        if (is_setting(&c->cmd->options[i]))
            names[n++] = c->cmd->options[i].name;
    names[n++] = "seed";
    const char *near = meant(key, names, n);
    return out_usage(c, "%s: unknown member \"%.80s\"%s%s%s", path, key,
                     near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* YAML is not read: the type of its scalars depends on their spelling (no, 1e-3), and one format of
 * one parser has one set of rules. */
static int is_yaml(const char *path)
{
    const char *end = strrchr(path, '.');
    return end && (strcmp(end, ".yaml") == 0 || strcmp(end, ".yml") == 0);
}

/* "--name=value", "--name" or "--no-name". */
static tess_status word_of(cli *c, const char *path, const char *key, const json_t *value,
                           char **word)
{
    const opt *o = setting(c->cmd, key);
    if (!o)
        return unknown(c, path, key);
    const int flag = !opt_takes_value(o);
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    const size_t bytes = strlen(key) + strlen(text) + 48;
    char number[TESS_REAL_TEXT];
    char *w = malloc(bytes);
    if (!w)
        return out_fail(c, TESS_ENOMEM, "no memory for the settings");
    if (flag && json_is_boolean(value))
        snprintf(w, bytes, "--%s%s", json_is_true(value) ? "" : "no-", key);
    else if (!flag && json_is_string(value))
        snprintf(w, bytes, "--%s=%s", key, text);
    else if (!flag && json_is_integer(value))
        snprintf(w, bytes, "--%s=%lld", key, (long long)json_integer_value(value));
    else if (!flag && json_is_real(value))
        snprintf(w, bytes, "--%s=%s", key, tess__real_text(json_real_value(value), 0, number));
    else {
        free(w);
        return out_fail(c, TESS_EFORMAT, "%s: \"%s\" must be %s", path, key,
                        flag ? "true or false" : "a text or a number");
    }
    *word = w;
    return TESS_OK;
}

/* The file's members as words behind those there are. */
static tess_status add_words(cli *c, const char *path, const json_t *root, train_settings *s)
{
    const size_t room = (size_t)s->n_words + json_object_size(root);
    char **words = realloc(s->words, (room + 1) * sizeof *words);
    if (!words)
        return out_fail(c, TESS_ENOMEM, "no memory for the settings");
    s->words = words;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        TRY(word_of(c, path, key, value, &words[s->n_words]));
        s->n_words++;
    }
    return TESS_OK;
}

/* own: 1: the settings of a run. One from before there were windows reads the first frames. */
static tess_status add_file(cli *c, const char *path, int own, train_settings *s)
{
    char error[OPT_ERROR_MAX];
    json_error_t wrong = {.line = 0};
    const int before = s->n_words;
    FILE *f;
    TRY(input_open(c, path, &f));
    json_t *root = is_yaml(path) ? NULL : json_loadf(f, JSON_REJECT_DUPLICATES, &wrong);
    fclose(f);
    if (is_yaml(path))
        return out_usage(c, "%s: is YAML, must be JSON, such as {\"steps\": 1500, \"lr\": 0.003}",
                         path);
    if (!root)
        return out_fail(c, TESS_EFORMAT, "%s: line %d: %s", path, wrong.line, wrong.text);
    const int before_windows = own && json_is_object(root) && !json_object_get(root, "stride");
    tess_status status =
        before_windows && json_object_set_new(root, "stride", json_integer(0))
            ? out_fail(c, TESS_ENOMEM, "no memory for the settings")
        : json_is_object(root)
            ? add_words(c, path, root, s)
            : out_fail(c, TESS_EFORMAT, "%s: is no JSON object, must hold options by name", path);
    json_decref(root);
    TRY(status);
    /* Read alone first, so that a value that breaks its rule is reported with the file's name. */
    status = opt_parse(c->cmd, s->n_words - before, s->words + before, s->values, error) == 0
                 ? TESS_OK
                 : out_fail(c, TESS_EFORMAT, "%s: %s", path, error);
    opt_free(c->cmd, s->values);
    return status;
}

/* The words of the files, then those of the user. */
static tess_status parse_all(cli *c, train_settings *s)
{
    char error[OPT_ERROR_MAX];
    char **words = calloc((size_t)(s->n_words + c->argc) + 1, sizeof *words);
    if (!words)
        return out_fail(c, TESS_ENOMEM, "no memory for the settings");
    for (int i = 0; i < s->n_words + c->argc; i++)
        words[i] = i < s->n_words ? s->words[i] : c->argv[i - s->n_words];
    const int failed = opt_parse(c->cmd, s->n_words + c->argc, words, s->values, error);
    free(words);
    return failed ? out_usage(c, "%s", error) : TESS_OK;
}

/* The settings that a resumed run has, or the one that a new one branches off; 0: none. */
static int find_own(const train_values *v, char *path, size_t bytes)
{
    const char *folders[] = {v->resume ? v->out : NULL, v->branch};
    for (int i = 0; i < 2; i++)
        if (folders[i] && (size_t)snprintf(path, bytes, "%s/settings.json", folders[i]) < bytes &&
            access(path, F_OK) == 0)
            return 1;
    return 0;
}

tess_status train_settings_read(cli *c, const train_values *v, train_settings *s,
                                const train_values **values)
{
    char path[4096];
    *values = v;
    const int own = find_own(v, path, sizeof path);
    if (!own && !v->settings)
        return TESS_OK;
    s->values = calloc(1, sizeof *s->values);
    if (!s->values)
        return out_fail(c, TESS_ENOMEM, "no memory for the settings");
    if (own) {
        TRY(out_input(c, add_file(c, path, 1, s)));
        s->n_own = s->n_words;
        s->own = malloc(sizeof *s->own);
        if (!s->own)
            return out_fail(c, TESS_ENOMEM, "no memory for the settings");
        *s->own = *s->values; /* train has no option that repeats: nothing of it was freed */
    }
    if (v->settings)
        TRY(out_input(c, add_file(c, v->settings, 0, s)));
    TRY(parse_all(c, s));
    *values = s->values;
    return TESS_OK;
}

/* Whether "--name" or "--name=..." is among the words. */
static int has(char *const *words, int n, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < n; i++)
        if (strncmp(words[i], "--", 2) == 0 && strncmp(words[i] + 2, name, length) == 0 &&
            (words[i][length + 2] == '=' || !words[i][length + 2]))
            return 1;
    return 0;
}

int train_settings_given(const cli *c, const train_settings *s, const char *name)
{
    return has(c->argv, c->argc, name) || has(s->words + s->n_own, s->n_words - s->n_own, name);
}

int train_settings_has(const train_settings *s, const char *name)
{
    return has(s->words, s->n_own, name);
}

void train_settings_free(train_settings *s)
{
    for (int i = 0; i < s->n_words; i++)
        free(s->words[i]);
    free(s->words);
    free(s->own);
    free(s->values);
}

/* ---- out ------------------------------------------------------------------------------------- */

static json_t *cube_text(const int cube[3])
{
    return cube[0] ? json_sprintf("%dx%dx%d", cube[0], cube[1], cube[2]) : json_string("auto");
}

static json_t *member(const opt *o, const void *values)
{
    const void *at = (const char *)values + o->offset;
    switch (o->type) {
    case OPT_FLAG: return json_boolean(*(const int *)at);
    case OPT_INT:
    case OPT_SIZE: return json_integer(o->narrow ? *(const int *)at : *(const int64_t *)at);
    case OPT_DOUBLE: return json_real(*(const double *)at);
    case OPT_CHOICE: return json_string(opt_word(o, values));
    case OPT_CUBE: return cube_text(at);
    default: return json_string(*(const char *const *)at);
    }
}

/* Texts and words may be missing; numbers are not. */
static int has_value(const opt *o, const void *values)
{
    const void *at = (const char *)values + o->offset;
    const int text =
        o->type == OPT_PATH || o->type == OPT_STRING || (o->type == OPT_CHOICE && !o->narrow);
    return !text || *(const char *const *)at;
}

char *train_settings_text(const command *cmd, const train_values *v)
{
    json_t *root = json_object();
    int failed = !root || json_object_set_new(root, "seed", json_integer(v->common.seed));
    for (int i = 0; i < cmd->n_options && !failed; i++) {
        const opt *o = &cmd->options[i];
        if (is_setting(o) && has_value(o, v))
            failed = json_object_set_new(root, o->name, member(o, v)) != 0;
    }
    char *text = failed ? NULL : out_json(root);
    json_decref(root);
    return text;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* script_read.c - the flags of a shell script that starts a job.
 *
 *   TP=8                                        --tensor-model-parallel-size = 8
 *   ARGS=(--num-layers 96                       --num-layers = 96
 *         --tensor-model-parallel-size $TP)     --bf16 =
 *   torchrun --nnodes 4 pretrain_gpt.py ${ARGS[@]} --bf16     --nnodes = 4
 *
 * The script is read from top to bottom, nothing is run: assignments are kept, and the flags of
 * commands that start a .py file become pairs, underscores written as dashes, a flag's words with
 * commas between them; without such a command those of all variables. Lines "#SBATCH --nodes=4"
 * become pairs with the key "#SBATCH --nodes". Both branches of an `if` are read.
 */
#include "script.h"

#include <string.h>

enum { FLAG_MAX = 128 };

typedef struct {
    tess__script s;
    char key[FLAG_MAX]; /* the flag whose words come; "": none */
    char value[TESS__JOB_VALUE];
    int line;
    int program; /* 1: the command starts a .py file */
    int if_line; /* of the first if; 0: none */
} reader;

/* ---- flags ----------------------------------------------------------------------------------- */

static tess_status flush(reader *r)
{
    if (r->key[0])
        TESS_TRY(tess__job_pair_add(r->s.job, r->key, r->value, r->line));
    r->key[0] = r->value[0] = '\0';
    return TESS_OK;
}

static tess_status begin_flag(reader *r, const char *word, size_t length)
{
    const char *equal = memchr(word, '=', length);
    const size_t n = equal ? (size_t)(equal - word) : length;
    TESS_TRY(flush(r));
    if (n >= FLAG_MAX || n < 3)
        return TESS_OK;
    for (size_t i = 0; i < n; i++)
        r->key[i] = word[i] == '_' ? '-' : word[i];
    r->key[n] = '\0';
    r->line = r->s.line;
    if (equal)
        snprintf(r->value, sizeof r->value, "%.*s", (int)(length - n - 1), equal + 1);
    return TESS_OK;
}

/* One word of a command, after expansion. */
static tess_status take(reader *r, const char *word, size_t length)
{
    const int number = length > 1 && word[0] == '-' && word[1] >= '0' && word[1] <= '9';
    if (length > 3 && memcmp(word + length - 3, ".py", 3) == 0) {
        r->program = 1;
        return flush(r);
    }
    if (length > 1 && word[0] == '-' && word[1] == '-')
        return begin_flag(r, word, length);
    if (length > 0 && ((word[0] == '-' && !number) || word[0] == '<' || word[0] == '>'))
        return flush(r);
    if (!r->key[0] || length == 0)
        return TESS_OK;
    const size_t used = strlen(r->value);
    snprintf(r->value + used, sizeof r->value - used, "%s%.*s", used ? "," : "", (int)length, word);
    return TESS_OK;
}

/* Words of a text; quoted ones that hold flags are cut at blanks too, as `bash -c "..."` has. */
static tess_status take_all(reader *r, const char *text)
{
    const char *cuts = strstr(text, " --") ? "\x1f \t\n\\" : "\x1f";
    while (*text) {
        const size_t n = strcspn(text, cuts);
        TESS_TRY(take(r, text, n));
        text += n + (text[n] != '\0');
    }
    return TESS_OK;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Bytes of NAME in "NAME=..." or "NAME+=...", 0: no assignment. */
static size_t name_of(const char *word, int *append)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    const size_t n = strspn(word, letters);
    *append = word[n] == '+';
    return n > 0 && (word[0] < '0' || word[0] > '9') && word[n + (size_t)*append] == '=' ? n : 0;
}

static tess_status assign(reader *r, const char *name, size_t n, const char *text, int append)
{
    tess__script *s = &r->s;
    const char *before = append ? tess__script_value(s, name, n) : NULL;
    if (!before)
        return tess__script_assign(s, name, n, text);
    const size_t bytes = strlen(before) + strlen(text) + 2;
    if (bytes > TESS__SCRIPT_WORD)
        return tess__script_fail(s, "a value longer than %d bytes", TESS__SCRIPT_WORD - 1);
    char *both = tess__arena_take(&s->job->arena, bytes);
    if (!both)
        return TESS_ENOMEM;
    snprintf(both, bytes, "%s%s", before, text);
    return tess__script_assign(s, name, n, both);
}

/* The elements behind "NAME=(", up to the parenthesis that closes. */
static tess_status read_array(reader *r, const char *name, size_t n, int append)
{
    tess__script *s = &r->s;
    const int line = s->line;
    char *all = tess__alloc(s->job->ctx, TESS__SCRIPT_WORD);
    size_t used = 0;
    tess_status status = all ? TESS_OK : TESS_ENOMEM;
    tess__script_part part = TESS__SCRIPT_TEXT;
    while (status == TESS_OK && part != TESS__SCRIPT_CLOSE) {
        status = tess__script_next(s, &part);
        if (status == TESS_OK && part == TESS__SCRIPT_END && s->at == s->end) {
            s->line = line;
            status = tess__script_fail(s, "an array without its )");
        }
        if (status != TESS_OK || part != TESS__SCRIPT_TEXT)
            continue;
        if (used + s->used + 2 > TESS__SCRIPT_WORD)
            status = tess__script_fail(s, "an array longer than %d bytes", TESS__SCRIPT_WORD - 1);
        else
            used += (size_t)snprintf(all + used, TESS__SCRIPT_WORD - used, "%c%s", TESS__SCRIPT_CUT,
                                     s->word);
    }
    if (status == TESS_OK) {
        all[used] = '\0';
        status = assign(r, name, n, all, append);
    }
    tess__free(s->job->ctx, all);
    return status;
}

/* An assignment: the word, or the array that follows it. */
static tess_status read_assignment(reader *r, size_t n, int append)
{
    tess__script *s = &r->s;
    char name[TESS__SCRIPT_NAME];
    const char *text = s->word + n + (size_t)append + 1;
    if (n >= sizeof name)
        return tess__script_fail(s, "a name longer than %d bytes", TESS__SCRIPT_NAME - 1);
    memcpy(name, s->word, n);
    if (!*text && s->at < s->end && *s->at == '(') {
        s->at++;
        return read_array(r, name, n, append);
    }
    for (char *c = s->word; *c; c++) /* an assignment is one word */
        if (*c == TESS__SCRIPT_CUT)
            *c = ' ';
    return assign(r, name, n, text, append);
}

static int is_keyword(const char *word)
{
    static const char *const words[] = {"export", "declare", "readonly", "local", "then",
                                        "else",   "elif",    "do",       "if",    "{",
                                        "!",      "time",    "exec",     "eval",  "case"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return 1;
    return 0;
}

static tess_status read_command(reader *r)
{
    tess__script *s = &r->s;
    const int n_pairs = s->job->n_pairs;
    tess__script_part part = TESS__SCRIPT_TEXT;
    int begins = 1, append;
    r->program = 0;
    for (;;) {
        TESS_TRY(tess__script_next(s, &part));
        if (part == TESS__SCRIPT_END)
            break;
        if (part != TESS__SCRIPT_TEXT)
            continue;
        const size_t name = begins ? name_of(s->word, &append) : 0;
        if (begins && !r->if_line && (strcmp(s->word, "if") == 0 || strcmp(s->word, "case") == 0))
            r->if_line = s->line;
        if (name) {
            TESS_TRY(read_assignment(r, name, append));
            continue;
        }
        begins = begins && is_keyword(s->word);
        TESS_TRY(take_all(r, s->word));
    }
    TESS_TRY(flush(r));
    if (!r->program)
        s->job->n_pairs = n_pairs;
    return TESS_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Lines of the batch system: "#SBATCH --nodes=4". */
static tess_status read_batch(reader *r, const char *text, const char *end)
{
    static const char mark[] = "#SBATCH ";
    int line = 1;
    for (const char *at = text; at < end; line++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        const char *stop = next ? next : end;
        if ((size_t)(stop - at) > strlen(mark) && memcmp(at, mark, strlen(mark)) == 0) {
            char word[256], key[FLAG_MAX];
            snprintf(word, sizeof word, "%.*s", (int)(stop - at) - (int)strlen(mark),
                     at + strlen(mark));
            word[strcspn(word, "#\r")] = '\0';
            const size_t n = strcspn(word, "= ");
            snprintf(key, sizeof key, "%s%.*s", mark, (int)n, word);
            const char *value = word + n + strspn(word + n, "= ");
            word[n + strspn(word + n, "= ") + strcspn(value, " \t")] = '\0';
            TESS_TRY(tess__job_pair_add(r->s.job, key, value, line));
        }
        at = next ? next + 1 : end;
    }
    return TESS_OK;
}

static tess_status read_all(reader *r, const char *text, size_t bytes)
{
    tess__script *s = &r->s;
    TESS_TRY(read_batch(r, text, text + bytes));
    const int n_batch = s->job->n_pairs;
    while (s->at < s->end)
        TESS_TRY(read_command(r));
    const int none = s->job->n_pairs == n_batch;
    for (int i = 0; none && i < s->n_variables; i++) {
        /* no command starts a program: flags wait in variables for another script */
        TESS_TRY(take_all(r, s->variables[i].text));
        TESS_TRY(flush(r));
    }
    if (r->if_line)
        TESS_TRY(tess__job_pair_add(s->job, "if", "", r->if_line));
    return TESS_OK;
}

tess_status tess__script_read(tess_job *job, const char *text, size_t bytes)
{
    reader *r = tess__alloc_zero(job->ctx, sizeof *r);
    tess_status status = r ? TESS_OK : TESS_ENOMEM;
    if (r) {
        r->s = (tess__script){.job = job, .at = text, .end = text + bytes, .line = 1};
        r->s.word = tess__alloc(job->ctx, TESS__SCRIPT_WORD);
        status = r->s.word ? read_all(r, text, bytes) : TESS_ENOMEM;
        tess__free(job->ctx, r->s.word);
        tess__free(job->ctx, r->s.variables);
    }
    tess__free(job->ctx, r);
    return status;
}

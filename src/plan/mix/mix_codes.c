/* SPDX-License-Identifier: Apache-2.0 */
/* mix_codes.c - clips from KnapFormer's short codes (arXiv:2508.06001).
 *
 *   list   = code {"," code}
 *   code   = "g" ranks "b" batch "i" side "f" frames "s" shortened
 *   tokens = floor(side / 16)^2 x (frames if shortened is 0, else max(1, int(frames / 3.4)))
 *
 * The list is one group of ranks, and groups repeat until the ranks are used up; the last group may
 * be incomplete. Clips are listed step by step, rank by rank.
 */
#include "mix_internal.h"

#include <string.h>

enum { CODES_MAX = 256, CODE_TEXT = 48 };

typedef struct {
    int64_t ranks, batch, side, frames, shortened;
    int64_t tokens;
} code;

tess_status tess__mix_new(tess_ctx *ctx, int64_t n, tess_mix **mix, tess_mix_clip **clips)
{
    tess__arena arena = {.ctx = ctx};
    tess_mix *made = tess__arena_take(&arena, sizeof *made);
    *clips = made ? tess__arena_take(&arena, (size_t)n * sizeof **clips) : NULL;
    if (!*clips) {
        tess__arena_free(&arena);
        return TESS_ENOMEM;
    }
    *made = (tess_mix){.arena = arena, .clips = *clips, .n = n};
    *mix = made;
    return TESS_OK;
}

const tess_mix_clip *tess_mix_clips(const tess_mix *mix, int64_t *n)
{
    if (n)
        *n = mix ? mix->n : 0;
    return mix ? mix->clips : NULL;
}

void tess_mix_destroy(tess_mix *mix)
{
    if (!mix)
        return;
    tess__arena arena = mix->arena;
    tess__arena_free(&arena);
}

/* A letter and a number after it; NULL: something else. */
static const char *field(const char *at, char letter, int64_t *value)
{
    if (!at || *at != letter || at[1] < '0' || at[1] > '9')
        return NULL;
    *value = 0;
    for (at++; *at >= '0' && *at <= '9'; at++) {
        *value = *value * 10 + (*at - '0');
        if (*value > INT32_MAX)
            return NULL;
    }
    return at;
}

/* What stands at `at`, up to its comma, as a sentence can hold it. */
static const char *quote(const char *at, char text[CODE_TEXT])
{
    size_t n = strcspn(at, ",");
    n = n < CODE_TEXT - 1 ? n : CODE_TEXT - 1;
    for (size_t i = 0; i < n; i++)
        text[i] = at[i] < 32 || at[i] > 126 ? '?' : at[i];
    text[n] = '\0';
    return text;
}

static tess_status read_code(const char *who, const char **at, code *c)
{
    char text[CODE_TEXT];
    const char *const begin = *at;
    const char *end = field(begin, 'g', &c->ranks);
    end = field(end, 'b', &c->batch);
    end = field(end, 'i', &c->side);
    end = field(end, 'f', &c->frames);
    end = field(end, 's', &c->shortened);
    if (!end || (*end && *end != ','))
        return tess__invalid(who,
                             "code \"%s\" must be like g8b32i256f1s0: ranks, batch, side, "
                             "frames, 1 for shortened ones",
                             quote(begin, text));
    if (c->ranks < 1 || c->ranks > 65536)
        return tess__invalid(who, "code \"%s\": g is %lld, must be 1..65536", quote(begin, text),
                             (long long)c->ranks);
    if (c->batch < 1 || c->batch > TESS_MIX_CLIPS_MAX)
        return tess__invalid(who, "code \"%s\": b is %lld, must be 1..%d", quote(begin, text),
                             (long long)c->batch, (int)TESS_MIX_CLIPS_MAX);
    if (c->side < 16 || c->side > 65536)
        return tess__invalid(who, "code \"%s\": i is %lld, must be 16..65536 pixels",
                             quote(begin, text), (long long)c->side);
    if (c->frames < 1 || c->frames > 65536)
        return tess__invalid(who, "code \"%s\": f is %lld, must be 1..65536", quote(begin, text),
                             (long long)c->frames);
    if (c->shortened > 1)
        return tess__invalid(who, "code \"%s\": s is %lld, must be 0 or 1", quote(begin, text),
                             (long long)c->shortened);
    const int64_t latent = c->frames * 10 / 34; /* int(frames / 3.4) */
    const int64_t frames = c->shortened ? TESS_MAX(latent, 1) : c->frames;
    c->tokens = (c->side / 16) * (c->side / 16) * frames;
    if (c->tokens > INT32_MAX)
        return tess__invalid(who, "code \"%s\": a clip has %lld tokens, must be 1..2147483647",
                             quote(begin, text), (long long)c->tokens);
    *at = end;
    return TESS_OK;
}

static tess_status read_list(const char *who, const char *text, code *codes, int *n)
{
    const char *at = text;
    for (*n = 0;; at++) {
        if (*n == CODES_MAX)
            return tess__invalid(who, "more than %d codes", (int)CODES_MAX);
        TESS_TRY(read_code(who, &at, &codes[(*n)++]));
        if (!*at)
            return TESS_OK;
    }
}

/* Clips of one step on all ranks; clips NULL: only counts. */
static int64_t draw(const code *codes, int n, int ranks, tess_mix_clip *clips)
{
    int64_t count = 0;
    for (int rank = 0, k = 0; rank < ranks; k = (k + 1) % n)
        for (int64_t i = 0; i < codes[k].ranks && rank < ranks; i++, rank++) {
            for (int64_t b = 0; b < codes[k].batch && clips; b++)
                clips[count + b] = (tess_mix_clip){
                    .tokens = codes[k].tokens, .density = 1.0, .drawn_by = (int32_t)rank};
            count += codes[k].batch;
        }
    return count;
}

tess_status tess_mix_parse(tess_ctx *ctx, const char *text, int ranks, int steps, tess_mix **mix)
{
    TESS_REQUIRE(ctx, text, mix);
    TESS_TRY(tess__check_range(__func__, "ranks", ranks, 1, 65536));
    TESS_TRY(tess__check_range(__func__, "steps", steps, 1, 4096));
    code codes[CODES_MAX];
    int n;
    TESS_TRY(read_list(__func__, text, codes, &n));
    const int64_t count = draw(codes, n, ranks, NULL);
    if (count * steps > TESS_MIX_CLIPS_MAX)
        return tess__invalid(__func__, "%lld clips, must be at most %d", (long long)count * steps,
                             (int)TESS_MIX_CLIPS_MAX);
    tess_mix_clip *clips;
    TESS_TRY(tess__mix_new(ctx, count * steps, mix, &clips));
    for (int s = 0; s < steps; s++)
        draw(codes, n, ranks, clips + s * count);
    return TESS_OK;
}

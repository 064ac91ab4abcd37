/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.c - a scenario's defaults and rules.
 *
 * Every value is checked where it stands, then defaults are derived in the order model, layout,
 * training, and last the rules that connect groups: tp divides heads, gpus = tp cp pp dp, the
 * global batch divides into micro-batches.
 */
#include "fields.h"

static tess_status fail_rule(const char *name, int64_t value, const char *rule_text, int64_t other)
{
    return tess__fail(TESS_EINVAL, "scenario: %s is %lld, must %s %lld", name, (long long)value,
                      rule_text, (long long)other);
}

/* Whole numbers, switches and words; reals have rules of their own below. */
static tess_status check_field(const tess_scenario *s, const tess__field *f)
{
    const char *at = (const char *)s + f->offset;
    if (f->type == TESS__FIELD_REAL || f->type == TESS__FIELD_TEXT)
        return TESS_OK;
    int64_t high = (int64_t)f->high;
    for (int i = 0; f->words && f->words[i]; i++)
        high = f->type == TESS__FIELD_SET ? (2LL << i) - 1 : i;
    const int64_t value = f->type == TESS__FIELD_INT64 ? *(const int64_t *)at : *(const int *)at;
    if (value >= (int64_t)f->low && value <= high)
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "scenario: %s.%s is %lld, must be %lld..%lld", f->group, f->name,
                      (long long)value, (long long)f->low, (long long)high);
}

static tess_status check_ranges(const tess_scenario *s)
{
    for (int i = 0; i < tess__n_fields; i++)
        TESS_TRY(check_field(s, &tess__fields[i]));
    const tess_sim_model *m = &s->model;
    const struct {
        const char *name;
        double value, low, high;
    } rules[] = {{"model.imbalance", m->imbalance, 1, 65536},
                 {"model.sparse_forward", m->sparse_forward, 0.001, 10},
                 {"model.sparse_backward", m->sparse_backward, 0.001, 10},
                 {"model.capacity", m->capacity, 1, 65536},
                 {"model.vae_mflop", m->vae_mflop, 1e-3, 1e5},
                 {"model.text_billion", m->text_billion, 1e-6, 1e4}};
    TESS_TRY(tess__check_number("scenario", "model.density", m->density, 0, 1));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        TESS_TRY(tess__check_number_or_0("scenario", rules[i].name, rules[i].value, rules[i].low,
                                         rules[i].high));
    return TESS_OK;
}

static void set_default(int *value, int otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

static void set_default_real(double *value, double otherwise)
{
    if (*value == 0.0)
        *value = otherwise;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Of several sizes, the mean. */
static tess_status fill_clips(tess_sim_model *m)
{
    tess__clip clips[TESS__CLIPS_MAX];
    double mean = 0.0;
    int n;
    TESS_TRY(tess__clips_read(m, clips, &n));
    for (int i = 0; i < n; i++) {
        mean += clips[i].share * (double)clips[i].tokens;
        if (m->double_layers && clips[i].tokens <= m->text)
            return fail_rule("tokens of model.clips", clips[i].tokens, "be more than model.text,",
                             m->text);
    }
    m->seq = (int64_t)(mean + 0.5);
    return TESS_OK;
}

/* Tokens of a clip: the autoencoder keeps the first frame and strides over the others. */
static tess_status fill_video(tess_sim_model *m)
{
    set_default(&m->stride_t, 4);
    set_default(&m->stride_s, 8);
    set_default(&m->patch_t, 1);
    set_default(&m->patch_s, 2);
    set_default(&m->latent, 16);
    m->full = 1;
    if (m->clips[0])
        return fill_clips(m);
    if (m->seq)
        return TESS_OK;
    if (!m->frames || !m->height || !m->width)
        return tess__fail(TESS_EINVAL,
                          "scenario: a DiT needs model.seq, or model.frames, height and width");
    return tess__clip_tokens(
        m, &(tess__clip){.frames = m->frames, .height = m->height, .width = m->width}, NULL,
        &m->seq);
}

static tess_status check_streams(const tess_sim_model *m)
{
    if (!m->double_layers)
        return TESS_OK;
    if (m->kind != TESS_SIM_DIT || m->cross || !m->text)
        return tess__fail(TESS_EINVAL,
                          "scenario: model.double_layers is %d, needs a DiT with model.text and "
                          "without model.cross",
                          m->double_layers);
    if (m->experts)
        return fail_rule("model.double_layers", m->double_layers, "be 0 with experts, not",
                         m->double_layers);
    if (m->double_layers > m->layers)
        return fail_rule("model.double_layers", m->double_layers, "be at most model.layers,",
                         m->layers);
    return m->seq <= m->text ? fail_rule("model.seq", m->seq, "be more than model.text,", m->text)
                             : TESS_OK;
}

static tess_status fill_experts(tess_sim_model *m)
{
    if (!m->experts)
        return TESS_OK;
    if (!m->top_k || m->top_k > m->experts)
        return tess__fail(TESS_EINVAL, "scenario: model.top_k is %d, must be 1..%d (model.experts)",
                          m->top_k, m->experts);
    if (!m->expert_ffn)
        m->expert_ffn = m->ffn;
    if (m->dense_layers > m->layers)
        return fail_rule("model.dense_layers", m->dense_layers, "be at most model.layers",
                         m->layers);
    set_default_real(&m->capacity, 1.0);
    return TESS_OK;
}

static tess_status fill_model(tess_sim_model *m)
{
    set_default(&m->kv_heads, m->heads);
    if (m->kv_rank) {
        if (!m->nope_dim || !m->value_dim)
            return tess__fail(TESS_EINVAL,
                              "scenario: model.kv_rank is %d, but model.nope_dim or "
                              "model.value_dim is missing",
                              m->kv_rank);
        m->head_dim = m->nope_dim + m->rope_dim;
    }
    if (!m->head_dim && m->hidden % m->heads)
        return fail_rule("model.hidden", m->hidden, "be a multiple of model.heads", m->heads);
    set_default(&m->head_dim, m->hidden / m->heads);
    set_default(&m->value_dim, m->head_dim);
    if (m->heads % m->kv_heads)
        return fail_rule("model.heads", m->heads, "be a multiple of model.kv_heads", m->kv_heads);
    if (!m->ffn)
        m->ffn = 4 * (int64_t)m->hidden;
    set_default_real(&m->density, 1.0);
    set_default_real(&m->imbalance, 1.0);
    set_default(&m->sparse_layers, m->layers);
    if (m->sparse_layers > m->layers)
        return fail_rule("model.sparse_layers", m->sparse_layers, "be at most model.layers,",
                         m->layers);
    TESS_TRY(fill_experts(m));
    if (m->clips[0] && m->kind != TESS_SIM_DIT)
        return tess__fail(TESS_EINVAL, "scenario: model.clips needs model.kind dit");
    if (m->kind == TESS_SIM_DIT)
        TESS_TRY(fill_video(m));
    TESS_TRY(check_streams(m));
    if (!m->seq)
        return tess__fail(TESS_EINVAL, "scenario: model.seq is 0, must be 1 or more");
    return TESS_OK;
}

/* ---- layout and training --------------------------------------------------------------------- */

/* Parts of a stage that a schedule has. */
static tess_status check_chunks(const tess_sim_layout *l)
{
    switch (l->schedule) {
    case TESS_SIM_INTERLEAVED:
    case TESS_SIM_INTERLEAVED_ZB:
    case TESS_SIM_GPIPE_LOOPED: return TESS_OK;
    case TESS_SIM_SCHEDULE_FILE:
        return l->schedule_file[0]
                   ? TESS_OK
                   : tess__fail(TESS_EINVAL, "scenario: layout.schedule is file, but "
                                             "layout.schedule_file is missing");
    case TESS_SIM_DUALPIPE:
        if (l->pp % 2)
            return fail_rule("layout.pp", l->pp, "with dualpipe be a multiple of", 2);
        return l->vpp == 1
                   ? TESS_OK
                   : fail_rule("layout.vpp", l->vpp, "be 1 with this schedule, not", l->vpp);
    case TESS_SIM_ZB_V:
        return l->vpp == 2 ? TESS_OK
                           : fail_rule("layout.vpp", l->vpp, "be 2 with zb-v, not", l->vpp);
    default:
        return l->vpp == 1
                   ? TESS_OK
                   : fail_rule("layout.vpp", l->vpp, "be 1 with this schedule, not", l->vpp);
    }
}

/* Ranks of a stage that split one copy of its state. */
static int64_t shard_ranks(const tess_sim_layout *l)
{
    return (int64_t)l->tp * l->cp * l->dp / l->replicas;
}

static tess_status check_hybrid(const tess_sim_model *m, const tess_sim_layout *l)
{
    if (l->cp_kind != TESS_SIM_CP_HYBRID)
        return l->cp_heads ? tess__fail(TESS_EINVAL,
                                        "scenario: layout.cp_heads is %d, but layout.cp_kind is "
                                        "not hybrid",
                                        l->cp_heads)
                           : TESS_OK;
    if (!l->cp_heads || l->cp % l->cp_heads)
        return fail_rule("layout.cp_heads", l->cp_heads, "divide layout.cp,", l->cp);
    if ((m->heads / l->tp) % l->cp_heads)
        return fail_rule("layout.cp_heads", l->cp_heads,
                         "divide the heads of a tensor-parallel rank,", m->heads / l->tp);
    return TESS_OK;
}

static tess_status fill_layout(const tess_sim_model *m, tess_sim_layout *l)
{
    int *const degrees[] = {&l->tp, &l->pp, &l->vpp, &l->cp, &l->ep};
    if (l->schedule == TESS_SIM_ZB_V)
        set_default(&l->vpp, 2);
    for (int i = 0; i < 5; i++)
        set_default(degrees[i], 1);
    set_default(&l->etp, l->tp);
    const int64_t model_gpus = (int64_t)l->tp * l->pp * l->cp;
    if (!l->dp && l->gpus) {
        if (l->gpus % model_gpus)
            return fail_rule("layout.gpus", l->gpus, "be a multiple of tp x cp x pp,", model_gpus);
        l->dp = (int)(l->gpus / model_gpus);
    }
    set_default(&l->dp, 1);
    if (!l->gpus && model_gpus * l->dp <= 1 << 24)
        l->gpus = (int)(model_gpus * l->dp);
    if (l->gpus != model_gpus * l->dp)
        return fail_rule("layout.gpus", l->gpus, "be tp x cp x pp x dp,", model_gpus * l->dp);
    if (m->heads % l->tp)
        return fail_rule("layout.tp", l->tp, "divide model.heads", m->heads);
    if ((int64_t)l->pp * l->vpp > m->layers + 2 * l->outer_layers)
        return fail_rule("layout.pp", l->pp, "leave a layer to each stage; layers / vpp is",
                         m->layers / l->vpp);
    if (l->vpp > 1 && l->pp == 1)
        return fail_rule("layout.vpp", l->vpp, "be 1 without a pipeline: layout.pp is", l->pp);
    if (l->cp_kind == TESS_SIM_CP_ULYSSES && (m->heads / l->tp) % l->cp)
        return fail_rule("layout.cp", l->cp, "divide the heads of a tensor-parallel rank,",
                         m->heads / l->tp);
    TESS_TRY(check_hybrid(m, l));
    if (l->ep > 1 && !m->experts)
        return fail_rule("layout.ep", l->ep, "be 1: model.experts is", 0);
    if (l->ep_nodes && l->ep < 2)
        return fail_rule("layout.ep_nodes", l->ep_nodes, "be 0 without expert parallelism, not",
                         l->ep_nodes);
    if (m->experts && m->experts % l->ep)
        return fail_rule("layout.ep", l->ep, "divide model.experts", m->experts);
    set_default(&l->replicas, 1);
    if (l->dp % l->replicas)
        return fail_rule("layout.replicas", l->replicas, "divide layout.dp", l->dp);
    if (l->ep > 1 && shard_ranks(l) % ((int64_t)l->ep * l->etp))
        return fail_rule("layout.ep", l->ep, "with etp divide tp cp dp / replicas,",
                         shard_ranks(l));
    if (l->schedule == TESS_SIM_SCHEDULE_DEFAULT)
        l->schedule = l->vpp > 1 ? TESS_SIM_INTERLEAVED : TESS_SIM_1F1B;
    TESS_TRY(check_chunks(l));
    if (l->pp > 1 && l->first_layers + l->last_layers > m->layers - (l->pp - 2))
        return fail_rule("layout.first_layers", l->first_layers,
                         "leave layers to the other stages; model.layers is", m->layers);
    return TESS_OK;
}

static tess_status fill_training(const tess_sim_layout *l, tess_sim_training *t)
{
    set_default(&t->micro_batch, 1);
    const int64_t round = (int64_t)l->dp * t->micro_batch;
    if (!t->global_batch)
        t->global_batch = round;
    if (t->global_batch % round)
        return fail_rule("training.global_batch", t->global_batch,
                         "be a multiple of dp times micro_batch,", round);
    if (l->replicas > 1 && !l->zero && t->distributed_optimizer != TESS_SIM_ON)
        return tess__fail(TESS_EINVAL,
                          "scenario: layout.replicas is %d, needs layout.zero of 1 or more, or "
                          "training.distributed_optimizer",
                          l->replicas);
    const int64_t batches = t->global_batch / round;
    if (l->schedule == TESS_SIM_DUALPIPE && (batches % 2 || batches < 2 * (int64_t)l->pp))
        return tess__fail(
            TESS_EINVAL,
            "scenario: %lld micro-batches, must with dualpipe be an even number of at "
            "least %d, twice layout.pp",
            (long long)batches, 2 * l->pp);
    if (t->recompute_modules && t->recompute != TESS_SIM_RECOMPUTE_SELECTIVE)
        return tess__fail(TESS_EINVAL, "scenario: training.recompute_modules needs "
                                       "training.recompute selective");
    if (t->grad_bytes == 1 || t->grad_bytes == 3)
        return tess__fail(TESS_EINVAL, "scenario: training.grad_bytes is %d, must be 0, 2 or 4",
                          t->grad_bytes);
    return TESS_OK;
}

/* One pass of all layers on each rank, and clips that all begin together. */
static tess_status fill_sampling(const tess_scenario *s, tess_sim_sampling *p)
{
    if (p->steps && s->model.clips[0])
        return tess__fail(TESS_EINVAL, "scenario: model.clips is of training, sampling.steps is %d",
                          p->steps);
    const tess_sim_layout *l = &s->layout;
    if (!p->steps)
        return TESS_OK;
    if (s->model.kind != TESS_SIM_DIT)
        return tess__fail(TESS_EINVAL,
                          "scenario: sampling.steps is %d, which needs a DiT "
                          "(model.kind)",
                          p->steps);
    if (l->pp != 1)
        return tess__fail(TESS_EINVAL,
                          "scenario: layout.pp is %d, must be 1 where clips are sampled", l->pp);
    if (s->training.global_batch != (int64_t)l->dp * s->training.micro_batch)
        return fail_rule("training.global_batch", s->training.global_batch,
                         "be dp times micro_batch where clips are sampled,",
                         (int64_t)l->dp * s->training.micro_batch);
    if (p->guidance == TESS_SIM_GUIDANCE_DEFAULT)
        p->guidance = s->model.guided ? TESS_SIM_GUIDANCE_NONE : TESS_SIM_GUIDANCE_TWICE;
    if (p->guidance == TESS_SIM_GUIDANCE_PARALLEL && l->dp % 2)
        return tess__fail(TESS_EINVAL,
                          "scenario: layout.dp is %d, must be even: sampling.guidance is parallel",
                          l->dp);
    if (p->decode == TESS_SIM_ON && s->model.vae_mflop == 0.0)
        return tess__fail(TESS_EINVAL,
                          "scenario: sampling.decode is on, but model.vae_mflop is missing");
    if (p->encode == TESS_SIM_ON && s->model.text_billion == 0.0)
        return tess__fail(TESS_EINVAL,
                          "scenario: sampling.encode is on, but model.text_billion is missing");
    set_default(&p->decode_ranks, 1);
    if (l->gpus % p->decode_ranks)
        return fail_rule("sampling.decode_ranks", p->decode_ranks, "divide layout.gpus,", l->gpus);
    return TESS_OK;
}

tess_status tess_scenario_fill(const tess_scenario *scenario, tess_scenario *full)
{
    TESS_REQUIRE(scenario, full);
    tess_scenario s = *scenario;
    TESS_TRY(check_ranges(&s));
    TESS_TRY(fill_model(&s.model));
    TESS_TRY(fill_layout(&s.model, &s.layout));
    TESS_TRY(fill_training(&s.layout, &s.training));
    TESS_TRY(fill_sampling(&s, &s.sampling));
    *full = s;
    return TESS_OK;
}

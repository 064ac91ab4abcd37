/* SPDX-License-Identifier: Apache-2.0 */
/* train_attention.h - the options of sparse attention, from the command line to the library. */
#ifndef TESS_CLI_TRAIN_ATTENTION_H
#define TESS_CLI_TRAIN_ATTENTION_H

#include "cmd_train.h"

#include "tessera/train.h"

tess_status train_attention(cli *c, const train_values *v, tess_attention_opts *opts);

#endif

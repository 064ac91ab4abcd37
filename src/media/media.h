/* SPDX-License-Identifier: Apache-2.0 */
/* media.h (internal) - image and video files.
 *
 * What lives here: pictures in and out through libpng. What comes in: pixels. What goes out: files
 * that appear only when they are complete.
 */
#ifndef TESS_MEDIA_H
#define TESS_MEDIA_H

#include "base/base.h"
#include "tessera/media.h"

#endif

# SPDX-License-Identifier: Apache-2.0
"""_error.py - what may be wrong with a recording, as one sentence."""
from ... import _lib


class TraceError(_lib.Error, RuntimeError):
    """A program cannot be played, or its record cannot be written."""
    status = "ENOTSUP"

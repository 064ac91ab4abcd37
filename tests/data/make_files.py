#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# make_files.py - makes the golden tensor files of this folder with the formats' own libraries.
#
#   python3 -m venv v && v/bin/pip install numpy==2.4.6 safetensors==0.8.0
#   v/bin/python tests/data/make_files.py
#
# test_interop.c reads them. Element i of every array is i - 2, or i % 2 for booleans, and i for
# unsigned bytes.
import os

import numpy as np
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))


def array(dtype, shape):
    n = int(np.prod(shape))
    if dtype == "bool":
        values = np.arange(n) % 2
    else:
        values = np.arange(n) - (0 if dtype == "uint8" else 2)
    return values.astype(dtype).reshape(shape)


def path(name):
    return os.path.join(here, name)


dtypes = ["float32", "float16", "float64", "int32", "int64", "uint8", "bool"]
arrays = {dtype: array(dtype, (2, 3)) for dtype in dtypes}
arrays["scalar"] = array("float32", ())
arrays["empty"] = array("float32", (0, 4))

np.save(path("numpy_1.npy"), array("float32", (3, 5)))
for version in [(2, 0), (3, 0)]:
    with open(path("numpy_%d.npy" % version[0]), "wb") as f:
        np.lib.format.write_array(f, array("int64", (7,)), version=version)
np.save(path("numpy_fortran.npy"), np.asfortranarray(array("float32", (3, 5))))
np.save(path("numpy_big_endian.npy"), array(">f4", (3,)))
np.savez(path("numpy_stored.npz"), **arrays)
np.savez_compressed(path("numpy_deflated.npz"), **arrays)
save_file(arrays, path("library.safetensors"), metadata={"format": "np", "note": 'a "quoted" word'})

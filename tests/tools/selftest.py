#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""selftest.py - every check of tools/ passes a good tree and fails on each kind of bad one.

A case starts from a small good repository and changes some of its files (None removes one). The
check must fail, and what it prints must contain the words of the case: so that it fails for the
right reason. A check that lets a bad tree pass is itself a failed test.
"""
import os
import shutil
import subprocess
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
SPDX_C = "/* SPDX-License-Identifier: Apache-2.0 */\n"
SPDX_SH = "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"

GOOD = {
    "include/tessera/base.h": SPDX_C + """/* base.h - a public header. */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define TESS_API __attribute__((visibility("default")))
TESS_API const char *tess_version(void); /* tess_other(void) is only spoken of */
TESS_API int tess_sum(const int *a_name_so_long_that_the_declaration_breaks, int64_t another_one,
                      int64_t count) __attribute__((pure));
#ifdef __cplusplus
}
#endif
#endif
""",
    "src/base/base_internal.h": SPDX_C + """/* base_internal.h - an internal header. */
#include "tessera/base.h"
void tess__free(void *memory);
""",
    "src/base/ctx.c": SPDX_C + """/* ctx.c - "printf(" and exit() in comments and strings are fine. */
#include "base_internal.h"

#include <stdlib.h>

const char *tess_version(void)
{
    return getenv("X") ? "printf(" : "1";
}

int tess_sum(const int *values, int64_t from, int64_t count)
{
    return values[from + count - 1];
}

void tess__free(void *memory)
{
    (void)memory;
}
""",
    "src/train/train.c": SPDX_C + '/* train.c - a room above. */\n#include "base/base_internal.h"\n',
    "cli/main.c": SPDX_C + '/* main.c - the command. */\n#include "tessera/base.h"\n',
    "docs/architecture.md": """# The house
## The headers, `include/tessera/`
`base.h`
## `src/base`
`base_internal.h`, then `ctx.c`.
## Others
src/train/train.c and cli/main.c.
""",
    "docs/README.md": "[The house](architecture.md)\n",
    "README.md": "# T\nRun `scripts/demo`, `scripts/test`; read [the house](docs/architecture.md#the-house).\n",
    "scripts/demo": SPDX_SH + "# demo - shows.\n",
    "scripts/test": SPDX_SH + "# test - tests.\n",
    "CMakeLists.txt": "# The build.\n",
}


def c(path, text=""):
    """A C file with a proper head, as a change to the tree."""
    return {path: f"{SPDX_C}/* {os.path.basename(path)} - a bad file. */\n{text}"}


def body(statement):
    return c("src/base/up.c", f"void f(void)\n{{\n    {statement};\n}}\n")


NOT_BELOW = "which is not below it"
NO_PRINT = "does not print, exit or read the environment"
LAYERS = {
    "an include that goes up": ({**c("src/base/up.c", '#include "train/t.h"\n'), **c("src/train/t.h")}, NOT_BELOW),
    "a public header of a room above": (c("src/base/up.c", '#include "tessera/sim.h"\n'), NOT_BELOW),
    "sim that sees train": (c("src/sim/sim.c", '#include "tessera/train.h"\n'), NOT_BELOW),
    "train that sees sim": (c("src/train/up.c", '#include "tessera/sim.h"\n'), NOT_BELOW),
    "a room that sees report": (c("src/train/up.c", '#include "tessera/report.h"\n'), NOT_BELOW),
    "a room that sees the reference": ({**c("src/attn/up.c", '#include "ref/ref.h"\n'), **c("src/ref/ref.h")}, NOT_BELOW),
    "report that sees inside plan": ({**c("src/report/up.c", '#include "plan/work.h"\n'), **c("src/plan/work.h")}, NOT_BELOW),
    "mpi.h outside comm_mpi.h": (c("src/comm/comm.c", '#include "tessera/mpi.h"\n'), "may include it"),
    "the system's mpi.h in a room": (c("src/comm/comm.c", "#include <mpi.h>\n"), "only tessera/mpi.h"),
    "a room with the header of all": (c("src/comm/comm.c", '#include "tessera/tessera.h"\n'), "no room includes it"),
    "a header outside the house": (c("src/base/up.c", '#include "../cli/cli.h"\n'), "not a header of a room"),
    "two sources of one name": ({**c("src/base/twin.c"), **c("cli/twin.c")}, "names of .c files and of headers are unique"),
    "two headers of one name": ({**c("src/base/twin.h"), **c("src/train/twin.h")}, "names of .c files and of headers are unique"),
    "two types of one name": ({**c("src/base/a.h", "typedef struct {\n    int x;\n} tess__twin;\n"),
                               **c("src/train/b.h", "struct tess__twin {\n    int y;\n};\n")}, "names of types are unique"),
    "a folder of 46 files": ({k: v for i in range(46) for k, v in c(f"src/attn/f{i}.c").items()}, "at most 45"),
    "a frame that sees a command": ({**c("cli/up.c", '#include "cmd/c.h"\n'), **c("cli/cmd/c.h")}, NOT_BELOW),
    "a room without a place": (c("src/attic/a.c"), "unknown room"),
    "a command that looks inside": (c("cli/cmd.c", '#include "base/base_internal.h"\n'), "the command includes public headers, ref.h"),
    "a public header that needs stdio": (c("include/tessera/base.h", "#include <stdio.h>\n"), "<stdio.h>"),
    "a public header that goes up": (c("include/tessera/plan.h", '#include "sim.h"\n'), NOT_BELOW),
    "a public header nobody knows": (c("include/tessera/odd.h"), "unknown public header"),
    "a stable header that includes an advanced one": (c("include/tessera/plan.h", '#include "advanced/exchange.h"\n'),
                                                      "includes no advanced one"),
    "tessera.h with mpi.h": (c("include/tessera/tessera.h", '#include "mpi.h"\n'), "library of its own"),
    "a print": (body('printf("x")'), NO_PRINT),
    "an exit": (body("exit(1)"), NO_PRINT),
    "an abort": (body("abort ()"), NO_PRINT),
    "the environment": (body('getenv("X")'), NO_PRINT),
    "standard error": (body('fputs("x", stderr)'), NO_PRINT),
}
API = {
    "131 stable functions": (c("include/tessera/many.h", "".join(f"TESS_API void tess_f{i}(void);\n" for i in range(129))),
                             "131 stable functions, at most 130"),
    "an advanced header without its note": (c("include/tessera/advanced/a.h"), 'must say "Advanced:'),
    "an example with an advanced header": (c("examples/01_a.c", "#include <tessera/advanced/a.h>\n"), "stable headers only"),
    "an object without an example": ({**c("include/tessera/a.h", "TESS_API void tess_thing_create(void);\n"), **c("examples/01_a.c")},
                                     "none uses tess_thing_create"),
}
LEFTOVERS = {
    "unfinished work": ({"notes.md": "TO" + "DO: more\n"}, "unfinished"),
    "a path of one machine": ({"notes.md": "see /ho" + "me/me/x\n"}, "one machine"),
    "a mark of a merge": ({"notes.md": "<" * 7 + " HEAD\n"}, "merge"),
    "disabled code": (c("src/base/up.c", "#if" + " 0\n#endif\n"), "disabled"),
    "no SPDX line": ({"src/base/up.c": "/* up.c - a file. */\n"}, "SPDX"),
    "no head": ({"src/base/up.c": SPDX_C + "int x;\n"}, "head"),
    "a head with another name": ({"src/base/up.c": SPDX_C + "/* down.c - a file. */\n"}, "head"),
    "a script without SPDX": ({"scripts/x": "#!/bin/sh\n# x - it.\n"}, "SPDX"),
    "a script without a head": ({"tools/x.py": "# SPDX-License-Identifier: Apache-2.0\nimport os\n"}, "head"),
    "a build file without a comment": ({"src/CMakeLists.txt": "add_library(x)\n"}, "comment"),
    "a long file": (c("src/base/up.c", "int x;\n" * 799), "801 lines"),
    "a long public header": (c("include/tessera/base.h", "\n" * 399), "401 lines"),
    "a long function": (c("src/base/up.c", "void f(void)\n{\n" + "    g();\n" * 99 + "}\n"), "a function of 101"),
}
DOCS = {
    "a file nobody mentions": (c("src/base/new.c"), "does not mention src/base/new.c"),
    "a name mentioned for another folder": (c("src/train/ctx.c"), "does not mention src/train/ctx.c"),
    "a file that is gone": ({"src/train/train.c": None}, "train.c, which does not exist"),
    "no architecture": ({"docs/architecture.md": None}, "does not exist"),
    "a broken link": ({"NOTES.md": "[x](docs/none.md)\n"}, "no such file"),
    "a broken anchor": ({"NOTES.md": "[x](README.md#none)\n"}, "no such heading"),
    "a script that does not exist": ({"NOTES.md": "run scripts/none\n"}, "scripts/none, which does not exist"),
    "a command README does not name": ({"README.md": "# T\nRun scripts/demo.\n"}, "does not name scripts/test"),
    "a page without a link in the index": ({"docs/x.md": "# X\n"}, "does not link to docs/x.md"),
    "a long line": ({"NOTES.md": "word " * 30 + "\n"}, "NOTES.md:1: 150 columns"),
    "no README": ({"README.md": None}, "does not name scripts/demo"),
}
WORDS = {
    "an old word in an identifier": (c("src/exec/up.c", "int tess__road_rows;\n"), "up.c:3: tess__road_rows -> exchange"),
    "an old word in camel case": ({"src/report/assets/a.js": "const cargoWidth = 1;\n"}, "cargoWidth -> transfer"),
    "an old word in a comment": (c("src/base/up.c", "/* Every layer is told. */\n"), "told ->"),
    "an old word in a message": (body('fail("nobody listens")'), "nobody ->"),
    "an old word in a document": ({"docs/x.md": "# X\n\nThe rows at their home.\n"}, "x.md:3: home ->"),
    "an old name": (c("src/cp/up.c", "int tess_comm_gather(void);\n"), "tess_comm_gather -> tess_comm_allgatherv"),
    "a phrase over two lines of a comment": (c("src/cp/up.c", "/* A rank that plays\n * alone. */\n"), "plays alone ->"),
    "a phrase over two strings": (body('say("the keys in "\n        "whose time")'), "in whose time ->"),
    "a word of one room": (c("src/comm/up.c", "int box;\n"), "box -> mailbox"),
    "a word refused as a name only": (c("src/base/up.c", "int turn;\n"), "turn ->"),
}
WORDS_ALLOWED = {
    **c("src/base/fine.c", '/* Each in turn; $HOME; looks up a name; a bounding box. */\nint lookup, box, turnover;\n'),
    **c("src/kernels/fine.c", "int lane;\n"),
}
HEADERS_C = {
    "a header that needs another": ({"include/tessera/a.h": "size_t x(void);\n"}, "size_t"),
    "a header with a GNU extension": ({"include/tessera/a.h": "struct s { int x; int z[0]; };\n"}, "zero-size"),
    "no header": ({"include/tessera/base.h": None}, "no headers"),
}
HEADERS_CXX = {
    "a header that is not C++": ({"include/tessera/a.h": "void f(int *restrict new);\n"}, "does not compile"),
}
FORMAT = {
    "a line that clang-format would change": (c("src/base/up.c", "int   x ;\n"), "up.c:3"),
    "a comment of more than 100 columns": (c("src/base/up.c", "/* " + "x" * 95 + " */\n"), "up.c:3: 101 columns"),
}
SYMBOLS = {
    "a function nobody declared": ({"src/base/up.c": '__attribute__((visibility("default"))) void f(void) {}\n'},
                                   "f is exported but not declared"),
    "a function that is missing": ({"include/tessera/sim.h": "TESS_API void tess_gone(void);\n"},
                                   "tess_gone is declared but not exported"),
}


def make_tree(root, changes):
    for path, text in {**GOOD, **changes}.items():
        if text is None:
            continue
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        if path.startswith("scripts/"):
            os.chmod(full, 0o755)
    shutil.copy(os.path.join(TOOLS, "..", ".clang-format"), root)


def build_library(root):
    """libtessera.so of the tree's own sources."""
    library = os.path.join(root, "libtessera.so")
    base = os.path.join(root, "src/base")
    sources = [os.path.join(base, name) for name in os.listdir(base) if name.endswith(".c")]
    subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-w",
                    "-I", os.path.join(root, "include"), "-o", library, *sources], check=True)
    return library


class Checks(unittest.TestCase):
    def run_check(self, tool, changes, options):
        with tempfile.TemporaryDirectory() as root:
            make_tree(root, changes)
            if tool == "check_symbols.py":
                options = ["--library", "tessera=" + build_library(root)]
            result = subprocess.run([os.path.join(TOOLS, tool), "--root", root, *options],
                                    capture_output=True, text=True, stdin=subprocess.DEVNULL)
            return result.returncode, result.stdout + result.stderr

    def expect(self, tool, bad, *options):
        code, output = self.run_check(tool, {}, options)
        if code == 77:
            self.skipTest(output.strip())
        self.assertEqual(code, 0, f"{tool} does not pass the good tree:\n{output}")
        for name, (changes, words) in bad.items():
            with self.subTest(name):
                code, output = self.run_check(tool, changes, options)
                self.assertNotIn(code, (0, 77), f"{tool} lets through {name}:\n{output}")
                self.assertIn(words, output)

    def test_layers(self):
        self.expect("check_layers.py", LAYERS)

    def test_api(self):
        self.expect("check_api.py", API)

    def test_leftovers(self):
        self.expect("check_leftovers.py", LEFTOVERS)

    def test_docs(self):
        self.expect("check_docs.py", DOCS)

    def test_words(self):
        self.expect("check_words.py", WORDS)
        code, output = self.run_check("check_words.py", WORDS_ALLOWED, [])
        self.assertEqual(code, 0, f"check_words.py refuses ordinary words:\n{output}")

    def test_headers_as_c(self):
        self.expect("check_headers.py", HEADERS_C, "--c11", "cc")

    def test_headers_as_cxx(self):
        self.expect("check_headers.py", HEADERS_CXX, "--cxx11", shutil.which("c++") or "")

    def test_format(self):
        self.expect("format", FORMAT)

    def test_symbols(self):
        self.expect("check_symbols.py", SYMBOLS)
        with tempfile.TemporaryDirectory() as root:
            make_tree(root, {"src/base/up.c": "static int count;\nint *where(void)\n{\n    return &count;\n}\n"})
            library = build_library(root)
            result = subprocess.run([os.path.join(TOOLS, "check_symbols.py"), "--root", root, "--library", "tessera=" + library,
                                     "--library", "tessera_train=" + library], capture_output=True, text=True)
            self.assertIn("the variable count is in libtessera too", result.stdout)


if __name__ == "__main__":
    unittest.main()

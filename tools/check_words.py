#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_words.py - identifiers, comments, messages and documents use the field's own words.

Each rule below has a word or phrase that is refused, the plain term that replaces it, and the files it
applies to. Identifiers are split at underscores and capitals; the words of comments, strings and
documents are compared one by one, phrases over line breaks. docs/glossary.md defines the terms.

    tools/check_words.py                       the whole repository
    tools/check_words.py --rooms src/comm cli  these folders and files only
    tools/check_words.py --count               hits per folder and per word
"""
import collections
import os
import re

import tree

FOLDERS = ("src", "cli", "include", "tests", "examples", "bench", "tools", "scripts", "docs", "share", "cmake")
FILES = ("README.md", "CONTRIBUTING.md", "CMakeLists.txt")
ENDINGS = (".c", ".h", ".py", ".js", ".css", ".html", ".sh", ".md", ".json", ".cmake", ".txt", ".in")
SKIPPED = re.compile(r"^tools/check_words\.py$|^tests/tools/|^tests/(data|fuzz/corpus)/|^docs/glossary\.md$")

COMM = r"^src/(comm|exec|cp|dist)/|^include/"
OPTIM = r"/(adamw|muon|descend|optim)\w*\.[ch]$"
LEARNING = r"^(src/(dsv|train|model|report|optim)|cli|include|docs)/|^README"

# A word is refused as part of an identifier and as a word of a text. (words, replacement, {where, unless}):
# `where` limits the rule to paths, `unless` is searched in the line and excuses it.
WORDS = [
    ("seen", "observed, measured, visited or found", {"unless": r"__fish_seen"}),
    ("tell tells told telling teller", "report, print, say, pass or record, with the noun", {"unless": r"\.tell\(\)"}),
    ("look looks looked looking unlooked", "observe, inspect, read or measure",
     {"unless": r"\b[Ll]ook(s|ed|ing)? ((\w+ )?up|for|like|alike|ahead)\b|\blook_?ups?\b"}),
    ("home homes", "owner rank, local rows",
     {"unless": r"\bHOME\b|XDG|~/|/\(?home|home (folder|directory|page)|\.home\b.*HOME"}),
    ("road roads", "exchange", {}),
    ("lane lanes", "send/receive list (vector lanes: say vector lane; lanes of a GPU are CUDA's)",
     {"unless": r"vec|SIMD|__m\d+|permute|NVLink|PCIe|queries|horizontal|reduce across|waste",
      "where": r"^(?!src/kernels/|src/gpu/|tests/gpu/|docs/gpu|tests/test_stats|tests/test_convert)"}),
    ("leg legs", "segment", {}),
    ("cargo cargoes", "transfer", {}),
    ("desk desks", "pricing state of a layer (layer_cost)", {}),
    ("box boxes", "mailbox", {"where": COMM, "unless": r"bounding box"}),
    ("letter letters", "message descriptor", {"where": r"^src/(comm|exec|cp|dist)/"}),
    ("tape tapes", "trace recorder, records", {}),
    ("crew crews", "process group of sampling", {}),
    ("team teams", "process group", {"where": r"^src/(comm|cp|dsv|optim|train|data|model)/|^include/|^docs/",
                                     "unless": r"thread|OpenMP"}),
    ("contest contests", "search", {}),
    ("hopeless", "is_dominated", {}),
    ("dealt deals", "distributed, distributes", {}),
    ("patient patients", "the subject of the report, by name", {}),
    ("nobody everybody", "no rank, no caller, all ranks: the noun", {}),
]

# Refused in identifiers only: in a text the word has its ordinary sense.
IDENTIFIERS = [
    ("turn turns", "rope table, work queue, round or rotated", {}),
    ("kept", "saved or stored", {"where": r"^src/(model|train|dsv|optim)/"}),
    ("note notes", "record, records", {"where": r"^src/(comm|exec|cp|dist)/"}),
    ("widen blend follow keep", "inv_sqrt_bias2, ema_rate, apply_update, decay", {"where": OPTIM}),
    ("descent", "optim_step", {}),
    ("weighed", "weighted, includes_row_cost", {}),
    ("quarter quarters", "noise-level quartile", {"where": r"^(src/(dsv|train|report)|cli|include)/"}),
    ("speak speaks", "prints, is the printing rank", {}),
    ("deal", "distribute", {}),
    ("plays", "records, replays or runs", {"where": r"^(src|include|cli)/"}),
    ("finish", "epilogue", {"where": r"^src/model/|^src/kernels/(columns\.c|kernels\.h|entries\.h)$"}),
]

# Refused as whole identifiers, wherever they stand: names of before.
NAMES = {
    "tess_comm_gather": "tess_comm_allgatherv",
    "tess_comm_sum_f32": "tess_comm_allreduce",
    "tess_comm_sum_f64": "tess_comm_allreduce",
    "tess_comm_max": "tess_comm_allreduce",
    "tess_context": "tess_cp",
    "tess_context_opts": "tess_cp_opts",
    "rows_weighed": "work_includes_row_cost",
    "rank_low": "proj_dim",
    "low_rank": "proj, projection (rank is a process)",
    "put_away": "encode_bits",
    "bring_back": "decode_bits",
    "bring_home": "return_to_owner",
    "plays_alone": "is_trace",
}

# Phrases, as regular expressions over text whose line breaks, comment stars and string joins are spaces.
PHRASES = [
    (r"(a|an|the|its|their|own|each|next|this|whose|my|your) turns?(?! (on|off|into|to)\b)", "place in the work queue, round",
     {"unless": r"eighth|angle"}),
    (r"of money\b", "cost (with its unit)"),
    (r"put(s|ting)? away|brought back|bring(s|ing)? back|bring(s|ing)? home|comes? home|came home|way home",
     "encode as bitmask, decode; return to the owner rank"),
    (r"(play|plays|played|playing) alone", "trace recorder: one rank runs by itself"),
    (r"in whose time", "in units of the time of"),
    (r"best days", "the best plan so far"),
    (r"a message of nothing", "zero-byte messages"),
    (r"pushed (the process |it |them )?aside", "preempted"),
    (r"(finish|finishes) of (a|the) (product|linear|row)s?", "epilogue"),
    (r"(have|has|having|had|take|takes|taking) a look", "inspect"),
    (r"low[- ]rank", "projection, projected (rank is a process)",
     {"unless": r"LoRA|DSV|paper"}),
    (r"quarters? of (the )?(noise|`?u`?\b)|noise quarters?|(first|second|third|fourth|last) quarter", "noise-level quartile",
     {"where": LEARNING, "unless": r"\bmemory\b|\bavailable\b"}),
    (r"(numbers|activations|blocks) (that are |are )?kept|kept (activations|numbers|blocks)|kept for the (gradients|backward)",
     "saved activations"),
    (r"(kept|keeps|keep) in (checkpoints?|events|files?|a file|the checkpoint)", "stored in, saved in"),
    (r"(?<![\w ])\"(of|for) these\b|; (of|for) these\b", "the noun: Euler steps per sample, ..."),
    (r"shares? of (the |its |a |measured |FMA |dense )*(peak|time|bandwidth|speed)\b", "fraction of"),
    (r"deal(s|ing)? (them |it |heads |work |blocks )?out|dealing", "distribute"),
    (r"whose patient", "which reports on the environment"),
    (r"(written|writes?) down\b", "recorded, logged", {"where": COMM}),
    (r"rows at home|at home with", "local rows, owner rank of rows"),
    (r"the finish\b", "the epilogue", {"where": r"^src/(kernels|model)/|^docs/"}),
    (r"on the desk", "pricing state of one layer"),
]

# Words that files and commands of users hold: members, values and old option names that stay readable.
ALLOWED = [
    # (path, regular expression searched in the line)
]

STRING = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
C_TOKEN = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>" + STRING + ")", re.S)
HASH_TOKEN = re.compile(r'(?P<string>"""(?:.|\n)*?"""|' + STRING + r")|(?P<comment>(?<![$\w{])#[^\n]*)")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
JOIN = r"(?:[ \t]|\"?\s*\n\s*(?:\*|#|//)?[ \t]*\"?)+"


def rule_table(rules):
    """{word: [(replacement, where, unless)]}"""
    table = collections.defaultdict(list)
    for words, replacement, *limits in rules:
        limit = limits[0] if limits else {}
        entry = (replacement, re.compile(limit.get("where", "")), limit.get("unless") and re.compile(limit["unless"]))
        for word in words.split():
            table[word].append(entry)
    return table


def phrase_table():
    for pattern, replacement, *limits in PHRASES:
        limit = limits[0] if limits else {}
        spaced = re.sub(r"(?<!\[)(?<!\[\^\\w) (?![-\]])", lambda _: JOIN, pattern)
        head = "" if pattern.startswith("(?<") else r"\b"
        yield (re.compile(head + "(?:" + spaced + ")", re.I), replacement, re.compile(limit.get("where", "")),
               limit.get("unless") and re.compile(limit["unless"]))


WORD_TABLE, IDENTIFIER_TABLE = rule_table(WORDS), rule_table(IDENTIFIERS)
PHRASE_TABLE = list(phrase_table())


def is_code(path, text):
    """One flag per character: 1 in code, 0 in comments, strings and documents."""
    name = os.path.basename(path)
    if path.endswith((".md", ".json", ".html", ".css")) or name.endswith(".txt") and name != "CMakeLists.txt":
        return bytearray(len(text))
    token = C_TOKEN if path.endswith((".c", ".h", ".js")) else HASH_TOKEN
    flags = bytearray(b"\1") * len(text)
    for match in token.finditer(text):
        flags[match.start():match.end()] = bytes(match.end() - match.start())
    return flags


def refusals(table, word, path, line):
    for replacement, where, unless in table.get(word, ()):
        if where.search(path) and not (unless and unless.search(line)):
            yield replacement


def check_file(path, text):
    """(line number, refused word, replacement), in order."""
    starts = [0] + [m.end() for m in re.finditer("\n", text)]
    lines = text.split("\n")
    code = is_code(path, text)
    found = set()

    def line_of(at):
        low, high = 0, len(starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if starts[middle] <= at else (low, middle)
        return low

    def add(at, word, replacement):
        number = line_of(at)
        if not any(re.search(p, path) and re.search(r, lines[number]) for p, r in ALLOWED):
            found.add((number + 1, word, replacement))

    for match in IDENTIFIER.finditer(text):
        token, at = match.group(0), match.start()
        if token in NAMES:
            add(at, token, NAMES[token])
            continue
        words = [w.lower() for w in PART.findall(token)]
        named = code[at] or len(words) > 1 and ("_" in token or path.endswith((".c", ".h")))
        line = lines[line_of(at)] if any(w in WORD_TABLE or w in IDENTIFIER_TABLE for w in words) else ""
        for word in words:
            for replacement in refusals(WORD_TABLE, word, path, line):
                add(at, token, replacement)
            for replacement in refusals(IDENTIFIER_TABLE, word, path, line) if named else ():
                add(at, token, replacement)
    for pattern, replacement, where, unless in PHRASE_TABLE:
        if where.search(path):
            for match in pattern.finditer(text):
                line = lines[line_of(match.start())]
                if not code[match.end() - 1] and not (unless and unless.search(line)):
                    add(match.start(), " ".join(re.sub(r'["*#/]', " ", match.group(0)).split()), replacement)
    return sorted(found)


def paths_of(root, rooms):
    paths = tree.files(root, [f for f in FOLDERS if os.path.isdir(os.path.join(root, f))])
    paths += [f for f in FILES if os.path.exists(os.path.join(root, f))]
    for path in paths:
        plain = path.endswith(ENDINGS) or path.startswith(("scripts/", "tools/"))
        inside = not rooms or any(path == r or path.startswith(r.rstrip("/") + "/") for r in rooms)
        if plain and inside and not SKIPPED.search(path):
            yield path


def main():
    parser = tree.arguments(__doc__.split("\n")[0])
    parser.add_argument("--rooms", nargs="+", default=[], help="folders and files to check, relative to the root")
    parser.add_argument("--count", action="store_true", help="print hits per folder and per word only")
    options = parser.parse_args()
    problems, paths, counts = [], list(paths_of(options.root, options.rooms)), collections.Counter()
    for path in paths:
        for number, word, replacement in check_file(path, tree.read(options.root, path)):
            problems.append(f"{path}:{number}: {word} -> {replacement}")
            counts[os.path.dirname(path) or path] += 1
            counts["word " + word.lower()] += 1
    if options.count:
        problems = [f"{n:6} {what}" for what, n in counts.most_common()]
    tree.verdict("check_words", problems, f"{len(paths)} files")


main()

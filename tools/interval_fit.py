# SPDX-License-Identifier: Apache-2.0
"""interval_fit.py - the spreads behind the simulator's intervals, from predicted and measured rows (tools/left_out.py).

A row is (log(measured / predicted), deviation that the inputs of its scenario explain, whether its software was measured).

    loss       mean over sources of their mean log ratio, of software that was not measured
    residual   added to the deviation of inputs, so that 80 % of the rows lie inside; every source counts once
    inputs     deviation of an input's values over the profiles of training that were measured
"""
import math
import pathlib
import re

Z = 1.2815515655446004
LEVEL = 0.8
KNOWN = 0.25  # of measured software: inputs keep this share of their spread between profiles
LAYER_OTHER = 0.1  # of a layer of software that was not measured: as of a step
# Of mixtures of experts where none was measured: how uneven routing is (the busiest rank has 1 to 1.5 times the mean, 0.117 of
# the logarithm), how much of their exchange is waited for (none to all of 30 % of a step, 0.087), rate of grouped products
# (-+20 % of half of a step, 0.058); root of the sum of squares, each evenly distributed.
EXPERTS_PRIOR = 0.157
ROOT = pathlib.Path(__file__).resolve().parent.parent

# Input -> (parameter of software whose values over profiles give its spread, whether logarithms are taken).
INPUTS = {
    "products": ("gemm", True), "attention": ("flash", True), "host": ("host_backward_us", True),
    "tp_overlap": ("tp_exposed", False), "dp_overlap": ("dp_hidden", False), "ep_overlap": ("ep_exposed", False),
    "pp_overlap": ("pp_exposed", False), "network": ("network_share", True), "optimiser": ("opt_bytes", True),
    "loss_traffic": ("loss_bytes", True), "casts": ("fp8_cast", True), "nodes": ("spread", True),
}


def deviation(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0


def quantile(values, share=LEVEL):
    """The smallest of the values that at least this share of them does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def usual_values():
    """Parameter -> value where no file says anything."""
    text = (ROOT / "src/sim/params_find.c").read_text()
    return {name: float(usual) for name, usual in re.findall(r'= \{"(\w+)", "[^"]*", [^,]+, [^,]+, ([\d.e]+)\}', text)}


def input_spreads(parameters):
    """Input -> deviation of its parameter over the profiles that were measured."""
    values, usual = {}, usual_values()
    for name, entry in parameters["software"].items():
        values[name] = {**(values[entry["like"]] if "like" in entry else usual),
                        **{key: pair[0] for key, pair in entry["values"].items()}}
    known = [values[name] for name, entry in parameters["software"].items()
             if entry.get("measured") and not entry.get("sampling")]
    spreads = {}
    for name, (parameter, logs) in INPUTS.items():
        found = [v[parameter] for v in known]
        spreads[name] = deviation([math.log(v) for v in found if v > 0] if logs else found)
    return spreads


def row_of(case, plain=False):
    ratio = math.log(case["measured"] / case["predicted_scalar_1" if plain else "predicted"])
    return ratio, math.log(case["high"] / case["low"]) / (2 * Z), case["software_measured"]


def loss_of(sources):
    """Mean over sources of the mean log ratio of rows whose software was not measured, where that is most of a source."""
    means = []
    for rows in sources.values():
        ratios = [r for r, _, known in rows if not known]
        if 2 * len(ratios) >= len(rows) > 0:
            means.append(sum(ratios) / len(ratios))
    return sum(means) / len(means)


def coverage(sources, loss, residual):
    """Mean over sources of the share of rows inside their intervals."""
    shares = [sum(abs(r - (0 if known else loss)) <= Z * math.hypot(residual, s) for r, s, known in rows) / len(rows)
              for rows in sources.values() if rows]
    return sum(shares) / len(shares)


def residual_of(sources, loss):
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        if coverage(sources, loss, middle) >= LEVEL:
            high = middle
        else:
            low = middle
    return high


def put(section, name, known, other):
    section[name][0], section[name][1] = round(known, 3), round(other, 3)


def set_inputs(parameters):
    """Spreads of inputs; loss, residuals and that of experts are 0."""
    step, memory = parameters["interval"]["step"], parameters["interval"]["memory"]
    for name, spread in input_spreads(parameters).items():
        put(step, name, KNOWN * spread, spread)
    for section, name in ((step, "loss"), (step, "residual"), (step, "experts"), (memory, "residual")):
        put(section, name, 0, 0)
    return parameters


def set_residuals(parameters, left_out, given, experts):
    """left_out, given: quantity -> source -> rows; of given the software was measured, and scalars are 1. experts: rows of
    mixtures of experts, for what these need besides; none: what is known without a measurement."""
    step, memory = parameters["interval"]["step"], parameters["interval"]["memory"]
    scalars = [math.log(s["value"]) for s in parameters["scalars"]]
    systems = math.sqrt(sum(s * s for s in scalars) / len(scalars)) if scalars else 0.0
    loss = loss_of(left_out["step"])
    put(step, "loss", 0, loss)
    put(step, "residual", math.hypot(residual_of(given["step"], 0), systems), residual_of(left_out["step"], loss))
    fitted = residual_of({"experts": experts}, 0) if experts else 0.0
    more = max(math.sqrt(max(fitted ** 2 - step["residual"][0] ** 2, 0)), EXPERTS_PRIOR)
    put(step, "experts", more, more)
    other = residual_of(left_out["memory"], 0)  # given rows were fitted on, and a new run is not: between the two
    put(memory, "residual", math.sqrt(residual_of(given["memory"], 0) * other), other)


def set_others(parameters, cases):
    """Of predictions without inputs: what 80 % of the given rows do not exceed."""
    for name in parameters["interval"]["other"]:
        ratios = [abs(math.log(c["measured"] / c["predicted"])) for c in cases if c["quantity"] == name]
        if ratios:
            put(parameters["interval"]["other"], name, quantile(ratios) / Z, max(quantile(ratios) / Z, LAYER_OTHER)
                if name == "layer" else quantile(ratios) / Z)

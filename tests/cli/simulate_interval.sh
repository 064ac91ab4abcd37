# Intervals: text, JSON, reasons, whether it fits, and the coverage of a table.
python3 - <<'PY'
import json, subprocess

def run(*words):
    done = subprocess.run(["tessera", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

def result(*words):
    return json.loads(run(*words, "--json"))

named = result("simulate", "llama3-405b")
unnamed = result("simulate", "llama3-405b", "--set", "system.era=")
for r in (named, unnamed):
    assert r["step_ms_low"] < r["step_ms"] < r["step_ms_high"] and r["interval_pct"] == 80
    assert r["memory_gib_low"] < r["memory_gib"] < r["memory_gib_high"]
    assert all(len(r["widest"][w]) == 3 for w in ("step", "memory"))
    assert all(set(i) == {"name", "about", "pct", "origin"} for i in r["widest"]["step"])
width = lambda r: (r["step_ms_high"] - r["step_ms_low"]) / r["step_ms"]
assert width(unnamed) > width(named)
assert named["software_measured"] and not unnamed["software_measured"]
assert unnamed["software"] == "megatron-core-2024"
print("fit:", named["fit"], unnamed["fit"])
print("fit:", result("simulate", "gpt-175b-96")["fit"])
print("fit:", result("simulate", "gpt-175b-96", "--set", "layout.gpus=8", "--set", "layout.pp=1")["fit"])

text = run("simulate", "llama3-405b", "--set", "system.era=", "--explain")
print("\n".join(line for line in text.splitlines() if line.startswith(("software:", "half of"))))
print(sum(line.startswith(("step  ", "memory  ")) and " %  " in line for line in text.splitlines()), "lines of widths")
fast = run("simulate", "llama3-405b", "--set", "system.era=fastvideo-2025", "--explain")
print(next(line for line in fast.splitlines() if line.startswith("software:")))

def table(near, far):
    with open("runs.csv", "w") as file:
        file.write("label,model.name,layout.gpus,layout.tp,training.global_batch,system.cluster,system.era,"
                   "measured.step_ms,measured.memory_gib\n")
        file.write(f"near,llama3-8b,8,2,16,h100,nemo-2024,{near},60\nfar,llama3-8b,8,2,32,h100,nemo-2024,{far},60\n")
    return result("validate", "runs.csv")

first = [c["predicted"] for c in table(1, 1)["cases"] if c["quantity"] == "step"]
v = table(1.05 * first[0], 2 * first[1])
step = v["quantities"]["step"]
assert "coverage_pct" in v["quantities"]["memory"] and "bias_pct" in step and step["half_width_pct"] > 0
print("scored", step["scored"], "coverage", step["coverage_pct"])
for c in v["cases"]:
    if c["quantity"] == "step":
        assert c["inside"] == (c["low"] <= c["measured"] <= c["high"]) and c["software"] == "nemo-2024"

parameters = json.loads(open(f"{__import__('os').environ['CASES']}/../../share/simulator/parameters.json").read())
del parameters["interval"]
with open("bare.json", "w") as file:
    json.dump(parameters, file)
bare = result("simulate", "llama3-405b", "--params", "bare.json")
assert "step_ms_low" not in bare and bare["fit"] in ("yes", "no")
v = result("validate", "runs.csv", "--params", "bare.json")
assert v["quantities"]["step"]["coverage_pct"] is None
PY
tessera simulate gpt-175b-96 --html cost.html >/dev/null && grep -c timeHigh cost.html
tessera validate runs.csv --html runs.html --no-rows >/dev/null && grep -o 'inside of their 80 % intervals' runs.html | head -n 1

"""every_tile_fits.py PREFILL-OPT MODEL TILES SCRATCH: the compiler takes what --list-tiles names. The first and the last tile of
each op, one module for all firsts and one for all lasts."""
import json
import subprocess
import sys

compiler, model, tiles, scratch = sys.argv[1:]
listed = json.load(open(tiles))
heights = [tile["block_m"] for tile in next(op for op in listed["ops"] if op["name"] == "gate_up_proj")["table"]]
assert heights == sorted(heights) and heights[0] < heights[-1], f"few rows take low tiles, found {heights}"
keys = {"gemm": ("n", "k"), "attention": ("group", "head_dim")}
for place in (0, -1):
    sections = {}
    for op in listed["ops"]:
        chosen = [{key: tile[key] for key in op["table"][0]} for tile in op["tiles"]]
        assert len(op["table"]) == len(listed["rows"]) and all(tile in chosen for tile in op["table"]), op["name"]
        if op["section"] == "attention":
            assert len({tile["block_kv"] for tile in op["table"]}) == 1, f"one block_kv of whole attention: {op['table']}"
        tile = dict(op["tiles"][place])
        assert len(tile["times"]) == len(listed["rows"]) and min(tile.pop("times")) > 0, op["name"]
        entry = {**{key: op[key] for key in keys[op["section"]]}, **tile}
        sections.setdefault(op["dtype"], {}).setdefault(op["section"], []).append(entry)
    with open(scratch, "w") as file:
        json.dump({"cuda": {listed["target"].split(":")[1]: sections}}, file)
    subprocess.run([compiler, model, "--compile-to=config", f"--target={listed['target']}", f"--tuning={scratch}", "-o",
                    "/dev/null"], check=True)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""Fingerprints beside a model: written by check, compared by check and by what loads the model; one flipped bit in any tensor is found
and named with layer and expert; files that are foreign, stale or damaged are refused with the reason."""
import glob
import json
import os
import re
import shutil
import struct

import cases
from model_files import Gguf, Safetensors, edit_json, folder, golden, gguf_path, refused

SMALL = gguf_path("gguf-q4_0")
GREEDY = ["--tokens", "1,2,3", "-n", "2", "--temp", "0"]
NOT_LOADED = re.compile(r"nextn\.(embed_tokens|shared_head_head)|layers\.\d+\.(embed_tokens|shared_head\.head)\.|rope_freqs|inv_freq")


def places(model):
    """Name -> (path, offset in it) of every tensor of a GGUF file or a folder of shards."""
    if os.path.isfile(model):
        g = Gguf(model)
        start = len(g.bytes) - len(g.data)
        return {t[0]: (model, start + t[3]) for t in g.tensors}
    found = {}
    for path in glob.glob(os.path.join(model, "*.safetensors")):
        s = Safetensors(path)
        start = os.path.getsize(path) - len(s.data)
        found |= {name: (path, start + t["data_offsets"][0]) for name, t in s.header.items() if name != "__metadata__"}
    return found


def flip(path, at):
    """The lowest bit of a byte, from `at` on the first where no FP8 code becomes NaN; the time of change stays."""
    times = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(at)
        data = f.read(64)
        step = next(i for i in range(0, 64, 4) if data[i] & 0x7e != 0x7e)
        f.seek(at + step)
        f.write(bytes([data[step] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def stored_path(model):
    return model + ".sluice-xxh" if os.path.isfile(model) else os.path.join(model, "model.sluice-xxh")


def stored(model):
    with open(stored_path(model), encoding="utf-8") as f:
        return json.load(f)


def write(model):
    report = cases.sluice_json("check", "-m", model, "--write-fingerprints", "--json")
    assert report["stored"] == [{"path": stored_path(model), "written": True}], report["stored"]
    return {t["name"]: t["fingerprint"] for t in report["tensors"]}


def copies():
    """A path for each kind of model, in a folder of its own."""
    for source, name in ((golden("gguf-q4_0"), "model.gguf"), (golden("kq-q4"), "model.gguf"), (golden("v3-fp8"), "")):
        with folder(source) as where:
            yield os.path.join(where, name) if name else where


def test_written_and_compared():
    for model in copies():
        want = cases.sluice_json("run", "-m", model, *GREEDY, "--json")["tokens"]
        assert cases.sluice_json("check", "-m", model, "--json")["stored"] == []
        whole, tensors = write(model), stored(model)["tensors"]
        assert set(tensors) == set(whole) == set(places(model))
        assert all(t["parts"] == [whole[name]] for name, t in tensors.items() if len(t["parts"]) == 1)
        assert all(len(t["parts"]) > 1 for name, t in tensors.items() if "_exps." in name)
        report = cases.sluice_json("check", "-m", model, "--json")
        assert report["ok"] and report["stored"] == [{"path": stored_path(model), "written": False}]
        assert b"compared with" in cases.sluice("check", "-m", model).stdout
        run = cases.sluice("run", "-m", model, *GREEDY, "--json", "--verbose")
        assert json.loads(run.stdout)["tokens"] == want and b"fingerprints checked" in run.stderr, run.stderr


def check_damage(model, name, size, part, whole):
    """One bit of one part: both commands name it, nothing else is wrong."""
    path, start = places(model)[name]
    with open(path, "rb") as f:
        good, times = f.read(), os.stat(path)
    flip(path, start + size * part + size // 8 * 4)
    layer = re.search(r"(?:blk|layers)\.(\d+)\.", name)
    expert = re.search(r"\.experts\.(\d+)\.", name) or ("_exps." in name and re.match(r"(.*)", str(part)))
    expected = [path, f"tensor {name}", "damaged", *([f"layer {layer[1]}"] if layer else []), *([f"expert {expert[1]}"] if expert else []), whole]
    run = cases.sluice("check", "-m", model, status=1)
    lines = [x for x in run.stdout.decode().split("\n") if x.startswith("WRONG")]
    assert len(lines) == 1 and all(x in lines[0] for x in expected), (expected, lines)
    if not NOT_LOADED.search(name):
        refused(1, expected, "run", "-m", model, *GREEDY)
    with open(path, "wb") as f:
        f.write(good)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_one_bit_is_found():
    for model in copies():
        write(model)
        tensors = stored(model)["tensors"]
        names = [n for n in tensors if "expert" not in n] + [n for n in tensors if re.search(r"\.experts\.5\.|_exps\.", n)]
        for name in names[::3]:
            t = tensors[name]
            parts = len(t["parts"])
            part = parts * 2 // 3 if parts > 1 else 0
            check_damage(model, name, t["bytes"] // parts, part, t["parts"][part])
        cases.sluice("check", "-m", model)


def test_streamed_experts():
    """Whichever experts of a layer are used first: they are named, and nothing else is refused before."""
    for model in copies():
        write(model)
        where, tensors = places(model), stored(model)["tensors"]
        layer = min(int(re.search(r"(?:blk|layers)\.(\d+)\.", n)[1]) for n in tensors if "_exps." in n or ".experts." in n)
        hit = [n for n in tensors if re.search(rf"(blk|layers)\.{layer}\.(ffn_up_exps\.|mlp\.experts\.\d+\.up_proj\.weight$)", n)]
        for name in hit:
            parts = len(tensors[name]["parts"])
            for k in range(parts):
                flip(where[name][0], where[name][1] + tensors[name]["bytes"] // parts * k)
        line = refused(1, [f"layer {layer}, expert", "damaged", "_exps." if os.path.isfile(model) else "up_proj"], "run", "-m", model, *GREEDY, "--expert-ram", "0")
        assert any(n in line for n in hit), line


def test_changed_model():
    """The same bytes with another time are good; others were changed on purpose, perhaps."""
    for model in copies():
        write(model)
        path, start = next(iter(places(model).values()))
        os.utime(path, ns=(1, 1))
        cases.sluice("check", "-m", model)
        cases.sluice("run", "-m", model, *GREEDY)
        flip(path, start)
        refused(1, ["changed after its fingerprints were written", "--write-fingerprints"], "run", "-m", model, *GREEDY)
        write(model)
        cases.sluice("run", "-m", model, *GREEDY)


def test_foreign_and_damaged():
    def both(model, *parts):
        refused(1, [stored_path(model), "--write-fingerprints", *parts], "run", "-m", model, *GREEDY)
        run = cases.sluice("check", "-m", model, status=1)
        assert all(p in run.stdout.decode() for p in (stored_path(model), *parts)), (parts, run.stdout[-800:])

    for model in copies():
        write(model)
        path, tensor = stored_path(model), sorted(places(model))[0]
        with open(path, "rb") as f:
            good = f.read()
        entry = stored(model)["tensors"][tensor]
        changes = (
            (lambda x: x.update(format="sluice trace"), "holds no fingerprints"),
            (lambda x: x.update(version=2), "version 2"),
            (lambda x: x.update(hash="MD5"), "MD5"),
            (lambda x: x["files"].clear(), "knows no file"),
            (lambda x: [f.update(bytes=f["bytes"] + 1) for f in x["files"].values()], "not complete"),
            (lambda x: x["tensors"].pop(tensor), f"knows no tensor {tensor}"),
            (lambda x: x["tensors"][tensor].update(bytes=entry["bytes"] + 32), "of another model"),
            (lambda x: x["tensors"][tensor].update(parts=[]), "of another model"),
            (lambda x: x["tensors"][tensor].update(parts=["0" * 15] * len(entry["parts"])), "16 hexadecimal digits"),
        )
        for change, text in changes:
            edit_json(path, change)
            both(model, text)
            with open(path, "wb") as f:
                f.write(good)
        for text in (b"", b"[]", b"{}", good[:-20], struct.pack("<Q", 1)):
            with open(path, "wb") as f:
                f.write(text)
            refused(1, path, "run", "-m", model, *GREEDY)
            cases.sluice("check", "-m", model, status=1)
        cases.sluice("check", "-m", model, "--write-fingerprints")
        cases.sluice("run", "-m", model, *GREEDY)


def test_other_models_file():
    with folder(golden("gguf-q4_0")) as a, folder(golden("gguf-q4_1")) as b:
        one, other = os.path.join(a, "model.gguf"), os.path.join(b, "model.gguf")
        write(other)
        shutil.copy(stored_path(other), stored_path(one))
        refused(1, [stored_path(one), "was written for model.gguf"], "run", "-m", one, *GREEDY)


def test_bad_models_get_none():
    with folder(golden("gguf-q4_0")) as where:
        model = os.path.join(where, "model.gguf")
        path, start = next(p for n, p in places(model).items() if n.endswith("attn_norm.weight"))
        with open(path, "r+b") as f:
            f.seek(start)
            f.write(struct.pack("<f", float("nan")))
        assert b"only a model without problems" in cases.sluice("check", "-m", model, "--write-fingerprints", status=1).stdout
        assert not os.path.exists(stored_path(model))


if __name__ == "__main__":
    cases.main(globals())

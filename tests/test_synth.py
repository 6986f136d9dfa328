#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Synthetic models behave like models: activations keep their size over many layers in every format, routing is spread or skewed
as asked, and what is written does not depend on the machine."""
import hashlib
import json
import os
import random
import subprocess

import gguf
import numpy
import safetensors
import safetensors.numpy

import cases
from model_files import folder, refused

FORMATS = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
           "iq4_xs", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"]


def synth(out, *args, **options):
    return cases.sluice("synth", "--shape", "demo", "-o", out, *args, **options)


def dump(model, n, path):
    rng = random.Random(1)
    tokens = [rng.randrange(2, 4000) for _ in range(n)]
    file, listed = os.path.join(path, "d.safetensors"), os.path.join(path, "t.json")
    with open(listed, "w", encoding="utf-8") as f:
        json.dump(tokens, f)
    cases.sluice("score", "-m", model, "--tokens-file", listed, "--dump", file, "--json")
    return safetensors.numpy.load_file(file)


def check_health(d, where, layers):
    logits = d["logits"]
    assert numpy.isfinite(logits).all(), where
    assert 2 < logits.std() < 4.5 and logits.std(0).mean() > 0.8 * logits.std(), (where, logits.std(), logits.std(0).mean())
    for n in range(layers):  # each layer adds about as much as there was in the beginning
        size = numpy.sqrt((d[f"hidden.{n}"] ** 2).mean())
        assert 0.8 < size < 1.5 + 0.3 * n, (where, n, size)


def test_activations_stay_healthy_in_every_format():
    with folder() as path:
        for f in FORMATS:
            out = os.path.join(path, "m.gguf")
            synth(out, "--force", "--moe", 2, "--experts", 16, "--type", f, "--attn-type", f)
            check_health(dump(out, 16, path), f, 3)
        for f in ("fp8", "bf16", "f16", "f32"):
            out = os.path.join(path, f)
            synth(out, "--hf", "--moe", 2, "--experts", 16, "--type", f)
            check_health(dump(out, 16, path), f, 3)


def test_activations_stay_healthy_over_61_layers():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        synth(out, "--dense", 3, "--moe", 58, "--experts", 32, "--type", "q2_k")
        d = dump(out, 48, path)
        check_health(d, "61 layers", 61)
        for n in range(3, 61):
            counts = numpy.bincount(d[f"router.{n}.ids"].ravel(), minlength=32)
            assert (counts > 0).mean() > 0.9 and counts.max() < 4 * counts.mean(), (n, counts)


def slope(ids, experts):
    """Of log count over log rank, in the more popular half."""
    counts = numpy.sort(numpy.bincount(ids.ravel(), minlength=experts))[::-1]
    half = experts // 2
    return numpy.polyfit(numpy.log(numpy.arange(1, half + 1)), numpy.log(counts[:half]), 1)[0], counts


def test_popularity_is_even_or_falls_as_asked():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        for zipf, low, high in ((0, -0.35, 0), (0.5, -0.65, -0.35), (1, -1.2, -0.8)):
            synth(out, "--force", "--moe", 3, "--zipf", zipf)
            d = dump(out, 256, path)
            for n in (1, 2, 3):
                s, counts = slope(d[f"router.{n}.ids"], 64)
                assert low < s <= high, (zipf, n, s, counts)
                assert zipf > 0 or (counts.max() < 2.5 * counts.mean() and counts.min() > 0.2 * counts.mean()), (n, counts)
            orders = [numpy.argsort(numpy.bincount(d[f"router.{n}.ids"].ravel(), minlength=64)).tolist() for n in (1, 2)]
            assert zipf == 0 or orders[0] != orders[1]  # each layer has its own


def digest(path):
    h = hashlib.sha256()
    files = [path] if os.path.isfile(path) else [os.path.join(path, n) for n in sorted(os.listdir(path))]
    for name in files:
        with open(name, "rb") as f:
            h.update(os.path.basename(name).encode() if len(files) > 1 else b"")
            h.update(f.read())
    return h.digest()


def test_same_seed_same_files():
    with folder() as path:
        for form in ((), ("--hf",)):
            seen = {}
            for name, seed, prefix in (("a", 1, ()), ("b", 1, ("taskset", "-c", "0")), ("c", 2, ())):
                out = os.path.join(path, name + "".join(form))
                synth(out, "--moe", 2, "--mtp", "--zipf", 1, "--seed", seed, *form, prefix=prefix)
                seen[name] = digest(out)
            assert seen["a"] == seen["b"] != seen["c"], form


def test_other_readers_open_both_forms():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        synth(out, "--mtp", "--moe", 2, "--type", "q4_0")
        reader = gguf.GGUFReader(out)
        assert reader.fields["deepseek2.nextn_predict_layers"].contents() == 1 and len(reader.tensors) == 74
        hf = os.path.join(path, "hf")
        synth(hf, "--hf", "--mtp", "--moe", 2)
        with open(os.path.join(hf, "model.safetensors.index.json"), encoding="utf-8") as f:
            index = json.load(f)
        names = {}
        for shard in {*index["weight_map"].values()}:
            with open(os.path.join(hf, shard), "rb") as f:
                names.update({n: (shard, t) for n, t in safetensors.deserialize(f.read())})
        assert {n: s for n, (s, _) in names.items()} == index["weight_map"]
        assert sum(len(t["data"]) for _, t in names.values()) == index["metadata"]["total_size"]
        kinds = {n: t["dtype"] for n, (_, t) in names.items()}
        layer = "model.layers.1."
        assert kinds[layer + "mlp.experts.5.up_proj.weight"] == "F8_E4M3" and kinds[layer + "mlp.experts.5.up_proj.weight_scale_inv"] == "F32"
        assert kinds[layer + "mlp.gate.weight"] == "BF16" and kinds[layer + "mlp.gate.e_score_correction_bias"] == "F32"
        copies = [bytes(names[n][1]["data"]) for n in ("model.embed_tokens.weight", "model.layers.3.embed_tokens.weight")]
        assert copies[0] == copies[1]
        cases.sluice("check", "-m", hf)
        assert cases.sluice_json("run", "-m", hf, "-p", "the thing", "-n", 4, "--temp", 0, "--json")["tokens"]


def test_converted_folder_scores_as_itself():
    with folder() as path:
        hf, out = os.path.join(path, "hf"), os.path.join(path, "m.gguf")
        synth(hf, "--hf", "--mtp", "--moe", 2)
        cases.sluice("convert", "-m", hf, "--type", "bf16", "-o", out, "--verify")
        tokens = ",".join(map(str, range(10, 40)))
        a, b = (cases.sluice_json("score", "-m", m, "--tokens", tokens, "--json")["nll_mean"] for m in (hf, out))
        assert abs(a - b) < 0.02 * a, (a, b)


def test_what_is_there_is_kept():
    with folder() as path:
        out = os.path.join(path, "m.gguf")
        synth(out, "--moe", 1)
        before = digest(out)
        refused(2, ["m.gguf: is there already", "--force"], "synth", "--shape", "demo", "-o", out)
        refused(2, "has 1 files; name a new folder", "synth", "--shape", "demo", "-o", path + "/")
        refused(2, "is there and is no folder", "synth", "--shape", "demo", "--hf", "-o", out)
        os.mkdir(os.path.join(path, "hf.part"))
        refused(2, "left by a run that was killed", "synth", "--shape", "demo", "-o", os.path.join(path, "hf/"))
        refused(2, "no regular file", "synth", "--shape", "demo", "--force", "-o", "/dev/null")
        assert digest(out) == before and sorted(os.listdir(path)) == ["hf.part", "m.gguf"]


def test_a_full_disk_leaves_nothing():
    """A file system that lies about its room fails at a write, in the middle."""
    with folder() as path:
        for form in ("--force", "--hf"):
            out = os.path.join(path, "m")
            run = subprocess.run(["bash", "-c", f"ulimit -f 2000; exec {cases.BINARY} synth --shape demo -o {out} {form}"], capture_output=True, timeout=60)
            lines = [x for x in run.stderr.decode().split("\n") if x]
            assert run.returncode == 1 and len(lines) == 1 and "File too large" in lines[0], (run.returncode, lines)
            assert os.listdir(path) == [], os.listdir(path)


if __name__ == "__main__":
    cases.main(globals())

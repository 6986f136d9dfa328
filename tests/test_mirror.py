#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""Copies of a model on other drives (--model-mirror): the same bits, reads from all of them, and an answer that goes on when one fails."""
import hashlib
import os
import shutil
import subprocess

import cases
from model_files import folder, golden, gguf_path, refused

SHARDS = golden("v3-fp8")
SMALL = gguf_path("gguf-q4_0")
GREEDY = ["--tokens", "5", "-n", "24", "--temp", "0", "--ignore-eos", "--mtp", "off"]


def copy_weights(model, where):
    """The files with weights, nothing else; a folder or one file."""
    paths = [model] if os.path.isfile(model) else [os.path.join(model, n) for n in os.listdir(model) if n.endswith((".safetensors", ".gguf"))]
    return [shutil.copy(p, where) for p in paths]


def answer(model, *flags, **options):
    with folder() as home:
        dump = os.path.join(home, "logits.safetensors")
        run = cases.sluice("run", "-m", model, *GREEDY, "--json", "--dump", dump, *flags, **options)
        with open(dump, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
    report = cases.json.loads(run.stdout)
    return (report["tokens"], digest), report["timings"], run.stderr.decode()


def test_same_bits_from_both():
    for model in (cases.DEMO, SHARDS, SMALL):
        want, timings, _ = answer(model)
        assert len(timings["drive"]["copies"]) == 1 and timings["drive"]["failed"] == 0, timings
        with folder() as mirror:
            copy_weights(model, mirror)
            for io in ("uring", "pread", "mmap"):
                for budget in ("100%", "5%"):
                    got, timings, _ = answer(model, "--model-mirror", mirror, "--io", io, "--expert-ram", budget)
                    copies = timings["drive"]["copies"]
                    assert got == want and len(copies) == 2 and timings["drive"]["failed"] == 0, (model, io, budget, timings)
                    assert min(copies) > 0 or sum(copies) < 2 << 20, (model, io, budget, copies)  # a file of one chunk is read once


def test_one_device_is_said():
    with folder() as home:
        model, mirror = os.path.join(home, "a"), os.path.join(home, "b")
        for path in (model, mirror):
            os.mkdir(path)
            copy_weights(SMALL, path)
        for args in (("run", "-m", model, *GREEDY), ("plan", "-m", model)):
            said = cases.sluice(*args, "--model-mirror", mirror).stderr.decode()
            assert said.count("on the same device as the model") == 1 and mirror in said, said
        report = cases.json.loads(cases.sluice("doctor", "-m", model, "--no-rates", "--json", "--model-mirror", mirror).stdout)
        assert [f["level"] for f in report["findings"] if f["topic"] == "mirror"] == ["note"], report


def test_what_is_no_copy():
    with folder() as mirror:
        name = os.path.basename(SMALL)
        copy = os.path.join(mirror, name)
        command = ("run", "-m", SMALL, *GREEDY, "--model-mirror", mirror)
        assert name in refused(1, "is missing", *command)
        size = os.path.getsize(SMALL)
        shutil.copy(SMALL, copy)
        os.truncate(copy, size - 1)
        refused(1, f"{name}: has {size - 1} bytes, the model's file has {size}", *command)
        for at, text in ((30, "the header differs"), (size - 10, "weights differ")):
            shutil.copy(SMALL, copy)
            with open(copy, "r+b") as f:
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1]))
            refused(1, f"{name}: {text} from the model's file at byte {at}", *command)
            refused(1, text, "plan", "-m", SMALL, "--model-mirror", mirror)
        refused(2, "no such folder", *command[:-1], copy)
        refused(1, "own file", *command[:-1], os.path.dirname(SMALL))
        shutil.copy(SMALL, copy)
        with folder() as home:
            link, linked = os.path.join(home, "link"), os.path.join(home, "linked")
            os.symlink(mirror, link)
            os.mkdir(linked)
            os.symlink(copy, os.path.join(linked, name))
            for again in (mirror, os.path.join(mirror, "..", os.path.basename(mirror)), link, linked):
                said = refused(1, "is the same file as", *command[:-1], f"{mirror},{again}")
                assert "name each folder once" in said and copy in said, said


def test_damage_names_its_file():
    """The file that is damaged is named, whether it is the copy or the model."""
    with folder() as home:
        model, mirror = os.path.join(home, "model.gguf"), os.path.join(home, "mirror")
        os.mkdir(mirror)
        cases.sluice("synth", "--shape", "demo", "-o", model)
        copy = shutil.copy(model, mirror)
        cases.sluice("check", "-m", model, "--write-fingerprints")
        tensors = cases.sluice_json("inspect", "-m", model, "--tensors", "--json")["tensors"]
        damaged = next(t for t in tensors if t["name"] == "blk.2.ffn_up_exps.weight")
        for path, other in ((copy, model), (model, copy)):
            with open(path, "r+b") as f:
                f.seek(damaged["offset"])
                f.write(bytes(damaged["bytes"]))  # every expert of the layer
            for budget in ("100%", "5%"):
                for _ in range(8):  # until the copy is what was read
                    run = cases.sluice("run", "-m", model, *GREEDY, "--model-mirror", mirror, "--expert-ram", budget, status=None)
                    if run.returncode != 0:
                        break
                assert run.returncode == 1 and b"error: " + path.encode() + b": tensor blk.2.ffn_up_exps.weight" in run.stderr, (path, run)
            shutil.copyfile(other, path)


def test_reads_that_fail():
    """The copy cannot be mapped: everything comes from the model, which is said once."""
    if shutil.which("strace") is None:
        raise cases.Skip("no strace")
    want = answer(cases.DEMO)[0]
    with folder() as mirror:
        paths = copy_weights(cases.DEMO, mirror)
        prefix = ["strace", "-f", "-qq", "-o", "/dev/null", *(a for p in paths for a in ("-P", p)), "-e", "inject=mmap:error=EIO"]
        got, timings, said = answer(cases.DEMO, "--model-mirror", mirror, "--io", "mmap", "--expert-ram", "5%", prefix=prefix)
        if "io" in {s["what"] for s in timings["steps_down"]}:
            raise cases.Skip("no copies out of mappings here")
        notes = [s["why"] for s in timings["steps_down"] if s["what"] == "drive"]
        assert got == want and timings["drive"]["failed"] > 0 and timings["drive"]["copies"][1] == 0, timings
        assert len(notes) == 1 and mirror in notes[0] and "Input/output error" in notes[0] and said.count("Input/output error") == 1, (notes, said)


def test_file_that_becomes_shorter():
    """The model, or its copy, is cut while experts are read: the answer goes on, with the same text, from the other one. The limit makes
    every machine read for some seconds, in which each copy is tried again, however slow it was before."""
    with folder() as home:
        model, mirror = os.path.join(home, "model.gguf"), os.path.join(home, "mirror")
        os.mkdir(mirror)
        cases.sluice("synth", "--shape", "demo", "-o", model)
        copy = shutil.copy(model, mirror)
        command = [cases.BINARY, "run", "-m", model, "--raw", "-p", "a", "-n", "40", "--ignore-eos", "--expert-ram", "0", "--temp", "0", "--mtp", "off"]
        want = subprocess.run(command, capture_output=True, check=True).stdout
        for path, other in ((copy, model), (model, copy)):
            run = subprocess.Popen([*command, "--io-limit", "16M", "--model-mirror", mirror], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            first = run.stdout.read(1)
            os.truncate(path, 4096)
            out, err = run.communicate(timeout=120)
            assert run.returncode == 0 and first + out == want, (path, run.returncode, err)
            assert err.count(b"the file is shorter than its header says") == 1 and path.encode() in err, (path, err)
            shutil.copy(other, path)


if __name__ == "__main__":
    cases.main(globals())

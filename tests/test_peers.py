#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""The readers of the gguf and safetensors packages list the same tensors as `sluice inspect --json`: name, type, shape, bytes,
offset, for every reference model and the demo model; and the bytes at that offset are theirs."""
import glob
import os

import gguf
import safetensors

import cases
from model_files import GOLDEN

DTYPES = {"F8_E4M3": "F8_E4M3", "F8_E4M3FN": "F8_E4M3"}


def models(ending):
    folders = [*sorted(glob.glob(os.path.join(GOLDEN, "*", ""))), os.path.join(cases.DEMO, "")]
    for folder in folders:
        files = sorted(f for f in glob.glob(folder + "*." + ending) if not os.path.basename(f).startswith("expect."))
        if files:
            yield folder, files


def listed(path):
    """Of inspect: tensors by name, in the form the peers' are brought to."""
    report = cases.sluice_json("inspect", "-m", path, "--json")
    names = [t["name"] for t in report["tensors"]]
    assert len(set(names)) == len(names), "a name twice"
    return {t["name"]: (t["type"], t["shape"], t["bytes"], t["file"], t["offset"]) for t in report["tensors"]}, report


def test_gguf():
    count = 0
    for folder, files in models("gguf"):
        # Several files that are no parts of one another are models of their own.
        groups = [files] if "-of-" in files[0] else [[f] for f in files]
        for group in groups:
            ours, report = listed(group[0])
            assert report["kind"] == "gguf" and [f["bytes"] for f in report["files"]] == [os.path.getsize(f) for f in group], report["files"]
            theirs = {}
            for file in group:
                for t in gguf.GGUFReader(file).tensors:
                    theirs[t.name] = (t.tensor_type.name, [int(n) for n in t.shape], int(t.n_bytes), file, int(t.data_offset))
            assert ours == theirs, difference(ours, theirs)
            count += len(theirs)
    assert count > 300, count
    print(f"     {count} tensors of GGUF files", flush=True)


def test_safetensors():
    count = 0
    for folder, files in models("safetensors"):
        ours, report = listed(folder)
        assert report["kind"] == "safetensors"
        theirs, content = {}, {}
        for file in files:
            with open(file, "rb") as f:
                content[file] = f.read()
            for name, t in safetensors.deserialize(content[file]):
                dtype = DTYPES.get(t["dtype"], t["dtype"])
                theirs[name] = (dtype, list(t["shape"]), len(t["data"]), os.path.basename(file), bytes(t["data"]))
        assert ours.keys() == theirs.keys(), difference(ours, theirs)
        for name, (dtype, shape, size, file, offset) in ours.items():
            got = content[os.path.join(folder, os.path.basename(file))][offset:offset + size]
            assert (dtype, shape, size, os.path.basename(file), got) == theirs[name], (name, dtype, shape, size, theirs[name][:4])
        count += len(theirs)
    assert count > 1000, count
    print(f"     {count} tensors of safetensors files", flush=True)


def difference(ours, theirs):
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            return f"{name}: {ours.get(name)}, the other reader has {theirs.get(name)}"
    return "none"


if __name__ == "__main__":
    cases.main(globals())

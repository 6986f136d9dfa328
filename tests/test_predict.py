#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""sluice trace fit, predict, record: every predictor names as many experts as the same predictor in PyTorch, computed on the same
texts by code that shares nothing with the program (tests/data/predict); fused chances beat every predictor they are made of."""
import csv
import gzip
import json
import os
import tempfile

import cases

with gzip.open(os.path.join(cases.ROOT, "tests", "data", "predict", "reference.json.gz"), "rt") as f:
    REFERENCE = json.load(f)
FIRST, POINTS = REFERENCE["first_position"], 0.015
EXACT = ("-ctk", "f32", "--activations", "f32")
LEADS = ["one token", "token start", "two layers", "one layer", "one attention"]


def write(directory, name, texts):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="ascii") as f:
        json.dump(texts, f)
    return path


class Run:
    """One fit and one prediction of all windows, made when they are first asked for."""
    got = None


def predicted():
    if Run.got is None:
        with tempfile.TemporaryDirectory() as d:
            learned = os.path.join(d, "demo.predictors")
            cases.sluice("trace", "fit", "-m", cases.DEMO, "--tokens-file", write(d, "fit.json", REFERENCE["fit"]), "-o", learned, *EXACT, timeout=900)
            Run.got = cases.sluice_json("trace", "predict", "-m", cases.DEMO, "--tokens-file", write(d, "windows.json", REFERENCE["windows"]),
                                        "--predictors", learned, "--first-position", FIRST, "--json", *EXACT, timeout=1800)
    return Run.got


def line(name, lead=None):
    found = [p for p in predicted()["predictors"] if p["name"] == name and lead in (None, p["lead"])]
    assert len(found) == 1, (name, lead, found)
    return found[0]


def shares(cell):
    """In the order of the reference: plain and weighted by gate at each budget."""
    return [x for pair in zip(cell["recall"], cell["gate_recall"]) for x in pair]


def test_recall_is_that_of_the_reference():
    worst = 0
    assert predicted()["budgets"] == REFERENCE["budgets"] and predicted()["texts"] == len(REFERENCE["windows"])
    for name, layers in REFERENCE["predictors"].items():
        got = line(name)
        assert [str(c["layer"]) for c in got["layers"]] == list(layers), name
        rows = [shares(c) for c in got["layers"]]
        for cell, mine, expected in zip(got["layers"], rows, layers.values()):
            assert cell["rows"] == len(REFERENCE["windows"]) * (len(REFERENCE["windows"][0]) - FIRST)
            worst = max(worst, *(abs(a - b) for a, b in zip(mine, expected)))
            assert all(abs(a - b) < POINTS for a, b in zip(mine, expected)), (name, cell["layer"], mine, expected)
            assert all(abs(p * b - r * 6) < 1e-4 for p, b, r in zip(cell["precision"], REFERENCE["budgets"], cell["recall"]))
        mean = [sum(column) / len(rows) for column in zip(*rows)]
        assert all(abs(a - b) < 1e-5 for a, b in zip(mean, shares(got))), name
    print(f"farthest from the reference: {100 * worst:.2f} points")


def test_drafts_are_as_often_right():
    got = predicted()
    assert abs(got["drafts_right"] / got["drafted"] - REFERENCE["draft_equals_next"]) < 0.01


def test_fused_beats_its_inputs():
    for at, lead in enumerate(LEADS):
        fused = {c["layer"]: c for c in line("fused", lead)["layers"]}
        for p in predicted()["predictors"]:
            if p["name"] in ("fused", "shadow-row-if-right") or LEADS.index(p["lead"]) > at:
                continue
            for b in range(3):
                mine = sum(fused[c["layer"]]["recall"][b] for c in p["layers"]) / len(p["layers"])
                assert mine > p["recall"][b], (lead, p["name"], b, mine, p["recall"][b])


def test_fused_chances_are_what_happens():
    for lead in predicted()["calibration"]:
        n = sum(b["n"] for b in lead["bins"])
        off = sum(b["n"] * abs(b["chance"] - b["used"]) for b in lead["bins"]) / n
        assert off < 0.01, (lead, off)
        base = sum(b["n"] * b["used"] for b in lead["bins"]) / n
        assert abs(base - 6 / 64) < 1e-4 and lead["brier"] < base * (1 - base)
    briers = [lead["brier"] for lead in predicted()["calibration"]]
    assert briers == sorted(briers, reverse=True), briers  # the later, the surer


def test_record_is_what_trace_reads():
    with tempfile.TemporaryDirectory() as d:
        texts = write(d, "t.json", [w[:96] for w in REFERENCE["windows"][:2]])
        for name, flags in (("t.csv.gz", ["--shadow"]), ("t.csv", [])):
            path = os.path.join(d, name)
            cases.sluice("trace", "record", "-m", cases.DEMO, "--tokens-file", texts, "-o", path, *flags, *EXACT)
            report = cases.sluice_json("trace", "report", path, "--json")
            assert (report["windows"], report["tokens"], report["experts_used"]) == (2, 192, 6)
        run = cases.sluice("trace", "record", "-m", cases.DEMO, "--tokens-file", texts, "-o", path, "--shadow", "--mtp", "off", status=2)
        assert b"leave out --mtp off" in run.stderr, run.stderr
        with gzip.open(os.path.join(d, "t.csv.gz"), "rt") as f, open(os.path.join(d, "t.csv"), encoding="ascii") as g:
            same = sum(a["ids"] == b["ids"] for a, b in zip(csv.DictReader(f), csv.DictReader(g)))
        assert same >= 0.98 * 2 * 96 * 5  # prompt chunks round otherwise than single rows


def test_recorded_routing_is_that_of_the_reference():
    with gzip.open(os.path.join(cases.ROOT, "tests", "data", "trace", "demo.csv.gz"), "rt") as f:
        expected = list(csv.DictReader(f))
    windows = sorted({int(r["window"]) for r in expected})
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "t.csv")
        texts = write(d, "t.json", [REFERENCE["windows"][w][:96] for w in windows])
        cases.sluice("trace", "record", "-m", cases.DEMO, "--tokens-file", texts, "-o", path, "--shadow", *EXACT)
        with open(path, encoding="ascii") as f:
            got = list(csv.DictReader(f))
    assert len(got) == len(expected)
    same = [a["ids"] == b["ids"] for a, b in zip(got, expected)]
    assert sum(same) >= 0.995 * len(same), sum(same) / len(same)
    for a, b in zip(got, expected):
        if a["ids"] == b["ids"]:
            assert all(abs(float(x) - float(y)) < 0.002 for x, y in zip(a["weights"].split(), b["weights"].split())), (a, b)


def refused(part, *args, status=2):
    run = cases.sluice("trace", *args, status=status)
    assert part in run.stderr.decode() and len(run.stderr.splitlines()) == 1, run.stderr


def test_refusals():
    with tempfile.TemporaryDirectory() as d:
        texts, model = write(d, "t.json", [[1, 2, 3]]), ("-m", cases.DEMO)
        out = ("-o", os.path.join(d, "out"))
        for verb in ("record", "fit", "predict"):
            refused("no model given", verb, "--tokens-file", texts)
            refused("no texts given", verb, *model)
            refused("unknown flag --bogus", verb, "--bogus")
        refused("where to?", "record", *model, "--tokens-file", texts)
        for content, part in (("[]", "a list of token ids"), ("[[]]", "text 0: expected a list"), ("[[1],[2,-1]]", "text 1, token 1"), ("{", "bad.json"),
                              ('[[1,"x"]]', "text 0, token 1"), ("3", "not one object or list"), ("{}", "a list of token ids"), ("[[1],2]", "text 1: expected a list")):
            with open(os.path.join(d, "bad.json"), "w", encoding="ascii") as f:
                f.write(content)
            refused(part, "fit", *model, "--tokens-file", f.name, *out, status=1)
        refused("text 0, token 1 is 4096", "record", *model, "--tokens-file", write(d, "v.json", [[1, 4096]]), *out)
        refused("-c 64 is less than the 70 tokens", "record", *model, "-c", 64, "--tokens-file", write(d, "l.json", [[1] * 70]), *out)
        refused("--first-position x", "predict", *model, "--tokens-file", texts, "--first-position", "x")
        refused("nothing is counted", "predict", *model, "--tokens-file", texts, "--first-position", 3)
        refused("No such file", "predict", *model, "--tokens-file", texts, "--predictors", os.path.join(d, "none"), status=1)
        refused("chunks of more than 8 rows", "fit", *model, "-ub", 8, "--tokens-file", texts, *out)
        refused("no MTP layer", "record", *model, "--mtp", "off", "--shadow", "--tokens-file", texts, *out)
        assert not os.path.exists(out[1]) and not os.path.exists(out[1] + ".tmp")


def test_without_learned_predictors_and_without_mtp():
    with tempfile.TemporaryDirectory() as d:
        texts = write(d, "t.json", REFERENCE["windows"][0][:40])
        got = cases.sluice_json("trace", "predict", "-m", cases.DEMO, "--tokens-file", texts, "--predictors", "off", "--json", "--mtp", "off")
        names = {p["name"] for p in got["predictors"]}
        assert got["learned"] == "" and names == {"popularity", "previous-token", "gate", "gate-shared", "gate-full", "gate-two-layers", "fused"}
        plot = os.path.join(d, "plot.svg")
        text = cases.sluice("trace", "predict", "-m", cases.DEMO, "--tokens-file", texts, "--predictors", "off", "--plot", plot).stdout.decode()
        with open(plot, encoding="ascii") as f:
            assert f.read().count("<polyline") == len(LEADS)
        assert "shadow-row " in text and "mtp-probe" not in text and "drafts right" in text


def test_what_was_learned_sits_beside_the_model():
    with tempfile.TemporaryDirectory() as d:
        texts = write(d, "t.json", REFERENCE["windows"][0][:40])
        got = cases.sluice_json("trace", "predict", "-m", cases.DEMO, "--tokens-file", texts, "--json")
        assert got["learned"] == os.path.join(cases.DEMO, "model.sluice-predict") and "mtp-probe" in {p["name"] for p in got["predictors"]}
        off = cases.sluice_json("trace", "predict", "-m", cases.DEMO, "--tokens-file", texts, "--json", "--mtp", "off")
        assert {p["name"] for p in off["predictors"]} >= {"token-table", "gate"}  # one file with and without the MTP layer
        folder = os.path.join(d, "copy")
        os.mkdir(folder)
        for name in os.listdir(cases.DEMO):
            os.symlink(os.path.join(cases.DEMO, name), os.path.join(folder, name))
        os.remove(os.path.join(folder, "model.sluice-predict"))
        cases.sluice("trace", "fit", "-m", folder, "--mtp", "off", "--tokens-file", texts)
        got = cases.sluice_json("trace", "predict", "-m", folder, "--tokens-file", texts, "--json")
        names = {p["name"] for p in got["predictors"]}
        assert got["learned"] == os.path.join(folder, "model.sluice-predict") and "token-table" in names and "mtp-probe" not in names


if __name__ == "__main__":
    cases.main(globals())

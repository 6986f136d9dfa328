# SPDX-License-Identifier: Apache-2.0
"""Runs commands in which the n-th allocation fails (tests/faults/fail_alloc.c) and judges the outcome."""
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile

import cases
from model_files import golden, gguf_path

SHIM = os.path.join("tests", "faults", "fail_alloc.so")
MESSAGES = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}], "add_generation_prompt": True}
# name: arguments; REQUEST stands for a file with MESSAGES.
AREAS = {
    "run, GGUF": ["run", "-m", gguf_path("gguf-q4_0"), "-p", "hello", "-n", "3", "--temp", "0", "-t", "2"],
    "run, MTP": ["run", "-m", gguf_path("gguf-f16-mtp"), "--tokens", "1,2,3", "-n", "2", "--temp", "0", "-t", "2"],
    "run, FP8 shards": ["run", "-m", golden("v3-fp8"), "-p", "hello", "-n", "3", "--temp", "0", "-t", "2"],
    "score": ["score", "-m", gguf_path("kq-q4"), "--tokens", "1,2,3", "--json", "-t", "2"],
    "tokenize": ["tokenize", "-m", cases.DEMO, "It is a truth"],
    "tokenize, GGUF": ["tokenize", "-m", gguf_path("kq-q4"), "It is a truth"],
    "template": ["template", "-m", golden("v3"), "REQUEST"],
    "inspect": ["inspect", "-m", golden("v3-fp8"), "--json"],
    "inspect, split": ["inspect", "-m", golden("gguf-q8_0-split"), "--json"],
    "check": ["check", "-m", golden("v3-fp8"), "--json"],
    "plan": ["plan", "-m", golden("v3"), "--ram", "1G", "--json"],
    "plan, profile": ["plan", "-m", golden("v3"), "--profile", os.path.join(cases.ROOT, "configs", "8-gpu-node.yaml"), "--json"],
    "trace simulate": ["trace", "simulate", os.path.join(cases.ROOT, "tests", "data", "trace", "demo.csv.gz"), "--cache", "90", "--json"],
    "trace predict": ["trace", "predict", "-m", gguf_path("gguf-f16-mtp"), "--tokens-file", os.path.join(cases.ROOT, "tests", "data", "predict", "short.json"), "--json", "-t", "2"],
    "trace report": ["trace", "report", os.path.join(cases.ROOT, "tests", "data", "trace", "demo.csv.gz"), "--json"],
}
VARYING = re.compile(rb'"(prompt_s|decode_s|\w+_tok_s|read_gb_s|ceiling_\w+|drafted|accepted)": [^,}]*')
SANITIZER = re.compile(r"Sanitizer|runtime error")


def every_nth(step):
    """The first few, every step-th up to 3000, some of what comes after."""
    return lambda count: [*range(1, min(count, 12) + 1), *range(13, min(count, 3000) + 1, step), *range(3001, count + 1, max(1, count * step // 1000))]


def first_and_sample(n, more):
    return lambda count: [*range(1, min(count, n) + 1), *range(n + 1, count + 1, max(1, (count - n) // more))]


def run_once(binary, command, n, persistent, count_file=None):
    shim = os.path.join(os.path.dirname(cases.BINARY), SHIM)
    if not os.path.exists(shim):
        raise cases.Skip(f"{shim} is not built")
    env = {**os.environ, "LD_PRELOAD": shim, "FAIL_ALLOC_N": str(n), "ASAN_OPTIONS": "verify_asan_link_order=0:allocator_may_return_null=1"}
    env.update({"FAIL_ALLOC_ALL": "1"} if persistent else {})
    env.update({"FAIL_ALLOC_COUNT": count_file} if count_file else {})
    return subprocess.run([binary, *command], env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


def judge(command, n, run, expected):
    """None, or what is wrong with the outcome."""
    text = run.stderr.decode(errors="replace")
    where = f"{' '.join(command)}: allocation {n}: exit {run.returncode}\n{text[-1500:]}"
    if SANITIZER.search(text) or run.returncode not in (0, 1):
        return where
    if run.returncode == 0 and command[0] == "template" and run.stdout == b"[null]\n" and "memory" in text:
        return None  # null, with the reason on stderr, is its answer for what it cannot render
    if run.returncode == 0 and VARYING.sub(b"", run.stdout) != VARYING.sub(b"", expected.stdout):
        return f"{where}\nstdout differs: {run.stdout[:400]!r}"
    lines = [x for x in text.split("\n") if re.match(r"^sluice(: error| \w+):", x)]
    if run.returncode == 1 and (len(lines) != 1 or "memory" not in lines[0]):
        return f"{where}\nexpected one line about memory"
    return None


def try_area(area, which, persistent=False, binary=cases.BINARY):
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as folder:
        request, counter = os.path.join(folder, "request.json"), os.path.join(folder, "count")
        with open(request, "w", encoding="utf-8") as f:
            json.dump(MESSAGES, f)
        command = [request if a == "REQUEST" else a for a in AREAS[area]]
        expected = run_once(binary, command, 0, False, counter)
        assert expected.returncode == 0, expected.stderr.decode()
        with open(counter, encoding="ascii") as f:
            count = int(f.read())
        assert count > 20, f"{area}: only {count} allocations were seen"
        numbers = which(count)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = pool.map(lambda n: (n, run_once(binary, command, n, persistent)), numbers)
            wrong = [w for w in (judge(command, n, run, expected) for n, run in runs) if w]
        print(f"     {area}: {count} allocations, {len(numbers)} tried, {len(wrong)} wrong", flush=True)
        assert not wrong, f"{len(wrong)} outcomes; the first:\n" + "\n".join(wrong[:3])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Memory nodes, threads and huge pages on this machine: what is asked for, refused, found; never another output.
Two nodes: tests/test_vm.py."""
import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile

import cases

TOKENS = "0,2563,339,1107,88,1202,413,77,1500,9"
RUN = ["run", "-m", cases.DEMO, "--tokens", TOKENS, "-n", "3", "--temp", "0"]
PR_SET_THP_DISABLE = 41


def bits(*flags, **options):
    """Digest of the logits of a pass with exact rows."""
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump")
        cases.sluice("score", "-m", cases.DEMO, "--tokens", TOKENS, "-ub", "8", "--dump", dump, *flags, **options)
        with open(dump, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()


def notes(*flags, **options):
    """(tokens, steps down, lines of -v)."""
    run = cases.sluice(*RUN, "--json", "-v", *flags, **options)
    report = json.loads(run.stdout)
    return report["tokens"], {s["what"]: s["why"] for s in report["timings"]["steps_down"]}, run.stderr.decode()


def refusing(call, code):
    """Prefix that refuses a system call; the kernel filters, so that others are not slowed down."""
    if shutil.which("strace") is None:
        raise cases.Skip("no strace")
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error={code}"]


def allowed_nodes():
    with open("/proc/self/status", encoding="ascii") as f:
        return re.search(r"Mems_allowed_list:\s*(\S+)", f.read()).group(1)


def one_node():
    if not allowed_nodes().isdigit():
        raise cases.Skip("the figures are of a machine with one memory node")
    return allowed_nodes()


def test_choices_have_the_same_bits():
    expected = bits()
    node = re.match(r"\d+", allowed_nodes()).group(0)
    for value in ("off", "on", "auto", node, "isolate", "distribute", "numactl"):
        assert bits("--numa", value) == expected, value
    for threads in (1, 2, 3, 4, 8):
        assert bits("-t", threads) == expected, threads


def test_foreign_nodes_are_refused():
    for value, text in (("63", b"node 63 is not there"), ("0,63", b"allowed: "), (f"{allowed_nodes()[0]},{allowed_nodes()[0]}", b"twice"),
                        ("interleave", b"expected auto|on|off|N[,N]"), ("0,", b"expected")):
        run = cases.sluice(*RUN, "--numa", value, status=2)
        assert text in run.stderr, (value, run.stderr)


def test_placement_is_found_as_asked():
    node = one_node()
    _, down, text = notes("--numa", "on")
    asked = re.search(rf"placement: node {node}: ([\d.]+ MiB) of ([\d.]+ MiB) asked, (\d+) % in huge pages", text)
    if asked is None:
        raise cases.Skip(f"this system refuses placement: {down}")
    assert asked.group(1) == asked.group(2) and "numa" not in down and "placement" not in down, text
    assert "asked" not in re.search(r"placement: .*", notes("--numa", "off")[2]).group(0)


def test_refusals_are_one_line_each_and_change_nothing():
    tokens, plain, _ = notes("--numa", "on")
    assert not {"numa", "placement", "pinning", "huge pages"} & set(plain), plain
    refused = {
        "mbind": ("numa", {"EPERM": "SYS_NICE", "EINVAL": "Mems_allowed", "ENOSYS": "no NUMA support", "ENOMEM": "mbind(2)"}),
        "get_mempolicy": ("numa", {"EPERM": "bound to no node", "ENOSYS": "no NUMA support"}),
        "move_pages": ("placement", {"EPERM": "not verified", "ENOSYS": "not verified"}),
        "sched_setaffinity": ("pinning", {"EPERM": "2 of 2 threads", "EINVAL": "2 of 2 threads"}),
        "madvise": ("huge pages", {"EINVAL": "transparent huge pages", "EPERM": "transparent huge pages"}),
    }
    for call, (what, codes) in refused.items():
        for code, text in codes.items():
            got, down, lines = notes("--numa", "on", "-t", 2, prefix=refusing(call, code))
            assert got == tokens and text in down.get(what, ""), (call, code, down)
            assert lines.count(f"sluice: {what}: ") == 1 and f"{call}: " not in lines, lines
            assert what == "placement" or "not verified" not in lines, lines
            if call == "move_pages":
                assert " MiB asked" not in lines, "not logged as found"


def test_calls_that_are_not_made_cannot_be_refused():
    one_node()
    tokens = notes()[0]
    for call in ("mbind", "set_mempolicy", "mlock"):
        got, down, _ = notes(prefix=refusing(call, "EPERM"))
        assert got == tokens and not {"numa", "placement"} & set(down), (call, down)


def without_huge_pages():
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def test_without_huge_pages():
    """Switched off for the process, the advice is still taken: only counting shows it. Same bits, one notice."""
    expected = bits()
    run = subprocess.run([cases.BINARY, *RUN, "-v"], capture_output=True, check=True, preexec_fn=without_huge_pages, stdin=subprocess.DEVNULL)
    assert run.stderr.count(b"huge pages: 0 % of the weights") == 1, run.stderr
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump")
        subprocess.run([cases.BINARY, "score", "-m", cases.DEMO, "--tokens", TOKENS, "-ub", "8", "--dump", dump], capture_output=True, check=True,
                       preexec_fn=without_huge_pages, stdin=subprocess.DEVNULL)
        with open(dump, "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == expected


# ---- threads ----

@contextlib.contextmanager
def quota(percent):
    """Prefix that runs in a control group which may use so much of one processor."""
    v1 = "/sys/fs/cgroup/cpu"
    parent, files = (v1, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(percent * 1000)}) if os.path.exists(f"{v1}/cpu.cfs_quota_us") \
        else ("/sys/fs/cgroup", {"cpu.max": f"{percent * 1000} 100000"})
    group = os.path.join(parent, f"sluice-test-{os.getpid()}")
    try:
        os.mkdir(group)
        for name, text in files.items():
            with open(os.path.join(group, name), "w", encoding="ascii") as f:
                f.write(text)
    except OSError as e:
        raise cases.Skip(f"no control group can be made: {e}") from e
    try:
        yield ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(group)


def threads_line(**options):
    return re.search(r"threads: (\d+) \((.*?)\);", notes(**options)[2]).groups()


def test_threads_follow_quota_and_affinity():
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        raise cases.Skip("one processor")
    with quota(150) as prefix:
        count, why = threads_line(prefix=prefix)
        assert count == "1" and "quota of 1.50" in why, (count, why)
    first = str(min(os.sched_getaffinity(0)))
    count, why = threads_line(prefix=["taskset", "-c", first])
    assert count == "1" and "1 physical core allowed" in why, (count, why)
    down = notes("-t", 4 * cores)[1]
    assert "not pinned" in down["pinning"] and f"{cores} run at a time" in down["pinning"], down


if __name__ == "__main__":
    cases.main(globals())

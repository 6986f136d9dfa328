#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: full
"""Budgets bind: a model of more than a gigabyte in half of it and less, in a control group that counts every page of the program, those of
files it reads included; a group that is too small for the model; a limit that falls while the program runs."""
import atexit
import contextlib
import ctypes
import functools
import json
import mmap
import os
import resource
import shutil
import subprocess
import tempfile
import time

import cases
import ways

V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
PEAK = {V1: "memory.max_usage_in_bytes", V2: "memory.peak"}
LIMIT = {V1: "memory.limit_in_bytes", V2: "memory.max"}
NOW = {V1: "memory.usage_in_bytes", V2: "memory.current"}
EXCESS = 1.05  # R03
SHORT = ("--tokens", "1,2,3")
LONG = ("--tokens", ",".join(str(7 * i % 3001) for i in range(1, 700)))


@functools.lru_cache
def model():
    """Four layers of 64 experts each, 1.2 GB, and the rest."""
    folder = tempfile.mkdtemp(prefix="sluice-test-")
    atexit.register(shutil.rmtree, folder)
    path = os.path.join(folder, "model.gguf")
    cases.sluice("synth", "--shape", "v2-lite", "--dense", "1", "--moe", "4", "--type", "q4_0", "--attn-type", "q4_0", "-o", path, timeout=600)
    ways.prepare_cache(path, "cold")
    return path


class Group:
    def __init__(self, root, path):
        self.root, self.path = root, path
        self.prefix = ["sh", "-c", f'echo $$ >{path}/cgroup.procs && exec "$@"', "sh"]

    def read(self, names):
        with open(os.path.join(self.path, names[self.root]), encoding="ascii") as f:
            return int(f.read())

    def set_limit(self, size):
        with open(os.path.join(self.path, LIMIT[self.root]), "w", encoding="ascii") as f:
            f.write(str(size))


@contextlib.contextmanager
def group(limit=None):
    """A control group of memory of its own."""
    root = V1 if os.path.exists(os.path.join(V1, LIMIT[V1])) else V2
    g = Group(root, os.path.join(root, f"sluice-test-{os.getpid()}"))
    try:
        os.mkdir(g.path)
        g.read(PEAK)
        if limit is not None:
            g.set_limit(limit)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.rmdir(g.path)
        raise cases.Skip(f"no control group that counts memory can be made: {e}") from e
    try:
        yield g
    finally:
        os.rmdir(g.path)


def pages_in_cache(path):
    """Share of a file that the page cache holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
        n = (len(m) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        seen, at = (ctypes.c_ubyte * n)(), ctypes.c_char.from_buffer(m)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(len(m)), seen) == 0
        del at
        return sum(x & 1 for x in seen) / n


def command(text, n, *flags):
    return ("run", "-m", model(), *text, "-n", n, "--temp", "0", "--ignore-eos", "--json", "-c", "1024", *flags)


@functools.lru_cache
def tokens_of(text, n):
    """With all experts in RAM."""
    return cases.sluice_json(*command(text, n), timeout=600)["tokens"]


def plan(*flags, status=0):
    return json.loads(cases.sluice("plan", "-m", model(), "-c", "1024", "--json", *flags, status=status).stdout)


def run_in(g, budget, text, n, *flags, **options):
    """Tokens; the group's high-water mark is within the budget."""
    out = cases.sluice_json(*command(text, n, *flags), prefix=g.prefix, timeout=600, **options)
    peak = g.read(PEAK)
    print(f"     {' '.join(map(str, flags))}: {peak >> 20} MiB at most, budget {budget >> 20} MiB", flush=True)
    assert out["tokens"] == tokens_of(text, n), flags
    assert peak <= EXCESS * budget, (flags, peak, budget)
    return peak


def test_ram_binds():
    """Short and long prompts, short and long answers, by every way of reading; nearly all of the budget is used, no page of the model stays behind."""
    half = os.path.getsize(model()) // 2
    for io in ("uring", "pread", "mmap"):
        for text, n in ((SHORT, 80), (LONG, 3)):
            with group() as g:
                ways.prepare_cache(model(), "cold")
                peak = run_in(g, half, text, n, "--ram", half, "--io", io)
                assert text == SHORT or peak > 0.8 * half, (io, peak, half)
                assert pages_in_cache(model()) < 0.02, (io, pages_in_cache(model()))


def test_buffered_reads_are_dropped():
    shim = os.path.join(os.path.dirname(cases.BINARY), "tests", "faults", "fail_io.so")
    if not os.path.exists(shim):
        raise cases.Skip(f"{shim} is not built")
    half = os.path.getsize(model()) // 2
    with group() as g:
        ways.prepare_cache(model(), "cold")
        run_in(g, half, LONG, 3, "--ram", half, env={"LD_PRELOAD": shim, "FAIL_IO": "open"})
        assert pages_in_cache(model()) < 0.02, pages_in_cache(model())


def test_expert_ram_binds():
    """What a plan with a budget of experts says is what is used."""
    for share in ("0", "10%", "30%"):
        with group() as g:
            run_in(g, plan("--expert-ram", share)["tiers"]["ram"]["total"], LONG, 3, "--expert-ram", share)


def test_group_smaller_than_the_model():
    """The plain command finds the limit and reads experts as it needs them; nothing is written (R04)."""
    limit = max(os.path.getsize(model()) * 3 // 10, plan("--ram", "1M", status=3)["needed"] + (64 << 20))
    with group(limit) as g:
        written = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
        run_in(g, limit, LONG, 3)
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock == written


def test_limit_that_falls():
    """A limit that falls to the budget while the program runs takes nothing away."""
    budget = os.path.getsize(model()) // 2
    with group() as g:
        ways.prepare_cache(model(), "cold")
        run = subprocess.Popen([*g.prefix, cases.BINARY, *map(str, command(SHORT, 80, "--ram", budget))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        while g.read(NOW) < budget // 2 and run.poll() is None:
            time.sleep(0.01)
        assert run.poll() is None, run.returncode
        g.set_limit(budget)
        out = json.loads(run.communicate(timeout=600)[0])
        assert run.returncode == 0 and out["tokens"] == tokens_of(SHORT, 80), (run.returncode, out)


if __name__ == "__main__":
    cases.main(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""What the system can refuse or break, from outside: budgets, full and read-only disks, signals in every phase, reads that
fail, O_DIRECT, placement. Always the same answer or one clear error, a documented exit status, no half-written file."""
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import cases
from model_files import errors, folder, golden, gguf_path, refused

SMALL = gguf_path("gguf-q4_0")
SHARDS = golden("v3-fp8")
GREEDY = ["--tokens", "1,2,3", "-n", "4", "--temp", "0"]
IO = [{"SLUICE_IO": name} for name in ("uring", "pread")]
SHIM = os.path.join(os.path.dirname(cases.BINARY), "tests", "faults", "fail_io.so")


def answer(model, *args, **options):
    """Tokens and notes of a greedy run."""
    report = cases.sluice_json("run", "-m", model, *GREEDY, "--json", *args, **options)
    return report["tokens"], {s["what"]: s["why"] for s in report["timings"]["steps_down"]}


def shim(kind, n=1):
    if not os.path.exists(SHIM):
        raise cases.Skip(f"{SHIM} is not built")
    return {"LD_PRELOAD": SHIM, "FAIL_IO": kind, "FAIL_IO_N": str(n)}


def strace(*inject, path=None):
    """Prefix that injects errors or delays; with a path only into calls on that file or the files of that folder."""
    if shutil.which("strace") is None:
        raise cases.Skip("no strace")
    files = [] if path is None else [path] if os.path.isfile(path) else [os.path.join(path, n) for n in os.listdir(path)]
    return ["strace", "-f", "-qq", "-o", "/dev/null", *[a for p in files for a in ("-P", p)],
            *[a for i in inject for a in ("-e", f"inject={i}")]]


# ---- budgets ----

def outcome(*args, allowed=(0, 2, 3)):
    run = cases.sluice(*args, status=None)
    assert run.returncode in allowed, (args, run.returncode, run.stderr)
    assert run.returncode == 0 or len(errors(run)) == 1, (args, run.stderr)
    return run


def test_ram_from_0_up():
    """Refused with the figures and the least value, which works; nothing is read before."""
    seen = set()
    for size in ("0", "1", "1K", "1M", "10M", "30M", "60M", "100M", "200M", "1G", "100T", "16E", "-1", "x", "1.5G", "10%"):
        run = outcome("run", "-m", SMALL, *GREEDY, "--ram", size)
        seen.add(run.returncode)
        if run.returncode == 3:
            assert re.search(rb"(the least that works is|needs) [\d.]+ [KMG]iB", run.stderr), run.stderr
    assert seen == {0, 2, 3}, seen
    for model in (SMALL, SHARDS):
        plan = json.loads(cases.sluice("plan", "-m", model, "--ram", "1M", "--json", status=3).stdout)
        assert plan["fits"] is False and plan["needed"] > 1 << 20
        cases.sluice("run", "-m", model, *GREEDY, "--ram", plan["needed"])
        refused(3, "does not fit", "run", "-m", model, *GREEDY, "--ram", plan["needed"] - 4096)


def test_expert_ram():
    tokens, _ = answer(SMALL)
    for value in ("0", "1", "1K", "0%", "50%", "0x", "1x", "7x", "8x", "100%", "1G"):
        assert answer(SMALL, "--expert-ram", value)[0] == tokens, value
    need = json.loads(cases.sluice("plan", "-m", SMALL, "--json", "--ram", "1M", status=3).stdout)["needed"]
    line = refused(3, "experts in RAM, and there is room for", "run", "-m", SMALL, *GREEDY, "--expert-ram", "100%", "--ram", need)
    most = re.search(r"give (\d+)x or less", line).group(1)
    assert answer(SMALL, "--expert-ram", f"{most}x", "--ram", need)[0] == tokens
    for value in ("-1", "101%", "x", "9999999999999999999999"):
        outcome("run", "-m", SMALL, *GREEDY, "--expert-ram", value)


def test_context_rows_and_threads():
    tokens, _ = answer(SMALL)
    for flag, values in (("-c", (0, 1, 2, 63, 64, 65, 255, 256, 257, 2**31, 2**32, -1)),
                         ("-ub", (0, 1, 2, 8, 9, 512, 8192, 2**20, 2**31, 2**32 + 1, -1)),
                         ("-t", (0, 1, 2, 3, 64, 4096, 4097, 2**31, -1)), ("-np", (0, 1, 2, 1000, 2**20, 2**31, -1))):
        for value in values:
            run = outcome("run", "-m", SMALL, *GREEDY, "--json", flag, value, allowed=(0, 1, 2, 3))
            if run.returncode == 0:
                got = json.loads(run.stdout)["tokens"]
                assert got == tokens[:len(got)] and (len(got) == len(tokens) or flag == "-c"), (flag, value, got, tokens)
            elif run.returncode == 1:
                assert flag in ("-t", "-c"), (flag, value, run.stderr)


def test_address_space_limit():
    for limit in (58 << 20, 100 << 20, 137 << 20, 256 << 20, 300 << 20, 400 << 20, 600 << 20):
        run = cases.sluice("run", "-m", SHARDS, *GREEDY, status=None, prefix=["prlimit", f"--as={limit}"])
        assert run.returncode in (0, 1, 3), (limit, run.returncode, run.stderr)
        assert run.returncode == 0 or len(errors(run)) == 1, (limit, run.stderr)


def test_first_products_of_a_process():
    """OpenBLAS gave two threads one buffer when their first products overlapped: one start in fifty was wrong."""
    with open(os.path.join(golden("v2"), "expect.json"), encoding="utf-8") as f:
        ids = max((p["ids"] for p in json.load(f)["prompts"]), key=len)
    command = ["score", "-q", "-m", golden("v2"), "--tokens", ",".join(map(str, ids)), "-t", "2", "--bulk", "blas", "--json"]
    outputs = {cases.sluice(*command).stdout for _ in range(80)}
    assert len(ids) > 64 and len(outputs) == 1, outputs


# ---- disks ----

@contextlib.contextmanager
def small_disk(size, read_only=False):
    if os.geteuid() != 0:
        raise cases.Skip("mounting a small disk needs root")
    with folder() as path:
        options = f"size={size}"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, check=False).returncode != 0:
            raise cases.Skip("no tmpfs can be mounted here")
        try:
            keep = os.path.join(path, "keep")
            with open(keep, "wb") as f:
                f.write(b"GGUF as far as --force looks, and to be kept")
            if read_only:
                subprocess.run(["mount", "-o", "remount,ro", path], check=True)
            yield path, keep
        finally:
            subprocess.run(["umount", "-l", path], check=False)


WRITERS = {
    "score --dump": lambda out: ["score", "-m", SMALL, "--tokens", "1,2,3", "--dump", out],
    "run --dump": lambda out: ["run", "-m", SMALL, *GREEDY, "--dump", out],
    "run --session": lambda out: ["run", "-m", golden("v3"), "-p", "x" * 200, "-n", "1", "--temp", "0", "--session", out],
    "synth": lambda out: ["synth", "--shape", "demo", "--moe", "1", "--experts", "8", "--force", "-o", out],
    "convert": lambda out: ["convert", "-m", SHARDS, "--type", "bf16", "--force", "-o", out],
}


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).digest()


def test_disks_that_are_full_or_read_only():
    """A new file is not left behind in part, an existing one stays as it was."""
    for size, read_only, words in (("8k", False, ("No space", "the file system has")), ("8m", True, ("Read-only",))):
        for name, command in WRITERS.items():
            with small_disk(size, read_only) as (path, keep):
                before = digest(keep)
                for out in (os.path.join(path, "new"), keep):
                    if name == "run --session" and out == keep:
                        continue  # an existing session is read first
                    run = cases.sluice(*command(out), status=1)  # text may have come out before
                    lines = errors(run)
                    assert len(lines) == 1 and os.path.basename(out) in lines[0] and any(w in lines[0] for w in words), (name, run.stderr)
                    assert os.listdir(path) == ["keep"] and digest(keep) == before, (name, os.listdir(path))


def test_full_disk_keeps_a_session():
    with folder() as home, small_disk("140k") as (path, _):
        file, small = os.path.join(path, "chat"), os.path.join(home, "chat")
        command = ["run", "-m", golden("v3"), "-n", "1", "--temp", "0"]
        cases.sluice(*command, "-p", "x", "--session", small)
        shutil.copy(small, file)
        before = digest(file)
        run = cases.sluice(*command, "-p", "x" * 200, "--session", file, status=1)
        assert b"No space" in run.stderr and digest(file) == before and sorted(os.listdir(path)) == ["chat", "keep"], run.stderr


def test_output_that_cannot_be_written():
    for command in (["inspect", "-m", SMALL, "--json"], ["plan", "-m", SMALL], ["check", "-m", SMALL], ["run", "-m", SMALL, *GREEDY],
                    ["score", "-m", SMALL, "--tokens", "1,2", "--json"], ["tokenize", "-m", SMALL, "x"]):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([cases.BINARY, *command], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        assert run.returncode == 1 and b"No space" in run.stderr, (command, run.returncode, run.stderr)


# ---- reads ----

def test_short_and_interrupted_reads():
    for model in (SMALL, SHARDS):
        tokens, _ = answer(model)
        for kind in ("short", "eintr"):
            for io in IO:
                assert answer(model, env=shim(kind) | io)[0] == tokens, (model, kind, io)
                assert cases.sluice("check", "-m", model, env=shim(kind) | io).stdout == cases.sluice("check", "-m", model).stdout


def test_reads_that_fail():
    """From the n-th read on: one error with the file, for every n until none fails."""
    for kind in ("eio", "end"):
        for command, io in ((c, io) for c in (["run", "-m", SHARDS, *GREEDY], ["check", "-m", SHARDS]) for io in IO):
            n, failed = 1, 0
            while True:
                run = cases.sluice(*command, env=shim(kind, n) | io, status=None)
                if run.returncode == 0:
                    break
                text = (run.stderr + run.stdout).decode()
                assert run.returncode == 1 and SHARDS in text, (kind, command, n, run)
                assert command[0] == "check" or (len(errors(run)) == 1 and run.stdout == b""), (kind, n, run)
                assert kind != "eio" or "Input/output error" in text, text
                n, failed = n + 1 + n // 4, failed + 1
            assert failed > 5, (kind, command, failed)


def test_one_read_fails():
    """By the kernel's answer, one call only; the file and the offset are named."""
    tokens, _ = answer(SMALL)
    for when in (1, 2, 3, 5):
        run = cases.sluice("run", "-m", SMALL, *GREEDY, "--io", "pread", "--json", status=None, prefix=strace(f"pread64:error=EIO:when={when}", path=SMALL))
        if run.returncode == 0:
            assert json.loads(run.stdout)["tokens"] == tokens
        else:
            assert run.returncode == 1 and len(errors(run)) == 1 and b"model.gguf" in run.stderr and re.search(rb"(offset|byte) \d+", run.stderr), run.stderr


def test_direct_reads_refused():
    """At open or at the read: buffered ones take over, the same answer, said once with the reason."""
    for model in (SMALL, SHARDS):
        tokens, _ = answer(model)
        for kind, io in ((kind, io) for kind in ("open", "direct") for io in IO):
            got, notes = answer(model, env=shim(kind) | io)
            assert got == tokens and "Invalid argument" in notes.get("O_DIRECT", ""), (kind, io, notes)
            run = cases.sluice("run", "-m", model, *GREEDY, env=shim(kind) | io)
            assert run.stderr.count(b"O_DIRECT") == 1, run.stderr
            cases.sluice("check", "-m", model, env=shim(kind) | io)


def test_io_uring_refused():
    """Whichever call is refused, pread threads read the same bytes; said once with the true reason. A failure in the middle is an error."""
    tokens, notes = answer(SMALL)
    if "io" in notes:
        raise cases.Skip("no io_uring here: " + notes["io"])
    reasons = {"EPERM": "Operation not permitted", "ENOSYS": "Function not implemented", "EINVAL": "Invalid argument", "ENOMEM": "Cannot allocate memory"}
    for code, reason in reasons.items():
        for call in ("io_uring_setup", "io_uring_register", "io_uring_enter"):
            got, notes = answer(SMALL, prefix=strace(f"{call}:error={code}"))
            assert got == tokens and "pread" in notes.get("io", "") and reason in notes["io"], (call, code, notes)
        run = cases.sluice("run", "-m", SMALL, *GREEDY, prefix=strace(f"io_uring_setup:error={code}"))
        assert run.stderr.count(b"io_uring") == 1 and reason.encode() in run.stderr, run.stderr
        got, notes = answer(SMALL, prefix=strace(f"io_uring_register:error={code}:when=2+"))
        assert got == tokens and "io" not in notes and reason in notes["io files"], (code, notes)
    line = refused(1, ["model.gguf", "byte", "Operation not permitted"], "run", "-m", SMALL, *GREEDY, prefix=strace("io_uring_enter:error=EPERM:when=2+"))
    assert "tensor" in line, line
    assert answer(SMALL, "--io", "pread", prefix=strace("io_uring_setup:error=EPERM"))[1].get("io") is None
    cases.sluice("check", "-m", SMALL, prefix=strace("io_uring_setup:error=ENOSYS"))


def test_model_on_tmpfs():
    tokens, _ = answer(SMALL)
    with small_disk("4m") as (path, _):
        shutil.copy(SMALL, path)
        assert answer(os.path.join(path, "model.gguf"))[0] == tokens


# ---- placement ----

def test_refused_placement():
    """Affinity, memory policy and page advice are optional."""
    tokens, plain = answer(SMALL, "-t", "2")
    assert "pinning" not in plain, plain
    for call in ("sched_setaffinity", "mbind", "set_mempolicy", "madvise", "get_mempolicy", "mlock"):
        run = cases.sluice("run", "-m", SMALL, *GREEDY, "--json", "-t", "2", prefix=strace(f"{call}:error=EPERM"))
        report = json.loads(run.stdout)
        assert report["tokens"] == tokens, call
        if call == "sched_setaffinity":
            assert any(s["what"] == "pinning" for s in report["timings"]["steps_down"]), report["timings"]["steps_down"]


def test_refused_threads():
    """Those that read, then those that compute."""
    for n, io, text in ((3, "pread", "for reading"), (11, "pread", "of 4"), (3, "uring", "of 4")):
        inject = [f"{call}:error=EAGAIN:when={n}+" for call in ("clone3", "clone")]
        refused(1, [text, "ulimit -u"], "run", "-m", SMALL, *GREEDY, "-t", "4", "--io", io, prefix=strace(*inject))


# ---- signals ----

def interrupt(command, delay, number=signal.SIGINT, second=None, prefix=(), stdin=subprocess.DEVNULL, env=None):
    """(exit status, seconds from the signal to the end, stderr)."""
    run = subprocess.Popen([*prefix, cases.BINARY, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=stdin,
                           env={**os.environ, **(env or {})})
    try:
        time.sleep(delay)
        target = child_of(run.pid) if prefix else run.pid
        cases.wait_until_caught(target, number)
        assert run.poll() is None, (command, run.stderr.read())
        start = time.monotonic()
        os.kill(target, number)
        if second is not None:
            time.sleep(second)
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, number)
        text = run.communicate(timeout=20)[1]
        return run.returncode, time.monotonic() - start, text
    finally:
        if run.poll() is None:
            run.kill()


def child_of(pid):
    """The traced program, once it has replaced strace's child."""
    for _ in range(200):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            for child in f.read().split():
                if os.path.realpath(f"/proc/{child}/exe") == os.path.realpath(cases.BINARY):
                    return int(child)
        time.sleep(0.02)
    raise AssertionError("the traced program did not start")


def ends(phase, result, limit=2.0):
    """limit: 2 s, and what a tracer takes to let go of delayed threads."""
    status, seconds, text = result
    assert status == 130 and seconds < limit, (phase, status, seconds, text[-300:])
    return seconds


def test_interrupt_while_reading():
    """Reads of the model are made slow; a signal in the load, in check, in the headers that plan reads."""
    slow = strace("pread64:delay_enter=300000", path=SHARDS)
    load, check, plan = ["run", "-m", SHARDS, *GREEDY], ["check", "-m", SHARDS], ["plan", "-m", SHARDS]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        jobs = {name: pool.submit(interrupt, *args, prefix=slow, env={"SLUICE_IO": "pread"}) for name, args in {
            "load": (load, 1.5), "load, SIGTERM": (load, 1.5, signal.SIGTERM), "check": (check, 1.5), "plan": (plan, 0.8)}.items()}
        for name, job in jobs.items():
            ends(name, job.result(), 2.5)


def test_second_signal_ends_at_once():
    """The first is being handled while reads do not come back; the second does not wait for them."""
    options = {"env": {"SLUICE_IO": "pread"}, "prefix": strace("pread64:delay_enter=4000000:when=2+", path=SMALL)}
    once = interrupt(["check", "-m", SMALL], 1.0, **options)
    twice = interrupt(["check", "-m", SMALL], 1.0, second=0.1, **options)
    assert once[0] == twice[0] == 130 and twice[1] < once[1] + 0.5, (once, twice)


def test_interrupt_while_computing():
    """Prefill of many rows, decoding without end, a long score."""
    long_text = "It is a truth universally acknowledged, that " * 300
    ends("prefill", interrupt(["run", "-m", cases.DEMO, "-p", long_text, "-n", "1", "-ub", "8", "-t", "1"], 1.0))
    ends("score", interrupt(["score", "-m", cases.DEMO, "--text", long_text, "-ub", "8", "-t", "1"], 1.0))
    ends("decode", interrupt(["run", "-m", cases.DEMO, "-p", "It is", "-n", "-1", "--ignore-eos", "-t", "1"], 1.0))


def test_interrupt_synth_leaves_nothing():
    with folder() as path:
        out = os.path.join(path, "big.gguf")
        ends("synth", interrupt(["synth", "--shape", "demo", "-o", out], 1.0, prefix=strace("pwrite64:delay_enter=100000")))
        assert os.listdir(path) == [], os.listdir(path)


def test_interrupt_chat():
    """At an empty prompt Ctrl-C ends the chat, as the end of input, /quit and SIGTERM do (cli_test.py: in an answer it ends that)."""
    for last, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (b"/quit\n", 0), (b"\x04", 0)):
        master, slave = pty.openpty()
        run = subprocess.Popen([cases.BINARY, "run", "-m", SMALL, "--raw"], stdin=slave, stdout=slave, stderr=slave, close_fds=True,
                               env={**os.environ, "TERM": "dumb"}, start_new_session=True)
        os.close(slave)
        try:
            text = read_until(master, b"\n> ")
            start = time.monotonic()
            if isinstance(last, bytes):
                os.write(master, last)
            else:
                os.kill(run.pid, last)
            while run.poll() is None and time.monotonic() - start < 5:
                text += read_until_quiet(master, 0.1)
            assert run.poll() == expected and time.monotonic() - start < 2, (last, run.poll(), text)
        finally:
            if run.poll() is None:
                run.kill()
            os.close(master)


def read_until(fd, mark, timeout=30):
    data, end = b"", time.monotonic() + timeout
    while mark not in data and time.monotonic() < end:
        data += read_until_quiet(fd, 0.1)
    assert mark in data, data
    return data


def read_until_quiet(fd, quiet=1.0):
    data = b""
    while select.select([fd], [], [], quiet)[0]:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        data += got
    return data


if __name__ == "__main__":
    cases.main(globals())

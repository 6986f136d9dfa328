# SPDX-License-Identifier: Apache-2.0
"""What Python tests share: running the program and counting cases.

A test script is tests/NAME.py with a line "# suite: quick" (or full, long), functions named test_*, and at its end

    if __name__ == "__main__":
        cases.main(globals())

It is called as `python tests/NAME.py [build/sluice]`, prints one line a case and last "N passed, N failed, N skipped".
"""
import glob
import json
import os
import platform
import re
import subprocess
import sys
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "sluice")
DEMO = os.path.join(ROOT, "models", "demo")


class Skip(Exception):
    """Raised by a case that cannot run here; the text says why."""


def run(command, status=0, stdin=None, env=None, timeout=120):
    """Runs a command; stdout and stderr are bytes. An exit status other than `status` fails the case (None: any).

    Bulk rows use our kernels unless a case says otherwise: `--bulk auto` measures, and bits depend on its choice.
    """
    command = list(map(str, command))
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout,
                          stdin=subprocess.DEVNULL if stdin is None else None, env={"SLUICE_BULK": "own", **os.environ, **(env or {})})
    if status is not None and done.returncode != status:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}, expected {status}\n"
                             f"{done.stderr.decode(errors='replace')[-2000:]}")
    return done


def sluice(*args, prefix=(), **options):
    """Runs the program, behind `prefix`; options as of run."""
    return run([*prefix, BINARY, *args], **options)


def sluice_json(*args, **options):
    """Parsed stdout of a command that prints JSON."""
    return json.loads(sluice(*args, **options).stdout)


def wait_until_caught(pid, number):
    """Until the program has a handler for the signal: before, on a busy machine perhaps for long, it ends as any program does."""
    caught, end = 0, time.monotonic() + 20
    while not caught >> (number - 1) & 1 and time.monotonic() < end:
        time.sleep(0.002)
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            caught = int(re.search(r"SigCgt:\s+(\w+)", f.read()).group(1), 16)


def libraries(program):
    """Paths of what a program needs of the system: what ldd lists, and OpenBLAS, which it loads by itself."""
    loaded = glob.glob(f"/usr/lib/{platform.machine()}-linux-gnu/openblas-pthread/libopenblas.so.0")
    listed = [run(["ldd", path]).stdout.decode() for path in (program, *loaded)]
    return sorted({*loaded, *(path for text in listed for path in re.findall(r"(/\S+) \(0x", text))})


def run_case(name, function):
    start = time.monotonic()
    try:
        function()
    except Skip as e:
        print(f"SKIP {name}: {e}", flush=True)
        return "skipped"
    except Exception:
        print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
        return "failed"
    print(f"ok   {name} ({time.monotonic() - start:.1f} s)", flush=True)
    return "passed"


def main(namespace):
    tests = [(n, f) for n, f in namespace.items() if n.startswith("test_") and callable(f)]
    outcomes = [run_case(name, function) for name, function in tests]
    passed, failed, skipped = (outcomes.count(o) for o in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 0)

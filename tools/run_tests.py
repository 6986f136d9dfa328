#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test stages of docs/testing.md and adds them up. Called by tools/test.

usage: run_tests.py [--quick | --long]
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(ROOT, "build", "sluice")
TIERS = {"quick": ["quick"], "default": ["quick", "full"], "long": ["quick", "full", "long"]}
FUZZ_SECONDS = {"default": 30, "long": 600}
PYTHON_TIMEOUT = {"quick": 240, "full": 1800, "long": 7200}

# Enough to show the bits; the long tier builds all and runs the whole quick suite, some 15 minutes of emulation.
CROSS_FILE = "build/cross/aarch64.ini"
AARCH64_TARGETS = ("sluice", "golden", "test_cpu_")
AARCH64_TESTS = ("cpu_exact", "cpu_blocks", "cpu_selfchecks", "golden_v3", "golden_v3-fp8", "golden_v2-lite", "golden_glm-flash",
                 "golden_gguf-q8_0-split_model-00001-of-00003", "golden_gguf-q4_0_model", "golden_gguf-mxfp4_model")

SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
SUITE = re.compile(r"^# suite: (\w+)$", re.MULTILINE)


class Result:
    """What one stage found."""

    def __init__(self, stage):
        self.stage, self.passed, self.failed, self.skipped, self.seconds = stage, 0, [], [], 0.0

    def add(self, name, outcome, detail=""):
        if outcome == "ok":
            self.passed += 1
        elif outcome == "skip":
            self.skipped.append((name, detail))
            print(f"SKIPPED {self.stage}: {name}: {detail or 'no reason given'}", flush=True)
        else:
            self.failed.append(name)
            print(f"FAILED {self.stage}: {name}\n{indent(detail)}", flush=True)


def indent(text):
    lines = text.rstrip().split("\n")
    return "\n".join("    " + line for line in lines[-60:])


def last_line(text):
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    return lines[-1] if lines else ""


def run(command, timeout=None, env=None):
    """(exit status, output); a timeout is status 124."""
    try:
        p = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                           env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace") + f"\ntimed out after {timeout} s"
    except OSError as e:
        return 127, str(e)


# ---- building ----

def targets(folder, prefix):
    """(name, file) of the build targets whose names start with prefix, or one of several."""
    status, output = run(["meson", "introspect", "--targets", folder])
    found = json.loads(output) if status == 0 else []
    return [(t["name"], t["filename"][0]) for t in found if t["name"].startswith(prefix)]


def build(result, folder, options, env=None, prefix=None, setup_options=()):
    """Configures and builds, all or the targets whose names start with prefix; False (counted as one failure) if that
    does not work."""
    configured = os.path.exists(os.path.join(ROOT, folder, "build.ninja"))
    command = ["meson", "configure", folder] if configured else ["meson", "setup", *setup_options, folder]
    status, output = run(command + options, env=env)
    if status == 0:
        wanted = [os.path.relpath(f, os.path.join(ROOT, folder)) for _, f in targets(folder, prefix)] if prefix else []
        status, output = run(["ninja", "-C", folder] + wanted)
    result.add(f"build {folder}", "ok" if status == 0 else "fail", output)
    return status == 0


# ---- meson tests ----

def meson_outcome(test):
    detail = test.get("stdout", "") + test.get("stderr", "")
    if test["result"] == "SKIP":
        return "skip", last_line(detail)
    if test["result"] in ("OK", "EXPECTEDFAIL"):
        return "ok", ""
    return "fail", f"{test['result']} after {test.get('duration', 0):.1f} s\n{detail}"


def meson_tests(result, folder, suites, multiplier=1, names=()):
    log = os.path.join(ROOT, folder, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    command = ["meson", "test", "-C", folder, "--no-rebuild", "-t", str(multiplier)]
    for suite in suites:
        command += ["--suite", suite]
    status, output = run(command + list(names), env=SANITIZER_ENV)
    if not os.path.exists(log):
        if status != 0:
            result.add("meson test", "fail", output)
        return
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            test = json.loads(line)
            result.add(test["name"].split(" / ")[-1], *meson_outcome(test))


# ---- Python tests ----

def python_scripts(suites):
    """(path, suite) of the scripts in tests/ that name one of the suites."""
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "*.py"))):
        with open(path, encoding="utf-8") as f:
            match = SUITE.search(f.read())
        if match and match.group(1) in suites:
            yield path, match.group(1)


def python_script(result, path, suite):
    name = os.path.basename(path)
    python = os.path.join(ROOT, "build", "venv", "bin", "python")
    status, output = run([python, "-B", path, BINARY], timeout=PYTHON_TIMEOUT[suite])
    if status == 77:
        result.add(name, "skip", last_line(output))
        return
    counts = COUNTS.match(last_line(output))
    if not counts:
        result.add(name, "ok" if status == 0 else "fail", output)
        return
    passed, failed, skipped = (int(n or 0) for n in counts.groups())
    result.passed += passed
    for line in output.split("\n"):
        if line.startswith("SKIP "):
            result.add(f"{name}: {line[5:].split(':')[0]}", "skip", line.split(":", 1)[-1].strip())
            skipped -= 1
    for i in range(skipped):
        result.add(f"{name} #{i + 1}", "skip", "")
    if failed or status != 0:
        result.add(name, "fail", output)
        result.failed += [f"{name} #{i + 2}" for i in range(failed - 1)]


# ---- stages ----

def stage_release(result, tier):
    if build(result, "build", ["--buildtype=release", "-Dtests=true"]):
        meson_tests(result, "build", TIERS[tier], multiplier=3 if tier == "long" else 1)


def stage_python(result, tier):
    if not os.path.exists(BINARY):
        result.add("build/sluice", "fail", "not built")
        return
    for path, suite in python_scripts(TIERS[tier]):
        python_script(result, path, suite)


# -O1: compilers take minutes for instrumented kernels at -O2.
SANITIZED = ["-Ddebug=true", "-Doptimization=1", "-Dtests=true"]


def stage_asan(result, tier):
    if build(result, "build/asan", SANITIZED + ["-Db_sanitize=address,undefined"]):
        meson_tests(result, "build/asan", TIERS[tier], multiplier=5)


def stage_tsan(result, tier):
    if build(result, "build/tsan", SANITIZED + ["-Db_sanitize=thread"]):
        meson_tests(result, "build/tsan", ["quick"], multiplier=10)


def stage_clang(result, tier):
    if build(result, "build/clang", ["--buildtype=release", "-Dtests=true"], env={"CC": "clang"}):
        meson_tests(result, "build/clang", ["quick"], multiplier=2)


def stage_aarch64(result, tier):
    missing = [p for p in ("aarch64-linux-gnu-gcc", "qemu-aarch64") if not shutil.which(p)]
    if missing or not os.path.exists(os.path.join(ROOT, CROSS_FILE)):
        result.add("cross build", "skip", f"no {', '.join(missing) or CROSS_FILE}: tools/setup --tests")
        return
    everything = tier == "long"
    # -O2: gcc 12 for aarch64 fails with an internal error of its vectoriser at -O3.
    if build(result, "build/aarch64", ["-Ddebug=false", "-Doptimization=2", "-Dtests=true"],
             prefix=None if everything else AARCH64_TARGETS, setup_options=[f"--cross-file={CROSS_FILE}"]):
        meson_tests(result, "build/aarch64", ["quick"], multiplier=10, names=() if everything else AARCH64_TESTS)


def stage_fuzz(result, tier):
    options = SANITIZED + ["-Dfuzz=true", "-Db_lundef=false"]
    if not build(result, "build/fuzz", options, env={"CC": "clang"}, prefix="fuzz_"):
        return
    programs = targets("build/fuzz", "fuzz_")
    if not programs:
        result.add("fuzz targets", "fail", "none was built")
    for name, program in programs:
        work = os.path.join(ROOT, "build", "fuzz", "corpus", name)
        os.makedirs(work, exist_ok=True)
        seeds = os.path.join(ROOT, "tests", "fuzz", "corpus", name[len("fuzz_"):])
        seconds = FUZZ_SECONDS[tier]
        status, output = run([program, f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048",
                              f"-artifact_prefix={work}-", work] + ([seeds] if os.path.isdir(seeds) else []),
                             timeout=seconds + 120, env=SANITIZER_ENV)
        result.add(name, "ok" if status == 0 else "fail", output)


# Python tests run the programs of the stages before theirs.
STAGES = {"release": stage_release, "aarch64": stage_aarch64, "python": stage_python, "asan+ubsan": stage_asan,
          "tsan": stage_tsan, "clang": stage_clang, "fuzz": stage_fuzz}
QUICK_STAGES = ["release", "python"]


def run_stage(name, tier):
    result = Result(name)
    print(f"---- {name} ----", flush=True)
    start = time.monotonic()
    try:
        STAGES[name](result, tier)
    except Exception as e:  # the summary must come, whatever a stage does
        result.add("stage", "fail", f"{type(e).__name__}: {e}")
    result.seconds = time.monotonic() - start
    return result


def report(results):
    """Prints the summary; returns the exit status."""
    print("---- summary ----")
    for r in results:
        print(f"{r.stage:12} {r.passed:5} passed {len(r.failed):4} failed {len(r.skipped):4} skipped {r.seconds:8.1f} s")
    for r in results:
        for name in r.failed:
            print(f"failed: {r.stage}: {name}")
        for name, why in r.skipped:
            print(f"skipped: {r.stage}: {name}: {why or 'no reason given'}")
    failed = sum(len(r.failed) for r in results)
    passed = sum(r.passed for r in results)
    skipped = sum(len(r.skipped) for r in results)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or passed == 0 else 0


def main():
    args = sys.argv[1:]
    tiers = {(): "default", ("--quick",): "quick", ("--long",): "long"}
    tier = tiers.get(tuple(args))
    if tier is None:
        print("usage: tools/test [--quick | --long]", file=sys.stderr)
        return 2
    stages = QUICK_STAGES if tier == "quick" else list(STAGES)
    return report([run_stage(name, tier) for name in stages])


if __name__ == "__main__":
    sys.exit(main())

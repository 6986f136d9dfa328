#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: quick
"""Man page, completion and help say the same; an installation is complete and usable."""
import os
import re
import subprocess
import tempfile

import cases

BUILD = os.path.dirname(cases.BINARY)
COMMAND = re.compile(r"^  ([a-z]+)  ", re.MULTILINE)
FLAGS = re.compile(r"^  ((?:-[A-Za-z]+, )?--[a-z0-9-]+)", re.MULTILINE)


def commands():
    return COMMAND.findall(cases.sluice("--help").stdout.decode())


def help_flags(command):
    """Both spellings of every flag in the help of a command."""
    text = cases.sluice(command, "--help").stdout.decode()
    return {f for pair in FLAGS.findall(text) for f in pair.split(", ")}


def man_text():
    with open(os.path.join(cases.ROOT, "share", "sluice.1"), encoding="utf-8") as f:
        return f.read().replace("\\-", "-")


def complete(*words):
    """What bash offers for the last of the words."""
    line = " ".join(words)
    script = (f'source {cases.ROOT}/share/sluice.bash-completion; COMP_WORDS=({" ".join(repr(w) for w in words)}); '
              f'COMP_CWORD={len(words) - 1}; COMP_LINE="{line}"; _sluice; printf "%s\\n" "${{COMPREPLY[@]}}"')
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    return set(run.stdout.split())


def test_man_page_has_every_command_and_no_other():
    section = man_text().split(".SH COMMANDS")[1].split(".SH")[0]
    described = set(re.findall(r"^\.B (\w+)$", section, re.MULTILINE))
    assert described == set(commands()), described ^ set(commands())


def test_man_page_has_every_setting_and_no_other_flag():
    section = man_text().split(".SH MODEL AND MACHINE")[1].split(".SH")[0]
    described = set(re.findall(r"\\fB(-[\w-]+)\\fR", section))
    run = help_flags("run")
    aliases = {"--ubatch-size", "--ctx-size"}
    unknown = described - run - aliases
    assert not unknown, unknown
    text = cases.sluice("run", "--help").stdout.decode()
    settings = {f for pair in FLAGS.findall(text.split("model and machine")[1]) for f in pair.split(", ")}
    assert settings <= described, settings - described


def test_man_page_has_the_values_of_every_setting():
    section = man_text().split(".SH MODEL AND MACHINE")[1].split(".SH")[0]
    described = dict(re.findall(r"\\fB(--[\w-]+)\\fR \\fI(\S+)\\fR", section))
    settings = cases.sluice("run", "--help").stdout.decode().split("model and machine")[1]
    for flag, value in re.findall(r"^  (?:-[A-Za-z]+, )?(--[a-z0-9-]+) (\S+\|\S+)", settings, re.MULTILINE):
        assert described.get(flag) == value, (flag, value, described.get(flag))


def test_completion_offers_commands_flags_and_values():
    assert set(commands()) <= complete(cases.BINARY, "")
    assert complete(cases.BINARY, "tok") == {"tokenize"}
    assert complete(cases.BINARY, "trace", "rep") == {"report"}
    assert {"simulate", "report", "record", "fit", "predict"} <= complete(cases.BINARY, "trace", "")
    for command in commands():
        offered = complete(cases.BINARY, command, "-")
        assert help_flags(command) <= offered, (command, help_flags(command) - offered)
    assert complete(cases.BINARY, "run", "-ctk", "") == {"f32", "bf16", "f16", "q8_0"}
    assert complete(cases.BINARY, "run", "--reuse", "al") == {"all", "aligned"}


def test_installation_is_complete_and_links():
    with tempfile.TemporaryDirectory() as root:
        run = subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stdout + run.stderr
        installed = {}
        for where, _, files in os.walk(root):
            installed.update({f: os.path.join(where, f) for f in files})
        for name in ("sluice", "sluice.h", "sluice.1", "sluice.pc", "tiny.yaml"):
            assert any(f == name for f in installed), (name, sorted(installed))
        libraries = [os.path.dirname(p) for f, p in installed.items() if f.startswith("libsluice")]
        assert libraries, sorted(installed)
        program = os.path.join(root, "x.c")
        with open(program, "w", encoding="utf-8") as f:
            f.write('#include <sluice/sluice.h>\n#include <stdio.h>\nint main(void) { puts(sluice_version()); return 0; }\n')
        include = os.path.dirname(os.path.dirname(installed["sluice.h"]))
        build = subprocess.run(["cc", program, "-I", include, "-L", libraries[0], "-lsluice", f"-Wl,-rpath,{libraries[0]}",
                                "-o", program + ".exe"], capture_output=True, text=True, timeout=60)
        assert build.returncode == 0, build.stderr
        run = subprocess.run([program + ".exe"], capture_output=True, text=True, timeout=30, check=True)
        assert re.fullmatch(r"\d+\.\d+\.\d+\n", run.stdout), run.stdout


def test_every_refused_value_is_a_usage_error():
    for flag, value in (("--gpu", "0"), ("--vram", "24G")):
        run = cases.sluice("run", "-m", cases.DEMO, "-p", "x", "-n", 1, flag, value, status=2)
        assert b"not in this build" in run.stderr, (flag, value, run.stderr)


def test_environment_is_read_and_checked():
    run = cases.sluice("run", "-m", cases.DEMO, "-p", "x", "-n", 1, env={"SLUICE_THREAD": "1"}, status=2)
    assert b"SLUICE_THREADS" in run.stderr
    cases.sluice("run", "-m", cases.DEMO, "-p", "x", "-n", 1, env={"SLUICE_THREADS": "x"}, status=2)
    cases.sluice("run", "-m", cases.DEMO, "-p", "x", "-n", 1, env={"SLUICE_THREADS": "1"})


if __name__ == "__main__":
    cases.main(globals())

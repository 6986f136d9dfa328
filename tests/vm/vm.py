# SPDX-License-Identifier: Apache-2.0
"""Boots a Debian kernel in QEMU, with as many NUMA nodes as wanted and an emulated NVMe drive, and runs commands there.

    from vm import vm
    boot = vm.Boot({"nodes": "numactl -H", "tokens": "sluice run ..."}, {"/models/demo": cases.DEMO}, nodes=[384, 384])
    boot.output("nodes").stdout        # the first one asked for boots the guest and runs all of them

The drive has two namespaces: nvme0n1 is the root file system, ext4 made from the tree above; nvme0n2 takes the results,
a tar archive. tools/setup --tests brings the packages and puts the kernel into build/vm; nothing of it is installed as
this machine's kernel. KVM where it works, else QEMU's own emulation, where a boot takes about 8 seconds.
"""
import functools
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time

import cases

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(cases.ROOT, "build", "vm")
KERNEL = os.path.join(FOLDER, "vmlinuz")
QEMU = "qemu-system-x86_64"
SBIN = os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
KERNEL_FLAGS = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr root=/dev/nvme0n1 rootfstype=ext4 rw init=/bin/sh"
RESULTS_BYTES = 64 << 20
KVM_SECONDS = 10


def require():
    """Skips the case where something is missing."""
    missing = [p for p in (QEMU, "mkfs.ext4", "busybox", "numactl") if not which(p)]
    if not os.path.exists(KERNEL):
        missing.append(os.path.relpath(KERNEL, cases.ROOT))
    if missing:
        raise cases.Skip(f"no {', '.join(missing)}: nothing is tried on a real kernel with two NUMA nodes; tools/setup --tests")


def which(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + SBIN)


@functools.lru_cache(maxsize=None)
def accelerator():
    """"kvm" if a kernel gets as far there as to find no root file system, else "tcg": /dev/kvm may open and yet not
    run anything, in nested machines for example."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        console = os.path.join(folder, "console")
        started = run_qemu(["-accel", "kvm", "-m", "256", "-append", KERNEL_FLAGS], console, KVM_SECONDS)
        return "kvm" if started and "Unable to mount root" in text_of(console) else "tcg"


def run_qemu(arguments, console, seconds):
    """True if QEMU ended by itself, False after a time limit or an error; what it printed goes to the console file."""
    command = [QEMU, *arguments, "-cpu", "max", "-kernel", KERNEL, "-display", "none", "-nodefaults", "-nic", "none", "-no-reboot",
               "-serial", f"file:{console}"]
    try:
        p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
        with open(console, "ab") as f:
            f.write(p.stdout)
        return p.returncode == 0
    except subprocess.TimeoutExpired:
        return False


def text_of(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().replace("\r", "")


def read_archive(path):
    """Names and bytes of the files of a tar archive; of none if there is no archive."""
    try:
        with tarfile.open(path) as archive:
            return {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}
    except tarfile.TarError:
        return {}


class Output:
    """Of one command: exit status, text, and the guest's uptime at its end."""

    def __init__(self, name, members):
        part = {suffix: members.get(f"./{name}.{suffix}", b"").decode(errors="replace")
                for suffix in ("stdout", "stderr", "status", "end")}
        self.stdout, self.stderr = part["stdout"], part["stderr"]
        self.status = int(part["status"] or -1)
        self.seconds = float(part["end"] or 0)


def node_arguments(nodes, cpus):
    """Of nodes with so many MiB and processors each: a socket and a memory object per node."""
    arguments = ["-smp", f"{cpus * len(nodes)},sockets={len(nodes)},cores={cpus}", "-m", str(sum(nodes))]
    for i, size in enumerate(nodes):
        arguments += ["-object", f"memory-backend-ram,id=m{i},size={size}M",
                      "-numa", f"node,nodeid={i},cpus={i * cpus}-{(i + 1) * cpus - 1},memdev=m{i}"]
    return arguments


def drive_arguments(disk, results):
    arguments = ["-device", "nvme,id=nvme,serial=sluice"]
    for i, path in enumerate((disk, results), 1):
        arguments += ["-drive", f"file={path},if=none,id=d{i},format=raw,cache=unsafe", "-device", f"nvme-ns,drive=d{i},bus=nvme,nsid={i}"]
    return arguments


class Guest:
    """The guest's files; a context, as they lie in a temporary folder."""

    def __init__(self):
        require()
        self.folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.tree = os.path.join(self.folder.name, "tree")
        for name in ("bin", "commands", "dev", "proc", "sys", "tmp"):
            os.makedirs(os.path.join(self.tree, name))
        self.add_file(which("busybox"), "/bin/busybox")
        listed = subprocess.run([which("busybox"), "--list"], capture_output=True, text=True, check=True).stdout
        for name in listed.split():
            if name != "busybox":
                os.symlink("busybox", os.path.join(self.tree, "bin", name))
        self.add_file(os.path.join(HERE, "guest_init.sh"), "/init")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def add_file(self, path, guest_path):
        target = self.tree + guest_path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.lexists(target):
            os.unlink(target)
        shutil.copy(path, target)

    def add_tree(self, path, guest_path):
        shutil.copytree(path, self.tree + guest_path)

    def add_program(self, path):
        """Into /bin; its libraries where they are here."""
        self.add_file(path, "/bin/" + os.path.basename(path))
        for library in cases.libraries(path):
            self.add_file(library, library)

    def make_disk(self, commands, path):
        for i, (name, text) in enumerate(commands.items()):
            with open(os.path.join(self.tree, "commands", f"{i:03}-{name}"), "w", encoding="utf-8") as f:
                f.write(text + "\n")
        size = int(subprocess.run(["du", "-sm", self.tree], capture_output=True, check=True).stdout.split()[0])
        subprocess.run([which("mkfs.ext4"), "-q", "-F", "-d", self.tree, path, f"{size * 5 // 4 + 64}M"], check=True, capture_output=True)

    def boot(self, commands, nodes=(384, 384), cpus=1, seconds=900, each=300):
        """Runs the commands, a dict of names and shell text, in their order; a dict of names and Output.
        `nodes`: MiB of each; `cpus`: of each node; `seconds`: limit of all, `each`: of one command."""
        path = {name: os.path.join(self.folder.name, name) for name in ("disk", "results", "console")}
        self.make_disk(commands, path["disk"])
        with open(path["results"], "wb") as f:
            f.truncate(RESULTS_BYTES)
        start = time.monotonic()
        ended = run_qemu(["-accel", accelerator(), *node_arguments(nodes, cpus), *drive_arguments(path["disk"], path["results"]),
                          "-append", f"{KERNEL_FLAGS} -- /init {each}"], path["console"], seconds)
        elapsed = time.monotonic() - start
        console = text_of(path["console"])
        if not ended:
            raise AssertionError(f"the guest did not end within {seconds} s:\n{console[-4000:]}")
        members = read_archive(path["results"])
        if f"./{len(commands) - 1:03}-{list(commands)[-1]}.status" not in members:
            raise AssertionError(f"no results from the guest:\n{console[-4000:]}")
        print(f"guest: {accelerator()}, {len(nodes)} nodes, {len(commands)} commands in {elapsed:.0f} s", flush=True)
        return {name: Output(f"{i:03}-{name}", members) for i, name in enumerate(commands)}


class Boot:
    """Commands with sluice, numactl and `trees`, a dict of paths in the guest and folders; all run in one boot, when the output
    of one is first asked for. Limits and nodes as of Guest.boot."""

    def __init__(self, commands, trees, **limits):
        self.commands, self.trees, self.limits = commands, trees, limits
        self.done, self.failure = None, None

    def run(self):
        try:
            with Guest() as guest:
                guest.add_program(cases.BINARY)
                guest.add_program(which("numactl"))
                for guest_path, path in self.trees.items():
                    guest.add_tree(path, guest_path)
                self.done = guest.boot(self.commands, **self.limits)
        except (cases.Skip, AssertionError) as e:
            self.failure = e

    def output(self, name, status=0):
        """Output of a command that has to end with this status. Raises why there is none, for every case alike."""
        if self.done is None and self.failure is None:
            self.run()
        if self.failure is not None:
            raise self.failure
        done = self.done[name]
        assert done.status == status, f"{self.commands[name]}\nexit status {done.status}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done

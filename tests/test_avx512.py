#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# suite: long
"""The AVX-512 kernels where no processor has them: Bochs boots a Linux whose only program is the kernel check.

The boot medium holds a kernel of Debian and, as initial file system, the check with its libraries and a process 1 that
runs it and ends with its status, which the kernel reports before it stops. All that is printed arrives through the
emulated serial port in a file.
"""
import glob
import os
import re
import shutil
import subprocess
import tempfile
import time

import cases

CHECK = os.path.join(os.path.dirname(cases.BINARY), "tests", "kernel", "check_kernels")
BIOS = "/usr/share/bochs/BIOS-bochs-latest"
VGA_BIOS = "/usr/share/bochs/VGABIOS-lgpl-latest"
BOOT_LOADER = ("/usr/lib/ISOLINUX/isolinux.bin", "/usr/lib/syslinux/modules/bios/ldlinux.c32")
PACKAGES = "bochs bochsbios vgabios isolinux syslinux-common xorriso linux-image-cloud-amd64"
# Features that Linux must not use in Bochs 2.7. XSAVEC, XSAVES, PKU (321, 323, 515): CPUID leaf 13 gives wrong sizes of
# their save areas, for which Linux switches AVX off. FSRM (580): Linux hangs after it has patched itself to use it.
KERNEL_FLAGS = "console=ttyS0 loglevel=1 clearcpuid=321,323,515,580 mitigations=off nokaslr rdinit=/start"
# Output that is still in the terminal's buffer when process 1 ends would be lost.
START = r"""
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status = 0;
    (void)argc;
    if (fork() == 0) {
        execv("/check", argv);
        _exit(127);
    }
    wait(&status);
    tcdrain(1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
"""
END = re.compile(r"Attempted to kill init! exitcode=0x([0-9a-f]{8})")
MINUTES = 50


def kernel_image():
    """The newest kernel that may be read, or None."""
    readable = [k for k in glob.glob("/boot/vmlinuz-*") if os.access(k, os.R_OK)]
    return max(readable, key=os.path.getmtime, default=None)


def require_emulator():
    missing = [f for f in (BIOS, VGA_BIOS, *BOOT_LOADER) if not os.path.exists(f)]
    missing += [p for p in ("bochs", "xorriso") if not shutil.which(p)]
    if kernel_image() is None:
        missing.append("a readable /boot/vmlinuz-*")
    if missing:
        raise cases.Skip(f"no {', '.join(missing)}: the AVX-512 kernels are not run; apt-get install {PACKAGES}")


def native_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return set(re.search(r"^flags\s*: (.*)$", f.read(), re.MULTILINE).group(1).split())


def cpio_entry(number, name, mode, data=b""):
    """One entry of a "newc" archive, the form of an initial file system."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
    return b"".join(part + bytes(-len(part) % 4) for part in (header, data))


def initial_files(folder):
    """Process 1, the kernel check, its libraries where the loader looks for them, and /dev."""
    files = {"start": os.path.join(folder, "start"), "check": CHECK}
    subprocess.run(["cc", "-x", "c", "-o", files["start"], "-"], input=START, text=True, check=True)
    for path in cases.libraries(CHECK):
        files[path[1:] if path.startswith("/lib64/") else "lib/" + os.path.basename(path)] = path
    entries = [(d, 0o040755, b"") for d in ("dev", "lib", "lib64")]
    for name, path in files.items():
        with open(path, "rb") as f:
            entries.append((name, 0o100755, f.read()))
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(cpio_entry(i, *entry) for i, entry in enumerate(entries, 1))


def make_boot_image(folder, arguments):
    tree = os.path.join(folder, "tree")
    os.mkdir(tree)
    for path in BOOT_LOADER:
        shutil.copy(path, tree)
    shutil.copy(kernel_image(), os.path.join(tree, "kernel"))
    with open(os.path.join(tree, "files"), "wb") as f:
        f.write(initial_files(folder))
    with open(os.path.join(tree, "isolinux.cfg"), "w", encoding="utf-8") as f:
        f.write(f"default check\nlabel check\n  kernel kernel\n  append initrd=files {KERNEL_FLAGS} -- {arguments}\n")
    subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", os.path.join(folder, "boot.iso"), "-b", "isolinux.bin", "-c", "boot.cat",
                    "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", tree], check=True, capture_output=True)


def write_settings(folder, model):
    with open(os.path.join(folder, "bochsrc"), "w", encoding="utf-8") as f:
        f.write(f"""megs: 512
cpu: model={model}, ips=100000000
romimage: file={BIOS}
vgaromimage: file={VGA_BIOS}
display_library: rfb, options="timeout=0"
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
speaker: enabled=0
ata0-master: type=cdrom, path={folder}/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={folder}/serial
log: {folder}/log
panic: action=fatal
""")


def text_of(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().replace("\r", "")


def emulate(model, arguments):
    """What the kernel check printed on that processor, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        make_boot_image(folder, arguments)
        write_settings(folder, model)
        serial, output, until = os.path.join(folder, "serial"), os.path.join(folder, "output"), time.monotonic() + 60 * MINUTES
        with open(output, "wb") as f:
            bochs = subprocess.Popen(["nice", "bochs", "-q", "-f", os.path.join(folder, "bochsrc")],
                                     stdin=subprocess.PIPE, stdout=f, stderr=f)
        try:
            # Debian's Bochs starts in its debugger.
            bochs.stdin.write(b"continue\n")
            bochs.stdin.flush()
            while bochs.poll() is None and time.monotonic() < until and not END.search(text_of(serial)):
                time.sleep(1)
            printed = text_of(serial)
        finally:
            bochs.kill()
            bochs.wait()
        end = END.search(printed)
        tails = [text_of(p)[-2000:] for p in (serial, output, os.path.join(folder, "log"))]
        assert end, "\n".join((f"{model}: no end within {MINUTES} minutes", *tails))
        return printed, int(end.group(1), 16) >> 8


def every_kernel_equals_the_definition(model, best):
    require_emulator()
    printed, status = emulate(model, "--isa avx512 --cases 20 --seed 1")
    assert f", best instruction set {best}\n" in printed, printed[:200]
    slots = [line for line in printed.splitlines()[1:] if " avx512 " in line]
    wrong = [line for line in slots if " ok, " not in line]
    assert not wrong, "\n".join(wrong)
    assert len(slots) > 100 and "\n0 slots failed\n" in printed and status == 0, f"status {status}\n{printed}"


def test_with_vnni():
    if "avx512_vnni" in native_flags():
        raise cases.Skip("this processor has AVX-512 VNNI: check_kernels runs these kernels")
    every_kernel_equals_the_definition("corei7_icelake_u", "avx512 with VNNI")


def test_without_vnni():
    flags = native_flags()
    if "avx512bw" in flags and "avx512_vnni" not in flags:
        raise cases.Skip("this processor has AVX-512 without VNNI: check_kernels runs these kernels")
    every_kernel_equals_the_definition("corei7_skylake_x", "avx512")


if __name__ == "__main__":
    cases.main(globals())

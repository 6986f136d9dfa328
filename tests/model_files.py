# SPDX-License-Identifier: Apache-2.0
"""Model files taken apart, changed and put together again, for tests of damaged files. Reads and writes bytes itself, so that
it can write what no library would; knows nothing of what the program makes of them.

    g = Gguf(path); g.drop("deepseek2.block_count"); g.save(other)
    s = Safetensors(path); s.header["x"]["dtype"] = "F64"; s.save(other)
"""
import contextlib
import glob
import json
import os
import re
import shutil
import struct
import tempfile

import cases

GOLDEN = os.path.join(cases.ROOT, "tests", "data", "golden")
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def golden(name):
    return os.path.join(GOLDEN, name)


def gguf_path(name):
    return sorted(glob.glob(os.path.join(GOLDEN, name, "*.gguf")))[0]


@contextlib.contextmanager
def folder(*copy_of):
    """A temporary folder, filled with the files of a model folder if one is given; expected values stay behind."""
    with tempfile.TemporaryDirectory(prefix="sluice-test-") as path:
        for source in copy_of:
            for name in os.listdir(source):
                if not name.startswith("expect.") and os.path.isfile(os.path.join(source, name)):
                    shutil.copy(os.path.join(source, name), path)
        yield path


class Gguf:
    """meta: list of [key, type, raw bytes of the value]; tensors: list of [name, dims, type, offset]; data: bytearray."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = f.read()
        self.at = 4
        self.version, n_tensors, n_meta = self._unpack("IQQ")
        self.meta = []
        for _ in range(n_meta):
            key = self._string()
            kind = self._unpack("I")[0]
            start = self.at
            self._skip(kind)
            self.meta.append([key, kind, self.bytes[start:self.at]])
        self.tensors = []
        for _ in range(n_tensors):
            name = self._string()
            dims = list(self._unpack(f"{self._unpack('I')[0]}Q"))
            self.tensors.append([name, dims, *self._unpack("IQ")])
        self.data = bytearray(self.bytes[(self.at + 31) // 32 * 32:])

    def _unpack(self, fmt):
        values = struct.unpack_from("<" + fmt, self.bytes, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values

    def _string(self):
        n = self._unpack("Q")[0]
        self.at += n
        return self.bytes[self.at - n:self.at].decode()

    def _skip(self, kind):
        if kind == STRING:
            self._string()
        elif kind == ARRAY:
            item, n = self._unpack("IQ")
            for _ in range(n):
                self._skip(item)
        else:
            self._unpack(SCALARS[kind])

    def keys(self):
        return [m[0] for m in self.meta]

    def drop(self, *keys):
        assert all(k in self.keys() for k in keys), keys
        self.meta = [m for m in self.meta if m[0] not in keys]
        return self

    def put(self, key, kind, value):
        """Sets a key to a value of a scalar type or a string."""
        raw = struct.pack("<Q", len(value.encode())) + value.encode() if kind == STRING else struct.pack("<" + SCALARS[kind], value)
        self.meta = [m for m in self.meta if m[0] != key] + [[key, kind, raw]]
        return self

    def tensor(self, name):
        return next(t for t in self.tensors if t[0] == name)

    def save(self, path):
        def text(s):
            return struct.pack("<Q", len(s.encode())) + s.encode()

        out = bytearray(b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.meta)))
        for key, kind, raw in self.meta:
            out += text(key) + struct.pack("<I", kind) + raw
        for name, dims, kind, offset in self.tensors:
            out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        out += bytes(-len(out) % 32) + self.data
        with open(path, "wb") as f:
            f.write(out)
        return path


class Safetensors:
    """header: as in the file, data: bytearray."""

    def __init__(self, path):
        with open(path, "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            self.header = json.loads(f.read(n))
            self.data = bytearray(f.read())

    def tensor_data(self, name):
        start, end = self.header[name]["data_offsets"]
        return memoryview(self.data)[start:end]

    def save(self, path):
        text = json.dumps(self.header).encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + self.data)
        return path


def edit_json(path, change):
    """Applies change(object) to a JSON file."""
    with open(path, encoding="utf-8") as f:
        value = json.load(f)
    change(value)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def errors(run):
    """Lines of stderr that say what failed; a sanitizer's report counts too."""
    marks = re.compile(r"^sluice: error: |^sluice (inspect|check|plan|synth|convert): |Sanitizer|runtime error")
    return [x for x in run.stderr.decode(errors="replace").split("\n") if marks.search(x)]


def refused(status, parts, *args, **options):
    """Runs, and expects this status, nothing on stdout, and one error line on stderr with all the parts in it."""
    run = cases.sluice(*args, status=status, **options)
    lines = errors(run)
    assert len(lines) == 1 and run.stdout == b"", (run.stdout, run.stderr.decode(errors="replace"))
    for part in [parts] if isinstance(parts, str) else parts:
        assert part in lines[0], (part, lines[0])
    return lines[0]

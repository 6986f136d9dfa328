#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks catch what they are for: violations are seeded and must be found, clean sources must pass."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
import c_source  # noqa: E402
import check_layers  # noqa: E402
import check_size  # noqa: E402
import check_state  # noqa: E402

HEAD = "/* SPDX-License-Identifier: Apache-2.0 */\n/* Owns: x. */\n"


class Layers(unittest.TestCase):
    def rules(self, path, body):
        return check_layers.check_file(path, HEAD + body)

    def assert_ok(self, path, body):
        self.assertEqual(self.rules(path, body), [])

    def assert_bad(self, path, body, line, text):
        found = self.rules(path, body)
        self.assertTrue(found, f"{path}: nothing found in {body!r}")
        self.assertEqual(found[0][0], line + 2)
        self.assertIn(text, found[0][1])

    def test_every_arrow_of_the_table(self):
        headers = ["common/error.h", "src/base/str.h", "io/file.h", "cpu/cpu.h", "cuda/gpu.h", "src/model/shape.h",
                   "src/model/names.h", "src/model/tokenizer.h", "src/sample/sampler.h", "src/place/plan.h", "src/place/cost.h",
                   "src/tier/store.h", "src/run/engine.h", "sluice/sluice.h", "src/commands/commands.h", "src/cli/args.h"]
        run = headers[:3] + headers[3:14]
        allowed = {
            "include/common/view.h": headers[:1],
            "include/sluice/sluice.h": headers[13:14],
            "src/base/x.c": headers[:2],
            "io/x.c": headers[:3],
            "cpu/x86/x.c": headers[:2] + ["cpu/cpu.h"],
            "cuda/x.cu": headers[:2] + ["cuda/gpu.h"],
            "src/model/x.c": headers[:3] + headers[5:8],
            "src/sample/x.c": headers[:2] + ["src/sample/sampler.h"],
            "src/place/x.c": headers[:2] + ["src/model/shape.h", "src/place/plan.h", "src/place/cost.h"],
            "src/tier/x.c": headers[:3] + ["cuda/gpu.h", "src/model/shape.h", "src/model/names.h", "src/place/plan.h", "src/tier/store.h"],
            "src/run/x.c": run,
            "src/commands/x.c": run + ["src/commands/commands.h"],
            "src/serve/x.c": ["src/base/str.h", "sluice/sluice.h"],
            "src/cli/x.c": ["src/base/str.h", "sluice/sluice.h", "src/commands/commands.h", "src/cli/args.h"],
        }
        for path, good in allowed.items():
            for header in headers:
                body = f'#include <stdio.h>\n#include "{header}"\n'
                if header in good:
                    self.assert_ok(path, body)
                else:
                    self.assert_bad(path, body, 2, "may not include")

    def test_includes_are_written_from_the_root(self):
        self.assert_bad("io/x.c", '#include "file.h"\n', 1, "from the repository root")
        self.assert_bad("io/x.c", '  #  include "../cpu/cpu.h"\n', 1, "from the repository root")
        self.assert_bad("io/x.c", "#include <common/error.h>\n", 1, "with quotes")

    def test_comments_are_no_includes(self):
        self.assert_ok("io/x.c", '/* #include "cpu/cpu.h" */\n// #include "cpu/cpu.h"\n')
        self.assert_ok("io/x.c", '/*\n#include "cpu/cpu.h"\n*/\nconst char *s = "getenv";\n')

    def test_one_place_calls(self):
        self.assert_bad("src/run/x.c", 'int f(void)\n{\n    return getenv("X") != 0;\n}\n', 3, "src/base/settings.c only")
        self.assert_bad("src/cli/x.c", "extern char **environ;\n", 1, "src/base/settings.c only")
        self.assert_ok("src/base/settings.c", 'const char *f(void) { return getenv("X"); }\n')
        self.assert_bad("src/tier/x.c", "#include <numaif.h>\n", 1, "src/base/numa.c")
        self.assert_bad("src/base/x.c", "#include <hwloc.h>\n", 1, "src/base/numa.c")
        self.assert_bad("src/tier/x.c", "int f(void) { return mbind(0, 0, 0, 0, 0, 0); }\n", 1, "src/base/numa.c")
        self.assert_ok("src/base/numa.c", "#include <numa.h>\n#include <hwloc.h>\n")

    def test_first_comment(self):
        self.assertIn((1, f"the first line is not {check_layers.SPDX}"), check_layers.check_file("io/x.c", "int x;\n/* a */\n"))
        self.assertEqual(check_layers.check_file("io/x.c", check_layers.SPDX + "\nint x;\n")[0][0], 2)
        self.assertEqual(check_layers.check_file("tests/x.c", "int x;\n"), [])

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "io"))
            with open(os.path.join(root, "io/x.c"), "w", encoding="utf-8") as f:
                f.write(HEAD + '#include "cpu/cpu.h"\n')
            tool = [sys.executable, os.path.join(ROOT, "tools/check_layers.py"), root]
            run = subprocess.run(tool, capture_output=True, text=True)
            self.assertEqual(run.returncode, 1)
            self.assertIn("io/x.c:3: io/ may not include", run.stdout)


class Size(unittest.TestCase):
    def function(self, lines, head="static int f(int a)"):
        return head + "\n{\n" + "    a++;\n" * (lines - 3) + "}\n"

    def test_limits(self):
        self.assertEqual(check_size.check_file("io/x.c", self.function(120)), [])
        self.assertIn("function f has 121 lines", check_size.check_file("io/x.c", self.function(121))[0][1])
        self.assertEqual(check_size.check_file("io/x.c", "int x;\n" * 1000), [])
        self.assertIn("1001 lines", check_size.check_file("io/x.c", "int x;\n" * 1001)[0][1])
        self.assertIn("1001 lines", check_size.check_file("tools/x.py", "x = 1\n" * 1001)[0][1])

    def test_only_generated_tables_are_exempt_and_only_from_the_file_limit(self):
        self.assertEqual(check_size.check_file("cpu/iq_grids.c", "int x;\n" * 5000), [])
        self.assertTrue(check_size.check_file("cpu/other.c", "int x;\n" * 5000))
        self.assertTrue(check_size.check_file("cpu/iq_grids.c", self.function(130)))

    def names(self, text):
        code, _ = check_size.split_directives(c_source.blank_comments(text))
        return [(name, lines) for _, name, lines in check_size.functions(code)]

    def test_bodies_are_found(self):
        self.assertEqual(self.names("int a(void) { return '{'; }\nchar *s = \"}\";\nint b(void)\n{\n    /* } */\n}\n"),
                         [("a", 1), ("b", 4)])
        self.assertEqual(self.names("struct s {\n    int (*f)(int);\n};\nint t[] = {\n    1,\n};\n"), [])
        self.assertEqual(self.names("static const struct s x = { .f = g(1) };\nstruct s *f(struct s *x)\n{\n    return x;\n}\n"),
                         [("f", 4)])
        self.assertEqual(self.names('#ifdef __cplusplus\nextern "C" {\n#endif\nint f(void);\nstatic inline int g(void)\n{\n}\n'
                                    '#ifdef __cplusplus\n}\n#endif\nint h(void)\n{\n}\n'), [("g", 3), ("h", 3)])
        self.assertEqual(self.names("#if A\nint f(int a) {\n#else\nint f(long a) {\n#endif\n}\nint g(void)\n{\n}\n"),
                         [("f", 5), ("g", 3)])
        self.assertEqual(self.names("ATTR_PRINTF(1, 2) static void f(const char *a,\n    int b)\n{\n}\n"), [("f", 4)])
        self.assertEqual(self.names("int f(void)\n{\n    if (x) {\n        y();\n    }\n    const char *q = \"\\\"{\";\n}\n"), [("f", 7)])

    def test_long_macros_are_functions_in_disguise(self):
        body = "#define M(x) \\\n" + "    x++; \\\n" * 125 + "    x--\n"
        self.assertIn("macro M has", check_size.check_file("cpu/x_tmpl.h", body)[0][1])

    def test_tree_walk_leaves_builds_and_models_out(self):
        with tempfile.TemporaryDirectory() as root:
            for path in ("io/a.c", "build/b.c", "build-asan/c.c", "models/demo/d.c", "tests/data/e.c"):
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                open(os.path.join(root, path), "w").close()
            self.assertEqual(c_source.source_files(root, (".c",)), ["io/a.c"])


class State(unittest.TestCase):
    def symbols(self, source):
        cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if cc is None:
            self.skipTest("no C compiler")
        with tempfile.TemporaryDirectory() as where:
            unit, lib = os.path.join(where, "u.c"), os.path.join(where, "u.a")
            with open(unit, "w", encoding="utf-8") as f:
                f.write(source)
            subprocess.run([cc, "-O2", "-fPIC", "-c", unit, "-o", unit + ".o"], check=True)
            subprocess.run(["ar", "rcs", lib, unit + ".o"], check=True)
            out = subprocess.run(["nm", "--format=sysv", lib], capture_output=True, text=True, check=True).stdout
        return [s.split(".")[0] for _, s in check_state.mutable_symbols(out)]

    def test_variables_are_found(self):
        self.assertEqual(self.symbols("int a = 1;"), ["a"])
        self.assertEqual(self.symbols("static int b; int f(void); int f(void) { return ++b; }"), ["b"])
        self.assertEqual(self.symbols("int f(void); int f(void) { static int c; return ++c; }"), ["c"])
        self.assertEqual(self.symbols("_Thread_local int d;"), ["d"])
        self.assertEqual(self.symbols("const char *e = \"x\";"), ["e"])
        self.assertEqual(self.symbols("int g __attribute__((common));"), ["g"])

    def test_constants_are_not(self):
        self.assertEqual(self.symbols("const int a = 1; const char *const b[] = { \"x\", \"y\" }; int f(void); int f(void) { return a; }"), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)

"""The process, as far as the conformance suite, which all languages share, does not test it."""

import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from kconsume import _wire as wire

HERE = pathlib.Path(__file__).parents[1]


class ProcessTest(unittest.TestCase):
    def start(self, program, group=False, **env):
        """Runs a program under a host that ends at once; returns status, stdout, stderr."""
        pipe, life = os.pipe()
        end = fcntl.fcntl(pipe, fcntl.F_DUPFD, 10)  # not 3, which the program gets
        os.close(pipe)
        with tempfile.TemporaryDirectory(prefix="kc") as folder:
            env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), wire.SOCKET_DIR_KEY: folder, **env}
            p = subprocess.Popen(
                ["bash", "-c", f'exec "$0" "$@" 3<&{end} {end}<&-', sys.executable, "-c", program],
                env=env, pass_fds=[end], start_new_session=group, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            os.close(end)
            first = p.stdout.readline()
            os.close(life)
            rest, err = p.communicate(timeout=60)
        return p.returncode, first + rest, err

    def hosted(self, program):
        return self.start(program, **{wire.COOKIE_KEY: wire.COOKIE_VALUE})

    def test_what_is_not_written_yet_is_not_in_the_handshakes_line(self):
        status, out, err = self.hosted(
            "import sys, kconsume; print('no end', end=''); sys.stdout.write('!')\n"
            "kconsume.serve(lambda m: None, name='n')"
        )
        self.assertRegex(out, r"\A1\|1\|unix\|[^|]+\|grpc\|\n\Z")
        self.assertIn("no end!", err)

    def test_what_it_has_started_ends_with_it(self):
        status, out, err = self.start(
            "import subprocess, sys, kconsume\n"
            "p = subprocess.Popen(['sleep', '1000'], stdout=sys.stderr)\n"
            "print(p.pid, file=sys.stderr)\n"
            "kconsume.serve(lambda m: None, name='n')",
            group=True,
            **{wire.COOKIE_KEY: wire.COOKIE_VALUE},
        )
        # communicate has read stderr to its end, which the child held open, too.
        self.assertRegex(err, r"\A\d+\n")
        with self.assertRaises(ProcessLookupError):
            while True:
                os.kill(int(err), 0)
                if pathlib.Path(f"/proc/{int(err)}/stat").read_text().split(") ")[1][0] == "Z":
                    raise ProcessLookupError  # nobody has reaped it
                time.sleep(0.001)

    def test_misconfigured(self):
        for program, words in (
            ("serve(name='n')", "found: none"),
            ("serve(lambda m: None, name='')", "needs a name"),
            ("serve(5, name='n')", "not 5"),
        ):
            status, out, err = self.hosted("from kconsume import serve; " + program)
            self.assertEqual((status, out), (70, ""), err)
            self.assertIn(words, err)

    def test_a_folder_that_is_too_long(self):
        status, out, err = self.start(
            "from kconsume import serve; serve(lambda m: None, name='n')",
            **{wire.COOKIE_KEY: wire.COOKIE_VALUE, wire.SOCKET_DIR_KEY: "/tmp/" + "x" * 120},
        )
        self.assertEqual((status, out), (70, ""))
        self.assertIn("too long for a unix socket", err)

    def test_no_folder(self):
        status, out, err = self.start(
            "from kconsume import serve; serve(lambda m: None, name='n')",
            **{wire.COOKIE_KEY: wire.COOKIE_VALUE, wire.SOCKET_DIR_KEY: "/no/such/folder"},
        )
        self.assertEqual((status, out), (70, ""))
        self.assertIn("serve handler 'n'", err)

    def test_no_certificates(self):
        status, out, err = self.start(
            "from kconsume import serve; serve(lambda m: None, name='n')",
            **{wire.COOKIE_KEY: wire.COOKIE_VALUE, "KCONSUME_TLS_FD": "1000"},
        )
        self.assertEqual((status, out), (70, ""))
        self.assertIn("find the certificates for TLS", err)

    def test_by_hand(self):
        status, out, err = self.start("from kconsume import serve; serve(lambda m: None, name='n', version='7')")
        self.assertEqual((status, out), (64, ""))
        self.assertIn("n 7 is a kconsume handler", err)


if __name__ == "__main__":
    unittest.main()

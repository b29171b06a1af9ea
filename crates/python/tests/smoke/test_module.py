"""What a machine with nothing but Python tries of the module: one test for each door."""

import contextlib
import errno
import io
import os
import signal
import stat
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path

import extant

MIB = 1 << 20


class WithImage(unittest.TestCase):
    """An image with some files in it."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.image = os.path.join(self.dir.name, "disk.img")
        self.made = extant.mkfs(self.image, 16 * MIB, label="smoke", time=1_700_000_000)
        with extant.open(self.image, writable=True) as fs:
            fs.makedirs("/etc/app")
            fs.write_text("/etc/hostname", "box\n")
            fs.write_bytes("/etc/app/data", bytes(range(256)) * 1024)
            fs.symlink("hostname", "/etc/name")
            fs.symlink("app", "/etc/link")
            fs.write_bytes(b"/etc/\xff\xfe", b"odd")


class Readme(WithImage):
    def test_the_lines_of_the_readme_run(self):
        readme = Path(__file__).parents[4] / "README.md"
        block = readme.read_text().split("```python\n")[1].split("```")[0]
        os.rename(self.image, os.path.join(self.dir.name, "rootfs.img"))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir.name)
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile(block, "README.md", "exec"), {})
        self.assertIn("'hostname'", told.getvalue())
        self.assertTrue(told.getvalue().endswith("box\n\n"))


class Reading(WithImage):
    def test_lists_and_reads(self):
        with extant.open(self.image) as fs:
            names = fs.listdir("/etc")
            self.assertEqual(
                set(names), {"app", "hostname", "link", "name", "\udcff\udcfe"}
            )
            self.assertIn(b"\xff\xfe", fs.listdir(b"/etc"))
            self.assertEqual(fs.read_text("/etc/name"), "box\n")
            self.assertEqual(fs.read_bytes("/etc/\udcff\udcfe"), b"odd")
            self.assertEqual(fs.readlink("/etc/name"), "hostname")
            self.assertEqual(fs.readlink(b"/etc/name"), b"hostname")

    def test_stat_has_the_fields_of_os(self):
        with extant.open(self.image) as fs:
            found = fs.stat("/etc/name")
            self.assertTrue(stat.S_ISREG(found.st_mode))
            self.assertEqual((found.st_size, found[6], found.st_nlink), (4, 4, 1))
            self.assertEqual(found.st_mtime_ns // 10**9, found[8])
            self.assertTrue(stat.S_ISLNK(fs.lstat("/etc/name").st_mode))
            self.assertEqual(found, fs.stat(b"/etc/hostname"))

    def test_scandir_and_walk(self):
        with extant.open(self.image) as fs:
            with fs.scandir("/etc") as entries:
                kinds = {e.name: (e.is_dir(), e.is_file(), e.is_symlink()) for e in entries}
            self.assertEqual(kinds["app"], (True, False, False))
            self.assertEqual(kinds["name"], (False, True, True))
            self.assertEqual(kinds["link"], (True, False, True))
            walked = list(fs.walk("/etc"))
            self.assertEqual([top for top, _, _ in walked], ["/etc", "/etc/app"])
            self.assertEqual(sorted(walked[0][1]), ["app", "link"])
            upward = [top for top, _, _ in fs.walk("/etc", topdown=False)]
            self.assertEqual(upward, ["/etc/app", "/etc"])
            for _, dirs, _ in (pruned := list(fs.walk("/"))[:1]):
                self.assertIn("etc", dirs)
            tops = []
            for top, dirs, _ in fs.walk("/"):
                tops.append(top)
                dirs[:] = [name for name in dirs if name != "etc"]
            self.assertEqual(tops, ["/", "/lost+found"], pruned)

    def test_files_are_those_of_io(self):
        with extant.open(self.image) as fs:
            with fs.open("/etc/hostname") as text:
                self.assertIsInstance(text, io.TextIOWrapper)
                self.assertEqual(text.readlines(), ["box\n"])
            with fs.open("/etc/app/data", "rb") as buffered:
                self.assertIsInstance(buffered, io.BufferedReader)
                self.assertEqual(buffered.seek(-256, os.SEEK_END), 256 * 1023)
                self.assertEqual(buffered.read(), bytes(range(256)))
            with fs.open("/etc/app/data", "rb", 0) as raw:
                self.assertIsInstance(raw, io.RawIOBase)
                memory = bytearray(10)
                self.assertEqual(raw.readinto(memory), 10)
                self.assertEqual(memory, bytes(range(10)))
                self.assertEqual(raw.pread(4, 300), bytes(range(44, 48)))
                self.assertEqual(raw.tell(), 10)
                self.assertEqual(len(raw.readall()), 256 * 1024 - 10)
                self.assertEqual(raw.read(5), b"")
                with self.assertRaises(io.UnsupportedOperation):
                    raw.write(b"x")
                with self.assertRaises(io.UnsupportedOperation):
                    raw.fileno()

    def test_paths_are_those_of_pathlib(self):
        with extant.open(self.image) as fs:
            etc = fs.path("/etc")
            self.assertEqual((etc / "hostname").read_text(), "box\n")
            self.assertEqual(sorted(p.name for p in etc.glob("*name")), ["hostname", "name"])
            self.assertEqual([str(p) for p in fs.path("/").rglob("data")], ["/etc/app/data"])
            self.assertEqual(str((etc / "link" / ".." / "name").resolve()), "/etc/hostname")
            self.assertTrue((etc / "link").is_dir() and not (etc / "nothing").exists())


class Changing(WithImage):
    def test_everything_once(self):
        with extant.open(self.image, writable=True) as fs:
            fs.mkdir("/a", 0o700)
            self.assertEqual(stat.S_IMODE(fs.stat("/a").st_mode), 0o700)
            with fs.open("/a/f", "x") as file:
                file.write("one\n")
            with fs.open("/a/f", "a") as file:
                file.write("two\n")
            with fs.open("/a/f", "r+b") as file:
                file.seek(2)
                file.write(b"E")
                file.seek(0)
                self.assertEqual(file.read(), b"onE\ntwo\n")
            fs.link("/a/f", "/a/g")
            fs.rename("/a/g", "/a/h")
            fs.replace("/a/h", "/a/f2")
            fs.chown("/a/f", 12, -1)
            fs.chmod("/a/f", 0o4755)
            fs.utime("/a/f", ns=(10**9, 5 * 10**9 + 7))
            fs.setxattr("/a/f", "user.origin", b"here")
            found = fs.stat("/a/f")
            self.assertEqual(stat.S_IMODE(found.st_mode), 0o4755)
            self.assertEqual((found.st_uid, found.st_gid, found.st_nlink), (12, 0, 2))
            self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (10**9, 5 * 10**9 + 7))
            self.assertEqual(fs.listxattr("/a/f"), ["user.origin"])
            self.assertEqual(fs.getxattr("/a/f", "user.origin"), b"here")
            fs.removexattr("/a/f", "user.origin")
            with self.assertRaises(OSError) as no_data:
                fs.getxattr("/a/f", "user.origin")
            self.assertEqual(no_data.exception.errno, errno.ENODATA)
            fs.truncate("/a/f", 3)
            self.assertEqual(fs.read_bytes("/a/f2"), b"onE")
            fs.mknod("/a/pipe", stat.S_IFIFO | 0o600)
            self.assertTrue(fs.path("/a/pipe").is_fifo())
            fs.rmtree("/a")
            self.assertFalse(fs.exists("/a"))
        self.assertTrue(extant.check(self.image).is_clean)

    def test_a_transaction_is_whole_or_not_at_all(self):
        with self.assertRaises(KeyError), extant.transaction(self.image) as fs:
            fs.write_text("/new", "text")
            raise KeyError
        with extant.open(self.image) as fs:
            self.assertFalse(fs.exists("/new"))
        with extant.transaction(self.image) as fs:
            fs.write_text("/new", "text")
        with extant.open(self.image) as fs:
            self.assertEqual(fs.read_text("/new"), "text")

    def test_what_buffers_hold_is_written_on_close(self):
        fs = extant.open(self.image, writable=True)
        file = fs.open("/late", "w")
        file.write("late")
        fs.close()
        self.assertTrue(file.closed)
        with extant.open(self.image) as fs:
            self.assertEqual(fs.read_text("/late"), "late")


class Losses(WithImage):
    """What must not be lost without a word."""

    def test_files_that_are_open_for_appending_are_no_devices(self):
        with open(self.image, "ab+") as file, self.assertRaises(OSError) as refused:
            extant.open(file, writable=True)
        self.assertIn("r+b", str(refused.exception))

    def test_wrong_arguments_leave_files_as_they_are(self):
        with extant.open(self.image, writable=True) as fs:
            for call in [
                lambda: fs.write_bytes("/etc/hostname", "text"),
                lambda: fs.write_text("/etc/hostname", b"bytes"),
                lambda: fs.write_text("/etc/hostname", "x", encoding="nope"),
                lambda: fs.open("/etc/hostname", "w", newline="q"),
            ]:
                with self.assertRaises((TypeError, LookupError, ValueError)):
                    call()
            self.assertEqual(fs.read_text("/etc/hostname"), "box\n")

    def test_a_file_that_fails_takes_no_other_with_it(self):
        fs = extant.open(self.image, writable=True)
        files = [fs.open(f"/{n}", "wb") for n in range(5)]
        files[2].seek(1 << 50)
        for file in files:
            file.write(b"words")
        with self.assertRaises(OSError) as failed:
            fs.close()
        self.assertEqual(failed.exception.errno, errno.EFBIG)
        with extant.open(self.image) as fs:
            for n in (0, 1, 3, 4):
                self.assertEqual(fs.read_bytes(f"/{n}"), b"words")

    def test_a_child_writes_nothing(self):
        fs = extant.open(self.image, writable=True)
        file = fs.open("/once", "w")
        file.write("once")
        with warnings.catch_warnings():
            # Newer versions warn of threads, which the library may have.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            status = 1
            try:
                with contextlib.suppress(RuntimeError):
                    file.close()
                    status = 2
                fs.close()
                if fs.closed and status == 1:
                    status = 0
            finally:
                os._exit(status)
        deadline = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                self.fail("the child hangs")
            time.sleep(0.001)
        self.assertEqual(ended, (child, 0))
        fs.close()
        with extant.open(self.image) as fs:
            self.assertEqual(fs.read_text("/once"), "once")

    def test_links_in_a_circle_are_nothing(self):
        with extant.open(self.image, writable=True) as fs:
            fs.symlink("loop", "/loop")
            self.assertFalse(fs.exists("/loop") or fs.isdir("/loop") or fs.isfile("/loop/x"))
            self.assertIn("/etc/hostname", list(fs.glob("*/*")))


class Refusing(WithImage):
    def test_errors_are_those_of_the_system(self):
        with extant.open(self.image) as fs:
            with self.assertRaises(FileNotFoundError) as missing:
                fs.open("/etc/nothing")
            self.assertEqual(missing.exception.filename, "/etc/nothing")
            for wrong, call in [
                (NotADirectoryError, lambda: fs.listdir("/etc/hostname")),
                (IsADirectoryError, lambda: fs.open("/etc")),
                (OSError, lambda: fs.mkdir("/new")),
                (ValueError, lambda: fs.stat("a\0b")),
                (TypeError, lambda: fs.stat(3)),
                (ValueError, lambda: fs.open("/etc/hostname", "rw")),
            ]:
                with self.assertRaises(wrong):
                    call()
            with self.assertRaises(OSError) as read_only:
                fs.mkdir("/new")
            self.assertEqual(read_only.exception.errno, errno.EROFS)

    def test_what_is_no_file_system_or_a_damaged_one(self):
        nothing = os.path.join(self.dir.name, "nothing")
        Path(nothing).write_bytes(bytes(MIB))
        with self.assertRaises(extant.NotExt4Error):
            extant.open(nothing)
        with self.assertRaises(extant.NotExt4Error):
            extant.check(nothing)
        with self.assertRaises(FileNotFoundError):
            extant.open(os.path.join(self.dir.name, "missing"))
        with extant.open(self.image) as fs:
            ino = fs.stat("/etc").st_ino
        data = Path(self.image).read_bytes()
        # Where a directory begins: the entry of itself. The journal has copies.
        entry = ino.to_bytes(4, "little") + b"\x0c\x00\x01\x02.\0\0\0"
        self.assertIn(entry, data)
        Path(self.image).write_bytes(data.replace(entry, entry[:4] + b"\xff\xff" + entry[6:]))
        with extant.open(self.image) as fs, self.assertRaises(extant.DamagedError) as damaged:
            fs.listdir("/etc")
        self.assertIn(damaged.exception.errno, (errno.EBADMSG, errno.EUCLEAN))
        report = extant.check(self.image)
        self.assertFalse(report.is_clean)
        self.assertTrue(all(f.severity in extant.Severity for f in report.findings))
        with extant.open(self.image, mend=True) as fs:
            self.assertTrue(fs.exists("/"))
        mended = extant.repair(self.image)
        self.assertTrue(mended.fixes and mended.left.is_clean)
        self.assertTrue(extant.check(self.image).is_clean)

    def test_use_after_close_is_a_value_error(self):
        fs = extant.open(self.image)
        file = fs.open("/etc/hostname", "rb", 0)
        walk, entries = fs.walk("/"), fs.scandir("/etc")
        entry = next(entries)
        fs.close()
        fs.close()
        self.assertTrue(fs.closed)
        for call in [
            lambda: fs.listdir("/"),
            lambda: fs.stat("/"),
            lambda: fs.open("/etc/hostname"),
            lambda: fs.bulkstat(),
            lambda: file.read(1),
            lambda: file.tell(),
            lambda: next(walk),
            lambda: entry.stat(),
            lambda: fs.__enter__(),
        ]:
            with self.assertRaises(ValueError):
                call()


class Many(WithImage):
    def test_bulkstat_is_a_buffer(self):
        with extant.open(self.image) as fs:
            inodes = fs.bulkstat(threads=2)
            wanted = fs.stat("/etc/app/data")
        self.assertEqual(inodes.errors, [])
        view = memoryview(inodes)
        self.assertEqual((view.shape, view.itemsize, view.readonly), ((len(inodes),), 104, True))
        numbers = memoryview(inodes["ino"]).tolist()
        at = numbers.index(wanted.st_ino)
        self.assertEqual(memoryview(inodes["size"])[at], wanted.st_size)
        self.assertEqual(inodes[at]["mode"], wanted.st_mode)
        with self.assertRaises(KeyError):
            inodes["nothing"]
        with self.assertRaises(IndexError):
            inodes[len(inodes)]

    def test_four_threads(self):
        wrong = []
        with extant.open(self.image, writable=True) as fs:

            def work(n):
                try:
                    for i in range(50):
                        path = f"/t{n}-{i}"
                        with fs.open(path, "wb") as file:
                            file.write(bytes([n]) * 5000)
                        if fs.read_bytes(path) != bytes([n]) * 5000:
                            wrong.append(path)
                        if i % 2:
                            fs.remove(path)
                except BaseException as e:
                    wrong.append(e)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            self.assertEqual(len([n for n in fs.listdir("/") if n.startswith("t")]), 100)
        self.assertTrue(extant.check(self.image).is_clean)


class Carriers(WithImage):
    def test_a_file_object_and_a_descriptor(self):
        data = Path(self.image).read_bytes()
        with extant.open(io.BytesIO(data)) as fs:
            self.assertEqual(fs.read_text("/etc/hostname"), "box\n")
        memory = io.BytesIO(data)
        with extant.open(memory, writable=True) as fs:
            fs.write_text("/new", "by Python")
        with extant.open(memory) as fs:
            self.assertEqual(fs.read_text("/new"), "by Python")
        self.assertTrue(extant.check(memory).is_clean)
        with open(self.image, "rb") as file, extant.open(file.fileno()) as fs:
            self.assertEqual(fs.read_text("/etc/hostname"), "box\n")

    def test_an_image_in_an_image(self):
        outer = os.path.join(self.dir.name, "outer.img")
        extant.mkfs(outer, 64 * MIB)
        with extant.open(outer, writable=True) as fs:
            fs.write_bytes("/inner.img", Path(self.image).read_bytes())
            with fs.open("/inner.img", "r+b", 0) as file, extant.open(file, writable=True) as inner:
                inner.write_text("/deep", "down")
            with fs.open("/inner.img", "rb") as file, extant.open(file) as inner:
                self.assertEqual(inner.read_text("/deep"), "down")

    def test_a_file_that_raises_is_the_cause(self):
        class Broken(io.BytesIO):
            fails = False

            def read(self, size=-1):
                if self.fails:
                    raise KeyError("broken")
                return super().read(size)

        broken = Broken(Path(self.image).read_bytes())
        fs = extant.open(broken)
        broken.fails = True
        with self.assertRaises(OSError) as failed:
            fs.read_bytes("/etc/app/data")
        self.assertIsInstance(failed.exception.__cause__, KeyError)
        broken.fails = False
        fs.close()

    def test_a_file_that_uses_its_file_system_is_refused(self):
        class Snake(io.BytesIO):
            fs = None

            def read(self, size=-1):
                if self.fs is not None:
                    self.fs.stat("/etc/app/data")
                return super().read(size)

        snake = Snake(Path(self.image).read_bytes())
        snake.fs = fs = extant.open(snake)
        with self.assertRaises(OSError) as failed:
            fs.read_bytes("/etc/app/data")
        self.assertIsInstance(failed.exception.__cause__, RuntimeError)
        snake.fs = None
        fs.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv)

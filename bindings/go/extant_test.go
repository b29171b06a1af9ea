package extant_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	extant "github.com/extant-fs/extant/bindings/go"
)

// run runs a program of e2fsprogs that must succeed.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		name = "/sbin/" + name
	}
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func clean(t testing.TB, image string) {
	t.Helper()
	run(t, "e2fsck", "-fn", image)
}

// image makes an image with a tree in it, by mke2fs.
func image(t testing.TB) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "etc/deep/deeper"), 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "etc/hostname"), []byte("box\n"), 0o640))
	must(t, os.WriteFile(filepath.Join(tree, "etc/deep/empty"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(tree, "large"), content(300_000), 0o644))
	must(t, os.Symlink("etc/hostname", filepath.Join(tree, "link")))
	must(t, os.Symlink("/etc/deep", filepath.Join(tree, "absolute")))
	name := filepath.Join(t.TempDir(), "disk.img")
	run(t, "mke2fs", "-q", "-t", "ext4", "-d", tree, name, "64M")
	return name
}

func content(n int) []byte {
	data := make([]byte, n)
	rand.New(rand.NewSource(7)).Read(data)
	return data
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string, options *extant.Options) *extant.FS {
	t.Helper()
	f, err := extant.Open(name, options)
	must(t, err)
	return f
}

func TestIsAFileSystem(t *testing.T) {
	f := open(t, image(t), nil)
	defer f.Close()
	must(t, fstest.TestFS(f, "etc/hostname", "etc/deep/empty", "etc/deep/deeper", "large", "link", "lost+found"))
}

func TestReadsWhatOthersWrote(t *testing.T) {
	name := image(t)
	f := open(t, name, nil)
	defer f.Close()
	data, err := fs.ReadFile(f, "large")
	must(t, err)
	if !bytes.Equal(data, content(300_000)) {
		t.Fatal("another content")
	}
	if data, err = f.ReadFile("link"); err != nil || string(data) != "box\n" {
		t.Fatalf("%q %v", data, err)
	}
	if target, err := f.ReadLink("link"); err != nil || target != "etc/hostname" {
		t.Fatalf("%q %v", target, err)
	}
	if info, err := f.Stat("absolute"); err != nil || !info.IsDir() {
		t.Fatal(info, err)
	}
	if info, err := f.Lstat("absolute"); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Fatal(info, err)
	}
	// As debugfs sees it.
	var names []string
	must(t, fs.WalkDir(f, "etc", func(path string, entry fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	if want := "etc etc/deep etc/deep/deeper etc/deep/empty etc/hostname"; strings.Join(names, " ") != want {
		t.Fatal(names)
	}
	info, err := f.Stat("etc/hostname")
	must(t, err)
	stat := info.Sys().(*extant.Stat)
	if told := run(t, "debugfs", "-R", "stat /etc/hostname", name); !strings.Contains(told, fmt.Sprintf("Inode: %d ", stat.Ino)) || info.Mode() != 0o640 {
		t.Fatal(info.Mode(), told)
	}
	file, err := f.Open("large")
	must(t, err)
	defer file.Close()
	part := make([]byte, 1000)
	if n, err := file.(io.ReaderAt).ReadAt(part, 299_500); n != 500 || err != io.EOF || !bytes.Equal(part[:n], content(300_000)[299_500:]) {
		t.Fatal(n, err)
	}
	if at, err := file.(io.Seeker).Seek(-10, io.SeekEnd); at != 299_990 || err != nil {
		t.Fatal(at, err)
	}
	if rest, err := io.ReadAll(file); err != nil || len(rest) != 10 {
		t.Fatal(rest, err)
	}
}

func TestWritesWhatOthersRead(t *testing.T) {
	name := image(t)
	f := open(t, name, &extant.Options{Writable: true})
	must(t, f.MkdirAll("srv/app/data", 0o750))
	must(t, f.MkdirAll("srv/app/data", 0o750))
	must(t, f.WriteFile("srv/app/data/first", content(70_000), 0o600))
	file, err := f.Create("srv/app/log")
	must(t, err)
	for i := range 100 {
		_, err = fmt.Fprintf(file, "line %d\n", i)
		must(t, err)
	}
	_, err = file.WriteAt([]byte("LINE"), 0)
	must(t, err)
	must(t, file.Sync())
	must(t, file.Close())
	file, err = f.OpenFile("srv/app/log", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = io.WriteString(file, "end\n")
	must(t, err)
	if _, err = file.WriteAt(nil, 0); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	must(t, file.Close())
	must(t, f.Rename("srv/app/data/first", "srv/app/second"))
	must(t, f.Symlink("second", "srv/app/link"))
	must(t, f.Link("srv/app/second", "srv/app/third"))
	// In this order: another owner takes the bit away, as under Linux.
	must(t, f.Chown("srv/app/link", 7, 8))
	must(t, f.Chmod("srv/app/second", 0o751|fs.ModeSetgid))
	when := time.Unix(1_000_000_000, 5_000)
	must(t, f.Chtimes("srv/app/log", time.Time{}, when))
	must(t, f.Setxattr("srv/app/log", "user.origin", []byte("Go")))
	must(t, f.Setxattr("srv/app/log", "user.empty", nil))
	must(t, f.Setxattr("srv/app/log", "user.gone", []byte("x")))
	must(t, f.Removexattr("srv/app/log", "user.gone"))
	must(t, f.Truncate("large", 5))
	must(t, f.Remove("link"))
	must(t, f.Remove("absolute"))
	must(t, f.RemoveAll("etc"))
	must(t, f.RemoveAll("etc"))
	if err := f.Remove("srv"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Fatal(err)
	}
	names, err := f.Listxattr("srv/app/log")
	must(t, err)
	if strings.Join(names, " ") != "user.origin user.empty" && strings.Join(names, " ") != "user.empty user.origin" {
		t.Fatal(names)
	}
	if value, err := f.Getxattr("srv/app/log", "user.origin"); err != nil || string(value) != "Go" {
		t.Fatal(value, err)
	}
	if value, err := f.Getxattr("srv/app/log", "user.empty"); err != nil || len(value) != 0 {
		t.Fatal(value, err)
	}
	if _, err := f.Getxattr("srv/app/log", "user.gone"); !errors.Is(err, syscall.ENODATA) {
		t.Fatal(err)
	}
	info, err := f.Stat("srv/app/log")
	must(t, err)
	if !info.ModTime().Equal(when) {
		t.Fatal(info.ModTime())
	}
	must(t, fstest.TestFS(f, "srv/app/log", "srv/app/link"))
	must(t, f.Close())

	clean(t, name)
	log := run(t, "debugfs", "-R", "cat /srv/app/log", name)
	if !strings.HasPrefix(log, "LINE 0\nline 1\n") || !strings.HasSuffix(log, "line 99\nend\n") {
		t.Fatal(log)
	}
	if data := run(t, "debugfs", "-R", "cat /srv/app/third", name); data != string(content(70_000)) {
		t.Fatal("another content")
	}
	told := run(t, "debugfs", "-R", "stat /srv/app/second", name)
	for _, want := range []string{"Mode:  02751", "User:     7", "Group:     8", "Links: 2"} {
		if !strings.Contains(told, want) {
			t.Fatal(want, told)
		}
	}
	if gone := run(t, "debugfs", "-R", "ls -p /", name); strings.Contains(gone, "/etc/") {
		t.Fatal(gone)
	}
}

func TestMakesChecksAndRepairs(t *testing.T) {
	ctx := context.Background()
	name := filepath.Join(t.TempDir(), "new.img")
	must(t, extant.Format(ctx, name, "size=32M", "label=go", "block-size=1K"))
	clean(t, name)
	if told := run(t, "dumpe2fs", "-h", name); !strings.Contains(told, "volume name:   go\n") {
		t.Fatal(told)
	}
	report, err := extant.Check(ctx, name)
	must(t, err)
	if !report.Clean || len(report.Findings) != 0 || report.Directories != 2 {
		t.Fatal(report)
	}
	run(t, "debugfs", "-w", "-R", "sif / links_count 9", name)
	report, err = extant.Check(ctx, name)
	must(t, err)
	if report.Clean || report.Findings[0].Code != "link-count" || report.Findings[0].Severity != extant.Inconsistency || report.Findings[0].Inode != 2 {
		t.Fatal(report)
	}
	undo := filepath.Join(t.TempDir(), "undo")
	report, err = extant.Repair(ctx, name, extant.RepairOptions{DryRun: true})
	if err != nil || report.Written || len(report.Fixes) != 1 {
		t.Fatal(report, err)
	}
	report, err = extant.Repair(ctx, name, extant.RepairOptions{Undo: undo})
	if err != nil || !report.Written || !report.Clean {
		t.Fatal(report, err)
	}
	clean(t, name)
	if _, err := os.Stat(undo); err != nil {
		t.Fatal(err)
	}
	if err := extant.Format(ctx, name, "size=32M", "colour=red"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := extant.Check(ended, name); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestChangesAsAWhole(t *testing.T) {
	name := image(t)
	f := open(t, name, &extant.Options{Transaction: true})
	must(t, f.WriteFile("forgotten", nil, 0o600))
	must(t, f.Close())
	f = open(t, name, &extant.Options{Transaction: true})
	must(t, f.WriteFile("kept", nil, 0o600))
	must(t, f.Commit())
	clean(t, name)
	if list := run(t, "debugfs", "-R", "ls -p /", name); strings.Contains(list, "/forgotten/") || !strings.Contains(list, "/kept/") {
		t.Fatal(list)
	}
}

func TestErrors(t *testing.T) {
	name := image(t)
	f := open(t, name, nil)
	defer f.Close()
	_, missing := f.Open("none/at/all")
	_, notDir := f.ReadDir("etc/hostname")
	_, invalid := f.Open("/etc")
	_, zero := f.Stat("a\x00b")
	_, attribute := f.Getxattr("etc", "a\x00b")
	for _, c := range []struct {
		err    error
		target error
	}{
		{missing, fs.ErrNotExist},
		{notDir, syscall.ENOTDIR},
		{invalid, fs.ErrInvalid},
		{zero, fs.ErrInvalid},
		{attribute, fs.ErrInvalid},
		{f.Mkdir("new", 0o755), syscall.EROFS},
	} {
		var path *fs.PathError
		if !errors.Is(c.err, c.target) || !errors.As(c.err, &path) {
			t.Errorf("%v is not %v", c.err, c.target)
		}
	}
	noise := filepath.Join(t.TempDir(), "noise")
	must(t, os.WriteFile(noise, content(1<<20), 0o600))
	_, err := extant.Open(noise, nil)
	if !errors.Is(err, extant.ErrNotExt4) || errors.Is(err, extant.ErrDamaged) {
		t.Error(err)
	}
	if _, err = extant.Open(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	damaged, err := os.ReadFile(name)
	must(t, err)
	damaged[1024+0x7b] ^= 0xff
	must(t, os.WriteFile(noise, damaged, 0o600))
	if _, err = extant.Open(noise, nil); !errors.Is(err, extant.ErrDamaged) || errors.Is(err, extant.ErrNotExt4) {
		t.Error(err)
	}
}

func TestWhatIsClosedIsAnError(t *testing.T) {
	f := open(t, image(t), &extant.Options{Writable: true})
	file, err := f.OpenFile("large", os.O_RDWR, 0)
	must(t, err)
	dir, err := f.Open("etc")
	must(t, err)
	must(t, f.Close())
	// Open files are read on, and changed no more.
	if n, err := file.ReadAt(make([]byte, 10), 0); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := file.Write([]byte("x")); !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	must(t, file.Close())
	must(t, dir.Close())
	_, opened := f.Open("large")
	_, listed := f.ReadDir(".")
	_, space := f.Space()
	_, read := file.Read(make([]byte, 1))
	_, none := file.Read(nil)
	_, written := file.WriteAt([]byte("x"), 0)
	_, sought := file.Seek(0, io.SeekEnd)
	_, stat := file.Stat()
	_, entries := dir.(fs.ReadDirFile).ReadDir(-1)
	_, about := dir.Stat()
	for i, err := range []error{
		opened, listed, space, read, none, written, sought, stat, entries, about,
		f.Close(), f.Commit(), f.Sync(), f.Mkdir("x", 0o755), file.Close(), file.Sync(), dir.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestFromManyGoroutines(t *testing.T) {
	name := image(t)
	f := open(t, name, &extant.Options{Writable: true})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			dir := fmt.Sprintf("dir-%d", i)
			if err := f.Mkdir(dir, 0o755); err != nil {
				t.Error(err)
				return
			}
			for j := range 20 {
				path := fmt.Sprintf("%s/%d", dir, j)
				if err := f.WriteFile(path, []byte(path), 0o644); err != nil {
					t.Error(err)
				}
				if data, err := f.ReadFile(path); err != nil || string(data) != path {
					t.Error(string(data), err)
				}
				if _, err := f.Stat("none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none") {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// Closed while others use it: each call succeeds, or says so.
	for range 8 {
		all.Go(func() {
			for {
				_, err := f.ReadFile("large")
				if errors.Is(err, fs.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	must(t, f.Close())
	all.Wait()
	clean(t, name)
}

func TestWhatIsForgottenIsClosed(t *testing.T) {
	name := image(t)
	func() {
		f := open(t, name, &extant.Options{Writable: true})
		must(t, f.WriteFile("left", []byte("open"), 0o644))
		_, err := f.Create("left-too")
		must(t, err)
	}()
	// An image that is open for writing is locked until it is closed.
	for deadline := time.Now().Add(20 * time.Second); ; {
		runtime.GC()
		f, err := extant.Open(name, &extant.Options{Writable: true})
		if err == nil {
			must(t, f.Close())
			break
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	clean(t, name)
}

// The lines of the READMEs are those of examples, which are run.
func TestTheReadmesAreRun(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, name := range []string{"README.md", "../../README.md"} {
		readme, err := os.ReadFile(name)
		must(t, err)
		_, block, _ := strings.Cut(string(readme), "```go\n")
		block, _, _ = strings.Cut(block, "```")
		if block == "" || !strings.Contains(plain(string(source)), plain(block)) {
			t.Errorf("%s: example_test.go has other lines than\n%s", name, block)
		}
	}
}

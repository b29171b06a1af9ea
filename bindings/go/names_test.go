package extant_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	extant "github.com/extant-fs/extant/bindings/go"
)

// hidden are names that begin with a dot, and names that they could be mistaken for.
var hidden = map[string]string{".env": "env", "..data": ".data", "...": "..", "....x": "x", ".a/.b": "a/.b", ".a/...": "a/..."}

func TestIsAFileSystemWithHiddenFiles(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(tree, ".a"), 0o755))
	must(t, os.MkdirAll(filepath.Join(tree, "a"), 0o755))
	expected := []string{}
	for name, other := range hidden {
		for _, name := range []string{name, other} {
			if fs.ValidPath(name) {
				must(t, os.WriteFile(filepath.Join(tree, name), []byte(name), 0o644))
				expected = append(expected, name)
			}
		}
	}
	image := filepath.Join(t.TempDir(), "disk.img")
	run(t, "mke2fs", "-q", "-t", "ext4", "-d", tree, image, "8M")
	f := open(t, image, nil)
	defer f.Close()
	must(t, fstest.TestFS(f, expected...))
	for _, name := range expected {
		if data, err := f.ReadFile(name); err != nil || string(data) != name {
			t.Errorf("%s: %q %v", name, data, err)
		}
	}
}

// byName is every call that takes the name of a file that has to be there. None removes it.
var byName = map[string]func(f *extant.FS, name string) error{
	"Open":        func(f *extant.FS, name string) error { return closed(f.Open(name)) },
	"OpenFile":    func(f *extant.FS, name string) error { return closed(f.OpenFile(name, os.O_RDWR, 0)) },
	"Stat":        func(f *extant.FS, name string) error { return second(f.Stat(name)) },
	"Lstat":       func(f *extant.FS, name string) error { return second(f.Lstat(name)) },
	"ReadFile":    func(f *extant.FS, name string) error { return second(f.ReadFile(name)) },
	"Listxattr":   func(f *extant.FS, name string) error { return second(f.Listxattr(name)) },
	"ACL":         func(f *extant.FS, name string) error { return second(f.ACL(name, extant.ACLAccess)) },
	"Chmod":       func(f *extant.FS, name string) error { return f.Chmod(name, 0o601) },
	"Chown":       func(f *extant.FS, name string) error { return f.Chown(name, 71, 72) },
	"Lchown":      func(f *extant.FS, name string) error { return f.Lchown(name, 73, 74) },
	"Chtimes":     func(f *extant.FS, name string) error { return f.Chtimes(name, time.Unix(5, 0), time.Unix(6, 0)) },
	"Truncate":    func(f *extant.FS, name string) error { return f.Truncate(name, 3) },
	"Setxattr":    func(f *extant.FS, name string) error { return f.Setxattr(name, "user.a", []byte("b")) },
	"Getxattr":    func(f *extant.FS, name string) error { return second(f.Getxattr(name, "user.a")) },
	"Removexattr": func(f *extant.FS, name string) error { return f.Removexattr(name, "user.a") },
	"SetACL":      func(f *extant.FS, name string) error { return f.SetACL(name, extant.ACLAccess, nil) },
	"Link":        func(f *extant.FS, name string) error { return f.Link(name, "another") },
	"Rename": func(f *extant.FS, name string) error {
		return errors.Join(f.Rename(name, "moved"), f.Rename("moved", name))
	},
}

func second[T any](_ T, err error) error { return err }

func closed[T interface{ Close() error }](file T, err error) error {
	if err != nil {
		return err
	}
	return file.Close()
}

// inOrder are the calls of byName in the order in which each finds what it needs.
var inOrder = []string{
	"Open", "OpenFile", "Stat", "Lstat", "ReadFile", "Listxattr", "ACL", "Chmod", "Chown", "Lchown", "Chtimes",
	"Truncate", "Setxattr", "Getxattr", "Removexattr", "SetACL", "Rename", "Link",
}

// state is everything about a file that a call on another name could change.
func state(t *testing.T, f *extant.FS, name string) any {
	t.Helper()
	info, err := f.Lstat(name)
	must(t, err)
	stat := *info.Sys().(*extant.Stat)
	// Reading may change it.
	stat.Atime = time.Time{}
	data, err := f.ReadFile(name)
	must(t, err)
	return []any{stat, string(data)}
}

func TestNamesThatBeginWithADot(t *testing.T) {
	if len(inOrder) != len(byName) {
		t.Fatal("a call is left out")
	}
	image := image(t)
	f := open(t, image, &extant.Options{Writable: true})
	must(t, f.Mkdir("a", 0o755))
	for name, other := range hidden {
		if !fs.ValidPath(other) {
			continue
		}
		must(t, f.WriteFile(other, []byte("keep me"), 0o644))
		before := state(t, f, other)
		// While it is not there, nothing else is taken for it.
		for call, do := range byName {
			if err := do(f, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s(%q) with only %q there: %v", call, name, other, err)
			}
		}
		must(t, f.RemoveAll(name))
		must(t, f.MkdirAll(filepath.Dir(name), 0o755))
		must(t, f.Symlink("env", name))
		must(t, f.Remove(name))
		must(t, f.Mkdir(name, 0o755))
		must(t, f.WriteFile(name+"/.in", nil, 0o644))
		must(t, f.RemoveAll(name))
		must(t, f.WriteFile(name, []byte("hidden"), 0o600))
		for _, call := range inOrder {
			if err := byName[call](f, name); err != nil {
				t.Errorf("%s(%q): %v", call, name, err)
			}
		}
		if data, err := f.ReadFile(name); err != nil || string(data) != "hid" {
			t.Errorf("%q: %q %v", name, data, err)
		}
		if !reflect.DeepEqual(state(t, f, other), before) {
			t.Errorf("what was done to %q was done to %q", name, other)
		}
		must(t, f.Remove(name))
		must(t, f.Remove("another"))
		must(t, f.Remove(other))
	}
	must(t, f.Close())
	clean(t, image)
}

func TestChownFollowsLinksAsTheyLead(t *testing.T) {
	f := open(t, image(t), &extant.Options{Writable: true})
	defer f.Close()
	must(t, f.MkdirAll("real/deep", 0o755))
	for _, name := range []string{"real/.target", ".target", "target"} {
		must(t, f.WriteFile(name, nil, 0o600))
	}
	// Behind a link to a directory, ".." is not what stands before it in the name.
	must(t, f.Symlink("real/deep", "short"))
	must(t, f.Symlink("../.target", "real/deep/link"))
	must(t, f.Symlink("loop", "loop"))
	must(t, f.Chown("short/link", 7, 8))
	for name, want := range map[string]uint32{"real/.target": 7, ".target": 0, "target": 0, "real/deep/link": 0} {
		info, err := f.Lstat(name)
		must(t, err)
		if uid := info.Sys().(*extant.Stat).UID; uid != want {
			t.Errorf("%s belongs to %d", name, uid)
		}
	}
	if err := f.Chown("loop", 1, 1); !errors.Is(err, syscall.ELOOP) {
		t.Error(err)
	}
	for _, id := range []int{-2, 1 << 32, 1<<40 | 7} {
		for _, err := range []error{f.Chown("target", id, 0), f.Chown("target", 0, id), f.Lchown("target", id, 0), f.Lchown("target", 0, id)} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%d: %v", id, err)
			}
		}
	}
}

func TestErrorsHaveTheirNumbers(t *testing.T) {
	f := open(t, image(t), nil)
	defer f.Close()
	_, err := f.Stat("none")
	var number syscall.Errno
	if !errors.As(err, &number) || number != syscall.ENOENT {
		t.Fatal(number, err)
	}
}

func TestWritesThatAreSyncedAreDurable(t *testing.T) {
	name := image(t)
	f := open(t, name, &extant.Options{Writable: true})
	defer f.Close()
	file, err := f.OpenFile("log", os.O_WRONLY|os.O_CREATE|os.O_SYNC, 0o600)
	must(t, err)
	defer file.Close()
	_, err = file.Write([]byte("a line"))
	must(t, err)
	// What a crash would leave: the image as it is now, and its journal.
	crashed, err := os.ReadFile(name)
	must(t, err)
	copied := filepath.Join(t.TempDir(), "crashed.img")
	must(t, os.WriteFile(copied, crashed, 0o600))
	after := open(t, copied, nil)
	defer after.Close()
	if data, err := after.ReadFile("log"); err != nil || string(data) != "a line" {
		t.Fatalf("%q %v", data, err)
	}
}

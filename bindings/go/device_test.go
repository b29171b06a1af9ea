package extant_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	extant "github.com/extant-fs/extant/bindings/go"
)

// memory is content that is read and written by several goroutines.
type memory struct {
	mu    sync.RWMutex
	bytes []byte
	syncs atomic.Int64
	fails atomic.Pointer[error]
}

func (m *memory) failure() error {
	if err := m.fails.Load(); err != nil {
		return *err
	}
	return nil
}

func (m *memory) ReadAt(p []byte, offset int64) (int, error) {
	if err := m.failure(); err != nil {
		return 0, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := copy(p, m.bytes[offset:])
	if offset+int64(n) == int64(len(m.bytes)) {
		// As it may be beside all that was asked for.
		return n, io.EOF
	}
	return n, nil
}

func (m *memory) WriteAt(p []byte, offset int64) (int, error) {
	if err := m.failure(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(m.bytes[offset:], p), nil
}

func (m *memory) Sync() error {
	m.syncs.Add(1)
	return m.failure()
}

func (m *memory) store(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "memory.img")
	m.mu.RLock()
	defer m.mu.RUnlock()
	must(t, os.WriteFile(name, m.bytes, 0o600))
	return name
}

func TestADeviceOfGo(t *testing.T) {
	ctx := context.Background()
	content := &memory{bytes: make([]byte, 32<<20)}
	device, err := extant.ReaderWriterDevice(content, int64(len(content.bytes)))
	must(t, err)
	if size, err := device.Size(); err != nil || size != 32<<20 {
		t.Fatal(size, err)
	}
	if _, err := device.Open(nil); !errors.Is(err, extant.ErrNotExt4) {
		t.Fatal(err)
	}
	must(t, device.Format(ctx, "label=of Go", "block-size=1K"))
	f, err := device.Open(&extant.Options{Writable: true})
	must(t, err)
	must(t, device.Close())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := string(rune('a' + i))
			if err := f.WriteFile(name, nil, 0o600); err != nil {
				t.Error(err)
			}
			if err := f.WriteFile(name, bytes.Repeat([]byte(name), 100_000), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	before := content.syncs.Load()
	must(t, f.Sync())
	if content.syncs.Load() == before {
		t.Fatal("nothing was made durable")
	}
	must(t, fstest.TestFS(f, "a", "h", "lost+found"))
	must(t, f.Close())
	name := content.store(t)
	clean(t, name)
	if told := run(t, "debugfs", "-R", "cat /c", name); told != strings.Repeat("c", 100_000) {
		t.Fatal("another content")
	}

	// Only read.
	device, err = extant.ReaderDevice(bytes.NewReader(content.bytes), int64(len(content.bytes)))
	must(t, err)
	defer device.Close()
	report, err := device.Check(ctx)
	if err != nil || !report.Clean || len(report.Findings) != 0 {
		t.Fatal(report, err)
	}
	if label, err := device.Setting("label"); err != nil || label != "of Go" {
		t.Fatal(label, err)
	}
	if _, err := device.Setting("colour"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if err := device.Tune(ctx, "label=x"); !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	if _, err := device.Open(&extant.Options{Writable: true}); !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	part := make([]byte, 10)
	if n, err := device.ReadAt(part, 32<<20-4); n != 4 || err != io.EOF {
		t.Fatal(n, err)
	}
	if n, err := device.ReadAt(part, 1024+0x38); n != 10 || err != nil || part[0] != 0x53 || part[1] != 0xef {
		t.Fatal(part, err)
	}
}

func TestWhatADeviceOfGoFailsWith(t *testing.T) {
	name := image(t)
	data, err := os.ReadFile(name)
	must(t, err)
	want, content := content(300_000), &memory{bytes: data}
	device, err := extant.ReaderWriterDevice(content, int64(len(data)))
	must(t, err)
	defer device.Close()
	f, err := device.Open(nil)
	must(t, err)
	defer f.Close()
	for _, c := range []struct{ fails, seen error }{
		{syscall.ETIMEDOUT, syscall.ETIMEDOUT},
		{&fs.PathError{Op: "read", Path: "x", Err: syscall.ENODEV}, syscall.ENODEV},
		{errors.New("the cable is out"), syscall.EIO},
		{io.EOF, syscall.EIO},
	} {
		content.fails.Store(&c.fails)
		_, err := f.ReadFile("large")
		var found *extant.Error
		if !errors.Is(err, c.seen) || !errors.As(err, &found) || found.Kind != extant.KindDevice {
			t.Errorf("%v: %v", c.fails, err)
		}
	}
	content.fails.Store(nil)
	if got, err := f.ReadFile("large"); err != nil || !bytes.Equal(got, want) {
		t.Fatal(err)
	}
	// One that panics is one that fails.
	broken, err := extant.ReaderDevice(panics{}, 1<<20)
	must(t, err)
	defer broken.Close()
	if _, err := broken.Check(context.Background()); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if _, err := extant.ReaderDevice(panics{}, -1); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := extant.ReaderDevice(nil, 1<<20); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
}

type panics struct{}

func (panics) ReadAt([]byte, int64) (int, error) { panic("read") }

// A device of Go is let go with the last that uses it.
func TestADeviceOfGoIsLetGo(t *testing.T) {
	gone := make(chan struct{})
	func() {
		content := &memory{bytes: make([]byte, 8<<20)}
		device, err := extant.ReaderWriterDevice(content, 8<<20)
		must(t, err)
		must(t, device.Format(context.Background()))
		f, err := device.Open(nil)
		must(t, err)
		must(t, device.Close())
		_, err = f.Stat(".")
		must(t, err)
		must(t, f.Close())
		runtime.AddCleanup(content, func(gone chan struct{}) { close(gone) }, gone)
	}()
	for deadline := time.Now().Add(20 * time.Second); ; {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("it is kept")
		}
	}
}

func TestResizesAndTunes(t *testing.T) {
	ctx := context.Background()
	name := filepath.Join(t.TempDir(), "disk.img")
	must(t, extant.Format(ctx, name, "size=64M", "block-size=4K"))
	if _, err := extant.Resize(ctx, name, 96<<20); err == nil {
		t.Fatal("larger than its image")
	}
	clean(t, name)
	must(t, os.Truncate(name, 96<<20))
	if now, err := extant.Resize(ctx, name, 96<<20); now != 96<<20 || err != nil {
		t.Fatal(now, err)
	}
	clean(t, name)
	device, err := extant.OpenDevice(name, &extant.Options{Writable: true})
	must(t, err)
	least, err := device.Minimum(ctx)
	must(t, err)
	now, err := device.Resize(ctx, 0)
	if err != nil || now != least || now >= 64<<20 {
		t.Fatal(now, least, err)
	}
	must(t, device.Close())
	must(t, os.Truncate(name, now))
	clean(t, name)
	must(t, extant.Tune(ctx, name, "label=tuned", "max-mounts=33", "quota=user"))
	clean(t, name)
	told := run(t, "dumpe2fs", "-h", name)
	if !strings.Contains(told, "volume name:   tuned\n") || !strings.Contains(told, "Maximum mount count:      33\n") || !strings.Contains(told, " quota") {
		t.Fatal(told)
	}
	// All or none.
	if err := extant.Tune(ctx, name, "label=other", "colour=red"); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := extant.Resize(ctx, name, -1); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := extant.Tune(ended, name, "label=other"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if told := run(t, "dumpe2fs", "-h", name); !strings.Contains(told, "volume name:   tuned\n") {
		t.Fatal(told)
	}
}

func TestDevicesOfOtherKinds(t *testing.T) {
	ctx := context.Background()
	name := image(t)
	// Go opens files so that no other program gets them.
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	device, err := extant.FileDevice(file, &extant.Options{Writable: true})
	must(t, err)
	must(t, file.Close())
	f, err := device.Open(&extant.Options{Writable: true})
	must(t, err)
	must(t, f.WriteFile("new", []byte("by descriptor\n"), 0o600))
	must(t, f.Close())
	must(t, device.Close())
	clean(t, name)
	if told := run(t, "debugfs", "-R", "cat /new", name); told != "by descriptor\n" {
		t.Fatal(told)
	}
	if _, err := extant.FileDevice(file, nil); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}

	// A part of memory.
	whole, err := extant.MemoryDevice(16 << 20)
	must(t, err)
	defer whole.Close()
	_, err = whole.Part(7, 0)
	var refused *fs.PathError
	if !errors.As(err, &refused) || errors.As(refused.Err, new(*fs.PathError)) {
		t.Errorf("%v: not one operation on one name", err)
	}
	part, err := whole.Part(0, 4<<20)
	must(t, err)
	must(t, part.Format(ctx))
	must(t, part.Sync())
	report, err := part.Check(ctx)
	if err != nil || !report.Clean {
		t.Fatal(report, err)
	}
	f, err = whole.Open(&extant.Options{Offset: 4 << 20})
	must(t, err)
	must(t, fstest.TestFS(f, "lost+found"))
	must(t, f.Close())
	if n, err := whole.WriteAt([]byte("x"), 16<<20); n != 0 || err == nil {
		t.Fatal(n, err)
	}
	must(t, part.Close())
	_, size := part.Size()
	_, opened := part.Open(nil)
	_, read := part.ReadAt(make([]byte, 1), 0)
	_, checked := part.Check(ctx)
	_, again := part.Part(0, 0)
	for i, err := range []error{size, opened, read, checked, again, part.Sync(), part.Close()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestListsAndQuotas(t *testing.T) {
	name := filepath.Join(t.TempDir(), "disk.img")
	run(t, "mke2fs", "-q", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota", name, "64M")
	f := open(t, name, &extant.Options{Writable: true})
	must(t, f.Mkdir("shared", 0o755))
	list := []extant.ACLEntry{
		{Tag: extant.ACLOwner, Permissions: 7},
		{Tag: extant.ACLUser, ID: 1000, Permissions: 6},
		{Tag: extant.ACLGroup, Permissions: 5},
		{Tag: extant.ACLNamedGroup, ID: 27, Permissions: 4},
		{Tag: extant.ACLMask, Permissions: 7},
		{Tag: extant.ACLOther},
	}
	for _, kind := range []extant.ACLKind{extant.ACLAccess, extant.ACLDefault} {
		must(t, f.SetACL("shared", kind, list))
		found, err := f.ACL("shared", kind)
		must(t, err)
		if len(found) != len(list) {
			t.Fatal(found)
		}
		for i := range list {
			if found[i] != list[i] {
				t.Fatal(found)
			}
		}
	}
	if info, err := f.Stat("shared"); err != nil || info.Mode().Perm() != 0o770 {
		t.Fatal(info.Mode(), err)
	}
	must(t, f.SetACL("shared", extant.ACLDefault, nil))
	if found, err := f.ACL("shared", extant.ACLDefault); err != nil || len(found) != 0 {
		t.Fatal(found, err)
	}
	// No mask: no list.
	if err := f.SetACL("shared", extant.ACLAccess, list[:3]); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := f.ACL("none", extant.ACLAccess); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}

	must(t, f.WriteFile("shared/file", content(70_000), 0o644))
	must(t, f.Lchown("shared/file", 1000, 27))
	must(t, f.SetProject("shared/file", 5))
	must(t, f.Sync())
	quota, err := f.Quota(extant.QuotaUser, 1000)
	if err != nil || quota.ID != 1000 || quota.Inodes != 1 || quota.Space < 70_000 || quota.SpaceLimits.Hard != 0 {
		t.Fatal(quota, err)
	}
	quota.SpaceLimits = extant.Limits{Soft: 1 << 20, Hard: 2 << 20}
	quota.InodeLimits = extant.Limits{Hard: 100}
	must(t, f.SetQuota(extant.QuotaUser, quota))
	all, err := f.Quotas(extant.QuotaUser)
	if err != nil || len(all) != 2 || all[1] != quota {
		t.Fatal(all, err)
	}
	if quota, err := f.Quota(extant.QuotaProject, 5); err != nil || quota.Inodes != 1 {
		t.Fatal(quota, err)
	}
	must(t, f.Close())
	if _, err := f.Quota(extant.QuotaUser, 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	clean(t, name)
	told := strings.Fields(run(t, "debugfs", "-R", "get_quota user 1000", name))
	for _, want := range []string{"1000", "1024", "2048", "100"} {
		if !strings.Contains(strings.Join(told, " "), want) {
			t.Fatal(told)
		}
	}
	if told := run(t, "debugfs", "-R", "ea_get -x /shared system.posix_acl_access", name); !strings.Contains(told, "e8 03 00 00") {
		t.Fatal(told)
	}
	// What is not counted is said.
	f = open(t, image(t), nil)
	defer f.Close()
	if _, err := f.Quota(extant.QuotaUser, 0); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatal(err)
	}
}

func TestTellsAboutAllFilesAtOnce(t *testing.T) {
	f := open(t, image(t), nil)
	defer f.Close()
	var mu sync.Mutex
	found := map[uint64]extant.Stat{}
	count, err := f.Bulkstat(2, func(files []extant.Stat) error {
		mu.Lock()
		defer mu.Unlock()
		for _, file := range files {
			found[file.Ino] = file
		}
		return nil
	})
	if err != nil || count != int64(len(found)) {
		t.Fatal(count, len(found), err)
	}
	must(t, fs.WalkDir(f, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := f.Lstat(name)
		if err != nil {
			return err
		}
		if stat := info.Sys().(*extant.Stat); found[stat.Ino] != *stat {
			t.Error(name, found[stat.Ino], *stat)
		}
		return nil
	}))
	enough := errors.New("enough")
	if _, err := f.Bulkstat(0, func([]extant.Stat) error { return enough }); err != enough {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if found := recover(); found != "too much" {
				t.Error(found)
			}
		}()
		_, err := f.Bulkstat(0, func([]extant.Stat) error { panic("too much") })
		t.Error(err)
	}()
	if _, err := f.Bulkstat(-1, nil); !errors.Is(err, fs.ErrInvalid) {
		t.Fatal(err)
	}
	must(t, f.Close())
	if _, err := f.Bulkstat(0, func([]extant.Stat) error { return nil }); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
}

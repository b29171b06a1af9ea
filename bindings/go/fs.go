package extant

/*
#include <stdlib.h>
#include <extant.h>
*/
import "C"

import (
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Options say how to open a file system. The zero value is for reading.
type Options struct {
	// Writable opens for writing as well.
	Writable bool
	// Transaction makes changes as a whole: [FS.Commit] puts them into the image, [FS.Close]
	// forgets them.
	Transaction bool
	// Mend reads a damaged file system as a repair would leave it.
	Mend bool
	// Partition of a disk, from 1; 0 for none.
	Partition uint32
	// Offset is the byte at which the file system begins.
	Offset uint64
	// Format says what the image is, such as "raw"; empty to have that seen.
	Format string
}

// FS is an open file system.
type FS struct {
	mu      sync.RWMutex
	handle  *C.extant_fs
	cleanup runtime.Cleanup
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadFileFS = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// inC gives options as C has them, and what frees them.
func (o *Options) inC() (*C.struct_extant_options, func()) {
	if o == nil {
		return nil, func() {}
	}
	// Of C's memory: it holds a pointer to such.
	options := (*C.struct_extant_options)(C.calloc(1, C.sizeof_struct_extant_options))
	options.size = C.sizeof_struct_extant_options
	for flag, on := range map[C.uint32_t]bool{
		C.EXTANT_WRITABLE:    o.Writable,
		C.EXTANT_TRANSACTION: o.Transaction,
		C.EXTANT_MEND:        o.Mend,
	} {
		if on {
			options.flags |= flag
		}
	}
	options.partition = C.uint32_t(o.Partition)
	options.offset = C.uint64_t(o.Offset)
	if o.Format != "" {
		options.format = C.CString(o.Format)
	}
	return options, func() {
		C.free(unsafe.Pointer(options.format))
		C.free(unsafe.Pointer(options))
	}
}

// Open opens an image: a file, a block device, or an address such as "nbd://host/export".
// options may be nil: for reading only.
func Open(image string, options *Options) (*FS, error) {
	if strings.ContainsRune(image, 0) || options != nil && strings.ContainsRune(options.Format, 0) {
		return nil, pathError("open", image, fs.ErrInvalid)
	}
	name := C.CString(image)
	defer C.free(unsafe.Pointer(name))
	inC, free := options.inC()
	defer free()
	var handle *C.extant_fs
	_, err := call(func() C.int64_t { return C.int64_t(C.extant_open(name, inC, &handle)) })
	if err != nil {
		return nil, pathError("open", image, err)
	}
	return newFS(handle), nil
}

func newFS(handle *C.extant_fs) *FS {
	f := &FS{handle: handle}
	f.cleanup = runtime.AddCleanup(f, func(handle *C.extant_fs) { C.extant_close(handle) }, handle)
	return f
}

// end takes the handle away, for good, and gives it to do.
func (f *FS) end(op string, do func(*C.extant_fs) C.int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle == nil {
		return pathError(op, ".", fs.ErrClosed)
	}
	f.cleanup.Stop()
	handle := f.handle
	f.handle = nil
	_, err := call(func() C.int64_t { return C.int64_t(do(handle)) })
	return pathError(op, ".", err)
}

// Close makes everything durable and closes the file system; changes of a transaction are
// forgotten. It waits for calls of other goroutines. Open files can still be read.
func (f *FS) Close() error {
	return f.end("close", func(handle *C.extant_fs) C.int { return C.extant_close(handle) })
}

// Commit puts the changes of a transaction into the image and closes the file system.
func (f *FS) Commit() error {
	return f.end("commit", func(handle *C.extant_fs) C.int { return C.extant_commit(handle) })
}

// with calls C with the handle.
func (f *FS) with(do func(*C.extant_fs) C.int64_t) (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.handle == nil {
		return 0, fs.ErrClosed
	}
	return call(func() C.int64_t { return do(f.handle) })
}

// on calls C with the handle and a name.
func (f *FS) on(op, name string, do func(*C.extant_fs, *C.char) C.int64_t) (int64, error) {
	inC, err := inside(name)
	if err != nil {
		return 0, pathError(op, name, err)
	}
	defer C.free(unsafe.Pointer(inC))
	result, err := f.with(func(handle *C.extant_fs) C.int64_t { return do(handle, inC) })
	return result, pathError(op, name, err)
}

// inside gives a name as C has it, which the caller frees.
func inside(name string) (*C.char, error) {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return nil, fs.ErrInvalid
	}
	// Only the root is called so: other names may begin with a dot, too.
	if name == "." {
		name = ""
	}
	return C.CString("/" + name), nil
}

// Sync makes everything durable that was done before.
func (f *FS) Sync() error {
	_, err := f.with(func(handle *C.extant_fs) C.int64_t { return C.int64_t(C.extant_sync(handle)) })
	return pathError("sync", ".", err)
}

// Space is how much room there is, in bytes.
type Space struct {
	Size, Free, Available uint64
	Inodes, FreeInodes    uint64
	BlockSize             uint32
	UUID                  [16]byte
}

// Space tells how much room there is.
func (f *FS) Space() (Space, error) {
	var found C.struct_extant_space
	_, err := f.with(func(handle *C.extant_fs) C.int64_t {
		return C.int64_t(C.extant_statfs(handle, &found))
	})
	if err != nil {
		return Space{}, pathError("statfs", ".", err)
	}
	block := uint64(found.block_size)
	space := Space{
		Size:       uint64(found.blocks) * block,
		Free:       uint64(found.free) * block,
		Available:  uint64(found.available) * block,
		Inodes:     uint64(found.inodes),
		FreeInodes: uint64(found.free_inodes),
		BlockSize:  uint32(found.block_size),
	}
	for i := range space.UUID {
		space.UUID[i] = byte(found.uuid[i])
	}
	return space, nil
}

// Stat tells about a file; a symbolic link at the end is followed.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	var found C.struct_extant_stat
	_, err := f.on("stat", name, func(handle *C.extant_fs, name *C.char) C.int64_t {
		return C.int64_t(C.extant_stat(handle, name, &found))
	})
	if err != nil {
		return nil, err
	}
	return infoOf(path.Base(name), &found), nil
}

// Lstat tells about a file; a symbolic link at the end is not followed.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	var found C.struct_extant_stat
	_, err := f.on("lstat", name, func(handle *C.extant_fs, name *C.char) C.int64_t {
		return C.int64_t(C.extant_lstat(handle, name, &found))
	})
	if err != nil {
		return nil, err
	}
	return infoOf(path.Base(name), &found), nil
}

// answer calls C twice: for the length of what it has to say, and for that.
func (f *FS) answer(op, name string, ask func(*C.extant_fs, *C.char, unsafe.Pointer, C.size_t) C.int64_t) ([]byte, error) {
	for {
		length, err := f.on(op, name, func(handle *C.extant_fs, name *C.char) C.int64_t {
			return ask(handle, name, nil, 0)
		})
		if err != nil || length == 0 {
			return nil, err
		}
		buffer := make([]byte, length)
		length, err = f.on(op, name, func(handle *C.extant_fs, name *C.char) C.int64_t {
			return ask(handle, name, unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)))
		})
		if err == nil {
			return buffer[:length], nil
		}
		// It has grown meanwhile.
		if !isErrno(err, syscall.ERANGE) {
			return nil, err
		}
	}
}

// ReadLink gives the target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) {
	target, err := f.answer("readlink", name, func(handle *C.extant_fs, name *C.char, to unsafe.Pointer, size C.size_t) C.int64_t {
		return C.extant_readlink(handle, name, to, size)
	})
	return string(target), err
}

// ReadDir lists a directory, sorted by names.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := f.openDir(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// ReadFile gives the content of a file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	file, err := f.OpenFile(name, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return file.readAll(info.Size())
}

// Open opens a file or a directory for reading.
func (f *FS) Open(name string) (fs.File, error) {
	info, err := f.Stat(name)
	if err != nil {
		// What failed is to be opened.
		return nil, renamed(err, "open")
	}
	if info.IsDir() {
		return f.openDir(name)
	}
	return f.OpenFile(name, syscall.O_RDONLY, 0)
}

func renamed(err error, op string) error {
	if found, ok := err.(*fs.PathError); ok {
		return &fs.PathError{Op: op, Path: found.Path, Err: found.Err}
	}
	return err
}

func timeOf(t C.struct_extant_time) time.Time {
	return time.Unix(int64(t.seconds), int64(t.nanoseconds))
}

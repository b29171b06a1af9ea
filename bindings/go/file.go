package extant

/*
#include <stdlib.h>
#include <extant.h>
*/
import "C"

import (
	"io"
	"io/fs"
	"path"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// File is an open file. Any number of goroutines may use it.
type File struct {
	name    string
	appends bool
	syncs   bool         // O_SYNC: durable before a write returns
	mu      sync.RWMutex // held for reading by calls, for writing by Close
	handle  *C.extant_file
	cleanup runtime.Cleanup
	place   sync.Mutex // guards at
	at      int64
}

var (
	_ fs.File            = (*File)(nil)
	_ io.ReaderAt        = (*File)(nil)
	_ io.WriterAt        = (*File)(nil)
	_ io.ReadWriteSeeker = (*File)(nil)
)

// OpenFile opens a file. flag is what os.OpenFile takes: os.O_RDONLY, os.O_WRONLY or os.O_RDWR with
// os.O_APPEND, os.O_CREATE, os.O_EXCL, os.O_TRUNC and os.O_SYNC, by which what is written is durable
// before Write and WriteAt return.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	var flags C.uint32_t
	switch flag & syscall.O_ACCMODE {
	case syscall.O_RDONLY:
		flags = C.EXTANT_O_READ
	case syscall.O_WRONLY:
		flags = C.EXTANT_O_WRITE
	case syscall.O_RDWR:
		flags = C.EXTANT_O_READ | C.EXTANT_O_WRITE
	default:
		return nil, pathError("open", name, fs.ErrInvalid)
	}
	const known = syscall.O_ACCMODE | syscall.O_APPEND | syscall.O_CREAT | syscall.O_EXCL | syscall.O_TRUNC | syscall.O_CLOEXEC | syscall.O_SYNC
	if flag&^known != 0 {
		return nil, pathError("open", name, fs.ErrInvalid)
	}
	for bit, in := range map[int]C.uint32_t{
		syscall.O_APPEND: C.EXTANT_O_APPEND,
		syscall.O_CREAT:  C.EXTANT_O_CREATE,
		syscall.O_EXCL:   C.EXTANT_O_EXCLUSIVE,
		syscall.O_TRUNC:  C.EXTANT_O_TRUNCATE,
	} {
		if flag&bit != 0 {
			flags |= in
		}
	}
	var handle *C.extant_file
	_, err := f.on("open", name, func(fs *C.extant_fs, name *C.char) C.int64_t {
		return C.int64_t(C.extant_file_open(fs, name, flags, bitsOf(perm), &handle))
	})
	if err != nil {
		return nil, err
	}
	file := &File{
		name:    name,
		appends: flag&syscall.O_APPEND != 0,
		syncs:   flag&syscall.O_SYNC != 0,
		handle:  handle,
	}
	file.cleanup = runtime.AddCleanup(file, func(handle *C.extant_file) { C.extant_file_close(handle) }, handle)
	return file, nil
}

// Create makes a file, or truncates the one that is there, and opens it for reading and writing.
func (f *FS) Create(name string) (*File, error) {
	return f.OpenFile(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_TRUNC, 0o666)
}

// Name gives the name that the file was opened by.
func (f *File) Name() string { return f.name }

// with calls C with the handle.
func (f *File) with(op string, do func(*C.extant_file) C.int64_t) (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.handle == nil {
		return 0, pathError(op, f.name, fs.ErrClosed)
	}
	result, err := call(func() C.int64_t { return do(f.handle) })
	return result, pathError(op, f.name, err)
}

// Close closes the file. What was written is durable after Sync, or when the file system is synced
// or closed.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle == nil {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.cleanup.Stop()
	C.extant_file_close(f.handle)
	f.handle = nil
	return nil
}

// Stat tells about the file.
func (f *File) Stat() (fs.FileInfo, error) {
	var found C.struct_extant_stat
	_, err := f.with("stat", func(file *C.extant_file) C.int64_t {
		return C.int64_t(C.extant_file_stat(file, &found))
	})
	if err != nil {
		return nil, err
	}
	return infoOf(path.Base(f.name), &found), nil
}

// ReadAt reads from a place, whatever the file's position is.
func (f *File) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	done := 0
	for done < len(p) {
		n, err := f.with("read", func(file *C.extant_file) C.int64_t {
			rest := p[done:]
			return C.extant_file_read(file, unsafe.Pointer(&rest[0]), C.size_t(len(rest)), C.uint64_t(offset+int64(done)))
		})
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.EOF
		}
		done += int(n)
	}
	return done, nil
}

// Read reads from the file's position on.
func (f *File) Read(p []byte) (int, error) {
	f.place.Lock()
	defer f.place.Unlock()
	if len(p) == 0 {
		return 0, f.isOpen("read")
	}
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

func (f *File) isOpen(op string) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.handle == nil {
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

// readAll reads to the end, which is expected behind so many bytes.
func (f *File) readAll(expected int64) ([]byte, error) {
	data := make([]byte, 0, expected+512)
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

// WriteAt writes at a place, whatever the file's position is. Of a file that is open for appending
// it is an error.
func (f *File) WriteAt(p []byte, offset int64) (int, error) {
	if offset < 0 || f.appends {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	return f.writeAt(p, offset)
}

func (f *File) writeAt(p []byte, offset int64) (int, error) {
	done := 0
	if len(p) == 0 {
		return 0, f.isOpen("write")
	}
	for done < len(p) {
		rest := p[done:]
		n, err := f.with("write", func(file *C.extant_file) C.int64_t {
			if f.appends {
				return C.extant_file_append(file, unsafe.Pointer(&rest[0]), C.size_t(len(rest)), nil)
			}
			return C.extant_file_write(file, unsafe.Pointer(&rest[0]), C.size_t(len(rest)), C.uint64_t(offset+int64(done)))
		})
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, pathError("write", f.name, io.ErrShortWrite)
		}
		done += int(n)
	}
	if f.syncs {
		if err := f.Sync(); err != nil {
			return done, renamed(err, "write")
		}
	}
	return done, nil
}

// Write writes at the file's position, or at the end of a file that is open for appending.
func (f *File) Write(p []byte) (int, error) {
	f.place.Lock()
	defer f.place.Unlock()
	n, err := f.writeAt(p, f.at)
	f.at += int64(n)
	return n, err
}

// Seek sets the file's position.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.place.Lock()
	defer f.place.Unlock()
	if err := f.isOpen("seek"); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		info, err := f.Stat()
		if err != nil {
			return 0, renamed(err, "seek")
		}
		offset += info.Size()
	default:
		return 0, pathError("seek", f.name, fs.ErrInvalid)
	}
	if offset < 0 {
		return 0, pathError("seek", f.name, fs.ErrInvalid)
	}
	f.at = offset
	return offset, nil
}

// Truncate gives the file another size.
func (f *File) Truncate(size int64) error {
	if size < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	_, err := f.with("truncate", func(file *C.extant_file) C.int64_t {
		return C.int64_t(C.extant_file_truncate(file, C.uint64_t(size)))
	})
	return err
}

// Sync makes what was written durable.
func (f *File) Sync() error {
	_, err := f.with("sync", func(file *C.extant_file) C.int64_t {
		return C.int64_t(C.extant_file_sync(file))
	})
	return err
}

// dir is an open directory.
type dir struct {
	fs      *FS
	name    string
	info    fs.FileInfo
	mu      sync.Mutex
	handle  *C.extant_dir
	cleanup runtime.Cleanup
}

var _ fs.ReadDirFile = (*dir)(nil)

func (f *FS) openDir(name string) (*dir, error) {
	info, err := f.Stat(name)
	if err != nil {
		return nil, renamed(err, "open")
	}
	var handle *C.extant_dir
	_, err = f.on("open", name, func(fs *C.extant_fs, name *C.char) C.int64_t {
		return C.int64_t(C.extant_dir_open(fs, name, &handle))
	})
	if err != nil {
		return nil, err
	}
	d := &dir{fs: f, name: name, info: info, handle: handle}
	d.cleanup = runtime.AddCleanup(d, func(handle *C.extant_dir) { C.extant_dir_close(handle) }, handle)
	return d, nil
}

func (d *dir) Stat() (fs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handle == nil {
		return nil, pathError("stat", d.name, fs.ErrClosed)
	}
	return d.info, nil
}

func (d *dir) Read([]byte) (int, error) {
	return 0, pathError("read", d.name, syscall.EISDIR)
}

func (d *dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handle == nil {
		return pathError("close", d.name, fs.ErrClosed)
	}
	d.cleanup.Stop()
	C.extant_dir_close(d.handle)
	d.handle = nil
	return nil
}

// ReadDir gives the next n entries, or all that are left if n is not above 0.
func (d *dir) ReadDir(n int) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handle == nil {
		return nil, pathError("readdir", d.name, fs.ErrClosed)
	}
	entries := []fs.DirEntry{}
	for n <= 0 || len(entries) < n {
		var found C.struct_extant_entry
		more, err := call(func() C.int64_t { return C.int64_t(C.extant_dir_next(d.handle, &found)) })
		if err != nil {
			return entries, pathError("readdir", d.name, err)
		}
		if more == 0 {
			if n > 0 && len(entries) == 0 {
				return nil, io.EOF
			}
			break
		}
		name := C.GoStringN(&found.name[0], C.int(found.length))
		entries = append(entries, &entry{d, name, typeOf(uint32(found._type))})
	}
	return entries, nil
}

// entry is a name in a directory.
type entry struct {
	dir  *dir
	name string
	mode fs.FileMode
}

func (e *entry) Name() string      { return e.name }
func (e *entry) IsDir() bool       { return e.mode.IsDir() }
func (e *entry) Type() fs.FileMode { return e.mode }

func (e *entry) Info() (fs.FileInfo, error) {
	return e.dir.fs.Lstat(path.Join(e.dir.name, e.name))
}

func (e *entry) String() string { return fs.FormatDirEntry(e) }

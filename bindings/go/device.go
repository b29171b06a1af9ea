package extant

/*
#include <stdlib.h>
#include <string.h>
#include <extant.h>

extern int extantGoRead(uintptr_t user, void *buffer, size_t length, uint64_t offset);
extern int extantGoWrite(uintptr_t user, void *buffer, size_t length, uint64_t offset);
extern int extantGoSync(uintptr_t user);
extern void extantGoRelease(uintptr_t user);

// What the library passes back is a number, in the guise of a pointer: no memory of Go.
struct extant_go {
	uintptr_t handle;
	uint64_t size;
};

static int go_read(void *user, void *buffer, size_t length, uint64_t offset)
{
	return extantGoRead(((struct extant_go *)user)->handle, buffer, length, offset);
}

static int go_write(void *user, const void *buffer, size_t length, uint64_t offset)
{
	return extantGoWrite(((struct extant_go *)user)->handle, (void *)buffer, length, offset);
}

static int go_sync(void *user)
{
	return extantGoSync(((struct extant_go *)user)->handle);
}

static int go_capacity(void *user, uint64_t *bytes)
{
	*bytes = ((struct extant_go *)user)->size;
	return 0;
}

static void go_release(void *user)
{
	extantGoRelease(((struct extant_go *)user)->handle);
	free(user);
}

static int extant_go_device(uintptr_t handle, uint64_t size, int writes, int syncs, extant_device **device)
{
	struct extant_device_ops ops;
	struct extant_go *user = malloc(sizeof *user);
	int result;

	*device = NULL;
	if (user == NULL)
		return -12;
	user->handle = handle;
	user->size = size;
	memset(&ops, 0, sizeof ops);
	ops.size = sizeof ops;
	ops.read = go_read;
	if (writes)
		ops.write = go_write;
	if (syncs)
		ops.flush = go_sync;
	ops.capacity = go_capacity;
	ops.release = go_release;
	result = extant_device_from_ops(&ops, user, device);
	if (result != 0)
		free(user);
	return result;
}
*/
import "C"

import (
	"context"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/cgo"
	"strings"
	"sync"
	"unsafe"
)

// ReaderWriterAt is what a device that is written to is made of.
type ReaderWriterAt interface {
	io.ReaderAt
	io.WriterAt
}

// Device is what an image lies on: a file, an address, memory, or content of the program's own.
type Device struct {
	name    string
	mu      sync.RWMutex // held for reading by calls, for writing by Close
	handle  *C.extant_device
	cleanup runtime.Cleanup
}

var (
	_ io.ReaderAt = (*Device)(nil)
	_ io.WriterAt = (*Device)(nil)
	_ io.Closer   = (*Device)(nil)
)

// OpenDevice opens what [Open] opens, as a device: of options, Writable, Partition, Offset and
// Format count.
func OpenDevice(image string, options *Options) (*Device, error) {
	if strings.ContainsRune(image, 0) || options != nil && strings.ContainsRune(options.Format, 0) {
		return nil, pathError("open", image, fs.ErrInvalid)
	}
	name := C.CString(image)
	defer C.free(unsafe.Pointer(name))
	inC, free := options.inC()
	defer free()
	return newDevice(image, func(device **C.extant_device) C.int {
		return C.extant_device_open(name, inC, device)
	})
}

// FileDevice makes a device of an open file, which stays the caller's and may be closed afterwards.
// Options count as for [OpenDevice].
func FileDevice(file *os.File, options *Options) (*Device, error) {
	if options != nil && strings.ContainsRune(options.Format, 0) {
		return nil, pathError("open", file.Name(), fs.ErrInvalid)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, pathError("open", file.Name(), fs.ErrClosed)
	}
	inC, free := options.inC()
	defer free()
	var device *Device
	refused := raw.Control(func(fd uintptr) {
		device, err = newDevice(file.Name(), func(device **C.extant_device) C.int {
			return C.extant_device_from_fd(C.int(fd), inC, device)
		})
	})
	if refused != nil {
		// All that is refused is a file that is closed.
		return nil, pathError("open", file.Name(), fs.ErrClosed)
	}
	return device, err
}

// MemoryDevice makes a device of zeros in memory.
func MemoryDevice(size int64) (*Device, error) {
	if size < 0 {
		return nil, pathError("open", "memory", fs.ErrInvalid)
	}
	return newDevice("memory", func(device **C.extant_device) C.int {
		return C.extant_device_in_memory(C.uint64_t(size), device)
	})
}

// ReaderDevice makes a device of content that is only read. It is read from several goroutines and
// threads at once. Of an error the number counts that is in it (syscall.Errno); otherwise it is
// syscall.EIO. What reads must not use the file system on the device.
func ReaderDevice(content io.ReaderAt, size int64) (*Device, error) {
	return contentDevice(&callbacks{reader: content}, size)
}

// ReaderWriterDevice makes a device of content that is read and written, as [ReaderDevice] does.
// With a method Sync() error, as [os.File] has, that makes what was written durable; without it
// what was written is taken to be.
func ReaderWriterDevice(content ReaderWriterAt, size int64) (*Device, error) {
	return contentDevice(&callbacks{reader: content, writer: content}, size)
}

func contentDevice(content *callbacks, size int64) (*Device, error) {
	if size < 0 || content.reader == nil {
		return nil, pathError("open", "content", fs.ErrInvalid)
	}
	content.syncer, _ = content.writer.(interface{ Sync() error })
	handle := cgo.NewHandle(content)
	flag := func(on bool) C.int {
		if on {
			return 1
		}
		return 0
	}
	device, err := newDevice("content", func(device **C.extant_device) C.int {
		writes, syncs := flag(content.writer != nil), flag(content.syncer != nil)
		return C.extant_go_device(C.uintptr_t(handle), C.uint64_t(size), writes, syncs, device)
	})
	if err != nil {
		handle.Delete()
	}
	return device, err
}

func newDevice(name string, make func(**C.extant_device) C.int) (*Device, error) {
	var handle *C.extant_device
	_, err := call(func() C.int64_t { return C.int64_t(make(&handle)) })
	if err != nil {
		return nil, pathError("open", name, err)
	}
	d := &Device{name: name, handle: handle}
	d.cleanup = runtime.AddCleanup(d, func(handle *C.extant_device) { C.extant_device_close(handle) }, handle)
	return d, nil
}

// Close ends the use of the device by this handle. File systems on it can be used on.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handle == nil {
		return pathError("close", d.name, fs.ErrClosed)
	}
	d.cleanup.Stop()
	C.extant_device_close(d.handle)
	d.handle = nil
	return nil
}

// with does something with the handle.
func (d *Device) with(op string, do func(*C.extant_device) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.handle == nil {
		return pathError(op, d.name, fs.ErrClosed)
	}
	return pathError(op, d.name, do(d.handle))
}

// calls calls C with the handle.
func (d *Device) calls(op string, do func(*C.extant_device) C.int64_t) (int64, error) {
	var result int64
	err := d.with(op, func(handle *C.extant_device) (err error) {
		result, err = call(func() C.int64_t { return do(handle) })
		return err
	})
	return result, err
}

// Part makes a device of a part of this one: a partition (from 1), or what lies from offset on (with
// partition 0).
func (d *Device) Part(partition uint32, offset uint64) (*Device, error) {
	var part *Device
	err := d.with("open", func(whole *C.extant_device) (err error) {
		part, err = newDevice(d.name, func(device **C.extant_device) C.int {
			return C.extant_device_part(whole, C.uint32_t(partition), C.uint64_t(offset), device)
		})
		return err
	})
	return part, err
}

// Size tells how many bytes it has.
func (d *Device) Size() (int64, error) {
	return d.calls("size", func(device *C.extant_device) C.int64_t { return C.extant_device_size(device) })
}

// ReadAt reads from a place.
func (d *Device) ReadAt(p []byte, offset int64) (int, error) {
	size, err := d.Size()
	if err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, pathError("read", d.name, fs.ErrInvalid)
	}
	var end error
	if offset >= size {
		p, end = nil, io.EOF
	} else if int64(len(p)) > size-offset {
		p, end = p[:size-offset], io.EOF
	}
	if len(p) != 0 {
		_, err = d.calls("read", func(device *C.extant_device) C.int64_t {
			return C.int64_t(C.extant_device_read(device, unsafe.Pointer(&p[0]), C.size_t(len(p)), C.uint64_t(offset)))
		})
	}
	if err != nil {
		return 0, err
	}
	return len(p), end
}

// WriteAt writes to a place.
func (d *Device) WriteAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, pathError("write", d.name, fs.ErrInvalid)
	}
	_, err := d.calls("write", func(device *C.extant_device) C.int64_t {
		return C.int64_t(C.extant_device_write(device, unsafe.Pointer(unsafe.SliceData(p)), C.size_t(len(p)), C.uint64_t(offset)))
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Sync makes what was written durable.
func (d *Device) Sync() error {
	_, err := d.calls("sync", func(device *C.extant_device) C.int64_t {
		return C.int64_t(C.extant_device_flush(device))
	})
	return err
}

// Open opens the file system on the device, which may be closed then. Of options, Format means
// nothing. Nothing keeps others from using the device meanwhile.
func (d *Device) Open(options *Options) (*FS, error) {
	inC, free := options.inC()
	defer free()
	var handle *C.extant_fs
	_, err := d.calls("open", func(device *C.extant_device) C.int64_t {
		return C.int64_t(C.extant_open_device(device, inC, &handle))
	})
	if err != nil {
		return nil, err
	}
	return newFS(handle), nil
}

// watched does long work, which ctx ends.
func (d *Device) watched(ctx context.Context, op string, do func(*C.extant_device, *C.struct_extant_watch) C.int) error {
	return d.with(op, func(device *C.extant_device) error {
		return watched(ctx, func(watch *C.struct_extant_watch) C.int { return do(device, watch) })
	})
}

// Format makes a file system on the device, as large as that, unless the settings say otherwise:
// see the function [Format].
func (d *Device) Format(ctx context.Context, settings ...string) error {
	list, free, err := settingsInC(settings)
	if err != nil {
		return pathError("format", d.name, err)
	}
	defer free()
	return d.watched(ctx, "format", func(device *C.extant_device, watch *C.struct_extant_watch) C.int {
		return C.extant_mkfs_device(device, list, watch)
	})
}

// Check checks the file system on the device: see the function [Check].
func (d *Device) Check(ctx context.Context) (*Report, error) {
	var found *C.extant_report
	err := d.watched(ctx, "check", func(device *C.extant_device, watch *C.struct_extant_watch) C.int {
		return C.extant_check(device, 0, watch, &found)
	})
	return taken(found), err
}

// Repair repairs the file system on the device: see the function [Repair].
func (d *Device) Repair(ctx context.Context, options RepairOptions) (*Report, error) {
	flags, undo, free, err := options.inC()
	if err != nil {
		return nil, pathError("repair", d.name, err)
	}
	defer free()
	var found *C.extant_report
	err = d.watched(ctx, "repair", func(device *C.extant_device, watch *C.struct_extant_watch) C.int {
		return C.extant_repair(device, flags, undo, watch, &found)
	})
	return taken(found), err
}

// Resize gives the file system another size in bytes, or with 0 as little as it can have, and tells
// what it has then. The device has to have the bytes already; what it has behind a smaller file
// system may be cut off afterwards.
func (d *Device) Resize(ctx context.Context, bytes int64) (int64, error) {
	if bytes < 0 {
		return 0, pathError("resize", d.name, fs.ErrInvalid)
	}
	var now C.uint64_t
	err := d.watched(ctx, "resize", func(device *C.extant_device, watch *C.struct_extant_watch) C.int {
		return C.extant_resize(device, C.uint64_t(bytes), watch, &now)
	})
	return int64(now), err
}

// Minimum tells the size in bytes that [Device.Resize] with 0 leads to, and changes nothing.
func (d *Device) Minimum(ctx context.Context) (int64, error) {
	var bytes C.uint64_t
	err := d.watched(ctx, "minimum", func(device *C.extant_device, watch *C.struct_extant_watch) C.int {
		return C.extant_minimum(device, watch, &bytes)
	})
	return int64(bytes), err
}

// Tune changes settings, all or none: "name=value" with the names of the long options of "extant
// tune", such as "label=data".
func (d *Device) Tune(ctx context.Context, settings ...string) error {
	list, free, err := settingsInC(settings)
	if err != nil {
		return pathError("tune", d.name, err)
	}
	defer free()
	return d.watched(ctx, "tune", func(device *C.extant_device, watch *C.struct_extant_watch) C.int {
		return C.extant_tune(device, list, watch)
	})
}

// Setting tells what a setting is, such as "label", "uuid" or "features": extant(3) lists them.
func (d *Device) Setting(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", pathError("setting", d.name, fs.ErrInvalid)
	}
	inC := C.CString(name)
	defer C.free(unsafe.Pointer(inC))
	buffer := make([]byte, 4096)
	length, err := d.calls("setting", func(device *C.extant_device) C.int64_t {
		return C.extant_setting(device, inC, unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)))
	})
	return string(buffer[:length]), err
}

package extant

/*
#include <extant.h>
*/
import "C"

import (
	"errors"
	"io"
	"runtime/cgo"
	"syscall"
	"unsafe"
)

// callbacks are what a device of Go is made of.
type callbacks struct {
	reader io.ReaderAt
	writer io.WriterAt // nil for reading only
	syncer interface{ Sync() error }
}

// number gives what C is told of an error.
func number(err error) C.int {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno > 0 && errno < 4096 {
		return -C.int(errno)
	}
	return -C.int(syscall.EIO)
}

// guarded does what C asks for. A panic must not leave through C, which has locks: it is a failure
// of the device.
func guarded(user C.uintptr_t, do func(*callbacks) error) (result C.int) {
	defer func() {
		if recover() != nil {
			result = -C.int(syscall.EIO)
		}
	}()
	return number(do(cgo.Handle(user).Value().(*callbacks)))
}

func bytesOf(buffer unsafe.Pointer, length C.size_t) []byte {
	return unsafe.Slice((*byte)(buffer), int(length))
}

//export extantGoRead
func extantGoRead(user C.uintptr_t, buffer unsafe.Pointer, length C.size_t, offset C.uint64_t) C.int {
	return guarded(user, func(c *callbacks) error {
		n, err := c.reader.ReadAt(bytesOf(buffer, length), int64(offset))
		if n == int(length) {
			// At the end of the content there may be io.EOF beside all of it.
			return nil
		}
		if err == nil || err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return err
	})
}

//export extantGoWrite
func extantGoWrite(user C.uintptr_t, buffer unsafe.Pointer, length C.size_t, offset C.uint64_t) C.int {
	return guarded(user, func(c *callbacks) error {
		n, err := c.writer.WriteAt(bytesOf(buffer, length), int64(offset))
		if err == nil && n != int(length) {
			return io.ErrShortWrite
		}
		return err
	})
}

//export extantGoSync
func extantGoSync(user C.uintptr_t) C.int {
	return guarded(user, func(c *callbacks) error { return c.syncer.Sync() })
}

//export extantGoRelease
func extantGoRelease(user C.uintptr_t) {
	cgo.Handle(user).Delete()
}

//export extantGoFiles
func extantGoFiles(user C.uintptr_t, files *C.struct_extant_stat, count C.size_t) C.int {
	told := unsafe.Slice(files, int(count))
	all := make([]Stat, len(told))
	for i := range told {
		all[i] = statOf(&told[i])
	}
	if cgo.Handle(user).Value().(*visitor).tell(all) {
		return 0
	}
	return 1
}

package extant

/*
#cgo pkg-config: extant-static
#include <extant.h>
*/
import "C"

import (
	"errors"
	"io/fs"
	"runtime"
	"syscall"
)

// Kind says what kind of failure an [Error] is.
type Kind uint32

// Kinds of failures, as extant.h has them.
const (
	KindMisuse      Kind = C.EXTANT_ERROR_MISUSE
	KindFile        Kind = C.EXTANT_ERROR_FILE
	KindNotExt4     Kind = C.EXTANT_ERROR_NOT_EXT4
	KindDamaged     Kind = C.EXTANT_ERROR_DAMAGED
	KindDevice      Kind = C.EXTANT_ERROR_DEVICE
	KindUnsupported Kind = C.EXTANT_ERROR_UNSUPPORTED
	KindRefused     Kind = C.EXTANT_ERROR_REFUSED
	KindCancelled   Kind = C.EXTANT_ERROR_CANCELLED
	KindInternal    Kind = C.EXTANT_ERROR_INTERNAL
)

var (
	// ErrNotExt4 is what [errors.Is] finds where there is no ext2, ext3 or ext4.
	ErrNotExt4 = errors.New("no ext4 file system")
	// ErrDamaged is what [errors.Is] finds where there is one that is damaged.
	ErrDamaged = errors.New("damaged file system")
)

// Error is a call that failed. [errors.Is] finds the errors of io/fs and system error numbers in
// it: io/fs.ErrNotExist, syscall.ENOSPC.
type Error struct {
	// Errno is the Linux error number.
	Errno syscall.Errno
	// Kind is the kind of failure.
	Kind Kind
	// Message is a sentence that names what the call was about.
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Errno.Error()
	}
	return e.Message
}

// Is reports whether the error is a target, which may be an error of io/fs.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotExt4:
		return e.Kind == KindNotExt4
	case ErrDamaged:
		return e.Kind == KindDamaged
	case fs.ErrInvalid:
		return e.Errno == syscall.EINVAL
	}
	if errno, ok := target.(syscall.Errno); ok {
		return e.Errno == errno
	}
	return e.Errno.Is(target)
}

// Unwrap gives the error number, which [errors.As] finds, too.
func (e *Error) Unwrap() error { return e.Errno }

// call does what C does, and takes over what is said of a failure: that is kept for the thread.
func call(do func() C.int64_t) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	result := int64(do())
	if result >= 0 {
		return result, nil
	}
	return 0, &Error{
		Errno:   syscall.Errno(-result),
		Kind:    Kind(C.extant_error_kind()),
		Message: C.GoString(C.extant_message()),
	}
}

// pathError says which operation failed on which name. An error that says so already is left.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if said, ok := err.(*fs.PathError); ok {
		return said
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

package extant

/*
#include <stdlib.h>
#include <extant.h>
*/
import "C"

import (
	"errors"
	"io/fs"
	"math"
	"path"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// change calls C with a name, where there is nothing to give back.
func (f *FS) change(op, name string, do func(*C.extant_fs, *C.char) C.int) error {
	_, err := f.on(op, name, func(fs *C.extant_fs, name *C.char) C.int64_t {
		return C.int64_t(do(fs, name))
	})
	return err
}

// Mkdir makes a directory.
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	return f.change("mkdir", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_mkdir(fs, name, bitsOf(perm))
	})
}

// MkdirAll makes a directory and those above it that are not there.
func (f *FS) MkdirAll(name string, perm fs.FileMode) error {
	if info, err := f.Stat(name); err == nil {
		if info.IsDir() {
			return nil
		}
		return pathError("mkdir", name, syscall.ENOTDIR)
	}
	if above := path.Dir(name); above != "." {
		if err := f.MkdirAll(above, perm); err != nil {
			return err
		}
	}
	err := f.Mkdir(name, perm)
	if errors.Is(err, fs.ErrExist) {
		// Another goroutine was quicker.
		if info, again := f.Stat(name); again == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// Remove removes a name of a file, or an empty directory.
func (f *FS) Remove(name string) error {
	err := f.change("remove", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_unlink(fs, name)
	})
	if isErrno(err, syscall.EISDIR) || isErrno(err, syscall.EPERM) {
		return f.change("remove", name, func(fs *C.extant_fs, name *C.char) C.int {
			return C.extant_rmdir(fs, name)
		})
	}
	return err
}

// RemoveAll removes a name and everything below it. It is no error if there is none.
func (f *FS) RemoveAll(name string) error {
	info, err := f.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := f.ReadDir(name)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := f.RemoveAll(path.Join(name, entry.Name())); err != nil {
				return err
			}
		}
	}
	err = f.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// two calls C with two names.
func (f *FS) two(op, from, to string, do func(*C.extant_fs, *C.char, *C.char) C.int) error {
	second, err := inside(to)
	if err != nil {
		return pathError(op, to, err)
	}
	defer C.free(unsafe.Pointer(second))
	return f.change(op, from, func(fs *C.extant_fs, first *C.char) C.int {
		return do(fs, first, second)
	})
}

// Rename gives a file another name; what has that name already is replaced.
func (f *FS) Rename(from, to string) error {
	return f.two("rename", from, to, func(fs *C.extant_fs, from, to *C.char) C.int {
		return C.extant_rename(fs, from, to, 0)
	})
}

// Link gives a file one more name.
func (f *FS) Link(file, link string) error {
	return f.two("link", file, link, func(fs *C.extant_fs, file, link *C.char) C.int {
		return C.extant_link(fs, file, link)
	})
}

// Symlink makes a symbolic link. The target may be anything.
func (f *FS) Symlink(target, link string) error {
	if strings.ContainsRune(target, 0) {
		return pathError("symlink", link, fs.ErrInvalid)
	}
	inC := C.CString(target)
	defer C.free(unsafe.Pointer(inC))
	return f.change("symlink", link, func(fs *C.extant_fs, link *C.char) C.int {
		return C.extant_symlink(fs, inC, link)
	})
}

// Chmod changes permissions.
func (f *FS) Chmod(name string, mode fs.FileMode) error {
	return f.change("chmod", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_chmod(fs, name, bitsOf(mode))
	})
}

// Lchown changes owner and group, also of a symbolic link itself; -1 leaves one as it is.
func (f *FS) Lchown(name string, uid, gid int) error {
	for _, id := range []int{uid, gid} {
		// In C they have 32 bits.
		if id < -1 || int64(id) > math.MaxUint32 {
			return pathError("lchown", name, fs.ErrInvalid)
		}
	}
	return f.change("lchown", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_lchown(fs, name, C.uint32_t(uint32(uid)), C.uint32_t(uint32(gid)))
	})
}

// Chown changes owner and group; -1 leaves one as it is. A symbolic link at the end is followed.
func (f *FS) Chown(name string, uid, gid int) error {
	target, err := f.withoutLinks(name)
	if err != nil {
		return pathError("chown", name, err)
	}
	return renamed(f.Lchown(target, uid, gid), "chown")
}

// withoutLinks gives the name that a file has when every symbolic link on the way to it, and itself,
// is followed. What is not there stays as it is.
func (f *FS) withoutLinks(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", fs.ErrInvalid
	}
	const most = 40
	at, links := ".", 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			// No part of at is a link, and above the root is the root.
			at = path.Dir(at)
			continue
		}
		target, err := f.ReadLink(path.Join(at, next))
		if err != nil {
			at = path.Join(at, next)
			continue
		}
		if links++; links > most {
			return "", syscall.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			at = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// Chtimes changes the times of last access and of last change of the content, also of a symbolic
// link itself. A zero time is left as it is.
func (f *FS) Chtimes(name string, atime, mtime time.Time) error {
	var times [2]C.struct_extant_time
	for i, t := range []time.Time{atime, mtime} {
		if t.IsZero() {
			times[i].nanoseconds = C.EXTANT_OMIT
			continue
		}
		times[i].seconds = C.int64_t(t.Unix())
		times[i].nanoseconds = C.uint32_t(t.Nanosecond())
	}
	return f.change("chtimes", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_lutimens(fs, name, &times[0])
	})
}

// Truncate gives a file another size.
func (f *FS) Truncate(name string, size int64) error {
	if size < 0 {
		return pathError("truncate", name, fs.ErrInvalid)
	}
	return f.change("truncate", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_truncate(fs, name, C.uint64_t(size))
	})
}

// WriteFile writes a file, which is made or truncated first.
func (f *FS) WriteFile(name string, data []byte, perm fs.FileMode) error {
	file, err := f.OpenFile(name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// attribute gives the name of an attribute as C has it, which the caller frees.
func attribute(op, name, attribute string) (*C.char, error) {
	if strings.ContainsRune(attribute, 0) {
		return nil, pathError(op, name, fs.ErrInvalid)
	}
	return C.CString(attribute), nil
}

// Getxattr gives an extended attribute, by its full name ("user.origin"). A symbolic link at the
// end is not followed. Where there is none, errors.Is finds syscall.ENODATA.
func (f *FS) Getxattr(name, attr string) ([]byte, error) {
	inC, err := attribute("getxattr", name, attr)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(inC))
	return f.answer("getxattr", name, func(fs *C.extant_fs, name *C.char, to unsafe.Pointer, size C.size_t) C.int64_t {
		return C.extant_lgetxattr(fs, name, inC, to, size)
	})
}

// Setxattr sets an extended attribute.
func (f *FS) Setxattr(name, attr string, value []byte) error {
	inC, err := attribute("setxattr", name, attr)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(inC))
	return f.change("setxattr", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_lsetxattr(fs, name, inC, unsafe.Pointer(unsafe.SliceData(value)), C.size_t(len(value)), 0)
	})
}

// Removexattr removes an extended attribute.
func (f *FS) Removexattr(name, attr string) error {
	inC, err := attribute("removexattr", name, attr)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(inC))
	return f.change("removexattr", name, func(fs *C.extant_fs, name *C.char) C.int {
		return C.extant_lremovexattr(fs, name, inC)
	})
}

// Listxattr gives the names of extended attributes.
func (f *FS) Listxattr(name string) ([]string, error) {
	all, err := f.answer("listxattr", name, func(fs *C.extant_fs, name *C.char, to unsafe.Pointer, size C.size_t) C.int64_t {
		return C.extant_llistxattr(fs, name, to, size)
	})
	if len(all) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(all), "\x00"), "\x00"), err
}

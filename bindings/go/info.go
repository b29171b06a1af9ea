package extant

/*
#include <extant.h>
*/
import "C"

import (
	"errors"
	"io/fs"
	"syscall"
	"time"
)

// Stat is what is known about a file: what [io/fs.FileInfo.Sys] gives, by pointer.
type Stat struct {
	Ino, Size  uint64
	Blocks     uint64 // of 512 bytes
	Mode       uint32 // as st_mode
	Nlink      uint32
	UID, GID   uint32
	Rdev       [2]uint32
	Flags      uint32 // as FS_IOC_GETFLAGS
	Generation uint32

	Atime, Mtime, Ctime time.Time
	Btime               time.Time // zero when the image does not say
}

type info struct {
	name string
	stat Stat
}

func infoOf(name string, s *C.struct_extant_stat) *info {
	return &info{name, statOf(s)}
}

func statOf(s *C.struct_extant_stat) Stat {
	stat := Stat{
		Ino:        uint64(s.ino),
		Size:       uint64(s.size),
		Blocks:     uint64(s.blocks),
		Mode:       uint32(s.mode),
		Nlink:      uint32(s.nlink),
		UID:        uint32(s.uid),
		GID:        uint32(s.gid),
		Rdev:       [2]uint32{uint32(s.rdev_major), uint32(s.rdev_minor)},
		Flags:      uint32(s.flags),
		Generation: uint32(s.generation),
		Atime:      timeOf(s.atime),
		Mtime:      timeOf(s.mtime),
		Ctime:      timeOf(s.ctime),
	}
	if s.btime.seconds != 0 || s.btime.nanoseconds != 0 {
		stat.Btime = timeOf(s.btime)
	}
	return stat
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return int64(i.stat.Size) }
func (i *info) Mode() fs.FileMode  { return modeOf(i.stat.Mode) }
func (i *info) ModTime() time.Time { return i.stat.Mtime }
func (i *info) IsDir() bool        { return i.Mode().IsDir() }
func (i *info) Sys() any           { return &i.stat }

// typeOf gives the type bits of a mode as io/fs has them.
func typeOf(mode uint32) fs.FileMode {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return fs.ModeDir
	case syscall.S_IFLNK:
		return fs.ModeSymlink
	case syscall.S_IFIFO:
		return fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		return fs.ModeSocket
	case syscall.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case syscall.S_IFBLK:
		return fs.ModeDevice
	case syscall.S_IFREG:
		return 0
	}
	return fs.ModeIrregular
}

func modeOf(mode uint32) fs.FileMode {
	all := typeOf(mode) | fs.FileMode(mode&0o777)
	for bit, in := range map[uint32]fs.FileMode{
		syscall.S_ISUID: fs.ModeSetuid,
		syscall.S_ISGID: fs.ModeSetgid,
		syscall.S_ISVTX: fs.ModeSticky,
	} {
		if mode&bit != 0 {
			all |= in
		}
	}
	return all
}

// bitsOf gives permissions as the image has them.
func bitsOf(mode fs.FileMode) C.uint32_t {
	bits := uint32(mode.Perm())
	for in, bit := range map[fs.FileMode]uint32{
		fs.ModeSetuid: syscall.S_ISUID,
		fs.ModeSetgid: syscall.S_ISGID,
		fs.ModeSticky: syscall.S_ISVTX,
	} {
		if mode&in != 0 {
			bits |= bit
		}
	}
	return C.uint32_t(bits)
}

// isErrno reports whether an error is one of this library with that number.
func isErrno(err error, errno syscall.Errno) bool {
	var found *Error
	return errors.As(err, &found) && found.Errno == errno
}

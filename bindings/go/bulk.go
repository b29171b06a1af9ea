package extant

/*
#include <string.h>
#include <extant.h>

extern int extantGoFiles(uintptr_t user, struct extant_stat *files, size_t count);

static int go_files(void *user, const struct extant_stat *files, size_t count)
{
	return extantGoFiles(*(uintptr_t *)user, (struct extant_stat *)files, count);
}

static int64_t extant_go_bulkstat(const extant_fs *fs, uintptr_t handle, uint32_t threads)
{
	struct extant_bulkstat how;

	memset(&how, 0, sizeof how);
	how.size = sizeof how;
	how.files = go_files;
	how.user = &handle;
	how.threads = threads;
	return extant_bulkstat(fs, &how);
}
*/
import "C"

import (
	"io/fs"
	"math"
	"runtime/cgo"
	"sync"
)

// visitor is what is told about files, and why that ended.
type visitor struct {
	visit func([]Stat) error
	mu    sync.Mutex // guards what follows
	err   error
	panic any
}

// tell passes files on, and reports whether to go on.
func (v *visitor) tell(files []Stat) (goesOn bool) {
	defer func() {
		if found := recover(); found != nil {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.panic = found
		}
	}()
	err := v.visit(files)
	if err != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.err == nil {
			v.err = err
		}
	}
	return err == nil
}

// Bulkstat tells visit about every file, whatever its names are, and about the file system's own,
// such as its journal, many at a time and in no particular order: much faster than a walk. It is
// called from several threads at once, as many as are asked for, or with 0 as many as there are
// processors. An error that it returns ends the work, and is returned. Bulkstat returns how many
// files there were. If one cannot be read, that is the error, once all others are told.
func (f *FS) Bulkstat(threads int, visit func(files []Stat) error) (int64, error) {
	if threads < 0 || threads > math.MaxUint16 || visit == nil {
		return 0, pathError("bulkstat", ".", fs.ErrInvalid)
	}
	v := &visitor{visit: visit}
	handle := cgo.NewHandle(v)
	defer handle.Delete()
	count, err := f.with(func(fs *C.extant_fs) C.int64_t {
		return C.extant_go_bulkstat(fs, C.uintptr_t(handle), C.uint32_t(threads))
	})
	if v.panic != nil {
		panic(v.panic)
	}
	if v.err != nil {
		return 0, v.err
	}
	return count, pathError("bulkstat", ".", err)
}

package extant

/*
#include <stdlib.h>
#include <extant.h>
*/
import "C"

import (
	"context"
	"io/fs"
	"strings"
	"unsafe"
)

// Severity says how bad a [Finding] is.
type Severity uint32

// How bad a finding is.
const (
	Warning       Severity = C.EXTANT_WARNING // worth knowing
	Inconsistency Severity = C.EXTANT_ERROR   // the file system is not consistent
	Fatal         Severity = C.EXTANT_FATAL   // and parts of it were not checked for that reason
)

// Finding is what a check found, or a repair mended or would lose.
type Finding struct {
	Code     string // stable, such as "inode-checksum"
	Text     string // a line for people
	Severity Severity
	Inode    uint64 // 0 for none
}

// Report is what a check or a repair came to.
type Report struct {
	Findings []Finding // what was found, or is left
	Fixes    []Finding
	Losses   []Finding
	Clean    bool // nothing is worse than a warning, or will be once the repair is written
	Written  bool // whether a repair was written

	Inodes, Directories, Blocks uint64
}

// RepairOptions say how to repair. The zero value writes, and loses nothing.
type RepairOptions struct {
	DryRun         bool
	AllowLoss      bool
	DiscardJournal bool
	// Undo names a new file that keeps what was there; empty for none.
	Undo string
}

// Format makes a file system in an image that comes into being, or is replaced, when it is
// complete. Settings are "name=value" with the names of the long options of "extant mkfs":
// "size=1G", "label=data", "from=tree". What is there and was not made so is kept, unless
// "force=yes" is among them. ctx ends the work.
func Format(ctx context.Context, image string, settings ...string) error {
	if strings.ContainsRune(image, 0) {
		return pathError("format", image, fs.ErrInvalid)
	}
	name := C.CString(image)
	defer C.free(unsafe.Pointer(name))
	list, free, err := settingsInC(settings)
	if err != nil {
		return pathError("format", image, err)
	}
	defer free()
	return pathError("format", image, watched(ctx, func(watch *C.struct_extant_watch) C.int {
		return C.extant_mkfs(name, list, watch)
	}))
}

// settingsInC gives settings as C has them, and what frees them.
func settingsInC(settings []string) (**C.char, func(), error) {
	for _, text := range settings {
		if strings.ContainsRune(text, 0) {
			return nil, nil, fs.ErrInvalid
		}
	}
	// Of C's memory: it holds pointers to such. NULL is behind the last.
	first := (**C.char)(C.calloc(C.size_t(len(settings)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	list := unsafe.Slice(first, len(settings))
	for i, text := range settings {
		list[i] = C.CString(text)
	}
	return first, func() {
		for _, text := range list {
			C.free(unsafe.Pointer(text))
		}
		C.free(unsafe.Pointer(first))
	}, nil
}

// Check checks the file system in an image, which is only read. What is found is in the report.
// ctx ends the work.
func Check(ctx context.Context, image string) (report *Report, err error) {
	err = onDevice("check", image, false, func(device *Device) (err error) {
		report, err = device.Check(ctx)
		return err
	})
	return report, err
}

// inC gives options as C has them, and what frees them.
func (o RepairOptions) inC() (C.uint32_t, *C.char, func(), error) {
	var flags C.uint32_t
	for flag, on := range map[C.uint32_t]bool{
		C.EXTANT_REPAIR_DRY_RUN:         o.DryRun,
		C.EXTANT_REPAIR_ALLOW_LOSS:      o.AllowLoss,
		C.EXTANT_REPAIR_DISCARD_JOURNAL: o.DiscardJournal,
	} {
		if on {
			flags |= flag
		}
	}
	if strings.ContainsRune(o.Undo, 0) {
		return 0, nil, nil, fs.ErrInvalid
	}
	if o.Undo == "" {
		return flags, nil, func() {}, nil
	}
	undo := C.CString(o.Undo)
	return flags, undo, func() { C.free(unsafe.Pointer(undo)) }, nil
}

// Repair repairs the file system in an image. ctx ends the work until it writes.
func Repair(ctx context.Context, image string, options RepairOptions) (report *Report, err error) {
	err = onDevice("repair", image, !options.DryRun, func(device *Device) (err error) {
		report, err = device.Repair(ctx, options)
		return err
	})
	return report, err
}

// Resize gives the file system in an image another size in bytes, or with 0 as little as it can
// have, and tells what it has then. The image has to have the bytes already ([os.Truncate]); what
// it has behind a smaller file system may be cut off afterwards. ctx ends the work until it writes.
func Resize(ctx context.Context, image string, bytes int64) (now int64, err error) {
	err = onDevice("resize", image, true, func(device *Device) (err error) {
		now, err = device.Resize(ctx, bytes)
		return err
	})
	return now, err
}

// Tune changes settings of the file system in an image, all or none: "name=value" with the names of
// the long options of "extant tune", such as "label=data". ctx ends the work until it writes.
func Tune(ctx context.Context, image string, settings ...string) error {
	return onDevice("tune", image, true, func(device *Device) error { return device.Tune(ctx, settings...) })
}

// onDevice opens an image as a device.
func onDevice(op, image string, writes bool, do func(*Device) error) error {
	device, err := OpenDevice(image, &Options{Writable: writes})
	if err != nil {
		return renamed(err, op)
	}
	err = do(device)
	device.Close()
	return err
}

// watched does work that ctx ends. The error of work that was ended is that of ctx.
func watched(ctx context.Context, do func(*C.struct_extant_watch) C.int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var token *C.extant_token
	_, err := call(func() C.int64_t { return C.int64_t(C.extant_token_new(&token)) })
	if err != nil {
		return err
	}
	// Of C's memory: it holds a pointer to such.
	watch := (*C.struct_extant_watch)(C.calloc(1, C.sizeof_struct_extant_watch))
	watch.size = C.sizeof_struct_extant_watch
	watch.token = token
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		C.extant_token_cancel(token)
		close(done)
	})
	_, err = call(func() C.int64_t { return C.int64_t(do(watch)) })
	if !stop() {
		// It has begun: the token is in use until it ends.
		<-done
	}
	C.extant_token_close(token)
	C.free(unsafe.Pointer(watch))
	if err != nil && ctx.Err() != nil {
		if found, ok := err.(*Error); ok && found.Kind == KindCancelled {
			return ctx.Err()
		}
	}
	return err
}

// taken takes a report over.
func taken(found *C.extant_report) *Report {
	if found == nil {
		return nil
	}
	defer C.extant_report_close(found)
	summary := C.extant_report_summary(found)
	return &Report{
		Findings:    listed(found, C.EXTANT_FINDINGS),
		Fixes:       listed(found, C.EXTANT_FIXES),
		Losses:      listed(found, C.EXTANT_LOSSES),
		Clean:       summary.clean != 0,
		Written:     summary.written != 0,
		Inodes:      uint64(summary.inodes),
		Directories: uint64(summary.directories),
		Blocks:      uint64(summary.blocks),
	}
}

func listed(report *C.extant_report, list C.uint32_t) []Finding {
	var all []Finding
	for i := 0; ; i++ {
		found := C.extant_report_entry(report, list, C.size_t(i))
		if found == nil {
			return all
		}
		all = append(all, Finding{
			Code:     C.GoString(found.code),
			Text:     C.GoString(found.text),
			Severity: Severity(found.severity),
			Inode:    uint64(found.inode),
		})
	}
}

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
	for _, text := range append(settings, image) {
		if strings.ContainsRune(text, 0) {
			return pathError("format", image, fs.ErrInvalid)
		}
	}
	name := C.CString(image)
	defer C.free(unsafe.Pointer(name))
	size := C.size_t(unsafe.Sizeof(name))
	list := (*[1 << 16]*C.char)(C.calloc(C.size_t(len(settings)+1), size))
	defer C.free(unsafe.Pointer(list))
	if len(settings) >= len(list) {
		return pathError("format", image, fs.ErrInvalid)
	}
	for i, text := range settings {
		list[i] = C.CString(text)
		defer C.free(unsafe.Pointer(list[i]))
	}
	return pathError("format", image, watched(ctx, func(watch *C.struct_extant_watch) C.int {
		return C.extant_mkfs(name, &list[0], watch)
	}))
}

// Check checks the file system in an image, which is only read. What is found is in the report.
// ctx ends the work.
func Check(ctx context.Context, image string) (*Report, error) {
	var report *Report
	err := onDevice(image, false, func(device *C.extant_device) error {
		var found *C.extant_report
		err := watched(ctx, func(watch *C.struct_extant_watch) C.int {
			return C.extant_check(device, 0, watch, &found)
		})
		report = taken(found)
		return err
	})
	return report, pathError("check", image, err)
}

// Repair repairs the file system in an image. ctx ends the work until it writes.
func Repair(ctx context.Context, image string, options RepairOptions) (*Report, error) {
	var flags C.uint32_t
	for flag, on := range map[C.uint32_t]bool{
		C.EXTANT_REPAIR_DRY_RUN:         options.DryRun,
		C.EXTANT_REPAIR_ALLOW_LOSS:      options.AllowLoss,
		C.EXTANT_REPAIR_DISCARD_JOURNAL: options.DiscardJournal,
	} {
		if on {
			flags |= flag
		}
	}
	if strings.ContainsRune(options.Undo, 0) {
		return nil, pathError("repair", options.Undo, fs.ErrInvalid)
	}
	var undo *C.char
	if options.Undo != "" {
		undo = C.CString(options.Undo)
		defer C.free(unsafe.Pointer(undo))
	}
	var report *Report
	err := onDevice(image, !options.DryRun, func(device *C.extant_device) error {
		var found *C.extant_report
		err := watched(ctx, func(watch *C.struct_extant_watch) C.int {
			return C.extant_repair(device, flags, undo, watch, &found)
		})
		report = taken(found)
		return err
	})
	return report, pathError("repair", image, err)
}

// onDevice opens an image as a device.
func onDevice(image string, writes bool, do func(*C.extant_device) error) error {
	if strings.ContainsRune(image, 0) {
		return fs.ErrInvalid
	}
	name := C.CString(image)
	defer C.free(unsafe.Pointer(name))
	options, free := (&Options{Writable: writes}).inC()
	defer free()
	var device *C.extant_device
	_, err := call(func() C.int64_t { return C.int64_t(C.extant_device_open(name, options, &device)) })
	if err != nil {
		return err
	}
	defer C.extant_device_close(device)
	return do(device)
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

// Package extant reads, changes, makes and checks ext2, ext3 and ext4 images without a mount.
//
// An [FS] is an [io/fs.FS] with everything that goes with it, so it can be given to whatever takes
// one: [io/fs.WalkDir], net/http.FileServerFS, text/template.ParseFS. Opened with
// [Options.Writable] it changes the image too, through its journal.
//
// Names are those of io/fs: without a slash at either end, "." for the root, links followed inside
// the image only.
//
// Everything may be used from any number of goroutines. What is used after it was closed gives
// [io/fs.ErrClosed]. What is not closed is closed when it is no longer reachable.
//
// It stands on the C interface of Extant (extant.h), which pkg-config finds as extant-static.
package extant

package extant_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"os"

	extant "github.com/extant-fs/extant/bindings/go"
)

func Example() {
	dir, err := os.MkdirTemp("", "extant")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	must(os.Chdir(dir))
	must(extant.Format(context.Background(), "disk.img", "size=8M"))

	image, err := extant.Open("disk.img", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer image.Close()
	err = fs.WalkDir(image, ".", func(path string, entry fs.DirEntry, err error) error {
		fmt.Println(path)
		return err
	})

	must(err)
	// Output:
	// .
	// lost+found
}

// The lines of the README of the project.
func Example_readFile() {
	dir, err := os.MkdirTemp("", "extant")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	must(os.Chdir(dir))
	must(extant.Format(context.Background(), "rootfs.img", "size=8M"))
	made, err := extant.Open("rootfs.img", &extant.Options{Writable: true})
	must(err)
	must(made.Mkdir("etc", 0o755))
	must(made.WriteFile("etc/hostname", []byte("box\n"), 0o644))
	must(made.Close())

	image, err := extant.Open("rootfs.img", nil)
	if err != nil {
		log.Fatal(err)
	}
	text, err := fs.ReadFile(image, "etc/hostname")

	must(err)
	must(image.Close())
	fmt.Print(string(text))
	// Output:
	// box
}

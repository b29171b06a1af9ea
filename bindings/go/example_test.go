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

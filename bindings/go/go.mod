module github.com/extant-fs/extant/bindings/go

go 1.25

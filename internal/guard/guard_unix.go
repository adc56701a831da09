//go:build unix

package guard

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func pages(t testing.TB, n int, side Side) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	for _, p := range [][]byte{all[:page], all[page+size:]} {
		if err := unix.Mprotect(p, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	from := page
	if side == End {
		from = page + size - n
	}
	return all[from : from+n : from+n]
}

package quant

import (
	"fmt"
	"unsafe"
)

// A region is memory, and what it is called in errors.
type region struct {
	name   string
	memory []byte
}

// checkApart reports what of the memory of a tensor that is to be filled is that of x, or
// would be filled twice: by itself, or by another tensor, where that is not nil.
func checkApart(x source, into, other *Tensor) error {
	rows, _ := x.shape()
	all := [...]region{
		{"the matrix", x.bytes(0, rows)},
		{"its codes", into.Codes}, {"its scales", into.Scales}, {"its scales", asBytes(into.Scales32)},
		{"the codes of the other copy", nil}, {"the scales of the other copy", nil}, {"the scales of the other copy", nil},
	}
	const its, others = 1, 4
	if other != nil {
		all[others].memory, all[others+1].memory, all[others+2].memory = other.Codes, other.Scales, asBytes(other.Scales32)
	}
	for i := its; i < others; i++ {
		for j := range all {
			if j != i && all[i].meets(all[j].memory) {
				return fmt.Errorf("With.Into: %s share memory with %s", all[i].name, all[j].name)
			}
		}
	}
	return nil
}

func (r *region) meets(other []byte) bool {
	if len(r.memory) == 0 || len(other) == 0 {
		return false
	}
	at, from := uintptr(unsafe.Pointer(&r.memory[0])), uintptr(unsafe.Pointer(&other[0]))
	return at < from+uintptr(len(other)) && from < at+uintptr(len(r.memory))
}

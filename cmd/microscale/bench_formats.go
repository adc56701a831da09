package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

// formatList is the value of --formats: block formats with scales, each once.
type formatList struct {
	formats []quant.Format
	text    string
}

// newFormatList returns a list with default formats.
func newFormatList(formats ...quant.Format) *formatList {
	return &formatList{formats, strings.Join(flags.Names(formats), ",")}
}

func (l *formatList) String() string { return l.text }

func (l *formatList) Type() string { return "names" }

func (l *formatList) Set(s string) error {
	var formats []quant.Format
	for _, name := range strings.Split(s, ",") {
		f, err := quant.Lookup(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		if !f.Scaled() {
			return fmt.Errorf("%s has no scales: omit it", f)
		}
		if slices.ContainsFunc(formats, func(o quant.Format) bool { return o.Name == f.Name }) {
			return fmt.Errorf("%s is named twice: omit one", f)
		}
		formats = append(formats, f)
	}
	l.formats, l.text = formats, s
	return nil
}

// sweepSizes returns the powers of two from 256 to the largest size, or to 16384 if large is
// set.
func sweepSizes(largest int, large bool) ([]int, error) {
	const smallest, limit, beyond = 256, 8192, 16384
	if largest < smallest || largest > limit || largest&(largest-1) != 0 {
		return nil, show.Misuse("--largest %d: give a power of two from %d to %d, and --large for %d", largest, smallest, limit, beyond)
	}
	if large {
		largest = beyond
	}
	var sizes []int
	for n := smallest; n <= largest; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes, nil
}

package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// A Size is the value of a flag of bytes, such as 4GiB or 800MB.
type Size int64

// sizeUnits are the suffixes of a Size, the longer ones first.
var sizeUnits = []struct {
	suffix string
	bytes  float64
}{{"tib", 1 << 40}, {"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10}, {"tb", 1e12}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3}, {"b", 1}}

// AddMemory adds --memory to cmd.
func AddMemory(cmd *cobra.Command) *Size {
	var s Size
	cmd.Flags().Var(&s, "memory", "fail before the work if the forecast of its memory is more than `SIZE`, such as 4GiB or 800MB")
	return &s
}

func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type returns the placeholder of the value in the help.
func (s *Size) Type() string { return "SIZE" }

// Set reads a number with a unit, or of bytes.
func (s *Size) Set(text string) error {
	number, unit := strings.ToLower(strings.TrimSpace(text)), 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n*unit >= 1 && n*unit < math.MaxInt64) {
		return fmt.Errorf("%q is not a size: give a number with a unit, such as 4GiB or 800MB", text)
	}
	*s = Size(n * unit)
	return nil
}

package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
)

// A SplitFlag is the value of --split-max-size; 0 without the flag.
type SplitFlag int64

// splitUnits are the units of gguf-split.
var splitUnits = map[string]int64{"M": 1e6, "G": 1e9}

func (s *SplitFlag) String() string {
	if *s == 0 {
		return ""
	}
	return fmt.Sprintf("%dM", int64(*s)/splitUnits["M"])
}

// Type returns the placeholder of the value in the help.
func (s *SplitFlag) Type() string { return "SIZE" }

// Set parses a number and a unit.
func (s *SplitFlag) Set(text string) error {
	unit := text[max(0, len(text)-1):]
	n, err := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64)
	if err != nil || n < 1 || splitUnits[unit] == 0 || n > math.MaxInt64/splitUnits[unit] {
		return fmt.Errorf("got %q, want a size in megabytes or gigabytes, such as 500M or 2G", text)
	}
	*s = SplitFlag(n * splitUnits[unit])
	return nil
}

// AddSplit adds --split-max-size to cmd.
func AddSplit(cmd *cobra.Command) *SplitFlag {
	s := new(SplitFlag)
	cmd.Flags().Var(s, "split-max-size", "write a GGUF model as model-00001-of-0000N.gguf and so on in directory DST, with at most `SIZE` "+
		"of tensors in a file (500M, 2G, as gguf-split of llama.cpp counts); a larger tensor is alone in its file")
	return s
}

// Plan returns the plan of several files, or p without --split-max-size.
func (s *SplitFlag) Plan(p *convert.Plan) (*convert.Plan, error) {
	if s == nil || *s == 0 {
		return p, nil
	}
	return p.Split(int64(*s))
}

package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
)

// remedies are the flags that help with an error of package convert, which names no flags.
var remedies = []struct {
	cause error
	text  string
}{
	{fs.ErrExist, "--force replaces a checkpoint"},
	{convert.ErrNonFinite, "--allow-nonfinite quantizes it anyway"},
	{convert.ErrInexact, "--inexact requantize rounds these blocks, and leaves all others exact"},
	{convert.ErrQuantized, "--requantize quantizes the values that its clients decode"},
	{convert.ErrUnfinished, "--shard I/N runs a worker, --resume continues it"},
}

// Remedied adds the flag that helps to the errors of a command that converts, unless they name it.
func Remedied(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := work(cmd, args)
		for _, r := range remedies {
			if flag, _, _ := strings.Cut(r.text, " "); errors.Is(err, r.cause) && !strings.Contains(err.Error(), flag) {
				return fmt.Errorf("%w; %s", err, r.text)
			}
		}
		return err
	}
}

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/train"
)

// CommandLine writes the command with the flags that were given.
func CommandLine(cmd *cobra.Command) string {
	line := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			switch {
			case f.Value.Type() == "bool":
				line = append(line, fmt.Sprintf("--%s=%s", f.Name, v))
			case strings.ContainsAny(v, " \t\"'\\$*?"):
				line = append(line, fmt.Sprintf("--%s %q", f.Name, v))
			default:
				line = append(line, fmt.Sprintf("--%s %s", f.Name, v))
			}
		}
	})
	return strings.Join(line, " ")
}

// own are the flags of a command line that the next one of the same run need not
// agree in.
var own = map[string]bool{"out": true, "resume": true, "force": true, "json": true, "threads": true, "checkpoint-every": true, "data": true}

// StoredArguments returns the flags of a run, as pairs of name and value, for those who
// resume it.
func StoredArguments(cmd *cobra.Command, corpus *train.Corpus) []string {
	var list []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !own[f.Name] {
			list = append(list, f.Name, f.Value.String())
		}
	})
	for _, s := range corpus.Sources {
		list = append(list, "data", s)
	}
	return list
}

// TakeArguments sets the flags that arguments listed and the command line lacks.
func TakeArguments(cmd *cobra.Command, list []string) error {
	given := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for i := 0; i+1 < len(list); i += 2 {
		if given[list[i]] {
			continue
		}
		if err := cmd.Flags().Set(list[i], list[i+1]); err != nil {
			return fmt.Errorf("the checkpoint was written with --%s %s, which this program does not take: resume with the program that wrote it", list[i], list[i+1])
		}
	}
	return nil
}

package flags

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NegativesLast moves the arguments of a command behind its flags and a "--" if one of
// them starts with a hyphen and is an operand, such as a negative number. pflag would
// parse it as a flag.
func NegativesLast(root *cobra.Command, args []string, operand func(string) bool) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root {
		return args
	}
	var flags, operands []string
	negative := false
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		switch {
		case a == "--":
			operands = append(operands, rest[i+1:]...)
			i = len(rest)
		case !strings.HasPrefix(a, "-") || a == "-":
			operands = append(operands, a)
		case operand(a):
			operands = append(operands, a)
			negative = true
		default:
			flags = append(flags, a)
			if takesNext(cmd, a) && i+1 < len(rest) {
				i++
				flags = append(flags, rest[i])
			}
		}
	}
	if !negative {
		return args
	}
	path := strings.Fields(cmd.CommandPath())[1:]
	return slices.Concat(path, flags, []string{"--"}, operands)
}

// takesNext reports whether the value of flag a is the next argument.
func takesNext(cmd *cobra.Command, a string) bool {
	name, ok := strings.CutPrefix(a, "--")
	if !ok || strings.Contains(name, "=") {
		return false
	}
	flag := cmd.Flags().Lookup(name)
	return flag != nil && flag.NoOptDefVal == ""
}

package flags

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Choice is the value of a flag that takes one of a table of names. The shell
// completes them.
type Choice[T any] struct {
	Value T
	Given bool // on the command line

	text  string
	parse func(string) (T, error)
}

func (c *Choice[T]) String() string { return c.text }

// Type returns the type of the value, for pflag.
func (c *Choice[T]) Type() string { return "name" }

// Set parses a name.
func (c *Choice[T]) Set(s string) error {
	v, err := c.parse(s)
	if err != nil {
		return err
	}
	c.Value, c.text, c.Given = v, s, true
	return nil
}

// A List is the value of a repeatable flag that takes comma-separated names of a
// table.
type List[T fmt.Stringer] struct {
	values  []T
	initial bool // values are the default, which the first Set replaces
	parse   func(string) (T, error)
}

// Values returns the values.
func (c *List[T]) Values() []T { return c.values }

func (c *List[T]) String() string { return strings.Join(Names(c.values), ",") }

// Type returns the type of the value, for pflag.
func (c *List[T]) Type() string { return "names" }

// Set parses names and adds them.
func (c *List[T]) Set(s string) error {
	if c.initial {
		c.values, c.initial = nil, false
	}
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		v, err := c.parse(name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.values, func(other T) bool { return other.String() == v.String() }) {
			return fmt.Errorf("%s is named twice: omit one", v)
		}
		c.values = append(c.values, v)
	}
	return nil
}

// AddChoice adds a flag that takes one of names to cmd. initial is its default; if
// that is "", the default is the zero value.
func AddChoice[T any](cmd *cobra.Command, flag, usage, initial string, names []string, parse func(string) (T, error)) *Choice[T] {
	c := &Choice[T]{parse: parse}
	if initial != "" {
		if err := c.Set(initial); err != nil {
			panic(err)
		}
		c.Given = false
	}
	cmd.Flags().Var(c, flag, usage)
	complete(cmd, flag, names, cobra.ShellCompDirectiveNoFileComp)
	return c
}

// complete registers the completions of a flag.
func complete(cmd *cobra.Command, flag string, names []string, directive cobra.ShellCompDirective) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, directive)); err != nil {
		panic(err) // registered twice
	}
}

// AddList adds a flag that takes comma-separated names to cmd. initial is its default; "" is none.
func AddList[T fmt.Stringer](cmd *cobra.Command, flag, usage, initial string, names []string, parse func(string) (T, error)) *List[T] {
	c := &List[T]{parse: parse}
	if initial != "" {
		if err := c.Set(initial); err != nil {
			panic(err)
		}
	}
	c.initial = true
	cmd.Flags().Var(c, flag, usage+": "+strings.Join(names, ", "))
	complete(cmd, flag, names, cobra.ShellCompDirectiveNoFileComp)
	return c
}

// check makes cmd call f before it runs, and then the checks that were added before.
func check(cmd *cobra.Command, f func(cmd *cobra.Command) error) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := f(cmd); err != nil || before == nil {
			return err
		}
		return before(cmd, args)
	}
}

// Exclusive makes the flags a and b of cmd exclude each other.
func Exclusive(cmd *cobra.Command, a, b string) {
	cmd.MarkFlagsMutuallyExclusive(a, b) // for completion
	check(cmd, func(cmd *cobra.Command) error {
		if cmd.Flags().Changed(a) && cmd.Flags().Changed(b) {
			return show.Misuse("--%s and --%s exclude each other: omit one", a, b)
		}
		return nil
	})
}

// Needs makes flag of cmd an error unless one of the flags others is given, without which it would be
// ignored.
func Needs(cmd *cobra.Command, flag string, others ...string) {
	check(cmd, func(cmd *cobra.Command) error {
		on := func(name string) bool { return cmd.Flags().Changed(name) && cmd.Flag(name).Value.String() != "false" }
		if cmd.Flags().Changed(flag) && !slices.ContainsFunc(others, on) {
			return show.Misuse("--%s applies to --%s: add that, or omit --%s", flag, strings.Join(others, " or --"), flag)
		}
		return nil
	})
}

// maxCount is the maximum of flags that Counts and AddThreads check.
const maxCount = 1 << 20

// Counts makes the values of flags of cmd an error if they are not from 1 to 2^20.
func Counts(cmd *cobra.Command, names ...string) { countsFrom(1, cmd, names...) }

// countsFrom makes the values of flags of cmd an error if they are not from low to 2^20.
func countsFrom(low uint64, cmd *cobra.Command, names ...string) {
	check(cmd, func(cmd *cobra.Command) error {
		for _, name := range names {
			text := cmd.Flag(name).Value.String()
			if n, err := strconv.ParseUint(text, 10, 64); err != nil || n < low || n > maxCount {
				return show.Misuse("--%s: got %s, want %d to %d", name, text, low, maxCount)
			}
		}
		return nil
	})
}

// Names returns the names of values.
func Names[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}

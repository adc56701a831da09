package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A Choice is the value of a flag that takes one of a table's names. A name that
// is not in the table is wrong usage, and the shell completes those that are.
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

// List is the value of a flag that takes names of a table, separated by commas,
// any number of times.
type List[T fmt.Stringer] struct {
	values  []T
	initial bool // whether values are the default, which the first Set replaces
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
		v, err := c.parse(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		c.values = append(c.values, v)
	}
	return nil
}

// AddChoice gives cmd a flag that takes one of names. Its value is that of
// initial until it is given; without an initial name it is the zero value.
func AddChoice[T any](cmd *cobra.Command, flag, usage, initial string, names []string, parse func(string) (T, error)) *Choice[T] {
	c := &Choice[T]{parse: parse}
	if initial != "" {
		if err := c.Set(initial); err != nil {
			panic(err)
		}
		c.Given = false
	}
	cmd.Flags().Var(c, flag, usage)
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered twice
	}
	return c
}

// AddList gives cmd a flag that takes names, separated by commas. Its values are those of
// initial until it is given.
func AddList[T fmt.Stringer](cmd *cobra.Command, flag, usage, initial string, names []string, parse func(string) (T, error)) *List[T] {
	c := &List[T]{parse: parse}
	if err := c.Set(initial); err != nil {
		panic(err)
	}
	c.initial = true
	cmd.Flags().Var(c, flag, usage+": "+strings.Join(names, ", "))
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered twice
	}
	return c
}

// Exclusive lets a command line have one of two flags only.
func Exclusive(cmd *cobra.Command, a, b string) {
	cmd.MarkFlagsMutuallyExclusive(a, b) // for the shell, which then leaves one out
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed(a) && cmd.Flags().Changed(b) {
			return Misuse("--%s and --%s exclude each other: leave one out", a, b)
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
}

// Names returns the names of values.
func Names[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}

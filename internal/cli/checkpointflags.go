package cli

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/internal/clients"
	"github.com/microscale-go/microscale/quant"
)

// GgufDestination chooses the convention of GGUF files where DST is one, and
// refuses that convention where it is not.
func GgufDestination(layout *Choice[*checkpoint.Convention], dst string) error {
	isFile := strings.HasSuffix(dst, llamacpp.Suffix)
	switch {
	case isFile && !layout.Given:
		layout.Value = checkpoint.GGUF()
	case isFile && !layout.Value.InGGUF():
		return Misuse("%s ends in %s, and convention %s writes no GGUF file: name another DST, or leave --convention out", Printable(dst), llamacpp.Suffix, layout.Value)
	case !isFile && layout.Value.InGGUF():
		return Misuse("convention %s writes one file: end the name of DST in %s", layout.Value, llamacpp.Suffix)
	}
	return nil
}

// Patterns is the value of a flag of regular expressions, given any number of times.
type Patterns []*regexp.Regexp

func (p *Patterns) String() string {
	var texts []string
	for _, re := range *p {
		texts = append(texts, re.String())
	}
	return strings.Join(texts, " ")
}

// Type returns the placeholder of the value in the help.
func (p *Patterns) Type() string { return "REGEXP" }

// Set compiles s and adds it.
func (p *Patterns) Set(s string) error {
	re, err := regexp.Compile(s)
	if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%q is not a regular expression: %s", s, bad.Code)
	}
	if err != nil {
		return err
	}
	*p = append(*p, re)
	return nil
}

// AddConvention gives cmd --convention.
func AddConvention(cmd *cobra.Command) *Choice[*checkpoint.Convention] {
	names := Names(checkpoint.Conventions())
	return AddChoice(cmd, "convention", "store the result as the clients of `NAME` expect: "+strings.Join(names, ", "), "", names, lookupConvention)
}

// AddScheme gives cmd --scheme.
func AddScheme(cmd *cobra.Command) *Choice[string] {
	names := checkpoint.SchemeNames()
	return AddChoice(cmd, "scheme", "the convention's scheme `NAME`, where it has several for the format: "+strings.Join(names, ", "), "", names, func(name string) (string, error) {
		for _, n := range names {
			if strings.EqualFold(n, name) {
				return n, nil
			}
		}
		return "", fmt.Errorf("unknown scheme %q: use one of %s", name, strings.Join(names, ", "))
	})
}

// A CalibrationFlag is where scales of activations come from.
type CalibrationFlag struct {
	inputs string // a file or the constant; "": none
	cache  bool
}

// constantCalibration is the value of --calibration for scales of 1.
const constantCalibration = "constant"

// AddCalibration gives cmd --calibration and --kv-cache.
func AddCalibration(cmd *cobra.Command) *CalibrationFlag {
	var c CalibrationFlag
	cmd.Flags().StringVar(&c.inputs, "calibration", "", "store scales of activations: from the largest magnitudes in `FILE` (TOML or JSON), or \""+constantCalibration+"\", 1, as NVIDIA's data-free recipe has it")
	cmd.Flags().BoolVar(&c.cache, "kv-cache", false, "store scales of an FP8 KV cache of 1, as the same recipe has them; a file of --calibration may have others")
	return &c
}

// Read returns the calibration, nil where there is none.
func (c *CalibrationFlag) Read() (*convert.Calibration, error) {
	switch {
	case c.inputs == "" && !c.cache:
		return nil, nil
	case c.inputs == "", strings.EqualFold(c.inputs, constantCalibration):
		return &convert.Calibration{ConstantInputs: c.inputs != "", ConstantCache: c.cache}, nil
	case c.cache:
		return nil, Misuse("--kv-cache has scales of 1, and --calibration %s its own: leave one out", c.inputs)
	}
	return convert.ReadCalibration(c.inputs)
}

// A ClientFlag is --for: the client that a checkpoint is written for.
type ClientFlag struct {
	*Choice[clients.Client]
}

// AddFor gives cmd --for, in place of --convention.
func AddFor(cmd *cobra.Command) ClientFlag {
	names := Names(clients.All())
	c := AddChoice(cmd, "for", "store the result as the client `NAME` reads it: "+strings.Join(names, ", "), "", names, clients.Lookup)
	Exclusive(cmd, "for", "convention")
	return ClientFlag{c}
}

// Choose sets the convention, and the scheme unless one is given, to those that the
// client reads for f.
func (c ClientFlag) Choose(f quant.Format, layout *Choice[*checkpoint.Convention], scheme *Choice[string]) error {
	if !c.Given {
		return nil
	}
	convention, name, err := c.Value.Stores(f)
	if err != nil {
		return Misuse("--for %v", err)
	}
	layout.Value, layout.Given = convention, true
	if !scheme.Given {
		scheme.Value = name
	} else if !c.Value.Reads(convention.Name, scheme.Value) {
		return Misuse("--for %s: it does not read the scheme %s of %s: use %s, or leave --scheme out", c.Value, scheme.Value, convention, name)
	}
	return nil
}

// lookupConvention is checkpoint.LookupConvention, and points to --for where the name
// is that of a client.
func lookupConvention(name string) (*checkpoint.Convention, error) {
	convention, err := checkpoint.LookupConvention(name)
	if err == nil {
		return convention, nil
	}
	if client, clientErr := clients.Lookup(name); clientErr == nil {
		return nil, fmt.Errorf("%s is a client: use --for %s", name, client)
	}
	return nil, err
}

// AddClients gives cmd --client, programs separated by commas.
func AddClients(cmd *cobra.Command) *[]clients.Client {
	c := &List[clients.Client]{parse: clients.Lookup}
	names := Names(clients.All())
	cmd.Flags().Var(c, "client", "what these programs would reject or misread is a problem too: `NAMES`, of "+strings.Join(names, ", "))
	if err := cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered twice
	}
	return &c.values
}

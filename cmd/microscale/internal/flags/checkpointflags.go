package flags

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/quant"
)

// GGUFDestination sets the convention to that of GGUF if dst is a GGUF file, or a directory of its parts. It is an
// error if one is GGUF and the other is not. client is the zero value for commands without --for.
func GGUFDestination(client ClientFlag, layout *Choice[*checkpoint.Convention], split *SplitFlag, dst string) error {
	isFile, isSplit := gguf.Named(dst), *split != 0
	switch {
	case isFile && isSplit:
		return show.Misuse("--split-max-size writes a directory of files: use a DST that does not end in %s, such as %s",
			gguf.Suffix, show.Printable(WithoutGGUF(dst)))
	case (isFile || isSplit) && !layout.Given:
		layout.Value = checkpoint.GGUF()
	case isSplit && !layout.Value.OneFile():
		return show.Misuse("--split-max-size is for GGUF files, which %s does not write: omit it", client.chosen(layout))
	case isSplit:
	case isFile && !layout.Value.OneFile():
		return show.Misuse("%s: %[3]s does not write %[2]s files: use a DST that does not end in %[2]s", show.Printable(dst), gguf.Suffix,
			client.chosen(layout))
	case !isFile && layout.Value.OneFile():
		return show.Misuse("%s writes one file: use a DST that ends in %s, or --split-max-size", client.chosen(layout), gguf.Suffix)
	}
	return nil
}

// WithoutGGUF returns a path without the end of the names of GGUF files, which is in letters of any case.
func WithoutGGUF(path string) string {
	if gguf.Named(path) {
		return path[:len(path)-len(gguf.Suffix)]
	}
	return path
}

// Patterns is the value of a repeatable flag of regular expressions.
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

// AddConvention adds --convention to cmd.
func AddConvention(cmd *cobra.Command) *Choice[*checkpoint.Convention] {
	names := Names(checkpoint.Conventions())
	return AddChoice(cmd, "convention", "store DST in convention `NAME`: "+strings.Join(names, ", "), "", names, lookupConvention)
}

// AddScheme adds --scheme to cmd.
func AddScheme(cmd *cobra.Command) *Choice[string] {
	names := checkpoint.SchemeNames()
	return AddChoice(cmd, "scheme", "scheme `NAME`, if the convention has several for the format: "+strings.Join(names, ", "), "", names,
		func(name string) (string, error) {
			for _, n := range names {
				if strings.EqualFold(n, name) {
					return n, nil
				}
			}
			return "", naming.Unknown("scheme", name, names)
		})
}

// A CalibrationFlag is the source of activation scales, or of the statistics of a method.
type CalibrationFlag struct {
	inputs string // a file or "constant"; "": none
	cache  bool
	method *Choice[calibration.Method] // nil: the command has none
}

// constantCalibration is the value of --calibration for scales of 1.
const constantCalibration = "constant"

// AddCalibration adds --calibration and --kv-cache to cmd.
func AddCalibration(cmd *cobra.Command) *CalibrationFlag {
	var c CalibrationFlag
	cmd.Flags().StringVar(&c.inputs, "calibration", "", "store activation scales computed from the amaxes in `FILE` (TOML or JSON, see "+
		"microscale calibrate); \""+constantCalibration+"\": scales of 1, as in NVIDIA's data-free recipe")
	cmd.Flags().BoolVar(&c.cache, "kv-cache", false, "store scales of 1 for an FP8 KV cache; a --calibration FILE may hold others")
	return &c
}

// AddMethod adds --method to cmd, which has --calibration.
func (c *CalibrationFlag) AddMethod(cmd *cobra.Command) {
	cmd.Flags().Lookup("calibration").Usage += "; statistics (.safetensors) and importance matrices of llama.cpp (.gguf) also choose scales " +
		"and codes, see --method"
	c.method = AddChoice(cmd, "method", "choose scales and codes by `NAME`, with the statistics of --calibration FILE.safetensors, or an "+
		"importance matrix of llama.cpp: search (scales), gptq (scales and codes)",
		"nearest", Names(calibration.Methods()), calibration.Lookup)
}

// MethodOf returns the method for statistics that the command itself collects: by default gptq, and search for a GGUF file. If the
// text has another use, the method may be nearest.
func (c *CalibrationFlag) MethodOf(layout *checkpoint.Convention, other bool) (calibration.Method, error) {
	switch {
	case !c.method.Given:
		return convert.DefaultMethod(layout), nil
	case c.method.Value == calibration.Nearest && !other:
		return calibration.Nearest, show.Misuse("--method nearest reads no text: omit --text")
	}
	return c.method.Value, nil
}

// Settle chooses the method search if the statistics of --calibration have no other use: an importance matrix, or those for a GGUF file.
func (c *CalibrationFlag) Settle(layout *checkpoint.Convention) {
	onlyMethod := layout != nil && layout.OneFile() || !strings.EqualFold(filepath.Ext(c.inputs), ".safetensors")
	if !c.method.Given && onlyMethod && c.HasStatistics() {
		c.method.Value = calibration.Search
	}
}

// HasStatistics reports whether --calibration names statistics.
func (c *CalibrationFlag) HasStatistics() bool { return c.inputs != "" && calibration.IsFile(c.inputs) }

// OnlyAmaxes reports whether --calibration names statistics of which no --method says how they choose codes or scales.
func (c *CalibrationFlag) OnlyAmaxes() bool {
	return c.HasStatistics() && !c.method.Given && c.method.Value == calibration.Nearest
}

// Statistics returns the method and the statistics that it needs; nil for nearest. The caller closes them.
func (c *CalibrationFlag) Statistics() (calibration.Method, *calibration.Statistics, error) {
	method := c.method.Value
	switch {
	case method == calibration.Nearest:
		return method, nil, nil
	case !c.HasStatistics():
		return method, nil, show.Misuse("--method %s needs statistics of the inputs: make them with calibrate MODEL --text FILE --out "+
			"NAME.safetensors, and name them with --calibration", method)
	}
	s, err := calibration.Read(c.inputs)
	return method, s, err
}

// Read returns the calibration of activations, or nil if there is none.
func (c *CalibrationFlag) Read() (*convert.Calibration, error) {
	switch {
	case c.method != nil && c.method.Value != calibration.Nearest && !c.cache:
		return nil, nil // the file has the statistics of a method
	case c.method != nil && c.method.Value != calibration.Nearest:
		return &convert.Calibration{ConstantCache: true}, nil
	case c.inputs == "" && !c.cache:
		return nil, nil
	case c.inputs == "", strings.EqualFold(c.inputs, constantCalibration):
		return &convert.Calibration{ConstantInputs: c.inputs != "", ConstantCache: c.cache}, nil
	}
	read, err := convert.ReadCalibration(c.inputs)
	switch {
	case err != nil || !c.cache:
	case len(read.Key)+len(read.Value) > 0:
		return nil, show.Misuse("--kv-cache and --calibration %s both set KV cache scales: omit one", c.inputs)
	default:
		read.ConstantCache = true
	}
	return read, err
}

// A ClientFlag is --for: the client to write a checkpoint for.
type ClientFlag struct {
	*Choice[client.Client]
}

// AddFor adds --for to cmd. It excludes --convention.
func AddFor(cmd *cobra.Command) ClientFlag {
	names := Names(client.All())
	c := AddChoice(cmd, "for", "store DST as client `NAME` reads it: "+strings.Join(names, ", "), "", names, client.Lookup)
	return ClientFlag{c}
}

// Choose sets layout to the convention that the client prefers for f, and checks the scheme.
func (c ClientFlag) Choose(f quant.Format, layout *Choice[*checkpoint.Convention], scheme *Choice[string]) error {
	if !c.Given {
		return nil
	}
	storages, err := c.Value.Stores(f)
	if err != nil {
		return show.Misuse("--for: %v", err)
	}
	layout.Value, layout.Given = storages[0].Convention, true
	reads := func(s client.Storage) bool { return c.Value.Reads(s.Convention.Name, scheme.Value) }
	if i := slices.IndexFunc(storages, reads); scheme.Given && i < 0 {
		return show.Misuse("--for: %s does not read scheme %s: use --scheme %s, or omit --scheme", c.Value, scheme.Value,
			strings.Join(storages[0].Schemes, " or "))
	}
	return nil
}

// Destination sets layout to a convention that was chosen for the client, and checks that dst is of its kind.
func (c ClientFlag) Destination(convention string, layout *Choice[*checkpoint.Convention], split *SplitFlag, dst string) error {
	chosen, err := checkpoint.LookupConvention(convention)
	if err != nil {
		return err
	}
	layout.Value, layout.Given = chosen, true
	return GGUFDestination(c, layout, split, dst)
}

// chosen returns the choice of layout as the user made it: by --for, or as a convention.
func (c ClientFlag) chosen(layout *Choice[*checkpoint.Convention]) string {
	if c.Choice != nil && c.Given {
		return "--for " + c.text
	}
	return "convention " + layout.Value.String()
}

// lookupConvention finds a convention. For the name of a client, its error points to
// --for.
func lookupConvention(name string) (*checkpoint.Convention, error) {
	convention, err := checkpoint.LookupConvention(name)
	if err == nil {
		return convention, nil
	}
	if client, clientErr := client.Lookup(name); clientErr == nil {
		return nil, fmt.Errorf("%s is a client, not a convention: use --for %s", name, client)
	}
	return nil, err
}

// AddClients adds --client to cmd.
func AddClients(cmd *cobra.Command) *[]client.Client {
	names := Names(client.All())
	c := &List[client.Client]{parse: client.Lookup}
	cmd.Flags().Var(c, "client", "also report what the clients `NAMES` would reject or misread: "+strings.Join(names, ", "))
	complete(cmd, "client", names, cobra.ShellCompDirectiveNoFileComp)
	return &c.values
}

// AddInexact adds --inexact, what a cast does with blocks that cannot keep their values, to cmd. Its value reports whether
// they are rounded.
func AddInexact(cmd *cobra.Command) *Choice[bool] {
	names := []string{"error", "requantize"}
	return AddChoice(cmd, "inexact", "do `WHAT` with blocks that have no exact cast: error, or requantize from their values", names[0], names,
		func(name string) (bool, error) {
			i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
			if i < 0 {
				return false, naming.Unknown("treatment of inexact blocks", name, names)
			}
			return i == 1, nil
		})
}

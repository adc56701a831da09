package flags

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/internal/naming"
)

// A foreign is what an argument of Megatron-LM means here.
type foreign struct {
	flag    string                                                 // that means the same
	convert func(cmd *cobra.Command, value string) (string, error) // the value of the flag; nil: the same
	inert   string                                                 // why it has no effect, without a flag
	boolean bool                                                   // on a command line, it needs no value
}

// megatron has the arguments of Megatron-LM, and the fields of its TransformerConfig, whose names differ
// from those of flags: on the command line, with hyphens, and in files.
var megatron = func() map[string]foreign {
	m := map[string]foreign{
		"micro-batch-size":    {flag: "microbatches", convert: microbatches},
		"grad-reduce-in-bf16": {flag: "grad-reduce", convert: gradReduce, boolean: true},
		"distributed-timeout-minutes": {flag: "timeout", convert: func(_ *cobra.Command, value string) (string, error) {
			return value + "m",
				nil
		}},
		"fp4-format": {flag: "recipe", convert: fp4Recipe},
		"fp4":        {flag: "recipe", convert: fp4Recipe},

		"bf16":                               {inert: "linear layers take BF16 inputs under every recipe but f32", boolean: true},
		"accumulate-allreduce-grads-in-fp32": {inert: "gradients are FP32 between microbatches", boolean: true},
		"overlap-grad-reduce":                {inert: "gradients always travel during the backward pass", boolean: true},
		"fp8-interval":                       {inert: "Transformer Engine ignores it since version 1.8"},
		"no-fp8-wgrad":                       {inert: "Transformer Engine ignores it; use --high-precision wgrad", boolean: true},
		"disable-fp8-wgrad":                  {inert: "Transformer Engine ignores it; use --high-precision wgrad", boolean: true},
		"transformer-impl":                   {inert: "there is one implementation"},
	}
	for argument, flag := range map[string]string{
		"num-layers": "layers", "hidden-size": "hidden", "ffn-hidden-size": "intermediate", "num-attention-heads": "heads",
		"num-query-groups": "kv-heads",
		"seq-length":       "sequence", "global-batch-size": "batch", "train-iters": "steps", "data-parallel-size": "dp",
		"lr": "learning-rate", "lr-decay-style": "schedule", "lr-warmup-fraction": "warmup", "clip-grad": "clip",
		"eval-interval": "eval-every", "save-interval": "checkpoint-every", "save": "out", "data-path": "data",
		"tensor-model-parallel-size": "tp", "use-distributed-optimizer": "distributed-optimizer",
		"fp8-recipe": "recipe", "fp8": "fp8-format", "fp8-margin": "margin", "fp8-amax-history-len": "amax-history-len",
		"fp8-amax-compute-algo":     "amax-compute-algo",
		"fp8-dot-product-attention": "fp8-dpa", "fp8-multi-head-attention": "fp8-mha",
		"fp4-recipe": "recipe", "fp4-param": "fp8-param", "fp4-param-gather": "fp8-param-gather",
	} {
		m[argument] = foreign{flag: flag}
	}
	return m
}()

// fp4Recipe returns the recipe of a format of FP4 elements.
func fp4Recipe(_ *cobra.Command, value string) (string, error) {
	if !strings.EqualFold(value, "e2m1") {
		return "", fmt.Errorf("got %q, want e2m1", value)
	}
	return "nvfp4", nil
}

// microbatches returns the number of microbatches with a number of sequences each.
func microbatches(cmd *cobra.Command, value string) (string, error) {
	batch := Uint(cmd, "batch")
	if size, err := strconv.ParseUint(value, 10, 64); err == nil && size > 0 && batch%size == 0 {
		return fmt.Sprint(batch / size), nil
	}
	return "", fmt.Errorf("got %s, want a divisor of the batch of %d sequences", value, batch)
}

// gradReduce returns the format of gradients.
func gradReduce(_ *cobra.Command, value string) (string, error) {
	bf16, err := strconv.ParseBool(value)
	switch {
	case err != nil:
		return "", fmt.Errorf("got %q, want true or false", value)
	case bf16:
		return "bf16", nil
	}
	return "fp32", nil
}

// maxConfig is the maximum size of a file of flags in bytes.
const maxConfig = 1 << 20

// AddConfig adds --config to cmd, and accepts the arguments of Megatron-LM whose flags cmd has. The file is
// read before the checks of Exclusive and Needs.
func AddConfig(cmd *cobra.Command) {
	path := cmd.Flags().String("config", "", "take flags that are not given from TOML `FILE`, by their names or those of Megatron-LM")
	arguments := addMegatron(cmd)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, work := range []*func(*cobra.Command, []string) error{&cmd.PreRunE, &cmd.RunE} {
			if f := *work; f != nil {
				*work = func(cmd *cobra.Command, args []string) error { return located(cmd, f(cmd, args)) }
			}
		}
		if cmd.Flags().Changed("config") {
			if *path == "" {
				return show.Misuse("--config is empty: name a TOML file")
			}
			if err := takeConfig(cmd, *path, targets(arguments())); err != nil {
				return err
			}
		}
		return takeArguments(cmd, arguments())
	}
}

// addMegatron makes cmd accept arguments of Megatron-LM. The names of flags with the same values are
// replaced as they are parsed. Others get a hidden flag; given returns those of the command line.
func addMegatron(cmd *cobra.Command) (given func() []setting) {
	flags := cmd.Flags()
	for argument, f := range megatron {
		if f.flag != "" && (f.convert == nil || flags.Lookup(f.flag) == nil) {
			continue
		}
		flags.String(argument, "", "")
		flag := flags.Lookup(argument)
		if flag.Hidden = true; f.boolean {
			flag.NoOptDefVal = "true"
		}
	}
	flags.SetNormalizeFunc(func(flags *pflag.FlagSet, name string) pflag.NormalizedName {
		if f := megatron[name]; f.flag != "" && f.convert == nil && flags.Lookup(f.flag) != nil {
			name = f.flag
		}
		return pflag.NormalizedName(name)
	})
	return func() (list []setting) {
		flags.Visit(func(flag *pflag.Flag) {
			if f, ok := megatron[flag.Name]; ok && flag.Hidden {
				list = append(list, setting{key: "--" + flag.Name, argument: flag.Name, flag: f.flag, value: flag.Value.String()})
			}
		})
		return list
	}
}

// targets returns the flags that arguments of the command line set.
func targets(arguments []setting) map[string]bool {
	set := map[string]bool{}
	for _, s := range arguments {
		set[s.flag] = true
	}
	return set
}

// takeArguments sets the flags of arguments of the command line whose values differ from those of flags.
func takeArguments(cmd *cobra.Command, arguments []setting) error {
	given := map[string]string{}
	for _, s := range arguments {
		if s.flag != "" && cmd.Flags().Changed(s.flag) {
			given[s.flag] = cmd.Flag(s.flag).Value.String()
		}
	}
	for _, s := range arguments {
		if err := s.take(cmd); err != nil {
			return show.Misuse("%s: %v", s.key, err)
		}
		if before, ok := given[s.flag]; ok && cmd.Flag(s.flag).Value.String() != before {
			return show.Misuse("%s and --%s set the same flag: omit one", s.key, s.flag)
		}
	}
	return nil
}

// takeConfig sets the flags of a TOML file that the command line does not give: those that have changed, and
// others. A key is the name of a flag, or that of an argument of Megatron-LM, with - or _. Tables group keys
// and have no meaning.
func takeConfig(cmd *cobra.Command, path string, others map[string]bool) error {
	text, err := limits.ReadFile(path, maxConfig)
	if err != nil {
		return err
	}
	var file map[string]any
	err = limits.CheckTOML(text)
	if err == nil {
		err = toml.Unmarshal(text, &file)
	}
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		err = fmt.Errorf("line %d: %s", syntax.Position.Line, limits.Text(syntax.Message))
	}
	var list []setting
	if err == nil {
		list, err = settingsOf(cmd, file, "")
	}
	if err == nil {
		err = takeSettings(cmd, path, list, others)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// A setting is a key of a file of flags.
type setting struct {
	key      string // with its tables, as the file has it
	argument string // key without tables and with hyphens
	flag     string
	value    any
}

// settingsOf returns the settings of a table in the order of their keys, those that follow from others last.
func settingsOf(cmd *cobra.Command, table map[string]any, within string) (list []setting, err error) {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if t, ok := table[key].(map[string]any); ok {
			inner, err := settingsOf(cmd, t, within+key+".")
			if err != nil {
				return nil, err
			}
			list = append(list, inner...)
			continue
		}
		s := setting{key: within + key, argument: strings.ReplaceAll(key, "_", "-"), value: table[key]}
		foreign, ok := megatron[s.argument]
		if s.flag = foreign.flag; !ok {
			s.flag = s.argument
		}
		if foreign.inert == "" && (cmd.Flags().Lookup(s.flag) == nil || notInFile[s.flag]) {
			return nil, unknownKey(cmd, s)
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b setting) int { return cmp.Compare(order(a), order(b)) })
	return list, nil
}

// order is 0 for settings with a value and 1 for those that follow from others.
func order(s setting) int {
	if megatron[s.argument].convert != nil {
		return 1
	}
	return 0
}

// notInFile are the flags that a file of flags cannot set.
var notInFile = map[string]bool{"config": true, "help": true, helpAll: true}

// unknownKey returns the error for a key that names no flag of cmd.
func unknownKey(cmd *cobra.Command, s setting) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !notInFile[f.Name] && !f.Hidden {
			names = append(names, f.Name)
		}
	})
	for argument, f := range megatron {
		if f.inert != "" || cmd.Flags().Lookup(f.flag) != nil {
			names = append(names, argument)
		}
	}
	slices.Sort(names)
	remedy := fmt.Sprintf(": use the names of flags of %s, such as learning-rate", cmd.CommandPath())
	if near := naming.Nearest(s.argument, names); len(near) > 0 {
		remedy = fmt.Sprintf(": did you mean %s?", strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown key %q%s", s.key, remedy)
}

// takeSettings sets the flags of a file that the command line does not give.
func takeSettings(cmd *cobra.Command, path string, list []setting, given map[string]bool) error {
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	by := map[string]string{} // the key that set a flag
	for _, s := range list {
		if first := by[s.flag]; first != "" && s.flag != "" && !s.repeats(cmd) {
			return fmt.Errorf("%s and %s set the same flag, --%s: omit one", first, s.key, s.flag)
		}
		by[s.flag] = s.key
		if given[s.flag] {
			continue
		}
		if err := s.take(cmd); err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
		if flag := cmd.Flag(s.flag); flag != nil {
			if flag.Annotations == nil {
				flag.Annotations = map[string][]string{}
			}
			flag.Annotations[inFile] = []string{path, s.key}
		}
	}
	return nil
}

// inFile annotates a flag with the file and the key that set it.
const inFile = "in-file"

// Label names a flag, or the file and the key that set it.
func Label(cmd *cobra.Command, name string) string {
	if origin := cmd.Flag(name).Annotations[inFile]; origin != nil {
		return strings.Join(origin, ": ")
	}
	return "--" + name
}

// word matches the names of flags in a message.
var word = regexp.MustCompile(`--[a-z0-9-]+`)

// located adds to an error the keys of the file that set the flags that it names.
func located(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	var keys []string
	path := ""
	for _, name := range word.FindAllString(err.Error(), -1) {
		flag := cmd.Flag(name[2:])
		if flag == nil || flag.Annotations[inFile] == nil {
			continue
		}
		if path = flag.Annotations[inFile][0]; !slices.Contains(keys, flag.Annotations[inFile][1]) {
			keys = append(keys, flag.Annotations[inFile][1])
		}
	}
	if path == "" {
		return err
	}
	return fmt.Errorf("%w (in %s: %s)", err, path, strings.Join(keys, ", "))
}

// repeats reports whether an argument whose value is converted asks for the value that the flag has, as
// fp4_format does beside fp4_recipe.
func (s *setting) repeats(cmd *cobra.Command) bool {
	convert := megatron[s.argument].convert
	if convert == nil {
		return false
	}
	value, err := convert(cmd, fmt.Sprint(s.value))
	return err == nil && value == cmd.Flag(s.flag).Value.String()
}

// take sets the flag. A list sets a repeatable flag once for each element, and others to the elements
// separated by commas.
func (s *setting) take(cmd *cobra.Command) error {
	foreign := megatron[s.argument]
	if foreign.inert != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s has no effect: %s\n", cmd.Root().Name(), s.key, foreign.inert)
		return nil
	}
	elements, isList := s.value.([]any)
	if !isList {
		elements = []any{s.value}
	}
	var values []string
	for _, e := range elements {
		switch e.(type) {
		case string, bool, int64, float64:
			values = append(values, fmt.Sprint(e))
		default:
			return errors.New("got a table, a list of lists or a date, want a string, a number, a boolean or a list of these")
		}
	}
	if isList {
		if _, repeatable := cmd.Flag(s.flag).Value.(pflag.SliceValue); !repeatable {
			values = []string{strings.Join(values, ",")}
		}
	}
	for _, v := range values {
		if foreign.convert != nil {
			var err error
			if v, err = foreign.convert(cmd, v); err != nil {
				return err
			}
		}
		if err := cmd.Flags().Set(s.flag, v); err != nil {
			return invalidValue(err)
		}
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/internal/bounded"
)

// megatron maps arguments of Megatron-LM to flags that mean the same.
var megatron = map[string]string{
	"num-layers": "layers", "hidden-size": "hidden", "ffn-hidden-size": "intermediate", "num-attention-heads": "heads", "num-query-groups": "kv-heads",
	"seq-length": "sequence", "global-batch-size": "batch", "train-iters": "steps", "data-parallel-size": "dp",
	"lr": "learning-rate", "lr-decay-style": "schedule", "lr-warmup-fraction": "warmup", "clip-grad": "clip",
	"eval-interval": "eval-every", "save-interval": "checkpoint-every", "save": "out", "data-path": "data",
	"tensor-model-parallel-size": "tp", "fp8-recipe": "recipe", "use-distributed-optimizer": "distributed-optimizer",
}

// maxConfig is the maximum size of a file of flags in bytes.
const maxConfig = 1 << 20

// AddConfig adds --config to cmd.
func AddConfig(cmd *cobra.Command) *string {
	return cmd.Flags().String("config", "", "take flags that are not given from TOML `FILE`, by their names or those of Megatron-LM")
}

// TakeConfig sets the flags of a TOML file that the command line does not give. A key is the name of
// a flag, or that of an argument of Megatron-LM, with - or _. Tables group keys and have no meaning.
func TakeConfig(cmd *cobra.Command, path string) error {
	if path == "" {
		return nil
	}
	text, err := bounded.ReadFile(path, maxConfig)
	if err != nil {
		return err
	}
	var file map[string]any
	err = bounded.CheckTOML(text)
	if err == nil {
		err = toml.Unmarshal(text, &file)
	}
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		err = fmt.Errorf("line %d: %s", syntax.Position.Line, bounded.Text(syntax.Message))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	given := map[string]bool{"config": true}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	set := map[string]string{} // the key that set a flag
	return takeTable(cmd, path, file, given, set)
}

// takeTable sets the flags of a table.
func takeTable(cmd *cobra.Command, path string, table map[string]any, given map[string]bool, set map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if t, ok := table[key].(map[string]any); ok {
			if err := takeTable(cmd, path, t, given, set); err != nil {
				return err
			}
			continue
		}
		name := strings.ReplaceAll(key, "_", "-")
		if flag := megatron[name]; flag != "" {
			name = flag
		}
		f := cmd.Flags().Lookup(name)
		switch {
		case f == nil || name == "config":
			return fmt.Errorf("%s: unknown key %q: use the names of flags of %s, such as learning-rate", path, key, cmd.CommandPath())
		case set[name] != "":
			return fmt.Errorf("%s: %s and %s set the same flag, --%s: omit one", path, set[name], key, name)
		case given[name]:
			continue
		}
		set[name] = key
		values, ok := table[key].([]any)
		if !ok {
			values = []any{table[key]}
		}
		for _, v := range values {
			if err := cmd.Flags().Set(name, fmt.Sprint(v)); err != nil {
				return fmt.Errorf("%s: %s: %w", path, key, err)
			}
		}
	}
	return nil
}

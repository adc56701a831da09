package flags

import (
	"errors"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/train"
)

// TestWithFlag requires flags in place of all fields and keys that an error of a configuration names, and
// those of the remedies of a directory. Text that only resembles a field or a remedy stays as it is.
func TestWithFlag(t *testing.T) {
	c := train.DefaultConfig()
	c.Parallel.ReuseGradBuffer = true
	model := func(heads, kvHeads int) decoder.Config {
		m := train.DefaultConfig().Model
		m.NumAttentionHeads, m.NumKeyValueHeads = heads, kvHeads
		return m.WithDefaults()
	}
	tensor := train.DefaultConfig()
	tensor.Parallel.Tensor = 3
	for want, err := range map[string]error{
		"--reuse-grad-buf-for-mxfp8-param-ag is true, but applies to the gather of quantized weights: set --distributed-optimizer and " +
			"--fp8-param, too": c.CheckRanks(1),
		"--kv-heads is 3, want a divisor of --heads, 4":                              model(4, 3).Validate(),
		"--hidden/--heads is 1, want an even number: rotary embedding rotates pairs": model(128, 2).Validate(),
		"--tp is 3: --heads is 4, want a multiple of the 3 ranks that share a layer": tensor.CheckRanks(3),
		"hidden_size: replace the run: resume it": errors.New("hidden_size: replace " +
			"the run: resume it"),
		"replaced: the directory has a file that no run writes: use another directory (--out)": &train.DirectoryError{
			Problem: "replaced: the directory has a file that no run writes: use another directory", Remedies: []string{"Out"}},
		"out: the directory has an unfinished run: resume or replace it (--resume, --force)": &train.DirectoryError{
			Problem: "out: the directory has an unfinished run: resume or replace it", Remedies: []string{"Resume", "Force"}},
		"out/state.json: got version 9, want 1: resume with the program that wrote it, another directory": &train.DirectoryError{
			Problem: "out/state.json: got version 9, want 1: resume with the program that wrote it, another directory"},
		"Config.Data is nil": &train.ConfigError{Field: "Data", Problem: "is nil"},
	} {
		if got := WithFlag(err); got == nil || got.Error() != want {
			t.Errorf("got  %v\nwant %s", got, want)
		}
	}
	if WithFlag(nil) != nil {
		t.Error("no error has become one")
	}
	taken := &train.DirectoryError{Taken: true, Remedies: []string{"Out"}}
	if err := WithFlag(taken); !errors.Is(err, taken) {
		t.Errorf("%v does not wrap the error", err)
	}
}

func TestSeparator(t *testing.T) {
	if got := separator.Replace(`a\n\r\t\\n`); got != "a\n\r\t\\n" {
		t.Errorf("got %q", got)
	}
}

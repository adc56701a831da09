package naming

import (
	"errors"
	"fmt"
	"testing"
)

// TestUnknown checks the remedy of an unknown name: similar choices if there are any, otherwise all.
func TestUnknown(t *testing.T) {
	models := []string{"volta-mma", "hopper-mma", "hopper-wgmma"}
	for _, tc := range []struct {
		err  *UnknownError
		want string
	}{
		{&UnknownError{"model", "zzz", models, ""}, `unknown model "zzz": use one of volta-mma, hopper-mma, hopper-wgmma`},
		{&UnknownError{"model", "", models, ""}, `unknown model "": use one of volta-mma, hopper-mma, hopper-wgmma`},
		{&UnknownError{"recipe", "zzz", []string{"bf16"}, "a TOML file"}, `unknown recipe "zzz": use one of bf16, or a TOML file`},
		{&UnknownError{"recipe", "BF61", []string{"bf16"}, "a TOML file"}, `unknown recipe "BF61": did you mean bf16?`},
		{&UnknownError{"model", "hoper", models, ""}, `unknown model "hoper": did you mean hopper-mma or hopper-wgmma?`},
		{&UnknownError{"model", "volta", models, ""}, `unknown model "volta": did you mean volta-mma?`},
		{&UnknownError{"format", "int8-g64", []string{"int4-g64", "int8-g128", "INT8-row\tof rows"}, ""},
			`unknown format "int8-g64": did you mean int8-g128 or INT8-row?`},
		{&UnknownError{"model", "hopper-mna", models, ""}, `unknown model "hopper-mna": did you mean hopper-mma?`},
		{&UnknownError{"model", "zzz", nil, ""}, `unknown model "zzz": there is none`},
		{&UnknownError{"recipe", "zzz", nil, "a TOML file"}, `unknown recipe "zzz": use a TOML file`},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	err := fmt.Errorf("recipe.toml: line 3: %w", Unknown("key", "fromat", []string{"format", "rounding"}))
	if want := `recipe.toml: line 3: unknown key "fromat": did you mean format?`; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if unknown, ok := errors.AsType[*UnknownError](err); !ok || unknown.Name != "fromat" {
		t.Errorf("got %v, want an *UnknownError of fromat", err)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"json", "jsn", 1}, {"json", "json", 0}, {"kitten", "sitting", 3}, {"ab", "ba", 1},
		{"mxpf8", "mxfp8", 1}, {"abc", "ca", 3}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("from %q to %q it is %d edits, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

package lint

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// TestConfigNumbers: numbers that are no sizes of a model are findings, in known and other families; absent and null ones, and lists of
// other families, are none.
func TestConfigNumbers(t *testing.T) {
	for _, tc := range []struct{ config, want string }{
		{`{}`, ""},
		{`{"hidden_size": -384}`, "hidden_size is -384, want an integer from 1 to 16777216"},
		{`{"vocab_size": 0}`, "vocab_size is 0, want"},
		{`{"hidden_size": 1e3}`, "hidden_size is 1e3, want an integer"},
		{`{"num_hidden_layers": 60000000000}`, "num_hidden_layers is 60000000000, want"},
		{`{"num_hidden_layers": "2"}`, `num_hidden_layers is "2", want`},
		{`{"num_attention_heads": true}`, "num_attention_heads is true, want"},
		{`{"num_attention_heads": 7, "hidden_size": 384}`, "num_attention_heads is 7, want a divisor of hidden_size, 384"},
		{`{"num_attention_heads": 7, "hidden_size": 384, "head_dim": 64}`, ""},
		{`{"num_attention_heads": 7, "hidden_size": 384, "head_dim": null}`, "num_attention_heads is 7, want a divisor of hidden_size, 384"},
		{`{"num_attention_heads": 6, "hidden_size": 384, "num_key_value_heads": 4}`, "num_key_value_heads is 4, want a divisor of"},
		{`{"rms_norm_eps": -1}`, "rms_norm_eps is -1, want at least 0"},
		{`{"model_type": "new", "hidden_size": 0}`, "hidden_size is 0, want"},
		{`{"model_type": "new", "text_config": {"vocab_size": -1}}`, "text_config.vocab_size is -1, want"},
		{`{"model_type": "new", "num_attention_heads": [2, 4], "num_key_value_heads": null}`, ""},
		{`{"model_type": "new", "text_config": 3}`, "text_config: unexpected number, want an object"},
	} {
		s := dense(32, 32)
		config := maps.Clone(s.config)
		if err := json.Unmarshal([]byte(tc.config), &config); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		s.config = config
		s.write(t, dir)
		if strings.Contains(tc.config, "1e3") { // which encoding/json writes as 1000
			config["hidden_size"] = json.RawMessage("1e3")
			s.write(t, dir)
		}
		var got []string
		for _, f := range check(t, dir, "vllm").Findings {
			if f.Rule.Name == "config-number" {
				got = append(got, f.Text)
			}
		}
		if (tc.want != "") != (len(got) == 1) || !strings.Contains(strings.Join(got, ""), tc.want) {
			t.Errorf("%s: got %q, want %q", tc.config, got, tc.want)
		}
	}
}

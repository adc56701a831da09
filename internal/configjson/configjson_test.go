package configjson

import (
	"encoding/json"
	"testing"
)

func TestMembers(t *testing.T) {
	const config = `{
  "architectures": ["LlamaForCausalLM"],
  "quantization_config": {"quant_method": "old", "nested": {"a": [1, 2]}},
  "rms_norm_eps": 1e-05,
  "time_step_limit": [0.0, Infinity],
  "nested": {
    "quantization_config": "stays"
  }
}
`
	const kept = `{
  "architectures": ["LlamaForCausalLM"],
  "rms_norm_eps": 1e-05,
  "time_step_limit": [0.0, Infinity],
  "nested": {
    "quantization_config": "stays"
  }`
	for _, tc := range []struct {
		name, config string
		value        any
		want         string
	}{
		{"removed", config, nil, kept + "\n}\n"},
		{"replaced", config, map[string]string{"quant_method": "new"}, kept + ",\n  \"quantization_config\": {\n    \"quant_method\": " +
			"\"new\"\n  }\n}\n"},
		{"added to nothing", "{}", true, "{\n  \"quantization_config\": true\n}\n"},
		{"nothing left", `{"quantization_config":null}`, nil, "{\n}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := WithoutMembers([]byte(tc.config), "quantization_config")
			if tc.value != nil {
				got, err = WithMember([]byte(tc.config), "quantization_config", tc.value)
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	if _, err := WithoutMembers([]byte("[]")); err == nil {
		t.Error("an array: got no error")
	}
	if _, err := WithMember([]byte("[]"), "a", nil); err == nil {
		t.Error("an array: got no error")
	}
}

// TestWithoutMembersOfText checks that text_config loses the members too.
func TestWithoutMembersOfText(t *testing.T) {
	const config = `{"model_type": "a", "text_config": {"x": [1, 2], "quantization_config": {"q": 1}, "y": "}"}, "b": 2}`
	got, err := WithoutMembers([]byte(config), "quantization_config")
	const want = "{\n  \"model_type\": \"a\",\n  \"text_config\": {\n    \"x\": [1, 2],\n    \"y\": \"}\"\n  },\n  \"b\": 2\n}\n"
	if err != nil || string(got) != want {
		t.Errorf("got\n%s, %v, want\n%s", got, err, want)
	}
}

func TestWithTorchDtype(t *testing.T) {
	for _, tc := range []struct{ name, config, want string }{
		{"older", `{"a": 1, "torch_dtype": "bfloat16", "b": [ 2 ]}`, "{\n  \"a\": 1,\n  \"torch_dtype\": \"float32\",\n  \"b\": [ 2 ]\n}\n"},
		{"newer", `{"dtype": null}`, "{\n  \"dtype\": \"float32\"\n}\n"},
		{"both", `{"dtype": "float16", "torch_dtype": "bfloat16"}`, "{\n  \"dtype\": \"float32\",\n  \"torch_dtype\": \"float32\"\n}\n"},
		{"none", `{"a": [ 2 ]}`, "{\n  \"a\": [ 2 ],\n  \"torch_dtype\": \"float32\"\n}\n"},
		{"nested", `{"dtype": "float16", "text_config": {"dtype": "bfloat16"}, "t": {"v": {"dtype": "bfloat16"}, "x": {"y": {"dtype": 1}}}}`,
			"{\n  \"dtype\": \"float32\",\n  \"text_config\": {\n    \"dtype\": \"float32\"\n  },\n  \"t\": {\n    \"v\": {\n      \"dtype\": " +
				"\"float32\"\n    },\n    \"x\": {\"y\": {\"dtype\": 1}}\n  }\n}\n"},
		{"of the quantization", `{"dtype": "float16", "quantization_config": {"dtype": "int8"}}`,
			"{\n  \"dtype\": \"float32\",\n  \"quantization_config\": {\"dtype\": \"int8\"}\n}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := WithTorchDtype([]byte(tc.config), "float32")
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
	if _, err := WithTorchDtype([]byte("1"), "float32"); err == nil {
		t.Error("a number: got no error")
	}
}

// TestStandard checks that zeros have the length of the words that they replace, so that offsets do
// not change.
func TestStandard(t *testing.T) {
	in := []byte(`{"x": [NaN, -Infinity, Infinity, "NaN\"NaN"]}`)
	const want = `{"x": [  0,         0,        0, "NaN\"NaN"]}`
	if got := Standard(in); string(got) != want || !json.Valid(got) {
		t.Errorf("got %s, want %s", got, want)
	}
}

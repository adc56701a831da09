package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/demo"
	"github.com/microscale-go/microscale/cmd/microscale/internal/playground"
	"github.com/microscale-go/microscale/quant"
)

// TestPlayground checks that the page's texts are those of the command lines that it shows.
func TestPlayground(t *testing.T) {
	const values = "0.1, -0.7\n2.5 3.9 inf"
	requests := []playground.Request{
		{Format: "mxfp4", Profile: "all"}, {Format: "mxfp8", ScaleRule: "floor"}, {Format: "nvfp4", Amax: "12.5", Profile: "modelopt"},
	}
	for _, f := range quant.Formats() {
		if f.Scaled() {
			requests = append(requests, playground.Request{Format: f.Name})
		}
	}
	for i := range requests {
		requests[i].Command, requests[i].Values = "explain", values
	}
	t.Chdir(t.TempDir())
	if err := demo.Write(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"quantize model nvfp4 --format nvfp4", "quantize model fp8 --format fp8-tensor",
		"quantize model mxfp4.gguf --format mxfp4 --convention gguf"} {
		if status, _, stderr := execute("", strings.Fields(args)...); status != exitDone {
			t.Fatal(stderr)
		}
	}
	for _, source := range []string{"model", "nvfp4", "mxfp4.gguf"} {
		for _, command := range []string{"inspect", "lint", "identify"} {
			requests = append(requests, playground.Request{Command: command, Source: source})
		}
	}
	const weight = "model.layers.0.mlp.up_proj.weight"
	requests = append(requests, playground.Request{Command: "identify", Source: "nvfp4", Original: "model"},
		playground.Request{Command: "block", Source: "nvfp4", Original: "model", Weight: weight, Block: "25"},
		playground.Request{Command: "block", Source: "nvfp4", Weight: weight, Block: "0"},
		playground.Request{Command: "block", Source: "mxfp4.gguf", Weight: weight, Block: "3"})
	for _, r := range requests {
		a := answer(t, r)
		if r.Command == "identify" && r.Source == "model" {
			if !strings.HasPrefix(a.Error, "model: not quantized") {
				t.Errorf("got %q", a.Error)
			}
			continue
		}
		status, stdout, stderr := execute("", strings.Fields(a.Line)[1:]...)
		if status != exitDone || stdout != a.Text || a.Text == "" {
			t.Errorf("%s: exit status %d, got\n%s%s\nthe page has %s\n%s", a.Line, status, stdout, stderr, a.Error, a.Text)
		}
		if r.Command != "block" {
			continue
		}
		var compact bytes.Buffer // what the page draws
		_, stdout, _ = execute("", append(strings.Fields(a.Line)[1:], "--json")...)
		if err := json.Compact(&compact, []byte(stdout)); err != nil || compact.String() != string(a.Explanation) {
			t.Errorf("%s: error %v, got %s\nthe page draws %s", a.Line, err, stdout, a.Explanation)
		}
	}
	for _, tc := range []struct {
		request playground.Request
		want    string
	}{
		{playground.Request{Format: "mxfp8"}, "no values: give some, such as 0.1 -0.2 3.5"},
		{playground.Request{Format: "mxfp8", Values: "x"}, `"x" is not a number`},
		{playground.Request{Format: "mxfp9", Values: "1"}, `unknown block format "mxfp9"`},
		{playground.Request{Format: "mxfp8", Values: "1", Profile: "none"}, `"none"`},
		{playground.Request{Format: "mxfp8", Values: "1", ScaleRule: "none"}, `"none"`},
		{playground.Request{Format: "mxfp8", Values: "1", Profile: "ggml"}, "ggml"},
		{playground.Request{Format: "mxfp8", Values: "1", Amax: "1"}, "--amax: mxfp8 has no tensor scale"},
		{playground.Request{Format: "nvfp4", Values: "1", Amax: "nan"}, "want a number of 0 or more"},
		{playground.Request{Format: "nvfp4", Values: "1", Amax: "?"}, `amax: "?" is not a number`},
		{playground.Request{Format: "nvfp4", Values: strings.Repeat("1 ", 1025)}, "1025 values: the page explains up to 1024"},
	} {
		tc.request.Command = "explain"
		if a := answer(t, tc.request); !strings.Contains(a.Error, tc.want) || strings.Contains(a.Error, "\n") || a.Text != "" {
			t.Errorf("%+v: got %q, want %q", tc.request, a.Error, tc.want)
		}
	}
	for _, tc := range []struct{ source, weight, block, want string }{
		{"nvfp4", weight, "", `"" is not the number of a block`},
		{"nvfp4", weight, "-1", `"-1" is not the number of a block`},
		{"nvfp4", weight, "99999", "nvfp4: " + weight + " has blocks 0 to "},
		{"nvfp4", "none", "0", `no weight is called "none"`},
		{"model", weight, "0", "which has no blocks"},
		{"fp8", weight, "0", weight + " has blocks of 256×96: the page shows those of up to 16384 values"},
	} {
		r := playground.Request{Command: "block", Source: tc.source, Weight: tc.weight, Block: tc.block}
		if a := answer(t, r); !strings.Contains(a.Error, tc.want) || strings.Contains(a.Error, "\n") || a.Text != "" {
			t.Errorf("%+v: got %q, want %q", r, a.Error, tc.want)
		}
	}
	if a := answer(t, playground.Request{Command: "none"}); !strings.Contains(a.Error, `no command is called "none"`) {
		t.Errorf("got %q", a.Error)
	}
}

func answer(t *testing.T, r playground.Request) (a playground.Answer) {
	t.Helper()
	request, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(playground.Ask(t.Context(), request), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

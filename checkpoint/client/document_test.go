package client_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
)

var update = flag.Bool("update", false, "write docs/conventions.md")

// TestDocument checks that docs/conventions.md contains the current tables.
func TestDocument(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "conventions.md")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- tables: go test ./checkpoint/client -update -->\n", "<!-- end of tables -->\n"
	before, rest, ok := strings.Cut(string(got), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the tables: %q and %q", path, begin, end)
	}
	want := before + begin + "\n" + tables(t) + "\n" + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(got) != want {
		t.Errorf("%s is out of date: go test ./checkpoint/client -update", path)
	}
}

// tables renders conventions and clients.
func tables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| convention | scheme | format | tensors of `X.weight` [out, in] | global scale | activations | read by " +
		"|\n|---|---|---|---|---|---|---|\n")
	for _, c := range checkpoint.Conventions() {
		for _, f := range c.Formats() {
			for _, scheme := range c.Schemes(f) {
				only, err := c.With(f, scheme)
				if err != nil {
					t.Fatal(err)
				}
				weight, shape := "X.weight", []int64{256, 256}
				if only.Rejects(f, weight, shape) != "" {
					weight, shape = "X.experts.down_proj", []int64{2, 256, 256}
				}
				stored := only.Stored(f, weight, shape)
				_, activations := only.Scheme(f)
				if activations == checkpoint.Static {
					stored = append(stored, only.StoredInput(f, weight, 1))
				}
				var tensors []string
				for _, s := range stored {
					tensors = append(tensors, fmt.Sprintf("`%s` %s", strings.TrimPrefix(s.Name, "X."), s.Dtype))
				}
				var readers []string
				for _, client := range client.All() {
					if client.Reads(c.Name, scheme) {
						readers = append(readers, client.Name)
					}
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", c, scheme, f, strings.Join(tensors, ", "), only.GlobalHeld(f), activations,
					strings.Join(readers, ", "))
			}
		}
	}
	b.WriteString("\n| client | is |\n|---|---|\n")
	for _, c := range client.All() {
		fmt.Fprintf(&b, "| %s | %s |\n", c.Name, c.Doc)
	}
	return b.String()
}

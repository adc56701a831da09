package interop

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sameGenerated compares the part of a document that is marked as generated, with a name, with a text.
// With -update, it writes the text.
func sameGenerated(t *testing.T, document, name, text string, equal func(a, b string) bool) {
	t.Helper()
	path := filepath.Join("..", "..", "..", document)
	old := string(read(t, filepath.Dir(path), filepath.Base(path)))
	parts := regexp.MustCompile(`(?s)^(.*<!-- generated: ` + name + ` -->\n\n)(.*?)(\n *<!-- end -->.*)$`).FindStringSubmatch(old)
	if parts == nil {
		t.Fatalf("%s has no part that is generated: %s", document, name)
	}
	if equal(parts[2], text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not say\n%s\nrun go test ./cmd/microscale/interop -run '^%s$' -full -update", document, text, t.Name())
	}
	if err := os.WriteFile(path, []byte(parts[1]+text+parts[3]), 0o644); err != nil {
		t.Fatal(err)
	}
}

func same(a, b string) bool { return a == b }

func sameTrimmed(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

var figure = regexp.MustCompile(`[0-9]+\.[0-9]+`)

// sameFigures reports whether two texts are the same but for one unit in the last digit of numbers
// with decimals: the kernels of another processor add products in another order (docs/decisions.md).
func sameFigures(a, b string) bool {
	if figure.ReplaceAllString(a, "") != figure.ReplaceAllString(b, "") {
		return false
	}
	of := figure.FindAllString(b, -1)
	for i, text := range figure.FindAllString(a, -1) {
		decimals := len(text) - strings.IndexByte(text, '.') - 1
		x, _ := strconv.ParseFloat(text, 64)
		y, _ := strconv.ParseFloat(of[i], 64)
		if len(of[i])-strings.IndexByte(of[i], '.')-1 != decimals || math.Abs(x-y)*math.Pow10(decimals) > 1.5 {
			return false
		}
	}
	return true
}

func TestSameFigures(t *testing.T) {
	const text = "mxfp4 25.099 ± 2.351, 99 % 2.6294"
	for other, want := range map[string]bool{
		text:                                true,
		"mxfp4 25.098 ± 2.352, 99 % 2.6295": true,
		"mxfp4 25.097 ± 2.351, 99 % 2.6294": false,
		"mxfp4 25.099 ± 2.351, 99 % 2.6292": false,
		"mxfp4 25.099 ± 2.351, 98 % 2.6294": false,
		"mxfp4 25.1 ± 2.351, 99 % 2.6294":   false,
		"mxfp4 25.099 ± 2.351, 99 %":        false,
		"mxfp6 25.099 ± 2.351, 99 % 2.6294": false,
	} {
		if got := sameFigures(text, other); got != want {
			t.Errorf("%s: got %v, want %v", other, got, want)
		}
	}
}

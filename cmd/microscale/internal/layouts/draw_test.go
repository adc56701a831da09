package layouts

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pictures of docs")

// TestPictures compares docs/*.svg with what Draw returns, and reads the order of rows from the
// picture of the swizzle: that of Transformer Engine's documentation.
func TestPictures(t *testing.T) {
	for _, name := range Pictures {
		got, err := Draw(name)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(got))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join("..", "..", "..", "..", "docs", name+".svg")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what microscale layout --draw %s prints: run go test ./cmd/microscale/internal/layouts -update: %v", path, name, err)
		}
		if name == "swizzle" {
			var rows []string
			for _, m := range regexp.MustCompile(`y="3[0-9]+" text-anchor="middle">(\d+)<`).FindAllSubmatch(got, -1) {
				rows = append(rows, string(m[1]))
			}
			if order := strings.Join(rows, " "); order != "0 32 64 96 1 33 65 97 2 34 66 98 3 35 67 99 28 60 92 124 29 61 93 125 30 62 94 126 "+
				"31 63 95 127" {
				t.Errorf("got the order %s", order)
			}
		}
		if name == "blocks" && bytes.Count(got, []byte("<rect")) != 1+2*2*64*2 {
			t.Errorf("got %d rectangles, want the background, and a block and a scale for each of 2×64×2", bytes.Count(got, []byte("<rect")))
		}
	}
	if _, err := Draw("zzz"); err == nil || err.Error() != `unknown picture "zzz": use one of blocks, swizzle` {
		t.Errorf("got %v", err)
	}
}

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"testing"
)

func TestChart(t *testing.T) {
	c := Chart{Title: "Speedup", X: "size", Y: "×", PowersOfTwo: true, Lines: []Line{
		{"one", []float64{256, 512, 1024}, []float64{1, 2, math.NaN()}},
		{"none", []float64{256}, []float64{math.Inf(1)}},
	}}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Speedup", ">one<", ">256<", ">512<"} {
		if !bytes.Contains(svg, []byte(text)) {
			t.Errorf("the chart has no %q", text)
		}
	}
	for _, text := range []string{">none<", ">1024<"} { // lines and points that are not finite
		if bytes.Contains(svg, []byte(text)) {
			t.Errorf("the chart has %q", text)
		}
	}
	below := func(text string) float64 {
		found := regexp.MustCompile(`<text [^>]*y="([-0-9.]+)"[^>]*>` + text + `<`).FindSubmatch(svg)
		if found == nil {
			t.Fatalf("no position of %q in %s", text, svg)
		}
		y, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return y
	}
	for _, color := range []string{"#1c2430", "#525c6b"} { // of texts and of the first line in light mode
		if !bytes.Contains(svg, []byte(color)) {
			t.Errorf("the chart does not have the color %s of the pages", color)
		}
	}
	if bytes.Contains(svg, []byte("var(")) || bytes.Contains(svg, []byte("#-")) {
		t.Error("the chart has colors that only pages define, or none that a viewer knows")
	}
	if below("one") <= below("size") {
		t.Errorf("the legend, at %g, is not below the axis, at %g: it may cover lines", below("one"), below("size"))
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	again, err := c.SVG()
	if err != nil || !bytes.Equal(svg, again) {
		t.Errorf("the same chart has other bytes: %v", err)
	}
	if _, err := (Chart{Title: "empty", Lines: c.Lines[1:]}).SVG(); err == nil {
		t.Error("got no error of a chart without points")
	}
}

package main

import (
	"io"
	"strings"

	"github.com/microscale-go/microscale/layout"
)

// printLayouts lists the layouts with their other names.
func printLayouts(w io.Writer, asJSON bool) error {
	if asJSON {
		var list []layoutDocument
		for _, l := range layout.Layouts() {
			list = append(list, layoutDocument{l.Name, orEmpty(l.Aliases), l.Doc, l.Scales()})
		}
		return printJSON(w, map[string]any{"layouts": list})
	}
	var scales, codes []step
	for _, l := range layout.Layouts() {
		text := l.Doc
		if len(l.Aliases) > 0 {
			text += " (also " + strings.Join(l.Aliases, ", ") + ")"
		}
		if l.Scales() {
			scales = append(scales, step{l.Name, text})
		} else {
			codes = append(codes, step{l.Name, text})
		}
	}
	var b strings.Builder
	b.WriteString("Scales\n\n")
	writeColumns(&b, terminalWidth(w), 20, scales)
	section(&b, terminalWidth(w), "Codes and scales", 20, codes)
	_, err := io.WriteString(w, b.String())
	return err
}

type layoutDocument struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"`
	Doc     string   `json:"doc"`
	Scales  bool     `json:"scales_only"`
}

type candidateDocument struct {
	Layout    string `json:"layout"`
	Possible  bool   `json:"possible"`
	Why       string `json:"why,omitempty"`
	Structure number `json:"explained"` // share of the variance; null for codes
}

func foundDocument(candidates []layout.Candidate, certain bool) any {
	var list []candidateDocument
	for _, c := range candidates {
		d := candidateDocument{Layout: c.Layout.Name, Possible: c.Err == nil, Structure: number(c.Structure)}
		if c.Err != nil {
			d.Why = c.Err.Error()
		}
		list = append(list, d)
	}
	return map[string]any{"certain": certain, "candidates": list}
}

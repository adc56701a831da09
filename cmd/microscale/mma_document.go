package main

import (
	"fmt"

	"github.com/microscale-go/microscale/mma"
)

// A stepDocument is a step of a dot product in the output of the command.
type stepDocument struct {
	Title    string         `json:"title"`
	Terms    []termDocument `json:"terms"`
	Exponent *int           `json:"exponent"` // null: the terms are not aligned
	Unit     *int           `json:"unit"`     // exponent of what the terms are cut to multiples of
	Cut      string         `json:"cut"`
	Sum      *number        `json:"sum"`      // of what is kept; null: the terms are not aligned
	Rounding string         `json:"rounding"` // empty: the result is the sum
	Result   number         `json:"result"`
}

type termDocument struct {
	Name     string `json:"name"`
	Value    number `json:"value"`
	Exponent *int   `json:"exponent"` // null: the term is not aligned
	Kept     number `json:"kept"`
}

// dotDocument is the JSON document of an explained dot product.
func dotDocument(u *mma.Unit, code uint64, steps []*mma.Step) any {
	documents := make([]stepDocument, len(steps))
	for i, s := range steps {
		d := stepDocument{Title: s.Title, Cut: s.Cut, Rounding: s.Rounding, Result: number(s.Value)}
		aligned := s.Cut != ""
		if aligned {
			sum := number(s.Sum)
			d.Exponent, d.Unit, d.Sum = &s.Exponent, &s.Unit, &sum
		}
		for _, t := range s.Terms {
			term := termDocument{Name: t.Name, Value: number(t.Value), Kept: number(t.Kept)}
			if aligned {
				term.Exponent = &t.Exponent
			}
			d.Terms = append(d.Terms, term)
		}
		documents[i] = d
	}
	return map[string]any{
		"model": u.Model.Name, "rule": u.Rule(), "steps": documents,
		"result": number(u.Out.Value(code)), "code": fmt.Sprintf("0x%0*x", 2*u.Out.Bytes, code),
	}
}

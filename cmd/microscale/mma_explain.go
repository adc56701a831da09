package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
)

// A dotCase is the operands of one dot product.
type dotCase struct {
	a, b           []uint64
	c              uint64
	scaleA, scaleB []byte
}

// parseCase reads the products A:B or A:B:N, C and the scales.
func parseCase(u *mma.Unit, k int, products []string, c string, scalesA, scalesB []string) (d dotCase, err error) {
	if len(products) == 0 {
		return d, misuse("no products to explain: name some, such as 1:1 0.5:-2 or 1:1:32")
	}
	for _, p := range products {
		fields := strings.Split(p, ":")
		count := 1
		if len(fields) == 3 {
			if count, err = strconv.Atoi(fields[2]); err != nil || count < 1 {
				return d, misuse("%q: %q is not a number of products", p, fields[2])
			}
		} else if len(fields) != 2 {
			return d, misuse("%q is not a product: use A:B, or A:B:N for N of them", p)
		}
		if count > k-len(d.a) {
			return d, misuse("more products than K = %d: leave some out, or use --k", k)
		}
		a, err := parseOperand(fields[0], u.A)
		if err != nil {
			return d, err
		}
		b, err := parseOperand(fields[1], u.B)
		if err != nil {
			return d, err
		}
		for range count {
			d.a, d.b = append(d.a, a), append(d.b, b)
		}
	}
	rest := make([]uint64, k-len(d.a))
	d.a, d.b = append(d.a, rest...), append(d.b, rest...)
	if d.c, err = parseOperand(c, u.Out); err != nil {
		return d, err
	}
	if d.scaleA, err = parseScales("scales-a", scalesA, u, k); err != nil {
		return d, err
	}
	d.scaleB, err = parseScales("scales-b", scalesB, u, k)
	return d, err
}

// isProduct reports whether s begins as a product does: with a number and a colon.
func isProduct(s string) bool {
	a, _, product := strings.Cut(s, ":")
	return product && isNumber(a)
}

// parseOperand returns the code of a number, rounded to t.
func parseOperand(s string, t *mma.Type) (uint64, error) {
	if t == mma.F64 {
		if bits, err := strconv.ParseUint(s, 0, 64); err == nil && strings.HasPrefix(strings.ToLower(s), "0x") {
			return bits, nil
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, misuse("%q is not a number of %s", s, t)
		}
		return math.Float64bits(v), nil
	}
	f := t.Scalar
	lower := strings.ToLower(s)
	switch {
	case lower == "nan" && f.HasNaN():
		return uint64(f.EncodeWith(float32(math.NaN()), format.Conversion{}, 0)), nil
	case lower == "nan", strings.Contains(lower, "inf") && !f.HasInf():
		return 0, misuse("%s has no %s: use a number", t, s)
	}
	v, pattern, err := parseNumber(s, f)
	if err == nil && v != v && !strings.HasPrefix(lower, "0x") {
		return 0, misuse("%s is beyond %s, whose largest value is %v", s, t, f.Max())
	}
	return uint64(pattern), err
}

// parseScales returns the codes of the scales for k products: all 1, all as the
// one given, or as given.
func parseScales(flag string, texts []string, u *mma.Unit, k int) ([]byte, error) {
	n := u.Scales(k)
	switch {
	case len(texts) > 0 && n == 0:
		return nil, misuse("--%s: %s has no block scales: leave it out", flag, u.Model)
	case len(texts) == 0:
		texts = []string{"1"}
	case len(texts) != 1 && len(texts) != n:
		return nil, misuse("--%s: got %d scales, want 1 or %d", flag, len(texts), n)
	}
	codes := make([]byte, n)
	for i := range codes {
		code, err := parseOperand(texts[i%len(texts)], u.Scale)
		if err != nil {
			return nil, err
		}
		codes[i] = byte(code)
	}
	return codes, nil
}

// explain prints every step of the dot product.
func (d *dotCase) explain(w io.Writer, u *mma.Unit, asJSON bool) error {
	code, steps := u.Explain(d.a, d.b, d.c, d.scaleA, d.scaleB)
	if asJSON {
		return printJSON(w, dotDocument(u, code, steps))
	}
	var b strings.Builder
	width := terminalWidth(w)
	writeSteps(&b, width, []step{{"model", u.Model.Name + ": " + u.Model.Device}, {"rule", u.Rule()}})
	for _, s := range steps {
		fmt.Fprintf(&b, "\n%s\n\n%s\n\n", s.Title, termTable(s))
		var lines []step
		if s.Cut != "" {
			lines = append(lines, step{"cut", fmt.Sprintf("%s to multiples of %s, E = %d", s.Cut, powerOfTwo(s.Unit), s.Exponent)}, step{"sum", exactText(s.Sum)})
		}
		if s.Rounding != "" {
			lines = append(lines, step{"result", fmt.Sprintf("%s, %s: %s", exactText(s.Value), fmt.Sprintf("0x%0*x", 2*u.Out.Bytes, s.Code), s.Rounding)})
		}
		writeSteps(&b, width, lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// termTable shows the terms of a step; equal ones in a row share a row.
func termTable(s *mma.Step) string {
	columns := []column{{"term", false}, {"value", true}, {"exponent", true}, {"kept", true}, {"cut off", true}}
	if s.Cut == "" {
		columns = columns[:2]
	}
	t := newTable(columns...)
	for i := 0; i < len(s.Terms); {
		first := s.Terms[i]
		last := i
		for last+1 < len(s.Terms) && sameTerm(first, s.Terms[last+1]) && s.Terms[last+1].Name[0] == first.Name[0] {
			last++
		}
		name := first.Name
		if last > i {
			name += " … " + s.Terms[last].Name
		}
		row := table.Row{name, exactText(first.Value)}
		if s.Cut != "" {
			row = append(row, first.Exponent, exactText(first.Kept), exactText(first.Value-first.Kept))
		}
		t.AppendRow(row)
		i = last + 1
	}
	return t.Render()
}

func sameTerm(a, b mma.Term) bool {
	return a.Value == b.Value && a.Exponent == b.Exponent && a.Kept == b.Kept
}

// exactText writes a value in few digits: decimal where that is exact, otherwise
// with a binary exponent.
func exactText(v float64) string {
	const few = 12
	if text := strconv.FormatFloat(v, 'g', -1, 64); len(text) <= few {
		return text
	}
	return strconv.FormatFloat(v, 'x', -1, 64)
}

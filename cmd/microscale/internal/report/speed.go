package report

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Speed is the speed of products of square matrices in several formats over sizes, on one
// machine.
type Speed struct {
	Title, Subtitle string
	Baseline        string // name of the series that the others are compared with
	Series          []Series
	Bandwidth       float64   // of reading memory, bytes per second
	Ceilings        []Ceiling // instructions that bound the products
	Busy            bool      // other programs used the processors during some measurements
	Omitted         []string  // what was not measured, in sentences
	How             []Fact
}

// A Series is one format. The baseline's operands need no quantization.
type Series struct {
	Name   string
	Points []SpeedPoint // in ascending order of the size
	Few    []Rate       // products of few rows with weights from memory
}

// A SpeedPoint is the product of two square matrices of one size.
type SpeedPoint struct {
	Size     int
	Product  float64 // seconds of the product of quantized operands
	Quantize float64 // seconds to quantize both operands; 0 if they need none
	Rate
}

// A Rate is a point of the roofline: the speed of a product and its arithmetic intensity.
type Rate struct {
	Operations float64 // per second
	Intensity  float64 // operations per byte of the operands and the result
}

// A Ceiling is the peak of an instruction, in operations per second.
type Ceiling struct {
	Name       string
	Operations float64
}

// Total returns the seconds of the product and of quantizing both operands.
func (p SpeedPoint) Total() float64 { return p.Product + p.Quantize }

// Share returns the share of quantizing in the total time.
func (p SpeedPoint) Share() float64 { return p.Quantize / p.Total() }

// baseline returns the baseline, or nil if it is not among the series.
func (s *Speed) baseline() *Series {
	for i := range s.Series {
		if s.Series[i].Name == s.Baseline {
			return &s.Series[i]
		}
	}
	return nil
}

// point returns the point of a size, or nil.
func (s *Series) point(size int) *SpeedPoint {
	for i := range s.Points {
		if s.Points[i].Size == size {
			return &s.Points[i]
		}
	}
	return nil
}

// Speedup returns the speed of a point relative to the baseline at the same size, without and
// with the time to quantize both operands; NaN if there is none.
func (s *Speed) Speedup(p SpeedPoint) (product, total float64) {
	if b := s.baseline(); b != nil {
		if q := b.point(p.Size); q != nil {
			return q.Product / p.Product, q.Total() / p.Total()
		}
	}
	return math.NaN(), math.NaN()
}

// PaysFrom returns the smallest size from which on a format is faster than the baseline at
// every measured size, quantizing both operands included; 0 if it is not at the largest.
func (s *Speed) PaysFrom(f *Series) int {
	from := 0
	for i := len(f.Points) - 1; i >= 0; i-- {
		if _, total := s.Speedup(f.Points[i]); !(total > 1) {
			break
		}
		from = f.Points[i].Size
	}
	return from
}

// BreakEven estimates the size at which a format and the baseline take the same time, from the
// largest measured size: the time of a product grows with the third power of the size, that of
// quantizing with the second. It returns +Inf if the product itself is not faster.
func (s *Speed) BreakEven(f *Series) float64 {
	b := s.baseline()
	if b == nil || len(f.Points) == 0 {
		return math.NaN()
	}
	p := f.Points[len(f.Points)-1]
	q := b.point(p.Size)
	if q == nil {
		return math.NaN()
	}
	saved := q.Product - p.Product
	if saved <= 0 {
		return math.Inf(1)
	}
	return float64(p.Size) * (p.Quantize - q.Quantize) / saved
}

// sizes returns the sizes of the series with the most points.
func (s *Speed) sizes() []int {
	var sizes []int
	for i := range s.Series {
		if points := s.Series[i].Points; len(points) > len(sizes) {
			sizes = sizes[:0]
			for _, p := range points {
				sizes = append(sizes, p.Size)
			}
		}
	}
	return sizes
}

// Table returns, for each format and size: the speed, the speed relative to the baseline
// without and with quantizing, and the share of quantizing.
func (s *Speed) Table() Table {
	t := Table{Columns: []Column{{"format", "format", "", false}, {"", "", "", false}}}
	sizes := s.sizes()
	for _, n := range sizes {
		t.Columns = append(t.Columns, Column{fmt.Sprint(n), fmt.Sprint(n), "", true})
	}
	t.Columns = append(t.Columns, Column{"pays from", "pays", "smallest size from which on the format is faster, quantizing both operands " +
		"included", true})
	for i := range s.Series {
		f := &s.Series[i]
		rows := []struct {
			name, pays string
			text       func(p *SpeedPoint) string
		}{{"GOP/s", "", func(p *SpeedPoint) string { return shown(p.Operations/1e9, show.ThreeDigits) }}}
		if quantizes(f) {
			rows = append(rows, []struct {
				name, pays string
				text       func(p *SpeedPoint) string
			}{
				{"× " + s.Baseline, "", func(p *SpeedPoint) string { product, _ := s.Speedup(*p); return ratioText(product) }},
				{"× with q.", paysText(s.PaysFrom(f)), func(p *SpeedPoint) string { _, total := s.Speedup(*p); return ratioText(total) }},
				{"q. share", "", func(p *SpeedPoint) string { return show.Percent(p.Share()) }},
			}...)
		}
		for j, r := range rows {
			cells := []string{f.Name, r.name}
			if j > 0 {
				cells[0] = ""
			}
			for _, n := range sizes {
				cell := "–"
				if p := f.point(n); p != nil {
					cell = r.text(p)
				}
				cells = append(cells, cell)
			}
			t.Rows = append(t.Rows, append(cells, r.pays))
		}
	}
	return t
}

// PaysTable returns the sizes from which each format pays.
func (s *Speed) PaysTable() Table {
	t := Table{Columns: []Column{
		{"format", "format", "", false}, {"pays from", "pays", "smallest measured size from which on it is faster at every size, quantizing " +
			"both operands from BF16 included", true},
		{"estimate", "estimate", "size of equal times, from the times at the largest size", true},
		{"× " + s.Baseline, "", "speed of the product at the largest size", true},
		{"× with quantizing", "", "the same, quantizing both operands included", true},
		{"share of quantizing", "", "of the total time at the largest size", true},
	}}
	for i := range s.Series {
		f := &s.Series[i]
		if !quantizes(f) {
			continue
		}
		last := f.Points[len(f.Points)-1]
		product, total := s.Speedup(last)
		estimate := "–"
		if n := s.BreakEven(f); !math.IsNaN(n) && !math.IsInf(n, 0) {
			estimate = fmt.Sprintf("%.0f", n)
		}
		t.Rows = append(t.Rows, []string{f.Name, paysText(s.PaysFrom(f)), estimate, ratioText(product), ratioText(total),
			show.Percent(last.Share())})
	}
	return t
}

// quantizes reports whether a series has operands to quantize.
func quantizes(f *Series) bool { return len(f.Points) > 0 && f.Points[0].Quantize > 0 }

func paysText(size int) string {
	if size == 0 {
		return "–"
	}
	return fmt.Sprint(size)
}

func ratioText(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// Verdict summarizes the speeds in sentences.
func (s *Speed) Verdict() []string {
	b := s.baseline()
	if b == nil || len(b.Points) == 0 {
		return nil
	}
	last := b.Points[len(b.Points)-1]
	sentences := []string{fmt.Sprintf("At size %d, %s multiplies %s billion operations per second.", last.Size, b.Name,
		shown(last.Operations/1e9, show.ThreeDigits))}
	var pays, never []string
	for i := range s.Series {
		f := &s.Series[i]
		if !quantizes(f) {
			continue
		}
		if from := s.PaysFrom(f); from > 0 {
			_, total := s.Speedup(f.Points[len(f.Points)-1])
			pays = append(pays, fmt.Sprintf("%s from %d (%s times as fast at %d)", f.Name, from, ratioText(total), f.Points[len(f.Points)-1].Size))
		} else {
			never = append(never, f.Name)
		}
	}
	if len(pays) > 0 {
		sentences = append(sentences, fmt.Sprintf("With both operands quantized from BF16 for each product, it pays to use %s.", list(pays)))
	}
	if len(never) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: no gain up to this size with both operands quantized for each product. Weights that "+
			"are quantized once cost less.", list(never)))
	}
	if s.Busy {
		sentences = append(sentences, "Other programs used the processors during some measurements: measure again on an idle machine before "+
			"you rely on these figures.")
	}
	return sentences
}

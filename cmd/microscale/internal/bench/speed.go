package bench

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// Speed returns the rows of the report of a sweep on this machine, relative to BF16.
func (s *Sweep) Speed(command, version string) *report.Speed {
	m := host.ThisMachine()
	threads := s.Memory.Threads
	r := &report.Speed{
		Title: "Products of square matrices", Baseline: quant.BF16.Name, Bandwidth: s.Memory.Work / s.Memory.Time.Median, Omitted: s.omitted(),
		Subtitle: fmt.Sprintf("%s, %s kernels, threads: %d", m.CPU, m.Tier, threads),
		How: []report.Fact{
			{Name: "command", Text: command, Code: true},
			{Name: "product", Text: "C = A·Bᵀ in float32, both operands quantized beforehand, packing included"},
			{Name: "quantizing", Text: "A and B from BF16, along the rows, one after the other; the amax of the tensor is found where the " +
				"format needs it"},
			{Name: "times", Text: "medians; the product and the quantizing are measured one at a time and added"},
			{Name: "machine", Text: fmt.Sprintf("%s, processors: %d, %s %s", m.CPU, m.Processors, m.System, m.Go)},
			{Name: "program", Text: "microscale " + version},
		},
	}
	for _, p := range s.Results() {
		r.Busy = r.Busy || p.Time.Busy
	}
	for _, p := range s.Peaks {
		r.Ceilings = append(r.Ceilings, report.Ceiling{Name: p.Kernel, Operations: p.Work / p.Time.Median})
	}
	for i, f := range s.Formats {
		series := report.Series{Name: f.Name}
		for j, n := range s.Sizes {
			p := s.Points[j][i]
			series.Points = append(series.Points, report.SpeedPoint{Size: n, Product: p.Gemm.Time.Median, Quantize: p.Quantize.Time.Median,
				Rate: rate(p.Gemm, f, f)})
		}
		for _, few := range s.Few[i] {
			series.Few = append(series.Few, rate(few, quant.BF16, f))
		}
		r.Series = append(r.Series, series)
	}
	return r
}

// rate returns the operations per second of a product, and its arithmetic intensity: C is
// float32.
func rate(r Result, a, b quant.Format) report.Rate {
	work := 2 * float64(r.M) * float64(r.N) * float64(r.K)
	bytes := 4*r.M*r.N + Conversion{Format: a, Source: format.F32, Rows: r.M, Cols: r.K}.formatBytes() + Conversion{Format: b,
		Source: format.F32, Rows: r.N, Cols: r.K}.formatBytes()
	return report.Rate{Operations: work / r.Time.Median, Intensity: work / float64(bytes)}
}

// omitted names what a sweep does not measure.
func (s *Sweep) omitted() []string {
	var others []string
	for _, f := range quant.Formats() {
		found := false
		for _, o := range s.Formats {
			found = found || o.Name == f.Name
		}
		if !found {
			others = append(others, f.Name)
		}
	}
	list := []string{
		"Quantizing fused into the operation before it, or weights quantized once for many products: both cost less than what is charged here.",
		"The columnwise copies that training needs: microscale bench linear measures whole training steps of a layer.",
		"Other hardware: these are kernels for a processor. A GPU with instructions for block formats has other ratios.",
	}
	if len(others) > 0 {
		list = append(list, "Formats: "+strings.Join(others, ", ")+" (--formats).")
	}
	return list
}

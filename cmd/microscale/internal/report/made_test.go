package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
)

// made returns a comparison as a run of the given number of steps would, with one recipe that
// diverges.
func made(steps int) *report.Comparison {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]float64, steps+1)
	for i := range noise {
		noise[i] = 0.05 * random.NormFloat64()
	}
	c := &report.Comparison{
		Title: "Five recipes, one model", Subtitle: "0.8 M parameters, 300 steps of 4 × 128 bytes", Baseline: "bf16", Token: "byte",
		How: []report.Fact{{Name: "command", Text: "microscale compare --seed 1", Code: true}, {Name: "seed", Text: "1"},
			{Name: "machine", Text: "two cores <of> something"}},
	}
	for i, r := range []struct {
		name      string
		loss, db  float64
		e         int
		diverging bool
	}{{"bf16", 0, math.Inf(1), 0, false}, {"tensorwise", 0.0003, 31, -8, false}, {"mxfp8", 0.0012, 31.5, -9, false},
		{"nvfp4", 0.013, 20.5, -6, false}, {"mxfp4", 0.03, 17, -5, true}} {
		row := report.Recipe{Name: r.name, Doc: "what " + r.name + " is, in a line", Steps: steps, TrainLoss: math.NaN(),
			ValidationLoss: math.NaN(), SecondsPerStep: 0.11 * (1 + 0.2*float64(i)), Memory: report.Memory{Masters: 3_000_000, Gradients: 3_000_000,
				Moments: 6_000_000, Rowwise: 800_000 >> min(i, 2), Columnwise: 800_000 >> min(i, 2), Activations: 12_345_678 >> min(i, 2)}}
		if r.diverging {
			row.Steps = steps / 3
			row.Failed = fmt.Sprintf("the loss was NaN at step %d", row.Steps)
		}
		curve := func(step int) float64 {
			return (1.9 + 3.6*math.Exp(-float64(step)/40)) * (1 + r.loss*float64(step)/float64(steps))
		}
		for step := 1; step <= row.Steps; step++ {
			row.Train = append(row.Train, report.Point{Step: step, Loss: curve(step) + noise[step] + r.loss*0.1*random.NormFloat64()})
			if step%(max(steps/10, 1)) == 0 {
				row.Validation = append(row.Validation, report.Point{Step: step, Loss: curve(step) + r.loss*0.05*random.NormFloat64()})
			}
		}
		if !r.diverging {
			row.TrainLoss, row.ValidationLoss = row.Train[len(row.Train)-1].Loss, row.Validation[len(row.Validation)-1].Loss
		} else {
			row.Train = append(row.Train, report.Point{Step: row.Steps + 1, Loss: math.NaN()})
		}
		for operand, name := range []string{"input", "weight", "gradient"} {
			counts := map[int]int64{}
			for step := 1; step <= row.Steps; step += max(steps/12, 1) {
				for layer := range 4 {
					for m, module := range []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"} {
						for d, direction := range []string{"rowwise", "columnwise"} {
							o := report.Operand{
								Step: step, Module: fmt.Sprintf("layers.%d.%s", layer, module), Name: name, Direction: direction,
								SQNR: r.db + float64(operand) - 0.2*float64(m) - float64(layer)/2 + 0.4*random.NormFloat64() - float64(d),
								Amax: math.Exp2(float64(3-6*operand) + random.NormFloat64()), Elements: 65536,
								Saturated: int64(i * 20), Flushed: int64(i * i * 100),
							}
							row.Operands = append(row.Operands, o)
							for range 8 {
								counts[r.e-4*operand+int(2*random.NormFloat64())]++
							}
						}
					}
				}
			}
			if r.e != 0 {
				row.Scales = append(row.Scales, report.Histogram{Name: name, Counts: counts})
			}
		}
		c.Recipes = append(c.Recipes, row)
	}
	last := c.Recipes[0].ValidationLoss
	for i, name := range []string{"mxfp8", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4", "nvfp4", "fp8-tensor", "fp8-row", "fp8-block128", "mxint8"} {
		c.Formats = append(c.Formats, report.Format{Name: name, Bits: 8.25 - float64(i)/3, Loss: last + 0.003*float64(i*i%11)})
	}
	return c
}

// madeSpeed returns speeds of four formats over six sizes, with two ceilings close to each
// other.
func madeSpeed() *report.Speed {
	s := &report.Speed{
		Title: "Products", Subtitle: "a processor", Baseline: "bf16", Bandwidth: 20e9,
		Ceilings: []report.Ceiling{{Name: "VDPBF16PS zmm", Operations: 240e9}, {Name: "VPDPBUSD zmm", Operations: 470e9},
			{Name: "VFMADD231PS zmm", Operations: 235e9}},
		Omitted: []string{"other formats"}, How: []report.Fact{{Name: "command", Text: "microscale bench all", Code: true}},
	}
	for i, name := range []string{"bf16", "fp8-row", "mxfp8", "mxfp4"} {
		f := report.Series{Name: name}
		for n := 256; n <= 8192; n *= 2 {
			work := 2 * math.Pow(float64(n), 3)
			p := report.SpeedPoint{Size: n, Product: work / (220e9 * (1 + 0.2*float64(i))), Quantize: 2 * float64(i*n*n) / 5e9}
			p.Rate = report.Rate{Operations: work / p.Product, Intensity: float64(n) / (4 - float64(i)/2)}
			f.Points = append(f.Points, p)
		}
		for _, m := range []float64{1, 8, 64} {
			f.Few = append(f.Few, report.Rate{Operations: min(200e9, m*15e9*(1+float64(i))), Intensity: m * (1 + float64(i))})
		}
		s.Series = append(s.Series, f)
	}
	return s
}

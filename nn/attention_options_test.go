package nn

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// attend computes attention in float64, token by token.
func attend(a *Attention, qkv []float64, batch int) []float64 {
	width, d := a.Width(), a.HeadDim
	length := len(qkv) / width / batch
	rotated := append([]float64(nil), qkv...)
	for i := range batch * length {
		row := rotated[i*width : (i+1)*width]
		normalizeReference(a.QueryNorm, row[:a.Heads*d])
		normalizeReference(a.KeyNorm, row[a.Heads*d:(a.Heads+a.KVHeads)*d])
		for h := range a.Heads + a.KVHeads {
			rotateReference(a.Rotary, row[h*d:(h+1)*d], i%length, length)
		}
	}
	scale := float64(a.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	out := make([]float64, batch*length*a.Heads*d)
	for b := range batch {
		for h := range a.Heads {
			kv := h / (a.Heads / a.KVHeads)
			at := func(i, column int) []float64 {
				return rotated[(b*length+i)*width+column*d : (b*length+i)*width+(column+1)*d]
			}
			for i := range length {
				p, sum := make([]float64, i+1), 0.0
				if a.Sinks != nil {
					sum = math.Exp(float64(a.Sinks.Value.Data[h]))
				}
				for j := range p {
					if a.Window > 0 && i-j >= a.Window {
						continue
					}
					for k, q := range at(i, h) {
						p[j] += scale * q * at(j, a.Heads+kv)[k]
					}
					if c := float64(a.Softcap); c > 0 {
						p[j] = c * math.Tanh(p[j]/c)
					}
					p[j] = math.Exp(p[j])
					sum += p[j]
				}
				for j := range p {
					for k, v := range at(j, a.Heads+a.KVHeads+kv) {
						out[(b*length+i)*a.Heads*d+h*d+k] += p[j] / sum * v
					}
				}
			}
		}
	}
	return out
}

// normalizeReference normalizes parts of row that are as wide as the weight of n.
func normalizeReference(n *RMSNorm, row []float64) {
	if n == nil {
		return
	}
	w := n.Weight.Value.Data
	for ; len(row) > 0; row = row[len(w):] {
		sum := 0.0
		for _, v := range row[:len(w)] {
			sum += v * v
		}
		for j, v := range row[:len(w)] {
			row[j] = float64(w[j]) * v / math.Sqrt(sum/float64(len(w))+float64(n.Epsilon))
		}
	}
}

// rotateReference rotates a head.
func rotateReference(r *Rotary, head []float64, position, length int) {
	if r == nil {
		return
	}
	c := r.config
	divisors := c.Divisors
	if length > c.Short && c.LongDivisors != nil {
		divisors = c.LongDivisors
	}
	for i := range c.Rotated / 2 {
		angle := float64(position) * math.Pow(c.Base, -float64(2*i)/float64(c.Rotated))
		if divisors != nil {
			angle /= divisors[i]
		}
		sin, cos := math.Sincos(angle)
		x, y := &head[i], &head[i+c.Rotated/2]
		if c.Interleaved {
			x, y = &head[2*i], &head[2*i+1]
		}
		*x, *y = c.Magnitude*(*x*cos-*y*sin), c.Magnitude*(*y*cos+*x*sin)
	}
}

// TestAttentionOptions compares attention with float64: the output and, where there is a backward
// pass, the gradient. Windows end within a chunk and before it.
func TestAttentionOptions(t *testing.T) {
	slow.Emulated(t, "options change positions and masks, in portable Go; TestAttention has the products")
	slow.Race(t, slow.Repeats)
	const length = chunkTokens + 37
	norm := func(width int, epsilon float32) *RMSNorm {
		n := NewRMSNorm("norm", width, epsilon)
		n.Weight.Value = randomDense(rand.New(rand.NewPCG(8, uint64(width))), 1, width)
		return n
	}
	sinks := newParam("sinks", 1, 4)
	copy(sinks.Value.Data, []float32{-1, 3, 0, 8})
	plain := RotaryConfig{HeadDim: 8, Positions: length, Base: 50}
	for name, option := range map[string]func(*Attention, *RotaryConfig){
		"scale":       func(a *Attention, _ *RotaryConfig) { a.Scale = 0.7 },
		"window":      func(a *Attention, _ *RotaryConfig) { a.Window = 20 },
		"token":       func(a *Attention, _ *RotaryConfig) { a.Window = 1 },
		"wide":        func(a *Attention, _ *RotaryConfig) { a.Window = chunkTokens + 3 },
		"nope":        func(_ *Attention, c *RotaryConfig) { *c = RotaryConfig{} },
		"interleaved": func(_ *Attention, c *RotaryConfig) { c.Interleaved = true },
		"partial":     func(_ *Attention, c *RotaryConfig) { c.Rotated = 4 },
		"both":        func(_ *Attention, c *RotaryConfig) { c.Rotated, c.Interleaved = 6, true },
		"divisors":    func(_ *Attention, c *RotaryConfig) { c.Divisors, c.Magnitude = []float64{1, 2, 3, 8}, 1.25 },
		"long": func(_ *Attention, c *RotaryConfig) {
			c.Divisors, c.LongDivisors, c.Short = []float64{1, 1, 1, 1}, []float64{3, 4, 5, 6}, length-1
		},
		"short": func(_ *Attention, c *RotaryConfig) {
			c.Divisors, c.LongDivisors, c.Short = []float64{1, 1, 1, 1}, []float64{3, 4, 5, 6}, length
		},
		"softcap": func(a *Attention, _ *RotaryConfig) { a.Softcap = 2 },
		"sinks":   func(a *Attention, _ *RotaryConfig) { a.Sinks, a.Window = sinks, 30 },
		"heads":   func(a *Attention, _ *RotaryConfig) { a.QueryNorm, a.KeyNorm = norm(8, 1e-3), norm(8, 0.5) },
		"whole":   func(a *Attention, _ *RotaryConfig) { a.QueryNorm, a.KeyNorm = norm(32, 1e-3), norm(16, 0.5) },
	} {
		t.Run(name, func(t *testing.T) {
			a := &Attention{Name: "attention", Heads: 4, KVHeads: 2, HeadDim: 8}
			c := plain
			if option(a, &c); c.HeadDim > 0 {
				a.Rotary = NewRotary(c)
			}
			r := rand.New(rand.NewPCG(1, 6))
			x := randomDense(r, length, a.Width())
			wide := make([]float64, len(x.Data))
			for i, v := range x.Data {
				wide[i] = float64(v)
			}
			s := f32Scope(t)
			if s.Inference = a.forwardOnly() != ""; s.Inference {
				training := *s
				training.Inference = false
				if _, _, err := a.Forward(&training, x.Clone(), 1); err == nil {
					t.Error("a forward pass of training: got no error")
				}
			}
			extendLike(t, a, x, attend(a, wide, 1))
			y, saved, err := a.Forward(s, x.Clone(), 1)
			if err != nil {
				t.Fatal(err)
			}
			requireClose(t, "output", y.Data, attend(a, wide, 1), 4e-6)
			if !s.Inference {
				requireGradient(t, a, wide, randomDense(r, y.Rows, y.Cols),
					func(dy tensor.Dense) tensor.Dense { return dense(t)(a.Backward(s, saved, dy)) })
			}
		})
	}
}

// extendLike compares Extend in uneven pieces with the output of all tokens.
func extendLike(t *testing.T, a *Attention, x tensor.Dense, want []float64) {
	t.Helper()
	s := f32Scope(t)
	s.Inference = true
	cache := Cache{Positions: x.Rows}
	var got []float32
	for from := 0; from < x.Rows; {
		to := min(from+1+from/2, x.Rows)
		y := dense(t)(a.Extend(s, x.View(from, to, 0, x.Cols).Clone(), &cache))
		got, from = append(got, y.Data...), to
	}
	requireClose(t, "output of Extend", got, want, 4e-6)
}

// requireGradient compares the gradient with directional derivatives of attend.
func requireGradient(t *testing.T, a *Attention, x []float64, dy tensor.Dense, backward func(tensor.Dense) tensor.Dense) {
	t.Helper()
	dx := backward(dy)
	for seed := range uint64(3) {
		direction := randomDense(rand.New(rand.NewPCG(2, seed)), dx.Rows, dx.Cols)
		slope, along := 0.0, 0.0
		for _, h := range []float64{1e-5, -1e-5} {
			moved := make([]float64, len(x))
			for i, v := range x {
				moved[i] = v + h*float64(direction.Data[i])
			}
			for i, v := range attend(a, moved, 1) {
				slope += v * float64(dy.Data[i]) / (2 * h)
			}
		}
		for i, v := range dx.Data {
			along += float64(v) * float64(direction.Data[i])
		}
		if !(math.Abs(slope-along) <= 1e-4*math.Abs(slope)+1e-3) {
			t.Errorf("directional derivative: got %g by the gradient, want %g", along, slope)
		}
	}
}

// TestGLU compares the variants of the gated unit with float64.
func TestGLU(t *testing.T) {
	x := randomDense(rand.New(rand.NewPCG(3, 3)), 9, 62)
	for i := range x.Data {
		x.Data[i] *= 5
	}
	sigma := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	gelu := func(v float64) float64 {
		return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
	for name, c := range map[string]struct {
		unit GLU
		want func(gate, up float64) float64
	}{
		"gelu":        {GLU{Activation: GELU}, func(g, u float64) float64 { return gelu(g) * u }},
		"interleaved": {GLU{Interleaved: true}, func(g, u float64) float64 { return g * sigma(g) * u }},
		"gpt-oss": {GLU{Activation: QuickSiLU, Limit: 7, Interleaved: true}, func(g, u float64) float64 {
			g, u = min(g, 7), max(-7, min(u, 7))
			return (u + 1) * g * sigma(1.702*g)
		}},
	} {
		s := f32Scope(t)
		if _, _, err := c.unit.Forward(s, x); err == nil {
			t.Errorf("%s: a forward pass of training: got no error", name)
		}
		s.Inference = true
		y, _, err := c.unit.Forward(s, x)
		if err != nil {
			t.Fatal(err)
		}
		var want []float64
		for i := range x.Rows {
			for j := range y.Cols {
				gate, up := x.At(i, j), x.At(i, j+y.Cols)
				if c.unit.Interleaved {
					gate, up = x.At(i, 2*j), x.At(i, 2*j+1)
				}
				want = append(want, c.want(float64(gate), float64(up)))
			}
		}
		requireClose(t, name, y.Data, want, 1e-6)
	}
}

// TestTanh compares tanh with math.Tanh.
func TestTanh(t *testing.T) {
	for i := range 200001 {
		x := float32(i-100000) / 8000
		got, want := float64(tanh(x)), math.Tanh(float64(x))
		if math.Abs(got-want) > 4*0x1p-24*math.Abs(want) {
			t.Fatalf("tanh(%g): got %g, want %g", x, got, want)
		}
	}
	if got := tanh(100); got != 1 {
		t.Errorf("tanh(100): got %g", got)
	}
	if got := tanh(float32(math.NaN())); got == got {
		t.Errorf("tanh(NaN): got %g", got)
	}
}

// TestForwardOnly checks that each option without a backward pass is an error in training.
func TestForwardOnly(t *testing.T) {
	for want, option := range map[string]func(a *Attention){
		"query norm": func(a *Attention) { a.QueryNorm = NewRMSNorm("q", 8, 1e-5) },
		"key norm":   func(a *Attention) { a.KeyNorm = NewRMSNorm("k", 8, 1e-5) },
		"softcap":    func(a *Attention) { a.Softcap = 1 },
		"sinks":      func(a *Attention) { a.Sinks = newParam("s", 1, 1) },
	} {
		a := &Attention{Name: "a", Heads: 1, KVHeads: 1, HeadDim: 8}
		option(a)
		if _, _, err := a.Forward(f32Scope(t), tensor.New(1, a.Width()), 1); err == nil || !strings.Contains(err.Error(),
			"has no backward pass") {
			t.Errorf("%s: got %v, want an error", want, err)
		}
	}
}

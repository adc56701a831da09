package sample

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// A weight is a tensor of the sample. Its values are
//
//	weight (i, j) = std · normal(i, j) · row(i) · channel(j)
//	norm   (j)    = (1 + std · normal(j)) · channel(j)
//
// where row and channel are about 1 and large for a few rows and input
// channels.
type weight struct {
	name       string
	rows, cols int // a norm has one row
	norm       bool
	std        float64
	input      string // names the input, whose channels are the same for all that read it
	shard      int    // counted from 1
}

func (w weight) shape() []int64 {
	if w.norm {
		return []int64{int64(w.cols)}
	}
	return []int64{int64(w.rows), int64(w.cols)}
}

// residual names the residual stream. All readers have outliers in the same channels, as in
// trained models.
const residual = "residual"

// tensors returns the tensors in the order of the model.
func (m *model) tensors() []weight {
	all := []weight{{name: "model.embed_tokens.weight", rows: m.Vocab, cols: m.Hidden, std: 0.02, input: residual}}
	for layer := range m.Layers {
		prefix := fmt.Sprintf("model.layers.%d.", layer)
		all = append(all,
			weight{name: "input_layernorm", rows: 1, cols: m.Hidden, norm: true, std: 0.08, input: residual},
			weight{name: "self_attn.q_proj", rows: m.Heads * m.HeadDim, cols: m.Hidden, std: 0.045, input: residual},
			weight{name: "self_attn.k_proj", rows: m.KVHeads * m.HeadDim, cols: m.Hidden, std: 0.05, input: residual},
			weight{name: "self_attn.v_proj", rows: m.KVHeads * m.HeadDim, cols: m.Hidden, std: 0.025, input: residual},
			weight{name: "self_attn.o_proj", rows: m.Hidden, cols: m.Heads * m.HeadDim, std: 0.025, input: prefix + "attention"},
			weight{name: "post_attention_layernorm", rows: 1, cols: m.Hidden, norm: true, std: 0.08, input: residual},
			weight{name: "mlp.gate_proj", rows: m.Intermediate, cols: m.Hidden, std: 0.035, input: residual},
			weight{name: "mlp.up_proj", rows: m.Intermediate, cols: m.Hidden, std: 0.03, input: residual},
			weight{name: "mlp.down_proj", rows: m.Hidden, cols: m.Intermediate, std: 0.03, input: prefix + "mlp"},
		)
		const perLayer = 9
		for i := len(all) - perLayer; i < len(all); i++ {
			all[i].name = prefix + all[i].name + ".weight"
		}
	}
	all = append(all,
		weight{name: "model.norm.weight", rows: 1, cols: m.Hidden, norm: true, std: 0.08, input: residual},
		weight{name: "lm_head.weight", rows: m.Vocab, cols: m.Hidden, std: 0.03, input: residual},
	)
	// The second shard starts after q_proj of the middle layer.
	last := fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", m.Layers/2)
	shard := 1
	for i := range all {
		all[i].shard = shard
		if all[i].name == last {
			shard++
		}
	}
	return all
}

// bytes returns the tensor in BF16, rounded to nearest even.
//
// The result is the same on every machine: IEEE 754 rounds every operation correctly, no sum
// has a product that a compiler might fuse, and there are no logarithms or cosines, which
// differ between machines.
func (w weight) bytes() ([]byte, error) {
	channelsOf := channelOutliers
	if w.norm {
		channelsOf = normOutliers
	}
	channels := factors(w.cols, "channel "+w.input, channelsOf)
	rows := factors(w.rows, "row "+w.name, rowOutliers)
	random := newStream(w.name)
	values := make([]float32, w.rows*w.cols)
	for i := range w.rows {
		row, base := rows[i], 0.0
		if w.norm {
			row, base = 1, 1
		}
		scale := w.std * row
		for j := range w.cols {
			at := i*w.cols + j
			x := base + float64(scale*random.normal(uint64(at)))
			values[at] = float32(x * channels[j])
		}
	}
	data := make([]byte, 2*len(values))
	return data, tensor.ToBytes(data, values, format.BF16)
}

// outliers describes which of a tensor's rows or channels are large: one in every, on average,
// with the factor least/√u, at most most, for u uniform in (0, 1). This has the tail of a
// Pareto distribution: a quarter of the factors are 2·least or more. The factors of the others
// are uniform in 1 ± spread.
type outliers struct {
	every       float64
	least, most float64
	spread      float64
}

var (
	channelOutliers = outliers{every: 64, least: 8, most: 20, spread: 0.25}
	rowOutliers     = outliers{every: 128, least: 2, most: 6, spread: 0.125}
	normOutliers    = outliers{every: 64, least: 1.5, most: 4, spread: 0.125}
)

// factors returns the factors of n rows or channels. Equal names with different parameters
// have their large factors at the same indices.
func factors(n int, name string, o outliers) []float64 {
	random := newStream(name)
	f := make([]float64, n)
	for i := range f {
		which, size := random.uniform(2*uint64(i)), random.uniform(2*uint64(i)+1)
		if which*o.every < 1 {
			f[i] = min(o.least/math.Sqrt(size), o.most)
		} else {
			f[i] = 1 + float64(o.spread*(2*size-1))
		}
	}
	return f
}

// A stream is a stateless form of the SplitMix64 generator (Steele, Lea, Flood: "Fast
// splittable pseudorandom number generators", OOPSLA 2014). Its value is the seed; word i
// depends only on the seed and i.
type stream uint64

// newStream returns the stream whose seed is the hash of a name.
func newStream(name string) stream {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return stream(h.Sum64())
}

func (s stream) word(i uint64) uint64 {
	z := uint64(s) + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform returns number i, uniform in (0, 1).
func (s stream) uniform(i uint64) float64 {
	const unit = 1.0 / (1 << 53)
	return (float64(s.word(i)>>12) + 0.5) * (2 * unit)
}

// normal returns number i of mean 0 and variance 1, nearly normal: the sum of
// eight uniform numbers of 16 bits, taken from two words. It stays within ±4.9.
func (s stream) normal(i uint64) float64 {
	const (
		terms  = 8
		levels = 1 << 16
		even   = 0x0000ffff0000ffff
	)
	a, b := s.word(2*i), s.word(2*i+1)
	pairs := a&even + a>>16&even + b&even + b>>16&even // two sums of four, 32 bits apart
	sum := pairs&(1<<32-1) + pairs>>32
	centered := float64(2*int64(sum) - terms*(levels-1))
	return centered / normalSpread
}

// normalSpread is the standard deviation of twice the sum of eight uniform
// integers below 2^16: the variance of one is (2^32-1)/12.
var normalSpread = math.Sqrt(4 * 8 * (1<<32 - 1) / 12.0)

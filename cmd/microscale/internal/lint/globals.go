package lint

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// unifyGlobals gives the weights of a fused set one global scale G, and the block scales s·g/G: codes stay. A product that E4M3 has is
// exact. G is that of the members, or a power of two times one, with which the squared relative errors of the scales have the
// smallest sum, none overflows, and those of each weight keep all but 1/256 of their squares: a global scale that is wrong by itself,
// reversed or damaged, would flush the scales of the others to zero.
func (r *repairer) unifyGlobals() (repaired func(f *Finding) bool, err error) {
	done := map[string]bool{}
	r.sets(func(weights []*checkpoint.Weight) {
		differ := false
		for _, w := range weights {
			if !w.Quantized() || !w.Format.Global {
				return
			}
			differ = differ || w.Global != weights[0].Global
		}
		if !differ {
			return
		}
		failed := r.unifyGlobal(weights)
		for _, w := range weights {
			if r.reasons[w.Name] = failed; failed == nil {
				done[w.Name] = true
			}
		}
	})
	return func(f *Finding) bool { return done[f.Tensor] }, nil
}

// A rescaling is what the scales of a weight become.
type rescaling struct {
	bytes   [256]byte
	rounded int64   // scales that are not exact
	worst   float64 // relative error of a scale
	sum     float64 // of squared relative errors
	fits    bool    // no scale overflows, and few lose more than a rounding of normal numbers
}

// rescale multiplies scales by a ratio. count has the number of each scale.
func rescale(count *[256]int64, ratio float64) (s rescaling) {
	s.fits = true
	var lost, all float64 // squares
	for code := range s.bytes {
		scale := float64(format.E4M3.Decode(uint32(code)))
		want := scale * ratio
		s.bytes[code] = byte(format.E4M3.Encode(float32(want)))
		if count[code] == 0 || scale == 0 || scale != scale {
			continue
		}
		got := float64(format.E4M3.Decode(uint32(s.bytes[code])))
		all += float64(count[code]) * float64(want*want)
		if s.fits = s.fits && want <= float64(format.E4M3.Max()); got == want {
			continue
		}
		e := math.Abs(got-want) / want
		lost += float64(count[code]) * float64((got-want)*(got-want))
		s.rounded, s.worst, s.sum = s.rounded+count[code], max(s.worst, e), s.sum+float64(float64(count[code])*float64(e*e))
	}
	const largestError = 1.0 / 16 // of rounding a normal number to 3 bits after the first
	s.fits = s.fits && lost <= float64(largestError*largestError)*all
	return s
}

// The powers of two times a global scale of the set that are tried, and the largest ratio to the largest of the set: by more than
// 16, block scales overflow or become subnormal. From a member that is smaller by 16, powers to 8 reach every ratio.
const (
	maxPower    = 8
	maxDistance = 16
)

// unifyGlobal is unifyGlobals for one set.
func (r *repairer) unifyGlobal(weights []*checkpoint.Weight) error {
	counts := make([]*[256]int64, len(weights))
	largest := float32(0)
	for i, w := range weights {
		t, ok := w.Part(checkpoint.Scales)
		if !ok || t.Dtype != safetensors.F8E4M3 || !valid(w.Global) {
			return fmt.Errorf("%s: its global scale differs from those of its fused set, and its scales are not E4M3 bytes: quantize again", w.Name)
		}
		var err error
		if counts[i], err = histogram(r.checker, t); err != nil {
			return err
		}
		largest = max(largest, w.Global)
	}
	var best []rescaling
	var bestOf *checkpoint.Weight
	var bestGlobal float32
	bestSum := math.Inf(1)
	for _, of := range weights {
		for power := -maxPower; power <= maxPower; power++ {
			global := float32(math.Ldexp(float64(of.Global), power))
			if global < largest/maxDistance || global > maxDistance*largest {
				continue
			}
			tried, sum, fits := make([]rescaling, len(weights)), 0.0, true
			for i, w := range weights {
				tried[i] = rescale(counts[i], float64(w.Global)/float64(global))
				sum, fits = sum+tried[i].sum, fits && tried[i].fits
			}
			closer := sum == bestSum && power == 0 && bestGlobal != bestOf.Global
			if fits && (sum < bestSum || closer) {
				best, bestOf, bestGlobal, bestSum = tried, of, global, sum
			}
		}
	}
	if best == nil {
		return fmt.Errorf("%s: no common global scale keeps the scales of its fused set: one of their global scales is wrong: quantize again",
			weights[0].Name)
	}
	held, _ := bestOf.Part(checkpoint.Global)
	data, err := read(held)
	if err != nil {
		return err
	}
	if bestGlobal != bestOf.Global {
		number := bestGlobal
		if bestOf.Divided() {
			number = 1 / bestGlobal
		}
		data = checkpoint.GlobalBytes(number)
	}
	for i, w := range weights {
		if w.Global == bestGlobal {
			continue
		}
		global, _ := w.Part(checkpoint.Global)
		scales, _ := w.Part(checkpoint.Scales)
		r.replace(w, global, global.Name, data)
		r.repair.Patch.Bytes[scales.Name] = &best[i].bytes
		rule, exact := "set-global", "every scale exact"
		if family.SingleExpert(w.Name) {
			rule = "expert-gate-up"
		}
		if n := best[i].rounded; n > 0 {
			exact = fmt.Sprintf("%d of %d scales rounded, by %s at most", n, scales.Elements(), show.Percent(best[i].worst))
		}
		r.change(rule, w.Name, "the global scale %g becomes %g, and block scales change with it: %s", w.Global, bestGlobal, exact)
	}
	return nil
}

// histogram counts the bytes of a tensor.
func histogram(c *checker, t hf.Tensor) (*[256]int64, error) {
	count, buffer := &[256]int64{}, make([]byte, min(t.Bytes(), 1<<20))
	for at := int64(0); at < t.Bytes(); at += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), t.Bytes()-at)]
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		if err := t.Shard.File.ReadTensorAt(buffer, t.TensorInfo, at); err != nil {
			return nil, err
		}
		for _, b := range buffer {
			count[b]++
		}
	}
	return count, nil
}

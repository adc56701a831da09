package identify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

const (
	least    = 64    // blocks from which codes tell the rule of scales
	allowed  = 0.002 // share of blocks that may contradict a rule: calibrated codes, for example
	decisive = 100   // excludes a writer: the likelihood of another's codes over that of its codes
	misfit   = 0.01  // and for each block, as a logarithm: distributions of trained weights are not quite those of the model
)

// byStatistics finds the rule of scales from codes and scales alone. known has the writers of formats.
func (one *Weight) byStatistics(w *checkpoint.Weight, known map[string][]writer) (err error) {
	writers, ok := known[w.Format.Name]
	if !ok {
		if writers, err = writersOf(w.Format); err != nil {
			return err
		}
		known[w.Format.Name] = writers
	}
	c, blocks, err := take(w, sampleBlocks)
	if err != nil {
		return err
	}
	one.Blocks = blocks
	return one.judge(&c, writers)
}

// judge compares a census with every writer, and states the verdict.
func (one *Weight) judge(c *census, writers []writer) error {
	var images map[string]bool
	if len(c.blocks) > 0 {
		var err error
		if images, err = c.images(writers); err != nil {
			return err
		}
	}
	for i := range writers {
		w := &writers[i]
		candidate := Candidate{Name: w.Name, Version: w.Version, Rule: w.rule, Scales: c.contradicting(w), Marks: c.marks(w)}
		if made, ok := images[w.Name]; ok && !made {
			candidate.Marks = append(candidate.Marks, "computes other last bits of scales")
		}
		one.Candidates = append(one.Candidates, candidate)
	}
	if len(c.blocks) == 0 || len(c.blocks) < least && !(c.f.Scale == format.F32 && len(images) > 0) {
		one.Verdict = unknown + ": too few blocks with values"
		return nil
	}
	if c.f.Scale == format.E8M0 {
		c.weigh(one.Candidates, writers)
	}
	one.name(c)
	slices.SortStableFunc(one.Candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Scales, b.Scales), cmp.Compare(len(a.Marks), len(b.Marks)), cmp.Compare(a.Unlikely, b.Unlikely))
	})
	return nil
}

// name states the verdict: the one rule of the candidates that nothing excludes.
func (one *Weight) name(c *census) {
	names := c.left(one.Candidates)
	var rules []string
	for rule, writers := range names {
		rules = append(rules, rule+": "+strings.Join(writers, " or "))
	}
	slices.Sort(rules)
	switch special := c.special(); {
	case len(rules) == 1:
		one.Verdict, one.Known = rules[0], true
	case len(rules) > 1:
		one.Verdict = unknown + ": " + strings.Join(rules, "; or ")
	case special != "":
		one.Verdict, one.Known = special, true
	case slices.ContainsFunc(one.Candidates, func(k Candidate) bool { return !c.excludes(k) }):
		one.Verdict = unknown + ": a rule fits, and its writers do not leave such marks"
	default:
		one.Verdict = unknown + ": no rule makes such largest codes (a search, clipping, GPTQ or a cast)"
	}
}

// excludes reports whether the codes exclude a candidate.
func (c *census) excludes(k Candidate) bool {
	return float64(k.Scales) > allowed*float64(len(c.blocks)) || k.Unlikely > math.Log(decisive)+misfit*float64(c.weighed)
}

// contradicting counts the blocks whose largest code a writer does not make under their scale.
func (c *census) contradicting(w *writer) (n int64) {
	e := c.f.Element
	unit := math.Ldexp(1, e.MaxExponent())
	for _, one := range c.blocks {
		from, to := c.edges(one.top)
		low, high := 0.0, math.Inf(1) // of the quotient of amax and scale
		switch {
		case c.f.Scale == format.E8M0 && one.inner():
			low, high = w.low*unit, 2*w.low*unit
		case c.f.Scale == format.E4M3 && one.code > max(w.least, w.lowest) && uint32(one.code) < c.f.Scale.MaxCode():
			const rounding = 1.0 / 64 // of BF16 and of the global scale
			below, above := c.f.Scale.Decode(uint32(one.code)-1), c.f.Scale.Decode(uint32(one.code)+1)
			low = float64(e.Max()*(one.scale+below)/2/one.scale) * (1 - rounding)
			high = float64(e.Max()*(one.scale+above)/2/one.scale) * (1 + rounding)
		case !c.f.ByteScales():
			low = float64(e.Max())
		}
		if to <= low || from >= high {
			n++
		}
	}
	return n
}

// edges returns the quotients that round to a magnitude, or to one beyond it if it is the largest.
func (c *census) edges(n int) (from, to float64) {
	e := c.f.Element
	if from = 0; n > 0 {
		from = (valueOf(e, n-1) + valueOf(e, n)) / 2
	}
	if to = math.Inf(1); n < int(e.MaxCode()) {
		to = (valueOf(e, n) + valueOf(e, n+1)) / 2
	}
	return from, to
}

// inner reports whether an E8M0 scale is not at a limit, where it does not follow from the amax.
func (one *codes) inner() bool { return 0 < one.code && uint32(one.code) < format.E8M0.MaxCode() }

// marks returns what a writer does not leave in a file.
func (c *census) marks(w *writer) (marks []string) {
	for code := range c.zeros {
		if c.f.ByteScales() && code != w.zero && code != w.least {
			marks = append(marks, fmt.Sprintf("blocks of zeros get scale %#x, not %#x", w.zero, code))
		}
	}
	if c.negatives > 0 && !c.f.Element.Integer && !w.writesMinus0 && !w.roundsMinus0 {
		marks = append(marks, "writes no -0")
	}
	if c.f.Scale == format.E4M3 {
		lowest := min(w.least, w.lowest)
		if slices.ContainsFunc(c.blocks, func(one codes) bool { return one.code < lowest }) {
			marks = append(marks, fmt.Sprintf("no scales below %#x", lowest))
		}
		if fixes := w.q.Arithmetic.FixesGlobal(); fixes != (c.global == 1) {
			marks = append(marks, map[bool]string{true: "no global scale", false: "a global scale"}[fixes])
		}
	}
	return marks
}

// unsigned returns how unlikely it is that a writer leaves no -0, as a logarithm: values around zero are at least as frequent as around the
// smallest magnitude, so that those that become -0 are a fourth of its elements.
func (c *census) unsigned(w *writer) float64 {
	if c.negatives > 0 || !w.roundsMinus0 {
		return 0
	}
	return float64(c.smallest) / 4
}

// images reports, for each writer of FP32 scales or global scales, whether it computes these from amaxes in BF16. It is empty if no
// writer does: then the source had another dtype, or the amax is that of another tensor.
func (c *census) images(writers []writer) (map[string]bool, error) {
	scales, divisor := []float32{}, c.f.Element.HalfRange()
	switch {
	case c.f.Global && c.global != 1:
		scales, divisor = append(scales, c.global), c.f.Element.Max()*c.f.Scale.Max()
	case c.f.Scale == format.F32 && !c.typed:
		for _, one := range c.blocks {
			scales = append(scales, one.scale)
		}
	}
	made, some := map[string]bool{}, false
	for i := range writers {
		w := &writers[i]
		if len(scales) == 0 || w.q.Arithmetic.FixesGlobal() {
			continue
		}
		found := make([]bool, len(scales))
		for _, step := range []int{-1, 0, 1} {
			amaxes := make([]float32, len(scales))
			for j, s := range scales {
				code := int(format.BF16.Encode(s*divisor)) + step
				amaxes[j] = format.BF16.Decode(uint32(max(1, min(code, int(format.BF16.MaxCode())))))
			}
			got, err := w.made(amaxes)
			if err != nil {
				return nil, err
			}
			for j, s := range scales {
				found[j] = found[j] || got[j] == s || c.divided && nearly(got[j], s)
			}
		}
		made[w.Name] = !slices.Contains(found, false)
		some = some || made[w.Name]
	}
	if !some {
		return nil, nil
	}
	return made, nil
}

// special returns the verdict of scales that no profile makes: of four over six, or powers of two in FP32.
func (c *census) special() string {
	e := c.f.Element
	var fours, others, large, odd, low int
	for _, one := range c.blocks {
		_, to := c.edges(one.top)
		if fraction, _ := math.Frexp(float64(one.scale)); fraction != 0.5 {
			odd++
		}
		if to <= float64(e.Max())/2 {
			low++
		}
		if one.scale < c.f.Scale.SmallestNormal() || uint32(one.code) == c.f.Scale.MaxCode() {
			continue
		}
		switch v := valueOf(e, one.top); {
		case v == 4:
			fours++
		case v != float64(e.Max()):
			others++
		}
		if one.scale > quant.FourOverSixTop*1.5 {
			large++
		}
	}
	few := allowed * float64(len(c.blocks))
	switch {
	case c.f.Global && e == format.E2M1 && c.global != 1 && fours > 0 && float64(others) <= few && large == 0:
		return "four over six: the amax is 6 or 4 (te, modelopt)"
	case c.f.Scale == format.F32 && odd == 0 && float64(low) <= few:
		return "powers of two: the smallest without saturation (te, deepseek since V3.1)"
	}
	return ""
}

// weigh fills in how unlikely the codes are under each candidate of E8M0 scales, as far as no block excludes it.
func (c *census) weigh(all []Candidate, writers []writer) {
	var lows []float64
	rules := map[string]int{}
	for i := range all {
		if _, ok := rules[all[i].Rule]; !ok && !c.excludes(all[i]) {
			rules[all[i].Rule] = len(lows)
			lows = append(lows, writers[i].low)
		}
	}
	blocks := slices.DeleteFunc(slices.Clone(c.blocks), func(one codes) bool { return !one.inner() })
	if len(lows) == 0 || len(blocks) == 0 {
		return
	}
	const first, factor = 256, 4 // blocks: more are read until one rule remains
	for n := first; ; n *= factor {
		c.weighed = min(n, len(blocks))
		likely := c.likelihoods(blocks[:c.weighed], lows)
		best := math.Inf(1)
		for i := range all {
			if at, ok := rules[all[i].Rule]; ok {
				all[i].Unlikely = c.unsigned(&writers[i]) - likely[at]
				best = min(best, all[i].Unlikely)
			}
		}
		for i := range all {
			if _, ok := rules[all[i].Rule]; ok {
				all[i].Unlikely -= best
			}
		}
		if n >= len(blocks) || len(c.left(all)) <= 1 {
			return
		}
	}
}

// left returns the names of the candidates that nothing excludes, by rule.
func (c *census) left(all []Candidate) map[string][]string {
	names := map[string][]string{}
	for _, k := range all {
		if !c.excludes(k) && len(k.Marks) == 0 {
			names[k.Rule] = append(names[k.Rule], k.title())
		}
	}
	return names
}

package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/safetensors"
)

// check compares files, configuration and metadata with the rules of the convention.
func (m *Model) check(k known) {
	m.countCauses()
	for name, q := range k.weights {
		if w, ok := m.byName[name]; !ok {
			m.fault(name, "the metadata describes it as %s, but it is not in the file", q.format)
		} else if !w.Quantized() && !m.faulty(name) {
			m.fault(name, "the metadata describes it as %s, but its scales are missing", q.format)
		}
	}
	for _, w := range m.Weights {
		if !w.hasCodes() {
			m.checkUnquantized(w)
		}
	}
	if m.Convention != nil && m.Quantized()+len(m.Decoded)+len(m.causes) == 0 && !slices.ContainsFunc(m.Weights, m.simulated) {
		m.report(Problem{Rule: "none-quantized", Text: fmt.Sprintf("quantization_config names the convention %s, but no weight is quantized: "+
			"fetch the checkpoint again, or remove quantization_config if its weights are values", m.Convention)})
	}
	if n := len(m.Source.Shards()); n > 1 && !m.Source.Index {
		m.report(Problem{Mended: true, Rule: "index",
			Text: fmt.Sprintf("there are %d files of weights and no %s, without which clients do not find them: fetch it again, or quantize or "+
				"dequantize to have one written", n, safetensors.IndexName)})
	}
	m.findMissing()
	for _, text := range m.Missing {
		m.fault("", "%s: fetch the checkpoint again", text)
	}
	m.checkIgnore(k.description)
	m.checkTargets(k.description)
	m.faults = nil
	slices.SortStableFunc(m.Problems, func(a, b Problem) int { return strings.Compare(a.Tensor, b.Tensor) })
}

// faulty reports whether a problem of the weight or of one of its parts is known.
func (m *Model) faulty(weight string) bool {
	return m.faults[weight] || len(m.faults) > 0 && slices.ContainsFunc(partSuffixes,
		func(suffix string) bool { return m.faults[partName(weight, suffix)] })
}

// partSuffixes are the suffixes of the parts of quantized weights in all schemes, except for
// those of activations, which unquantized models may have too.
var partSuffixes = func() (suffixes []string) {
	for _, c := range readableConventions() {
		for _, s := range slices.Concat(c.schemes, c.also) {
			if c.oneFile { // no suffixes in safetensors files
				continue
			}
			for _, suffix := range []string{s.codes, s.scales, s.global, s.shape} {
				if suffix != "" && !slices.Contains(suffixes, suffix) {
					suffixes = append(suffixes, suffix)
				}
			}
		}
	}
	return suffixes
}()

// owner returns the weight that a tensor of this name can only be a part of. ok is false if the
// tensor may be a weight itself.
func (m *Model) owner(name string) (weight string, ok bool) {
	for _, suffix := range partSuffixes {
		if module, ok := strings.CutSuffix(name, suffix); ok && strings.HasPrefix(suffix, ".") {
			if w, has := m.byName[module+weightSuffix]; has && !w.Dense() {
				return w.Name, true
			}
		} else if ok && (strings.HasSuffix(module, weightSuffix) || family.IsFused(module)) {
			return module, true
		}
	}
	return "", false
}

// checkUnquantized reports an unquantized weight that can only be a part of a missing quantized
// weight.
func (m *Model) checkUnquantized(w *Weight) {
	if m.faulty(w.Name) {
		return
	}
	if weight, ok := m.owner(w.Name); ok {
		if codes, ok := m.byName[weight]; !ok || !isCode(codes.Dtype) && !m.simulated(codes) { // else the problem is that of its codes
			m.fault(w.Name, "it belongs to a quantized weight, but %s is not quantized in a supported way%s",
				strings.TrimSuffix(weight, weightSuffix), m.undescribed())
		}
		return
	}
	scales, has := m.scalesNear(w.Name)
	switch {
	case product(w.Shape) == 0: // a mark, such as ComfyUI's scaled_fp8
	case isCode(w.Dtype) && has:
		m.fault(w.Name, "it holds %s codes and has scales (%s), but nothing says how it is quantized%s", w.Dtype, scales, m.undescribed())
	case isCode(w.Dtype):
		m.fault(w.Name, "it holds %s codes, but its scales (%s) are missing: its values are unknown%s", w.Dtype, m.scalesOf(w), m.undescribed())
	case !w.Dense() && len(w.Shape) > 1 && (has || strings.HasSuffix(w.Name, weightSuffix)):
		m.fault(w.Name, "it holds %s codes, but nothing says how it is quantized%s", w.Dtype, m.undescribed())
	case m.simulated(w):
		m.report(Problem{Tensor: w.Name, Mended: true, Text: fmt.Sprintf("it holds %s values and has scales (%s): simulated quantization, whose "+
			"values are rounded already; dequantize removes the scales and quantization_config", w.Dtype, scales)})
		m.markScalesOf(w)
	}
}

// markScalesOf notes the tensors that belong to the simulated quantization of a weight.
func (m *Model) markScalesOf(w *Weight) {
	for _, suffix := range slices.Concat(scaleNames, partSuffixes, []string{"_zero_point", ".input_scale", ".input_global_scale"}) {
		if scales, ok := m.byName[partName(w.Name, suffix)]; ok && scales != w {
			if m.scalesOfValues == nil {
				m.scalesOfValues = map[*Weight]bool{}
			}
			m.scalesOfValues[scales] = true
		}
	}
}

// Simulated reports whether weights are stored as values beside their scales.
func (m *Model) Simulated() bool { return len(m.scalesOfValues) > 0 }

// ScalesOfValues reports whether a tensor belongs to the quantization of a weight that is stored as values. Conversions omit it.
func (m *Model) ScalesOfValues(w *Weight) bool { return m.scalesOfValues[w] }

// simulated reports whether a weight holds values beside their scales.
func (m *Model) simulated(w *Weight) bool {
	scales, has := m.scalesNear(w.Name)
	return has && m.configured && w.Dense() && len(w.Shape) == 2 && strings.HasPrefix(scales, w.Name)
}

// scaleNames are suffixes of scales in any convention, known or not.
var scaleNames = []string{"_scale", "_scale_inv", "_scales", ".scales", ".scale", ".weight_scale", ".qscale_weight", ".scale_weight",
	".absmax"}

// scalesNear returns the tensor that by its name holds the scales of a weight.
func (m *Model) scalesNear(weight string) (scales string, ok bool) {
	for _, suffix := range scaleNames {
		name := partName(weight, suffix)
		if _, ok := m.Source.Lookup(name); ok && name != weight {
			return name, true
		}
	}
	return "", false
}

// scalesOf returns the name that the scales of a weight of codes have in the convention.
func (m *Model) scalesOf(w *Weight) string {
	suffix := scaleNames[0]
	if m.Convention != nil {
		for _, s := range slices.Concat(m.Convention.schemes, m.Convention.also) {
			if s.scales != "" && s.codesDtype() == w.Dtype {
				suffix = s.scales
				break
			}
		}
	}
	return partName(w.Name, suffix)
}

// undescribed returns, as the end of a message, why the quantization of the weights is unknown;
// "" if a quantization_config should describe it.
func (m *Model) undescribed() string {
	switch _, ok := m.configuration(); {
	case m.Convention != nil && m.Convention.metadata:
		return ": the metadata of its file does not describe it; quantize it again"
	case ok:
		return ""
	case m.Source.Single:
		return ": a file alone has no quantization_config; name its directory"
	case m.Source.Config == nil:
		return ": config.json with its quantization_config is missing; fetch it again"
	}
	return ": config.json has no quantization_config; fetch it again"
}

// isCode reports whether a dtype is that of quantized elements.
func isCode(d safetensors.Dtype) bool {
	return strings.HasPrefix(d.String(), "F8_") || strings.HasPrefix(d.String(), "F6_") || d == safetensors.F4
}

// checkPatterns reports invalid patterns in the lists of the configuration. complete is false if
// there are some: then the modules of the lists are unknown. A conversion writes exact names.
func (m *Model) checkPatterns(d description) (complete bool) {
	complete = true
	for _, list := range []struct {
		name    string
		entries []string
	}{{"ignore list", m.Ignore}, {"list of targets", d.targets}} {
		for _, entry := range list.entries {
			if err := badPattern(entry); err != nil && m.Convention.patterns == regexps {
				complete = false
				m.report(Problem{Mended: true,
					Text: fmt.Sprintf("%q on the %s is not a supported regular expression (%v): name the modules in its place", entry, list.name, err)})
			}
		}
	}
	return complete
}

// checkIgnore compares the ignore list with the files: every two-dimensional weight of a module
// that the configuration selects is either quantized or on the list, never both.
func (m *Model) checkIgnore(d description) {
	if m.Convention == nil || !m.Convention.hasIgnore || !m.configured || d.noIgnore {
		return
	}
	ignored := m.Convention.Ignored(m.Ignore)
	selected := d.selector()
	complete := m.checkPatterns(d)
	if d.targets == nil {
		selected = func(string) bool { return true }
	}
	for _, w := range m.Weights {
		owner, isWeight := strings.CutSuffix(w.Name, weightSuffix)
		if !isWeight || len(w.Shape) != 2 {
			continue
		}
		switch on := ignored(owner); {
		case on && w.hasCodes():
			m.misread(
				"ignored-quantized", w.Name,
				"it is quantized, but the ignore list says that it is not; a client would read its codes as values: convert it to the same "+
					"convention, which mends the list",
			)
		case !on && complete && selected(owner) && !w.hasCodes() && !m.faulty(w.Name) && m.Family().Linear(w.Name, w.Shape):
			m.misread("unquantized-unlisted", w.Name, "it is not quantized and not on the ignore list; a client would look for its scales")
		}
	}
}

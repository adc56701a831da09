package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// Verdict summarizes the comparison in sentences.
func (c *Comparison) Verdict() []string {
	var s []string
	if b := c.baseline(); b != nil && b.Failed == "" && !math.IsNaN(b.ValidationLoss) {
		_, loss := b.Losses()
		s = append(s, fmt.Sprintf("After %s, %s has a validation loss of %s nats per %s: a perplexity of %s.",
			show.Counted(b.Steps, "step"), b.Name, lossText(loss), c.Token, shown(Perplexity(loss), show.ThreeDigits)))
		s = append(s, c.gapSentences()...)
	}
	for i := range c.Recipes {
		if r := &c.Recipes[i]; r.Failed != "" {
			s = append(s, fmt.Sprintf("%s did not finish: %s.", r.Name, r.Failed))
		}
	}
	s = append(s, c.formatSentences()...)
	var busy []string
	for _, r := range c.Recipes {
		if r.Busy {
			busy = append(busy, r.Name)
		}
	}
	if len(busy) > 0 {
		s = append(s, fmt.Sprintf("Other programs used the processors during most steps of %s: their times are longer than on an idle machine.",
			list(busy)))
	}
	if n := c.seeds(); n > 1 && len(c.ranked()) > 0 {
		s = append(s, fmt.Sprintf("Losses and gaps are means over %d seeds, gaps with their standard errors. All else is of the first seed.", n))
	}
	return s
}

// gapSentences names the recipes whose gap is beyond the noise, and those within it.
func (c *Comparison) gapSentences() []string {
	var s, beyond, within []string
	for _, r := range c.ranked() {
		if c.Within(r) {
			within = append(within, r.Name)
		} else {
			beyond = append(beyond, fmt.Sprintf("%s %s", r.Name, besideText(c.Gap(r), c.GapError(r))))
		}
	}
	if len(beyond) > 0 {
		s = append(s, fmt.Sprintf("Relative to %s, %s.", c.Baseline, list(beyond)))
	}
	if len(within) > 0 {
		what, shows := "The gaps of "+list(within)+" are", "they show"
		if len(within) == 1 {
			what, shows = "The gap of "+within[0]+" is", "it shows"
		}
		s = append(s, fmt.Sprintf("%s within the noise of %s (less than %s): %s no difference from %s. More seeds (--seeds) show smaller ones.",
			what, show.Counted(c.seeds(), "seed"), plainPercent(c.noise()), shows, c.Baseline))
	}
	return s
}

// formatSentences names the formats in which the perplexity of the baseline's model is lowest and highest.
func (c *Comparison) formatSentences() []string {
	least, most := c.extremes()
	if most == nil {
		return nil
	}
	largest := 0.
	for i := range c.Formats {
		f := &c.Formats[i]
		if cost, e := math.Abs(c.cost(f)), c.costError(f); cost >= noCost && !(cost < 2*e) {
			largest = max(largest, cost)
		}
	}
	if largest == 0 {
		return []string{fmt.Sprintf("Quantized after training, the model of %s shows no loss in any format: the changes of perplexity are "+
			"below %g%% or two standard errors.", c.Baseline, 100*noCost)}
	}
	sentence := fmt.Sprintf("Quantizing the model of %s after training changes its perplexity by %s (%s)", c.Baseline,
		shown(c.cost(least), show.Change), least.Name)
	if least != most {
		sentence += fmt.Sprintf(" to %s (%s)", shown(c.cost(most), show.Change), most.Name)
	}
	return []string{sentence + "."}
}

// noCost is a relative change of perplexity that is too small to report.
const noCost = 0.001

// cost returns the relative increase in perplexity of the baseline's model in a format.
func (c *Comparison) cost(f *Format) float64 {
	if b := c.baseline(); b != nil {
		return math.Expm1(f.Loss - b.ValidationLoss)
	}
	return math.NaN()
}

// extremes returns the formats with the smallest and the largest loss.
func (c *Comparison) extremes() (least, most *Format) {
	for i := range c.Formats {
		f := &c.Formats[i]
		if math.IsNaN(c.cost(f)) {
			continue
		}
		if least == nil || f.Loss < least.Loss {
			least = f
		}
		if most == nil || f.Loss > most.Loss {
			most = f
		}
	}
	return least, most
}

// besideText formats a gap as "ends 0.12% above", with the standard error if there is one.
func besideText(gap, standardError float64) string {
	switch text := strings.TrimLeft(shown(gap, show.Change), "+−"); {
	case strings.Trim(text, "0.%") == "":
		return "ends level" + errorText(standardError)
	case gap < 0:
		return "ends " + text + errorText(standardError) + " below"
	default:
		return "ends " + text + errorText(standardError) + " above"
	}
}

// plainPercent formats a share in percent without a sign.
func plainPercent(share float64) string { return strings.TrimPrefix(shown(share, show.Change), "+") }

// errorText formats the standard error of a share as a suffix, or "" if there is none.
func errorText(standardError float64) string {
	if math.IsNaN(standardError) || math.IsInf(standardError, 0) {
		return ""
	}
	return " ±" + strings.TrimPrefix(shown(standardError, show.Change), "+")
}

// list joins parts with commas and "and".
func list(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// shown formats v by a rule of package show, or as a dash if it is undefined or infinite.
func shown(v float64, rule func(float64) string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return rule(v)
}

// lossText formats a loss.
func lossText(loss float64) string {
	return shown(loss, func(v float64) string { return fmt.Sprintf("%.4f", v) })
}

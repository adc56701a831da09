package report

import (
	"fmt"
	"math"
	"strings"
)

// Verdict summarizes the comparison in sentences.
func (c *Comparison) Verdict() []string {
	var s []string
	if b := c.baseline(); b != nil && b.Failed == "" && !math.IsNaN(b.ValidationLoss) {
		_, loss := b.Losses()
		s = append(s, fmt.Sprintf("After %s, %s has a validation loss of %s nats per %s: a perplexity of %s.",
			counted(b.Steps, "step"), b.Name, lossText(loss), c.Token, threeDigits(Perplexity(loss))))
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
		s = append(s, fmt.Sprintf("Other programs used the processors during most steps of %s: their times are longer than on an idle machine.", list(busy)))
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
		s = append(s, fmt.Sprintf("%s within the noise of %s (less than %s): %s no difference from %s. More seeds (--seeds) show smaller ones.", what, counted(c.seeds(), "seed"), plainPercent(c.noise()), shows, c.Baseline))
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
		return []string{fmt.Sprintf("Quantized after training, the model of %s shows no loss in any format: the changes of perplexity are below %g%% or two standard errors.", c.Baseline, 100*noCost)}
	}
	sentence := fmt.Sprintf("Quantizing the model of %s after training changes its perplexity by %s (%s)", c.Baseline, percentText(c.cost(least)), least.Name)
	if least != most {
		sentence += fmt.Sprintf(" to %s (%s)", percentText(c.cost(most)), most.Name)
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
	switch text := strings.TrimLeft(percentText(gap), "+−"); {
	case strings.Trim(text, "0.%") == "":
		return "ends level" + errorText(standardError)
	case gap < 0:
		return "ends " + text + errorText(standardError) + " below"
	default:
		return "ends " + text + errorText(standardError) + " above"
	}
}

// plainPercent formats a share in percent without a sign.
func plainPercent(share float64) string { return strings.TrimPrefix(percentText(share), "+") }

// errorText formats the standard error of a share as a suffix, or "" if there is none.
func errorText(standardError float64) string {
	if math.IsNaN(standardError) || math.IsInf(standardError, 0) {
		return ""
	}
	return " ±" + strings.TrimPrefix(percentText(standardError), "+")
}

// list joins parts with commas and "and".
func list(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// lossText formats a loss.
func lossText(loss float64) string {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return "–"
	}
	return fmt.Sprintf("%.4f", loss)
}

// percentText formats a signed share in percent, with two decimals if it is small.
func percentText(share float64) string {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return "–"
	}
	digits := 2
	if math.Abs(share) >= 0.0995 {
		digits = 1
	}
	if text := fmt.Sprintf("%+.*f%%", digits, 100*share); strings.Trim(text, "+-0.%") != "" {
		return minus(text)
	}
	return fmt.Sprintf("%.*f%%", digits, 0.0)
}

// rateText formats a share of elements; most are small.
func rateText(share float64) string {
	switch {
	case math.IsNaN(share):
		return "–"
	case share == 0:
		return "0"
	case share < 1e-5:
		return "<0.001%"
	}
	return fmt.Sprintf("%.2g%%", 100*share)
}

// threeDigits formats a number with three significant digits, or with its integer part if that
// has more.
func threeDigits(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	digits := 0
	for m := math.Abs(v); m != 0 && m < 99.95 && digits < 6; m *= 10 {
		digits++
	}
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%.*f", digits, v)
}

// minus replaces the hyphen of a negative number by a minus sign.
func minus(number string) string { return strings.Replace(number, "-", "−", 1) }

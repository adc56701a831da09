package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// chooseSchemes returns the convention with only one scheme for each format of the options. If formats are mixed, those
// without scales of activations may be beside those that the calibration is for.
func (o QuantizeOptions) chooseSchemes(source *checkpoint.Model, c *checkpoint.Convention) (*checkpoint.Convention, error) {
	formats := o.Formats()
	static := func(f quant.Format) bool { _, ok := c.WithActivations(f, checkpoint.Static); return ok }
	calibrated := slices.ContainsFunc(formats, static)
	for _, f := range formats {
		name, err := o.schemeOf(f)
		if err != nil {
			return nil, err
		}
		calibration := o.Calibration
		if calibrated && !static(f) {
			calibration = nil
		}
		if c, err = chooseScheme(source, c, f, name, calibration); err != nil {
			return nil, err
		}
	}
	if !o.Requantize || len(o.Rules) == 0 {
		return c, nil
	}
	for _, f := range source.Formats() { // of weights that rules leave
		if same := func(g quant.Format) bool { return g.Name == f.Name }; !c.Holds(f) || slices.ContainsFunc(formats, same) {
			continue
		}
		var err error
		if c, err = relabelScheme(source, c, f, "", nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// chooseScheme returns the convention with only one scheme for f: the named one, or the first
// that suits the calibration. It returns an error if the checkpoint cannot be stored so.
func chooseScheme(source *checkpoint.Model, c *checkpoint.Convention, f quant.Format, name string,
	calibration *Calibration) (*checkpoint.Convention, error) {
	plain := checkpoint.Plain()
	if c.Name != plain.Name && !source.Source.Single && source.Source.Config == nil {
		return nil, fmt.Errorf("%s: %s is missing, in which convention %s describes the quantization: fetch it, or choose convention %s",
			source.Source.Path, hf.ConfigName, c, plain)
	}
	if !c.Holds(f) {
		return nil, fmt.Errorf("convention %s does not support %s: use one of %s, or choose convention %s", c, f, formatNames(c.Formats()), plain)
	}
	calibrated := calibration != nil && calibration.inputs()
	if name != "" {
		var err error
		if c, err = c.With(f, name); err != nil {
			return nil, err
		}
	} else if calibrated {
		only, ok := c.WithActivations(f, checkpoint.Static)
		if !ok {
			return nil, fmt.Errorf("convention %s stores no scales of activations for %s: leave the calibration out", c, f)
		}
		c = only
	}
	scheme, activations := c.Scheme(f)
	switch static := activations == checkpoint.Static; {
	case !static && name != "" && calibrated:
		return nil, fmt.Errorf("scheme %s of convention %s stores no scales of activations: leave the calibration out, or choose another scheme",
			scheme, c)
	case static && !calibrated:
		return nil, fmt.Errorf("scheme %s of convention %s stores scales of activations: give a calibration, from a file or constant%s", scheme,
			c, otherSchemes(c, f, scheme))
	}
	return c, nil
}

// otherSchemes lists, as the end of a message, the other schemes for f.
func otherSchemes(c *checkpoint.Convention, f quant.Format, scheme string) string {
	full, err := checkpoint.LookupConvention(c.Name)
	if err != nil {
		return ""
	}
	names := slices.DeleteFunc(full.Schemes(f), func(name string) bool { return name == scheme })
	if len(names) == 0 {
		return ""
	}
	return "; or choose scheme " + strings.Join(names, " or ")
}

func formatNames(formats []quant.Format) string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

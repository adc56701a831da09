package flags

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// AddHead adds --head, the format that the head of a model is quantized to, to cmd. Its value is the
// zero quantizer unless the user gives it.
func AddHead(cmd *cobra.Command) *Choice[quant.Quantizer] {
	return AddChoice(cmd, "head", "quantize the output head to block format `NAME` (default as it is stored)", "", Names(quant.Formats()),
		func(name string) (quant.Quantizer, error) {
			f, err := quant.Lookup(name)
			if err != nil {
				return quant.Quantizer{}, err
			}
			return profile.For(f).Quantizer(f)
		})
}

// AddKVFormat adds --kv-format, the format of keys and values, to cmd. Its value is the zero format
// unless the user gives another than f32.
func AddKVFormat(cmd *cobra.Command) *Choice[quant.Format] {
	formats := slices.DeleteFunc(quant.Formats(), func(f quant.Format) bool { return nn.CheckCacheFormat(f) != nil })
	return AddChoice(cmd, "kv-format", "hold keys and values in format `NAME`, such as bf16, mxfp8 or fp8-row (one scale for each head); "+
		"with 4 bits, such as nvfp4, heads are multiplied by a Hadamard matrix first",
		quant.F32.Name, Names(formats), func(name string) (quant.Format, error) {
			f, err := quant.Lookup(name)
			switch {
			case err != nil:
				return f, err
			case f == quant.F32:
				return quant.Format{}, nil
			}
			return f, nn.CheckCacheFormat(f)
		})
}

// inputs are the values of --inputs.
var inputs = []decoder.Inputs{{Format: quant.BF16}, {Format: quant.MXINT8}, {Format: quant.MXINT8, Residual: true}, {Format: quant.F32}}

// AddInputs adds --inputs, how inputs of quantized linear layers are quantized, to cmd.
func AddInputs(cmd *cobra.Command) *Choice[decoder.Inputs] {
	names := make([]string, len(inputs))
	for i, in := range inputs {
		names[i] = in.String()
	}
	return AddChoice(cmd, "inputs", "format `NAME` of the inputs of quantized linear layers: bf16, mxint8 (fastest with weights of 4 bits, "+
		"mxint8 and q8_0, not mxfp8), mxint8x2 (two terms: errors up to 1.01·2^-14 of the largest input in a block), f32", quant.BF16.Name, names,
		func(name string) (decoder.Inputs, error) {
			for _, in := range inputs {
				if strings.EqualFold(in.String(), name) {
					return in, nil
				}
			}
			return decoder.Inputs{}, naming.Unknown("format of inputs", name, names)
		})
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
)

func dequantizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dequantize SRC DST",
		Short: "Decode a quantized checkpoint to FP32, BF16 or FP16",
		Long: `Decode the quantized weights of a checkpoint. FP32, the default, holds every
decoded value exactly. BF16 and FP16 round to nearest even, and the table prints
the error. All other weights and files are copied unchanged.

A GGUF file becomes a directory with its configuration and tokenizer, or one
file of weights if DST ends in .safetensors.

` + input.Help,
		Example: `  microscale dequantize out back
  microscale dequantize Llama-3.2-1B-MXFP8 Llama-3.2-1B-decoded --dtype bf16`,
		Args: flags.SourceAndDestination,
	}
	dtype := flags.AddScalar(cmd, "dtype", "decode to `NAME`: f32, bf16, fp16", format.F32.Name, format.F32, format.BF16, format.FP16)
	f := addRunFlags(cmd)
	f.options.AllowNonFinite = true
	cmd.RunE = flags.Remedied(f.staged(func(cmd *cobra.Command, args []string) error {
		if gguf.Named(args[1]) {
			return show.Misuse("%s: dequantize writes no %[2]s files: use a DST that does not end in %[2]s", show.Printable(args[1]),
				gguf.Suffix)
		}
		source, err := input.OpenFor(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		defer source.Close()
		var decoded safetensors.Dtype
		for _, d := range safetensors.Dtypes() {
			if f, ok := d.Dense(); ok && f == dtype.Value { // the flag admits no other
				decoded = d
			}
		}
		plan, err := convert.PlanDequantize(cmd.Context(), source, decoded)
		if err != nil {
			return err
		}
		return f.run(cmd, "decoding", conversion.Dequantized(args[0], args[1], plan, decoded.String()))
	}))
	return cmd
}

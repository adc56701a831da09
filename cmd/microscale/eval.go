package main

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

const evalLong = `Compute the cross-entropy of a language model on a text in nats per token, and
its perplexity. With --reference, compare the model with the original that it
was quantized from: KL divergence, same top token, probability of the right
token. With --formats, quantize the model to each format and compare.

Methods: llama.cpp (disjoint windows, second halves scored), gptq (disjoint
windows of 2048), strided (windows that overlap by half), all (disjoint windows,
all but the first token scored).

Without --text, MODEL is a byte-level model, an output of train or of quantize
for such a model, and the text is the validation part of --data.`

const evalExample = `  microscale eval model.gguf --text wiki.test.raw
  microscale eval model --text book.txt --formats mxfp8,nvfp4,mxfp4
  microscale eval small --text book.txt --reference model --layers
  microscale eval gptq --beside nearest --text book.txt --reference model \
    --report methods.html
  microscale eval trained-mxfp8
  microscale eval trained-mxfp8 --recipe mxfp8 --accumulate blackwell-mxf8f6f4`

// A printer is a result of eval.
type printer interface {
	Print(w io.Writer, asJSON bool) error
}

// textFlags are the flags of an evaluation with --text.
type textFlags struct {
	evaluation evaluation.Evaluation
	method     *flags.Choice[windows.Method]
	formats    *flags.List[quant.Format]
	context    *uint
	report     *string
	against    *[]string // at most one: of two, a plain string would keep the last without a word
	head       *flags.Choice[quant.Quantizer]
	cache      *flags.Choice[quant.Format]
}

func evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "eval MODEL", Short: "Compute the perplexity and the divergence of a language model",
		Long: evalLong, Example: evalExample,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "MODEL") },
	}
	var text textFlags
	text.add(cmd)
	activations := cmd.Flags().Bool("activations", false, "quantize activations too, with stored scales or else scales per token, and "+
		"keys and values with stored scales")
	bytes := addByteFlags(cmd)
	asJSON, threads := addJSON(cmd), flags.AddThreads(cmd)
	flags.Essential(cmd, "text", "method", "context", "reference", "formats", "layers", "report", "stream", "activations", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var result printer
		var err error
		if text.evaluation.Text != "" || windows.IsBase(text.evaluation.Reference) {
			result, err = text.run(cmd, args[0], *activations, int(*threads))
		} else {
			result, err = bytes.run(cmd, args[0], *activations, int(*threads))
		}
		if err != nil {
			return err
		}
		return errors.Join(text.writeFiles(cmd, result), result.Print(cmd.OutOrStdout(), *asJSON))
	}
	return cmd
}

func (f *textFlags) add(cmd *cobra.Command) {
	set, e := cmd.Flags(), &f.evaluation
	set.StringVar(&e.Text, "text", "", "evaluate on the text of `FILE`, or of the files of a directory (.jsonl: conversations or texts)")
	f.method = flags.AddChoice(cmd, "method", "windows and scored tokens by convention `NAME`", windows.LlamaCPP, windows.MethodNames(),
		windows.LookupMethod)
	f.context = set.Uint("context", 0, "tokens `N` per window (default that of the method)")
	set.StringVar(&e.Reference, "reference", "", "compare with the original model `ORIGINAL`, or with the probabilities of it that a file of "+
		"llama.cpp's --kl-divergence-base has, without --text")
	set.StringVar(&e.Base, "kl-divergence-base", "", "write the probabilities of MODEL to the new file `FILE`, as llama.cpp does")
	set.StringArrayVar(&e.Beside, "beside", nil, "with --reference, compare `MODEL` with the original, too, such as one of another method; "+
		"repeatable")
	f.formats = flags.AddList(cmd, "formats", "quantize to block formats `NAMES` and compare with the model", "", flags.Names(quant.Formats()),
		quant.Lookup)
	set.BoolVar(&e.Layers, "layers", false, "print the error of every layer and linear layer")
	f.report = set.String("report", "", "write a page with the results and charts to `FILE`; it implies --layers")
	set.StringArrayVar(&e.Receipts, "receipt", nil, "with --reference, write the divergence of every window to the new file `FILE`; "+
		"repeat it for each --beside MODEL")
	f.against = set.StringArray("against", nil, "with --reference, print the paired difference from the model of `RECEIPT`, and its interval")
	addStream(cmd, &e.Stream)
	f.head, f.cache = flags.AddHead(cmd), flags.AddKVFormat(cmd)
	flags.Exclusive(cmd, "reference", "formats")
	flags.Exclusive(cmd, "reference", "kl-divergence-base")
	flags.Exclusive(cmd, "formats", "kl-divergence-base")
}

// run evaluates any model on --text.
func (f *textFlags) run(cmd *cobra.Command, model string, activations bool, threads int) (*evaluation.Evaluated, error) {
	for _, flag := range byteFlagNames {
		if cmd.Flags().Changed(flag) {
			return nil, show.Misuse("--%s does not apply to --text: omit one of them", flag)
		}
	}
	if f.evaluation.Text == "" && (cmd.Flags().Changed("context") || cmd.Flags().Changed("method")) {
		return nil, show.Misuse("%s has its windows: omit --context and --method", f.evaluation.Reference)
	}
	if f.evaluation.Base != "" && f.method.Value.Name != windows.LlamaCPP {
		return nil, show.Misuse("--kl-divergence-base has the windows of llama.cpp: omit --method")
	}
	if err := evaluation.Replaceable(*f.report); *f.report != "" && err != nil {
		return nil, err
	}
	e := f.evaluation
	if (len(e.Receipts) > 0 || len(*f.against) > 0) && e.Reference == "" {
		return nil, show.Misuse("--receipt and --against need the original: add --reference ORIGINAL")
	}
	if len(e.Beside) > 0 && e.Reference == "" {
		return nil, show.Misuse("--beside needs the original: add --reference ORIGINAL")
	}
	if n, models := len(e.Receipts), 1+len(e.Beside); n > 1 && n != models {
		return nil, show.Misuse("--receipt: got %d files for %s: name one, or one for MODEL and each --beside MODEL", n,
			show.Counted(models, "model"))
	}
	if n := len(*f.against); n > 1 {
		return nil, show.Misuse("--against: got %d receipts, want one: compare with the others in further runs", n)
	}
	if err := errors.Join(receiptErrors(&e, strings.Join(*f.against, ""))...); err != nil {
		return nil, err
	}
	flags.BoundGarbage()
	e.Layers = e.Layers || *f.report != ""
	e.Model, e.Method, e.Context, e.Formats, e.Adjustable = model, f.method.Value, int(*f.context), f.formats.Values(), true
	e.Head, e.Cache = f.head.Value, f.cache.Value
	e.Activations, e.Threads, e.Stderr = activations, threads, cmd.ErrOrStderr()
	result, err := e.Run(cmd.Context())
	return result, streamed(err)
}

// receiptErrors reads the receipt to compare with, and returns what is wrong with the files before the work.
func receiptErrors(e *evaluation.Evaluation, against string) (list []error) {
	named := map[string]bool{}
	for _, path := range slices.Concat(e.Receipts, []string{e.Base}) {
		if clean := filepath.Clean(path); path != "" {
			if named[clean] {
				list = append(list, show.Misuse("two results are to be written to %s: name another file", show.Printable(path)))
			}
			named[clean] = true
		}
	}
	for _, path := range e.Receipts {
		list = append(list, evaluation.CheckNew("the receipt", path))
	}
	if e.Base != "" {
		list = append(list, evaluation.CheckNew("the probabilities", e.Base))
	}
	if against != "" {
		var err error
		e.Against, err = evaluation.ReadReceipt(against)
		list = append(list, err)
	}
	return list
}

// writeFiles writes the receipts, and the page of --report.
func (f *textFlags) writeFiles(cmd *cobra.Command, result printer) error {
	evaluated, ok := result.(*evaluation.Evaluated)
	if !ok {
		return nil
	}
	err := evaluated.WriteReceipts()
	if *f.report != "" {
		err = errors.Join(err, evaluated.WriteReport(*f.report, flags.CommandLine(cmd)))
	}
	return err
}

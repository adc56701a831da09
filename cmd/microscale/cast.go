package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

const castLong = `Shows numbers in a scalar format: the code, its fields and its value.

A number is rounded to --from first, and from there to --to. The default is what
the hardware's cvt.rn.satfinite does: nearest, ties to even, and the largest
value in place of a larger one. e8m0, a scale format, rounds up as cvt.rp does.

--overflow says what becomes of values beyond the largest. With saturate all of
them become the largest, Inf too; with nonsaturating all become Inf; with
saturate-finite the finite ones become the largest, and Inf stays Inf. A format
without Inf has NaN in its place, and one without both the largest value.

` + numbersHelp + `
Patterns are those of --from. With --codes, all arguments are codes of --to, to
be decoded.

With --raw, standard input is a stream of little-endian patterns of --from, and
standard output one of codes: a byte each, two for bf16 and fp16, four for f32.`

const castExample = `  microscale cast --to e4m3 0.3952 1000 -0.001 nan
  microscale cast --to e2m1 --from bf16 --rounding half-away 0.25 0.75
  microscale cast --to e5m2 --codes 0x2d 0x7c
  microscale cast --to e4m3 --from bf16 --raw < weights.bf16 > weights.e4m3`

// A cast is the behavior that the flags of the command ask for.
type cast struct {
	from, to   *format.Scalar
	conversion format.Conversion
	random     quant.Stream // of stochastic rounding
}

func castCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "cast --to FORMAT NUMBER…",
		Short:             "bits, code and value of numbers in a scalar format",
		Long:              castLong,
		Example:           castExample,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	to := addScalar(cmd, "to", "scalar format `NAME` to cast to: "+strings.Join(stringers(format.All()), ", "), "")
	from := addScalar(cmd, "from", "format `NAME` that numbers are rounded to first: f32, bf16, fp16", format.F32.Name, format.F32, format.BF16, format.FP16)
	rounding := addRounding(cmd)
	overflow := addOverflow(cmd)
	seed := cmd.Flags().Uint64("seed", 0, "seed `N` of stochastic rounding")
	codes := cmd.Flags().Bool("codes", false, "arguments are codes (0x2d, 0b101101, 45), to be decoded")
	raw := cmd.Flags().Bool("raw", false, "stream binary patterns from standard input to standard output")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	exclusive(cmd, "raw", "json")
	exclusive(cmd, "raw", "codes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case to.value == nil:
			return misuse("--to is missing: name a scalar format, such as --to e4m3")
		case *raw && len(args) > 0:
			return misuse("--raw reads standard input: leave out %q", args[0])
		case !*raw && len(args) == 0:
			return misuse("no numbers to cast: name some, or use --raw")
		}
		c := cast{from: from.value, to: to.value, random: quant.Stream{Seed: *seed}}
		c.conversion = format.Conversion{Rounding: rounding.value, Overflow: overflow.value}
		if to.value == format.E8M0 && !rounding.given {
			c.conversion.Rounding = format.Up
		}
		if *raw {
			return c.stream(cmd.OutOrStdout(), cmd.InOrStdin())
		}
		if *codes {
			return printCodes(cmd.OutOrStdout(), args, c.to, *asJSON)
		}
		return c.print(cmd.OutOrStdout(), args, *asJSON)
	}
	return cmd
}

// code returns the code of the value at position i.
func (c *cast) code(v float32, i uint64) uint32 {
	if c.conversion.Rounding != format.Stochastic {
		return c.to.EncodeWith(v, c.conversion, 0)
	}
	return c.to.EncodeWith(v, c.conversion, c.random.At(i))
}

// A castDocument is one number in the output of the command.
type castDocument struct {
	Text  string   `json:"text"` // as given
	Input number   `json:"input"`
	Bits  string   `json:"input_bits"`
	Code  string   `json:"code"`
	Value number   `json:"value"`
	Error number   `json:"relative_error"`
	Marks []string `json:"marks"`
}

func (c *cast) print(w io.Writer, args []string, asJSON bool) error {
	documents := []castDocument{}
	columns := []column{{"number", false}, {c.from.Name, false}, {"bits", false}, {fieldNames(c.to), false}, {"code", false}, {c.to.Name, false}, {"error", true}, {"", false}}
	t := newTable(columns...)
	if c.from == format.F32 { // the number again
		t.SetColumnConfigs(append(numericColumns(columns), table.ColumnConfig{Number: 1, Hidden: true}))
	}
	for i, a := range args {
		v, pattern, err := parseNumber(a, c.from)
		if err != nil {
			return err
		}
		code := c.code(v, uint64(i))
		got := c.to.Decode(code)
		m := marks(v, code, c.to)
		bits := hexText(pattern, c.from)
		t.AppendRow(table.Row{a, valueText(v, c.from), bits, bitsText(code, c.to), hexText(code, c.to), valueText(got, c.to), percentText(v, got), strings.Join(m, ", ")})
		documents = append(documents, castDocument{a, number(v), bits, hexText(code, c.to), number(got), number(relativeError(v, got)), orEmpty(m)})
	}
	if asJSON {
		return printJSON(w, map[string]any{
			"to": c.to.Name, "from": c.from.Name, "rounding": c.conversion.Rounding.String(), "overflow": c.conversion.Overflow.String(), "numbers": documents,
		})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// A codeDocument is one decoded code in the output of the command.
type codeDocument struct {
	Code  string `json:"code"`
	Bits  string `json:"bits"`
	Value number `json:"value"`
	Text  string `json:"text"` // of the value, NaN and infinities too
}

func printCodes(w io.Writer, args []string, f *format.Scalar, asJSON bool) error {
	documents := []codeDocument{}
	t := newTable(column{"code", false}, column{fieldNames(f), false}, column{f.Name, false})
	for _, a := range args {
		code, err := strconv.ParseUint(a, 0, 32)
		if err != nil || code>>f.Bits() != 0 {
			return misuse("%q is not a code of %s: use 0 to %#x", a, f, uint32(1)<<f.Bits()-1)
		}
		bits := uint32(code)
		v := fromBits(bits, f)
		t.AppendRow(table.Row{hexText(bits, f), bitsText(bits, f), valueText(v, f)})
		documents = append(documents, codeDocument{hexText(bits, f), bitsText(bits, f), number(v), valueText(v, f)})
	}
	if asJSON {
		return printJSON(w, map[string]any{"format": f.Name, "codes": documents})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// stream casts little-endian patterns from r to codes on w, a chunk at a time.
func (c *cast) stream(w io.Writer, r io.Reader) error {
	const chunk = 1 << 14 // patterns
	in, out := c.from.StoredBits()/8, c.to.StoredBits()
	out = max(out, 8) / 8
	src, dst := make([]byte, chunk*in), make([]byte, chunk*out)
	var done uint64
	for {
		n, err := io.ReadFull(r, src)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("cannot read standard input after %d patterns: %w", done, err)
		}
		for i := range n / in {
			v := fromBits(loadPattern(src[i*in:], in), c.from)
			storePattern(dst[i*out:], c.code(v, done+uint64(i)), out)
		}
		if _, err := w.Write(dst[:n/in*out]); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
		done += uint64(n / in)
		if n%in != 0 {
			return fmt.Errorf("standard input ends within a pattern: its %d bytes are not a multiple of the %d of %s; all whole patterns were cast", done*uint64(in)+uint64(n%in), in, c.from)
		}
		if last {
			return nil
		}
	}
}

func loadPattern(b []byte, size int) uint32 {
	if size == 2 {
		return uint32(binary.LittleEndian.Uint16(b))
	}
	return binary.LittleEndian.Uint32(b)
}

func storePattern(b []byte, code uint32, size int) {
	switch size {
	case 1:
		b[0] = byte(code)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(code))
	default:
		binary.LittleEndian.PutUint32(b, code)
	}
}

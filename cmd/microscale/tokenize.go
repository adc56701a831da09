package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/tokenizer"
)

const tokenizeLong = `Convert text to the token ids of a model, or ids to text with --decode.

MODEL is a tokenizer.json, a directory with that file, or a GGUF file. Text or
ids are read from FILE, or from standard input without FILE or if it is "-". Ids
are decimal numbers separated by white space or, with --raw, little-endian
32-bit integers.`

const tokenizeExample = `  echo -n "Hello, world" | microscale tokenize model
  microscale tokenize model.gguf book.txt --raw > book.ids
  microscale tokenize model.gguf book.ids --raw --decode`

func tokenizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tokenize MODEL [FILE]",
		Short:   "Convert text to token ids and back",
		Long:    tokenizeLong,
		Example: tokenizeExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return show.Misuse("want MODEL and at most one FILE, got %d arguments", len(args))
			}
			return nil
		},
	}
	decode := cmd.Flags().Bool("decode", false, "convert ids to text")
	special := cmd.Flags().Bool("add-special", false, "add the tokens that begin and end a text")
	literal := cmd.Flags().Bool("literal", false, "read special tokens in the text as text")
	skip := cmd.Flags().Bool("skip-special", false, "with --decode, omit special tokens")
	raw := cmd.Flags().Bool("raw", false, "ids are little-endian 32-bit integers")
	asJSON := addJSON(cmd)
	flags.Exclusive(cmd, "raw", "json")
	flags.Exclusive(cmd, "decode", "add-special")
	flags.Exclusive(cmd, "decode", "literal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *skip && !*decode {
			return show.Misuse("--skip-special applies to --decode: add that")
		}
		if err := flags.OnDisk("MODEL", args[0]); err != nil {
			return err
		}
		t, err := generation.Tokenizer(args[0])
		if err != nil {
			return err
		}
		data, err := readInput(cmd.InOrStdin(), args[1:])
		if err != nil {
			return err
		}
		if *decode {
			return printDecoded(cmd.OutOrStdout(), t, data, *raw, *skip, *asJSON)
		}
		return printIDs(cmd.OutOrStdout(), t.Encode(string(data), tokenizer.Options{AddSpecial: *special, Literal: *literal}), *raw, *asJSON)
	}
	return cmd
}

// maxText limits the size of the text or the ids that are read.
const maxText = 1 << 30

// readInput reads the file that args names, or standard input.
func readInput(stdin io.Reader, args []string) ([]byte, error) {
	if len(args) == 0 || args[0] == "-" {
		return input.ReadAll(stdin, "standard input", maxText)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w: name a file, or pass text on standard input", args[0], limits.Cause(err))
	}
	defer f.Close()
	return input.ReadAll(f, args[0], maxText)
}

func printIDs(w io.Writer, ids []uint32, raw, asJSON bool) error {
	switch {
	case asJSON:
		return show.PrintJSON(w, map[string][]uint32{"ids": ids})
	case raw:
		return binary.Write(w, binary.LittleEndian, ids)
	}
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(uint64(id), 10))
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// printDecoded prints the text of ids, without anything after it.
func printDecoded(w io.Writer, t *tokenizer.Tokenizer, data []byte, raw, skip, asJSON bool) error {
	ids, err := input.ParseIDs(data, raw)
	if err != nil {
		return err
	}
	text, err := t.Decode(ids, skip)
	if err != nil {
		return err
	}
	if asJSON {
		return show.PrintJSON(w, map[string]string{"text": text})
	}
	_, err = io.WriteString(w, text)
	return err
}

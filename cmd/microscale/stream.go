package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/decoder"
)

// addStream adds --stream to cmd.
func addStream(cmd *cobra.Command, dir *string) {
	const flag = "stream"
	cmd.Flags().StringVar(dir, flag, "", "keep one layer of the weights in memory and all activations in directory `DIR`; without a "+
		"value: eval"+streamSuffix+". Repeat an interrupted command to resume it")
	cmd.Flags().Lookup(flag).NoOptDefVal = "eval" + streamSuffix
}

// streamed adds the flag that helps to an error about memory.
func streamed(err error) error {
	if errors.Is(err, decoder.ErrMemory) {
		return fmt.Errorf("%w; --stream keeps one layer in memory", err)
	}
	return err
}

// streamSuffix ends the name of the default directory of activations.
const streamSuffix = windows.OwnName + "partial"

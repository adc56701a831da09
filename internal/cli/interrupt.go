package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Interruptible makes the context of a command end when the user interrupts it,
// so that the command can remove what it has written. A second interruption,
// graceTime later, ends the process as it is.
func Interruptible(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(graceTime, stop) })()
		cmd.SetContext(ctx)
		return work(cmd, args)
	}
}

// graceTime is longer than the time between two signals of one interruption:
// some programs send it to a process and then to its group.
const graceTime = time.Second

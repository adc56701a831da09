package flags

import (
	"context"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
)

// Interruptible cancels the context of a command when the user interrupts it or closes its terminal, so
// that it can remove incomplete and temporary files. One whose output is no longer read ends when its work
// returns the error. An interruption graceTime after the first ends the process at once.
func Interruptible(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), interrupts()...)
		defer stop()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(graceTime, stop) })()
		cmd.SetContext(ctx)
		return outlivePipe(func() error { return work(cmd, args) })
	}
}

// graceTime exceeds the delay between the signals of one interruption: some programs
// signal a process and then its group.
const graceTime = time.Second

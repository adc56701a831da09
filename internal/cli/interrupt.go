package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Interruptible cancels the context of a command when the user interrupts it or closes its terminal, so
// that it can remove incomplete files. nohup prevents the latter. An interruption graceTime after the first ends the
// process at once.
func Interruptible(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
		if !signal.Ignored(syscall.SIGHUP) {
			signals = append(signals, syscall.SIGHUP)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), signals...)
		defer stop()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(graceTime, stop) })()
		cmd.SetContext(ctx)
		return work(cmd, args)
	}
}

// graceTime exceeds the delay between the signals of one interruption: some programs
// signal a process and then its group.
const graceTime = time.Second

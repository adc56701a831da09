//go:build !unix

package flags

import (
	"os"
	"syscall"
)

// interrupts returns the signals that interrupt a command. On Windows, SIGTERM is also that of a closed
// terminal.
func interrupts() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// outlivePipe does work: no signal ends the process when its standard output is closed.
func outlivePipe(work func() error) error { return work() }

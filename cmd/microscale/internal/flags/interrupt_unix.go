//go:build unix

package flags

import (
	"os"
	"os/signal"
	"syscall"
)

// interrupts returns the signals that interrupt a command. That of a closed terminal does not under nohup.
func interrupts() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

//go:build unix

package flags

import (
	"errors"
	"io/fs"
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

// outlivePipe does work, which a closed standard output does not end at once: it fails, cleans up, and the process then ends by SIGPIPE, as
// it would have.
func outlivePipe(work func() error) error {
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	err := work()
	signal.Stop(pipes)
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == os.Stdout.Name() && errors.Is(e, syscall.EPIPE) {
		_, _ = os.Stdout.WriteString("\n") // ends the process
	}
	return err
}

package console

import (
	"fmt"
	"io"
	"strings"
)

// maxPrompt limits the size of a prompt on standard input.
const maxPrompt = 64 << 20

// ReadPrompt returns the prompt of args or, without one or for "-", that of stdin, without the newline at its end.
func ReadPrompt(stdin io.Reader, args []string) (string, error) {
	if len(args) > 0 && args[0] != "-" {
		return args[0], nil
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxPrompt+1))
	if err != nil {
		return "", fmt.Errorf("read the prompt: %w", err)
	}
	if len(text) > maxPrompt {
		return "", fmt.Errorf("read the prompt: it has more than %d bytes: shorten it", maxPrompt)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

package console

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
)

// maxPrompt limits the size of a prompt on standard input.
const maxPrompt = 64 << 20

// ReadPrompt returns the prompt of args or, without one or for "-", that of stdin, without the
// newline at its end. Empty input is an error.
func ReadPrompt(stdin io.Reader, args []string) (string, error) {
	if len(args) > 0 && args[0] != "-" {
		return args[0], nil
	}
	text, err := input.ReadAll(stdin, "standard input", maxPrompt)
	if err != nil {
		return "", fmt.Errorf("read the prompt: %w", err)
	}
	if len(text) == 0 {
		return "", errors.New("read the prompt: standard input is empty: give a prompt")
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/chat"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/generation"
)

const help = `/bye ends the program, and /clear forgets the conversation. Ctrl-C stops an answer.`

// Chat answers the lines of in until they end, or /bye, or the second of two interrupts in a row
// without an answer between. An interrupt stops the running answer. Errors of a single answer are
// reported, and the conversation continues.
func (c *Console) Chat(ctx context.Context, in io.Reader, interrupts <-chan os.Signal) error {
	if err := errors.Join(c.checkSystem(), c.open()); err != nil {
		return err
	}
	if c.chats() {
		fmt.Fprintln(c.Log, help)
	} else {
		fmt.Fprintf(c.Log, "%s continues each line as text, without a conversation. %s\n", show.Printable(c.Model.Name), help)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := readLines(ctx, in)
	messages := c.messages()
	for {
		line, ok := c.readLine(ctx, lines, interrupts)
		if !ok {
			break
		}
		switch command := strings.TrimSpace(line); {
		case command == "":
		case command == "/bye":
			fmt.Fprintln(c.Log, &c.total)
			return nil
		case command == "/clear":
			messages = c.messages()
		case strings.HasPrefix(command, "/"):
			fmt.Fprintf(c.Log, "%s is not a command. %s\n", show.Printable(command), help)
		default:
			asked := append(messages, chat.Message{Role: "user", Content: line})
			text, err := c.reply(ctx, asked, interrupts)
			if err != nil {
				return err
			}
			if text != "" {
				messages = append(asked, chat.Message{Role: "assistant", Content: text})
			}
		}
	}
	fmt.Fprintf(c.Log, "\n%v\n", &c.total)
	return ctx.Err()
}

// readLine asks for a line. ok is false at the end of the input, and after two interrupts.
func (c *Console) readLine(ctx context.Context, lines <-chan string, interrupts <-chan os.Signal) (line string, ok bool) {
	for again := false; ; again = true {
		fmt.Fprint(c.Log, ">>> ")
		select {
		case line, ok = <-lines:
			return line, ok
		case <-ctx.Done():
			return "", false
		case <-interrupts:
			if again {
				return "", false
			}
			fmt.Fprintln(c.Log, "\nPress Ctrl-C again or enter /bye to end the program.")
		}
	}
}

// reply prints an answer, which an interrupt stops. Errors that concern only this answer are printed,
// and text is empty.
func (c *Console) reply(ctx context.Context, messages []chat.Message, interrupts <-chan os.Signal) (text string, err error) {
	answering, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-interrupts:
			stop()
		case <-answering.Done():
		}
	}()
	text, _, err = c.print(answering, messages)
	stop()
	<-watched
	switch long := (*generation.PromptTooLong)(nil); {
	case err == nil, errors.Is(err, context.Canceled):
		return text, ctx.Err()
	case errors.As(err, &long) && len(messages) > 1:
		fmt.Fprintf(c.Log, "The conversation has %d tokens, but the context has %d positions: enter /clear to begin another.\n", long.Tokens,
			long.Positions)
	case errors.Is(err, errOutput):
		return "", err
	default:
		fmt.Fprintln(c.Log, show.OneLine(err))
	}
	return "", nil
}

// maxLine limits the length of a line that is read.
const maxLine = 16 << 20

// readLines sends the lines of r, without their ends.
func readLines(ctx context.Context, r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/console"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
)

const runLong = `Run a language model: answer PROMPT, or chat in the terminal. Without PROMPT, or
if it is "-", standard input is the prompt unless it is a terminal.

MODEL is a Hugging Face directory, also an output of train or quantize, a GGUF
file, or a model on the hub (hf://OWNER/NAME). A model with a chat template
answers the prompt as a message of a user. Other models continue it as text.

The answer of the model goes to standard output, everything else to standard
error, also its reasoning. In a chat, Ctrl-C stops the answer, and twice at the
prompt the program. The same seed gives the same text. Sampling flags that are
not given have the values of the model's generation_config.json, if it has them.`

const runExample = `  microscale run model
  microscale run model.gguf "Why is the sky blue?" --temperature 0
  microscale run model --no-template "The capital of France is" --max-tokens 20
  microscale run model --system "Answer in one line." < question.txt
  microscale run trained-mxfp8 'func main() {' --json`

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run MODEL [PROMPT]",
		Short:   "Chat with a language model, or continue a text",
		Long:    runLong,
		Example: runExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return show.Misuse("want MODEL and at most one PROMPT, got %d arguments: quote a prompt of several words", len(args))
			}
			return flags.Named(args[:1], "MODEL")
		},
	}
	var c console.Console
	cmd.Flags().StringVar(&c.System, "system", "", "system message `TEXT` of the chat")
	cmd.Flags().BoolVar(&c.Complete, "no-template", false, "continue PROMPT as text, without the chat template")
	maxTokens := cmd.Flags().Uint("max-tokens", 0, "end an answer after `N` tokens (default: when the context is full)")
	positions := cmd.Flags().Uint("context", 0, "use a context of `N` tokens (default that of the model, at most 4096)")
	sampled := flags.AddSampling(cmd)
	head, cache, inputs := flags.AddHead(cmd), flags.AddKVFormat(cmd), flags.AddInputs(cmd)
	asJSON := addJSON(cmd)
	threads := flags.AddThreads(cmd)
	flags.Essential(cmd, "system", "no-template", "max-tokens", "context", "temperature", "top-k", "top-p", "seed", "json", "threads")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if c.Sampling, err = sampled(); err != nil {
			return err
		}
		c.MaxTokens, c.Positions, c.Out, c.Log = int(*maxTokens), int(*positions), cmd.OutOrStdout(), cmd.ErrOrStderr()
		stdin := cmd.InOrStdin()
		isChat := (len(args) < 2 || args[1] == "-") && isTerminal(stdin)
		if isChat && *asJSON {
			return show.Misuse("--json needs a prompt: add PROMPT, or redirect standard input")
		}
		load := func(ctx context.Context) (err error) {
			c.Model, err = input.LoadModel(ctx, args[0], generation.Options{Threads: int(*threads), Head: head.Value, Cache: cache.Value,
				Inputs: inputs.Value})
			if err != nil {
				return show.Interrupted(err, "the model was not loaded")
			}
			c.Sampling, err = recommended(cmd, c.Model, c.Sampling)
			return err
		}
		if isChat {
			return chatInTerminal(cmd.Context(), &c, load, stdin)
		}
		return flags.Interruptible(func(cmd *cobra.Command, args []string) error {
			for i, arg := range args[1:] {
				args[i+1] = input.Given(cmd.Context(), arg) // the prompt may be a URL
			}
			prompt, err := console.ReadPrompt(stdin, args[1:])
			if err != nil {
				return err
			}
			if err := load(cmd.Context()); err != nil {
				return err
			}
			if *asJSON {
				return c.Describe(cmd.Context(), prompt)
			}
			return c.Once(cmd.Context(), prompt)
		})(cmd, args)
	}
	return cmd
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && show.IsTerminal(f)
}

// chatInTerminal chats until the user ends it. Interrupts end the program while the model is loaded.
func chatInTerminal(ctx context.Context, c *console.Console, load func(context.Context) error, stdin io.Reader) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	loading, loaded := signal.NotifyContext(ctx, os.Interrupt)
	err := load(loading)
	loaded()
	if err != nil {
		return err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	return c.Chat(ctx, stdin, interrupts)
}

// recommended returns the options of sampling with what the model's files recommend for flags that are not given.
// It prints them, and what the files do not declare.
func recommended(cmd *cobra.Command, m *generation.Model, o sampling.Options) (sampling.Options, error) {
	o, lines := m.Recommended(o, cmd.Flags().Changed)
	for _, line := range lines {
		fmt.Fprintln(cmd.ErrOrStderr(), show.Printable(line))
	}
	if err := o.Validate(); err != nil {
		return o, fmt.Errorf("%s: generation_config.json: %w", m.Name, err)
	}
	return o, nil
}

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/serve"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/internal/limits"
)

const serveLong = `Serve a language model over HTTP, with the endpoints of OpenAI's API that
clients use: /v1/chat/completions and /v1/completions, both streamed on request,
and /v1/models. MODEL is a directory, a GGUF file or a model on the hub, as for
run.

Requests that run together share passes over the weights, up to eight a pass.
Further ones wait in a queue. If it is full, the answer is 503 with Retry-After.
Sampling flags apply to requests that do not give these parameters; those that
are not given have the values of the model's generation_config.json.

Requests may leave out the model, or give its name or path: another one is 404.
Fields that would change the answer and are not supported, such as tools, are an
error that names them. The reasoning of a message is its reasoning_content.

Completions take texts or token ids, one or a list, and return log probabilities
on request, also those of the prompt (echo), so that lm_eval runs its tasks.

Without keys, everyone who reaches the address can use the server: on a loopback
address, programs and pages of this machine. Requests with the name of another
machine in Host, and those of pages of other origins, are rejected. With keys,
requests need one, as "Authorization: Bearer KEY". A command line is visible to
other users of the machine: prefer --api-key-file.

Ctrl-C stops the server after the running answers, but within ten seconds.`

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve MODEL",
		Short: "Serve a language model over HTTP as OpenAI's API",
		Long:  serveLong,
		Example: `  microscale serve model
  microscale serve model --listen 127.0.0.1:9000 --parallel 8 --context 2048
  curl 127.0.0.1:8080/v1/completions -d '{"prompt": "The capital of France is"}'`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "MODEL") },
	}
	address := cmd.Flags().String("listen", "127.0.0.1:8080", "listen on `HOST:PORT`; port 0: any free one")
	name := cmd.Flags().String("name", "", "`NAME` of the model in the API (default the base name of MODEL)")
	positions := cmd.Flags().Uint("context", 0, "use contexts of `N` tokens (default that of the model, at most 4096)")
	parallel := cmd.Flags().Uint("parallel", 4, "run at most `N` requests together, each with a context")
	queue := cmd.Flags().Uint("queue", 64, "let at most `N` requests wait")
	maxTokens := cmd.Flags().Uint("max-tokens", 0, "end every answer after `N` tokens (default: when its context is full)")
	origins := cmd.Flags().StringSlice("allow-origin", nil, "let pages of `ORIGIN` use the server, such as https://chat.example, in "+
		"addition to pages of this machine; *: all")
	key := cmd.Flags().String("api-key", "", "require the secret `KEY` of requests")
	keyFile := cmd.Flags().String("api-key-file", "", "require one of the keys in `FILE`, one a line")
	sampled := flags.AddSampling(cmd)
	head, cache, inputs := flags.AddHead(cmd), flags.AddKVFormat(cmd), flags.AddInputs(cmd)
	threads := flags.AddThreads(cmd)
	flags.Essential(cmd, "listen", "name", "context", "parallel", "max-tokens", "api-key-file", "temperature", "top-k", "top-p", "threads")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := sampled()
		switch {
		case err != nil:
			return err
		case *parallel == 0 || *parallel > 1024 || *queue > 1<<20:
			return show.Misuse("--parallel is %d and --queue is %d: want 1 to 1024, and at most %d", *parallel, *queue, 1<<20)
		}
		access, err := accessOf(*origins, *key, *keyFile)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", *address) // before the model is loaded, since it may fail
		if err != nil {
			return fmt.Errorf("%w: choose another address with --listen", err)
		}
		defer func() { _ = l.Close() }() // a second time, if the server has run
		m, err := input.LoadModel(cmd.Context(), args[0], generation.Options{Threads: int(*threads), Head: head.Value, Cache: cache.Value,
			Inputs: inputs.Value})
		if err != nil {
			return show.Interrupted(err, "the model was not loaded")
		}
		if options, err = recommended(cmd, m, options); err != nil {
			return err
		}
		tcp, ok := l.Addr().(*net.TCPAddr)
		access.Loopback = ok && tcp.IP.IsLoopback()
		base := flags.WithoutGGUF(filepath.Base(filepath.Clean(args[0])))
		if m.Name = *name; m.Name == "" {
			m.Name = base
		}
		s, err := serve.New(m, serve.Config{
			Positions: int(*positions), Parallel: int(*parallel), Queue: int(*queue), MaxTokens: int(*maxTokens), Sampling: options,
			Access:  access,
			Aliases: []string{args[0], filepath.Base(filepath.Clean(args[0])), base},
			Unknown: func(field string) {
				show.PrintWarnings(cmd.ErrOrStderr(), []string{fmt.Sprintf("requests have the unknown field %.60q, which is ignored", field)})
			},
		})
		if err != nil {
			return err
		}
		if !access.Loopback && len(access.Keys) == 0 {
			show.PrintWarnings(cmd.ErrOrStderr(),
				[]string{fmt.Sprintf("other machines can use %s, without authentication: require a key with --api-key-file", *address)})
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "serving %s at http://%s/v1; stop with Ctrl-C\n", show.Printable(m.Name), l.Addr())
		return s.Serve(cmd.Context(), l)
	}
	return cmd
}

// accessOf returns who may use the server. Errors do not contain keys.
func accessOf(origins []string, key, keyFile string) (a serve.Access, err error) {
	for _, origin := range origins {
		if err := serve.CheckOrigin(origin); err != nil {
			return a, show.Misuse("--allow-origin: %v", err)
		}
	}
	a.Origins = origins
	if key != "" {
		a.Keys = append(a.Keys, key)
	}
	if keyFile == "" {
		return a, nil
	}
	const largest = 1 << 20
	text, err := limits.ReadFile(keyFile, largest)
	if err != nil {
		return a, fmt.Errorf("read the keys: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			a.Keys = append(a.Keys, line)
		}
	}
	if len(a.Keys) == 0 {
		return a, fmt.Errorf("%s: the file has no keys: write one a line", keyFile)
	}
	return a, nil
}

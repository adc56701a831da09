// Package input opens the checkpoint that a command reads: a directory, a file, a
// model on the Hugging Face Hub, or the built-in sample.
package input

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/hub"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/safetensors"
)

// Help describes the argument SRC of commands.
const Help = `SRC is a Hugging Face directory (config.json, *.safetensors, an index), a
.safetensors or .gguf file, a model on the Hugging Face Hub (hf://OWNER/NAME or
hf://OWNER/NAME@REVISION, with /FILE.gguf for a GGUF file; HF_ENDPOINT, HF_TOKEN
and HF_HOME apply), a folder, or a .safetensors or .gguf file, of an object
store or web server (s3://BUCKET/FOLDER, gs://BUCKET/FOLDER,
https://HOST/FOLDER or, unencrypted, http://HOST/FOLDER; credentials as in the
cloud's tools), or "sample:", a built-in Llama-shaped checkpoint of 9.7 M
parameters.`

// OpenFor is Open for a conversion to DST. The weights of a GGUF file become one file if DST ends in
// .safetensors, and otherwise a directory with configuration and tokenizer.
func OpenFor(ctx context.Context, src, dst string) (*hf.Checkpoint, error) {
	c, err := Open(ctx, src)
	if err == nil && c.Single && strings.HasSuffix(dst, safetensors.Suffix) {
		c.Config = nil
	}
	return c, err
}

// onHub adds to err, an error of opening arg, the name of a model on the hub that arg may mean:
// OWNER/NAME or the address of its page.
func onHub(arg string, err error) error {
	if _, statErr := os.Lstat(arg); err == nil || !errors.Is(statErr, fs.ErrNotExist) {
		return err
	}
	client, hubErr := hub.FromEnvironment(os.Getenv)
	if hubErr != nil {
		return err
	}
	repository, hubErr := hub.Parse(hub.Scheme + strings.TrimPrefix(arg, client.Endpoint+"/"))
	if hubErr != nil || repository.File != "" {
		return err
	}
	return fmt.Errorf("%w; for the model on the hub use %s", err, repository)
}

// onPage reports whether a URL is that of the page of a model on the hub.
func onPage(arg string) bool {
	client, err := hub.FromEnvironment(os.Getenv)
	if err != nil {
		return false
	}
	name, ours := strings.CutPrefix(arg, client.Endpoint+"/")
	r, err := hub.Parse(hub.Scheme + name)
	return ours && err == nil && r.File == "" // the URL of a file is read as that of any server
}

// Open opens the checkpoint that the argument SRC names. The caller closes it.
func Open(ctx context.Context, arg string) (*hf.Checkpoint, error) {
	switch {
	case store.Named(arg) && !onPage(arg):
		c, err := store.Open(ctx, Given(ctx, arg))
		return c, show.Interrupted(err, "the checkpoint of the store was not opened")
	case !strings.HasPrefix(arg, hub.Scheme) && (gguf.Named(arg) || isDirectory(arg)):
		return convert.Open(arg)
	case !strings.HasPrefix(arg, hub.Scheme):
		c, err := sample.Open(ctx, arg)
		return c, onHub(arg, show.Interrupted(err, "the sample was not created"))
	}
	c, err := openHub(ctx, arg)
	return c, show.Interrupted(err, "the model on the hub was not opened")
}

// openHub opens a model on the hub, or a GGUF file there.
func openHub(ctx context.Context, arg string) (*hf.Checkpoint, error) {
	client, err := hub.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	r, err := hub.Parse(arg)
	if err != nil || r.File == "" {
		return client.Open(ctx, arg)
	}
	f, err := client.OpenGGUF(ctx, r)
	if err != nil {
		return nil, err
	}
	c, err := llamacpp.View(f)
	if err == nil {
		c.Path = arg
	}
	return c, err
}

// isDirectory reports whether an argument names a directory.
func isDirectory(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && info.IsDir()
}

// LoadModel reads the model that an argument names for inference.
func LoadModel(ctx context.Context, arg string, o generation.Options) (*generation.Model, error) {
	source, err := Open(ctx, arg)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	return generation.Load(ctx, arg, source, o)
}

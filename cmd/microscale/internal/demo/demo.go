// Package demo has the model and the text of the command demo.
//
// The model continues bytes. It was trained on the documents of this repository, by
//
//	microscale train --recipe f32 --hidden 96 --layers 2 --heads 3 --kv-heads 3 --intermediate 256 --sequence 128 \
//	    --batch 8 --steps 1000 --learning-rate 6e-3 --out f32 \
//	    --data README.md $(ls docs/*.md | grep -v errata | sed 's/^/--data /')
//	go test ./cmd/microscale -run TestDemoModel -demo-model $PWD/f32
//
// the second of which rounds the weights to BF16.
//
// A trained model shows what a random one cannot: a divergence that means something, and words.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/internal/durable"
)

// Names in the directory of Write.
const (
	Model = "model"
	Text  = "text.txt" // which the model was not trained on
)

//go:embed model text.txt
var files embed.FS

// Write writes the model and the text to a directory. A file that exists is an error, unless it is the same.
// An interrupted call leaves whole files, which the next one keeps.
func Write(ctx context.Context, dir string) error {
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(path, 0o777)
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		switch old, err := os.ReadFile(path); {
		case errors.Is(err, fs.ErrNotExist):
			return durable.WriteWhole(path, data, os.Rename)
		case err != nil:
			return err
		case string(old) != string(data):
			return fmt.Errorf("%s exists with other contents: name another directory", path)
		}
		return nil
	})
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/push"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf/hub"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/verify"
)

// pushFlags are the flags of push.
type pushFlags struct {
	source, base, receipt, message string
	private, dryRun, bare, asJSON  bool
	threads                        *uint
}

func pushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push DST hf://OWNER/NAME",
		Short: "Upload a checkpoint to the Hugging Face Hub, with a model card",
		Long: `Upload a local checkpoint to a model of the Hugging Face Hub, in one commit. The
repository is created if it does not exist: a public one, as huggingface-cli
upload does, or with --private a private one. hf://OWNER/NAME@BRANCH names
another branch than main. HF_ENDPOINT, HF_TOKEN and HF_HOME apply; the token
needs to permit writing.

The model card, README.md, says format, layout, and how codes were chosen; with
--source, the error of the weights against the original, and with --receipt the
divergence that eval measured. It keeps metadata and text of a README.md in DST,
which does not change. --no-card sends the README.md of DST instead.

After an interrupted push, repeat the command: files that the hub has are not
sent again. Files of the repository that DST lacks stay there. If DST has
model.safetensors or model-….safetensors, the same commit removes the others of
these names and their index; --dry-run does not ask the hub which there are.
Files of these names in DST that its index does not name are an error.`,
		Example: `  microscale push Llama-3.2-1B-NVFP4 hf://me/Llama-3.2-1B-NVFP4 --private \
    --base meta-llama/Llama-3.2-1B --source Llama-3.2-1B
  microscale push Llama-3.2-1B-NVFP4 hf://me/Llama-3.2-1B-NVFP4 --dry-run`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "DST", "hf://OWNER/NAME") },
	}
	f := &pushFlags{}
	cmd.Flags().StringVar(&f.source, "source", "", "measure the error of the weights against `ORIGINAL` for the card")
	cmd.Flags().StringVar(&f.base, "base", "", "the model that DST was made from, as the card links it: `OWNER/NAME`")
	cmd.Flags().StringVar(&f.receipt, "receipt", "", "state the divergence in `FILE`, of eval --receipt, in the card")
	cmd.Flags().StringVar(&f.message, "message", "Upload with microscale", "`SUBJECT` of the commit")
	cmd.Flags().BoolVar(&f.private, "private", false, "create a private repository")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the files and the card, send nothing")
	cmd.Flags().BoolVar(&f.bare, "no-card", false, "send README.md as it is in DST")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	f.threads = flags.AddThreads(cmd)
	for _, card := range []string{"source", "base", "receipt"} {
		flags.Exclusive(cmd, "no-card", card)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) }
	return cmd
}

// A pushDocument is the JSON document of a push.
type pushDocument struct {
	Repository string       `json:"repository"`
	Files      []*push.File `json:"files"`
	Card       string       `json:"card,omitempty"`
	Result     *push.Result `json:"result,omitempty"` // nil with --dry-run
}

func (f *pushFlags) run(cmd *cobra.Command, path, to string) error {
	ctx := cmd.Context()
	if err := flags.OnDisk("DST", path); err != nil {
		return err
	}
	repository, err := hub.Parse(to)
	if err == nil && repository.File != "" {
		err = fmt.Errorf("%s: a file of a repository: name the repository, which gets the files of DST", to)
	}
	if err != nil {
		return err
	}
	c, err := convert.Open(path) // what is not a checkpoint is not pushed
	if err != nil {
		return err
	}
	defer c.Close()
	files, err := push.Files(path)
	if err == nil && !c.Single {
		err = push.Strays(files, c.Shards())
	}
	if err != nil {
		return err
	}
	d := pushDocument{Repository: repository.String()}
	if !f.bare {
		card, err := f.card(cmd, repository, checkpoint.Read(c))
		if err != nil {
			return show.Interrupted(err, "nothing was sent")
		}
		original := []byte(nil)
		if !c.Single {
			const largest = 4 << 20
			if original, err = limits.ReadFile(filepath.Join(path, push.CardName), largest); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		text, err := card.Text(original)
		if err != nil {
			return err
		}
		files = slices.DeleteFunc(files, func(f *push.File) bool { return f.Name == push.CardName })
		files = append(files, push.Made(push.CardName, text))
		d.Card = string(text)
	}
	d.Files = files
	if !f.dryRun {
		client, err := hub.FromEnvironment(os.Getenv)
		if err != nil {
			return err
		}
		m := show.NewMeter(cmd.ErrOrStderr(), "pushing", 0)
		d.Result, err = push.Push(ctx, client, repository, files, push.Options{Private: f.private, Message: f.message, Progress: m.Report})
		m.Close()
		if err != nil {
			return show.Interrupted(err, "there may be no commit; repeat the command to resume")
		}
	}
	if f.asJSON {
		return show.PrintJSON(cmd.OutOrStdout(), d)
	}
	return d.print(cmd.OutOrStdout(), f.private)
}

// card collects what the card says.
func (f *pushFlags) card(cmd *cobra.Command, r hub.Repository, m *checkpoint.Model) (push.Card, error) {
	card := push.Card{Title: r.Name, Model: m, Base: f.base, Version: show.Version()}
	if f.base != "" {
		if r, err := hub.Parse(hub.Scheme + f.base); err != nil || r.File != "" {
			return card, show.Misuse("--base %s: want OWNER/NAME", f.base)
		}
	}
	if f.source != "" {
		var err error
		if card.Errors, err = f.errors(cmd, m); err != nil {
			return card, err
		}
	}
	if f.receipt == "" {
		return card, nil
	}
	receipt, err := evaluation.ReadReceipt(f.receipt)
	if err != nil {
		return card, err
	}
	content, err := evaluation.ContentOf(cmd.Context(), m.Source)
	if err != nil {
		return card, err
	}
	if receipt.SHA256 != content {
		return card, fmt.Errorf("%s: the receipt is of another model: evaluate %s", f.receipt, show.Printable(m.Source.Path))
	}
	card.Divergence = new(push.Divergence)
	card.Divergence.KL, card.Divergence.Low, card.Divergence.High, card.Divergence.Tokens = receipt.Divergence()
	return card, nil
}

// errors compares the checkpoint with the original. A fault is an error: the card would describe another model.
func (f *pushFlags) errors(cmd *cobra.Command, m *checkpoint.Model) (*verify.Report, error) {
	source, err := input.Open(cmd.Context(), f.source)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	meter := show.NewMeter(cmd.ErrOrStderr(), "comparing", 0)
	defer meter.Close()
	report, err := verify.Compare(cmd.Context(), source, m.Source, verify.Options{Threads: int(*f.threads), Progress: reportTo(meter)})
	if err == nil && !report.OK() {
		err = fmt.Errorf("%s does not match %s (%s): see microscale verify", show.Printable(m.Source.Path), show.Printable(f.source),
			report.Problems[0])
	}
	return report, err
}

// print prints what was sent, or would be.
func (d pushDocument) print(w io.Writer, private bool) error {
	access := "public"
	if private {
		access = "private"
	}
	var total float64
	for _, f := range d.Files {
		total += float64(f.Size)
		note := ""
		if d.Result != nil && f.LFS && !f.Sent {
			note = "   the hub has it already"
		}
		if _, err := fmt.Fprintf(w, "%12s   %s%s\n", show.BytesText(float64(f.Size)), show.Printable(f.Name), note); err != nil {
			return err
		}
	}
	if d.Result == nil {
		_, err := fmt.Fprintf(w, "\n%s in %s would go to %s, a %s repository if it does not exist.\n", show.BytesText(total),
			show.Counted(len(d.Files), "file"), d.Repository, access)
		if err == nil && d.Card != "" {
			_, err = fmt.Fprintf(w, "\n%s:\n\n%s", push.CardName, d.Card)
		}
		return err
	}
	for _, name := range d.Result.Removed {
		if _, err := fmt.Fprintf(w, "%12s   %s   of an earlier checkpoint\n", "removed", show.Printable(name)); err != nil {
			return err
		}
	}
	access = "public"
	if d.Result.Private {
		access = "private"
	}
	_, err := fmt.Fprintf(w, "\n%s in %s: %s (%s), commit %s\n", show.BytesText(total), show.Counted(len(d.Files), "file"), d.Repository,
		access, show.Printable(d.Result.Commit))
	return err
}

package evaluation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
)

// A Receipt has the divergence of a model from its original for every window, and what another evaluation must share with it so that
// windows can be compared one by one.
type Receipt struct {
	Version   int               `json:"version"`
	Model     string            `json:"model"`
	SHA256    string            `json:"sha256"` // of the configuration and the weights of the model
	Same      map[string]string `json:"same"`   // what must be the same, by what an error calls it
	Machine   string            `json:"machine"`
	Program   string            `json:"program"`
	Windows   []WindowReceipt   `json:"windows"`
	Reference string            `json:"reference"` // as it was named
}

// A WindowReceipt has the means of the scored tokens of a window, in nats.
type WindowReceipt struct {
	Scored int     `json:"scored"`
	KL     float64 `json:"kl"`
	NLL    float64 `json:"nll"`
}

// receiptVersion is that of files.
const receiptVersion = 1

// maxReceipt is the maximum size of a receipt in bytes. A million windows have a hundred megabytes.
const maxReceipt = 256 << 20

// ReadReceipt reads the file of a receipt.
func ReadReceipt(path string) (*Receipt, error) {
	data, err := limits.ReadFile(path, maxReceipt)
	if err != nil {
		return nil, fmt.Errorf("%s: read the receipt: %w", path, limits.Cause(err))
	}
	r := &Receipt{}
	if err := json.Unmarshal(data, r); err != nil || len(r.Windows) == 0 {
		return nil, fmt.Errorf("%s: not a receipt: make one with eval --reference ORIGINAL --receipt FILE", path)
	}
	if r.Version != receiptVersion {
		return nil, fmt.Errorf("%s: a receipt of version %d: this program reads version %d", path, r.Version, receiptVersion)
	}
	return r, nil
}

// Write writes the receipt to a new file. It never replaces a file.
func (r *Receipt) Write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = durable.WriteWhole(path, append(data, '\n'), durable.RenameNew)
	}
	if err != nil {
		return fmt.Errorf("write the receipt %s: %w", show.Printable(path), err)
	}
	return nil
}

// WriteReceipts writes the receipts to the files that Receipts names.
func (r *Evaluated) WriteReceipts() (err error) {
	for i, receipt := range r.receipts {
		err = errors.Join(err, receipt.Write(r.Receipts[i]))
	}
	return err
}

// CheckNew returns an error if path cannot become a new file: of what, for the message.
func CheckNew(what, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("write %s: %s exists: name another file, or remove it", what, show.Printable(path))
	}
	return creatable(what, path)
}

// receipt returns the receipt of model i of an evaluation with a reference, by its content. sizes are the scored tokens of the windows.
func (r *Evaluated) receipt(i int, content string, sizes []int) *Receipt {
	machine := host.ThisMachine()
	return &Receipt{Version: receiptVersion, Model: r.name(i), SHA256: content, Same: r.same, Reference: r.Reference, Program: show.Version(),
		Machine: fmt.Sprintf("%s, kernels for %s", machine.CPU, machine.Tier), Windows: windowReceipts(r.result.Comparisons[i], sizes)}
}

// windowReceipts returns the means of windows with numbers of scored tokens.
func windowReceipts(c *windows.Comparison, sizes []int) (all []WindowReceipt) {
	at := 0
	for _, n := range sizes {
		w := WindowReceipt{Scored: n}
		for i := at; i < at+n; i++ {
			w.KL += c.KL[i] / float64(n)
			w.NLL += c.Model.NLL[i] / float64(n)
		}
		all = append(all, w)
		at += n
	}
	return all
}

// content returns the SHA-256 of the configuration and the weights of the checkpoint. Of files on a server it takes the hash of the server.
func (s *stack) content(ctx context.Context) (string, error) {
	if s.digest != "" {
		return s.digest, nil
	}
	h, c := sha256.New(), s.source
	hashed := io.Writer(h)
	if s.stderr != nil {
		meter := show.NewMeter(s.stderr, "hashing "+show.Printable(c.Path), bytesOf(c))
		defer meter.Close()
		hashed = io.MultiWriter(h, writerFunc(func(p []byte) (int, error) {
			meter.Add(int64(len(p)))
			return len(p), nil
		}))
	}
	fmt.Fprintf(h, "%q", c.Config)
	for _, shard := range c.Shards() {
		fmt.Fprintf(h, " %q %d %s ", shard.Name, shard.File.Size(), shard.File.Identity())
		var err error
		for _, path := range filesOf(c, shard) {
			if err = copyAll(ctx, hashed, path); err != nil {
				break
			}
		}
		if err != nil && (shard.File.Identity() == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", err
		}
	}
	s.digest = hex.EncodeToString(h.Sum(nil))
	return s.digest, nil
}

// bytesOf returns the bytes of the files of a checkpoint that are on the disk.
func bytesOf(c *hf.Checkpoint) (n int64) {
	for _, shard := range c.Shards() {
		for _, path := range filesOf(c, shard) {
			if info, err := os.Stat(path); err == nil {
				n += info.Size()
			}
		}
	}
	return n
}

// filesOf returns the paths of the files of a shard: those of a GGUF model may be several.
func filesOf(c *hf.Checkpoint, s hf.Shard) []string {
	if c.GGUF != nil {
		return c.GGUF.Paths()
	}
	return []string{s.File.Name()}
}

// ContentOf returns the SHA-256 that receipts have of a checkpoint.
func ContentOf(ctx context.Context, c *hf.Checkpoint) (string, error) {
	return (&stack{source: c}).content(ctx)
}

// copyAll writes the content of a file.
func copyAll(ctx context.Context, w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, readerOf(ctx, f))
	return errors.Join(err, f.Close())
}

// referenceOf returns the SHA-256 of an original, or of the file of its Base.
func referenceOf(ctx context.Context, path string, original *stack) (string, error) {
	if original != nil {
		return original.content(ctx)
	}
	h := sha256.New()
	err := copyAll(ctx, h, path)
	return hex.EncodeToString(h.Sum(nil)), err
}

// readerOf returns a reader that ends with a context.
func readerOf(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A Paired is a mean of paired differences between two models, with its 95 % confidence interval.
type Paired struct{ Mean, Low, High float64 }

// An Against is the comparison of two receipts, window by window: of the first less the second.
type Against struct {
	Model   string // of the second
	Windows int
	KL, NLL Paired // nats per scored token
	Ratio   Paired // of the KL divergence of the first to that of the second; NaN if that is 0
	Note    string // what may differ by rounding; ""
}

// Compare compares two receipts. What they do not share is an error.
func (r *Receipt) Compare(other *Receipt) (*Against, error) {
	if err := other.matches(r.Same); err != nil {
		return nil, err
	}
	if err := other.comparable(len(r.Windows)); err != nil {
		return nil, err
	}
	a := &Against{Model: other.Model, Windows: len(r.Windows)}
	a.KL = paired(r.Windows, other.Windows, func(w WindowReceipt) float64 { return w.KL })
	a.NLL = paired(r.Windows, other.Windows, func(w WindowReceipt) float64 { return w.NLL })
	a.Ratio = ratio(r.Windows, other.Windows)
	if r.Machine != other.Machine || r.Program != other.Program {
		a.Note = fmt.Sprintf("the receipt is of %s (%s), this evaluation of %s (%s): a part of small differences may be rounding", other.Machine,
			other.Program, r.Machine, r.Program)
	}
	return a, nil
}

// comparable returns an error if an evaluation of n windows cannot be compared with a receipt.
func (r *Receipt) comparable(n int) error {
	if len(r.Windows) != n || n < 2 {
		return fmt.Errorf("the evaluations have %d and %d windows, want as many in both, and at least two: use a longer text, or a smaller "+
			"--context", n, len(r.Windows))
	}
	return nil
}

// matches returns an error if a receipt does not share what it must.
func (r *Receipt) matches(same map[string]string) error {
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(same)) {
		if same[key] != r.Same[key] {
			differ = append(differ, key)
		}
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("the receipt of %s is of another %s: only evaluations of the same reference, text and windows can be compared",
		show.Printable(r.Model), strings.Join(differ, " and another "))
}

// Divergence returns the mean KL divergence with its 95 % interval, NaN for one window, and the number of scored tokens.
func (r *Receipt) Divergence() (kl, low, high float64, tokens int) {
	for _, w := range r.Windows {
		tokens += w.Scored
	}
	if len(r.Windows) == 1 {
		return r.Windows[0].KL, math.NaN(), math.NaN(), tokens
	}
	p := paired(r.Windows, make([]WindowReceipt, len(r.Windows)), func(w WindowReceipt) float64 { return w.KL })
	return p.Mean, p.Low, p.High, tokens
}

// paired returns the mean of the differences of a value, each window weighted by its scored tokens. Windows are taken to be independent,
// tokens of a window are not: the interval is that of Student's distribution with one degree of freedom less than windows.
func paired(a, b []WindowReceipt, value func(WindowReceipt) float64) Paired {
	sum, tokens, n := 0.0, 0.0, float64(len(a))
	for i := range a {
		sum += float64(a[i].Scored) * (value(a[i]) - value(b[i]))
		tokens += float64(a[i].Scored)
	}
	mean, squares := sum/tokens, 0.0
	for i := range a {
		d := float64(a[i].Scored) * (value(a[i]) - value(b[i]) - mean)
		squares += d * d
	}
	return around(mean, squares, tokens, n)
}

// around returns the interval around a mean over n windows, which weigh weight together. squares is the sum of the squares of what each
// of them, times its weight, has more than the mean.
func around(mean, squares, weight, n float64) Paired {
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975) * math.Sqrt(squares*n/(n-1)) / weight
	return Paired{mean, mean - half, mean + half}
}

// ratio returns the mean KL divergence of a over that of b, as a ratio of means, with the interval of its linear approximation.
func ratio(a, b []WindowReceipt) Paired {
	above, below := 0.0, 0.0
	for i := range a {
		above, below = above+float64(a[i].Scored)*a[i].KL, below+float64(b[i].Scored)*b[i].KL
	}
	if below == 0 {
		return Paired{math.NaN(), math.NaN(), math.NaN()}
	}
	of, squares := above/below, 0.0
	for i := range a {
		d := float64(a[i].Scored)*a[i].KL - of*float64(b[i].Scored)*b[i].KL
		squares += d * d
	}
	return around(of, squares, below, float64(len(a)))
}

// String describes a comparison.
func (a *Against) String() string {
	what := "the interval includes zero: no difference is shown"
	switch {
	case a.KL.High < 0:
		what = "lower"
	case a.KL.Low > 0:
		what = "higher"
	}
	text := fmt.Sprintf("against %s, window by window (%d): KL divergence %s, loss %s nats per token: %s", show.Printable(a.Model), a.Windows,
		a.KL, a.NLL, what)
	if !math.IsNaN(a.Ratio.Mean) {
		text += fmt.Sprintf("; %.3f [%.3f, %.3f] of its divergence", a.Ratio.Mean, a.Ratio.Low, a.Ratio.High)
	}
	if a.Note != "" {
		text += "\nnote: " + show.Escaped(a.Note)
	}
	return text
}

// String returns the mean and the interval.
func (p Paired) String() string { return fmt.Sprintf("%+.5f [%+.5f, %+.5f]", p.Mean, p.Low, p.High) }

// document returns the interval as JSON.
func (p Paired) document() PairedDocument {
	return PairedDocument{show.Number(p.Mean), show.Number(p.Low), show.Number(p.High)}
}

// An AgainstDocument is an Against as JSON.
type AgainstDocument struct {
	Model   string         `json:"model"`
	Windows int            `json:"windows"`
	KL      PairedDocument `json:"kl"`
	NLL     PairedDocument `json:"nll"`
	Ratio   PairedDocument `json:"kl_ratio"` // of the mean KL divergences; null if the other has none
	Note    string         `json:"note,omitempty"`
}

// A PairedDocument is a mean of differences with its 95 % confidence interval.
type PairedDocument struct {
	Mean show.Number `json:"mean"`
	Low  show.Number `json:"low"`
	High show.Number `json:"high"`
}

func (a *Against) document() *AgainstDocument {
	if a == nil {
		return nil
	}
	return &AgainstDocument{a.Model, a.Windows, a.KL.document(), a.NLL.document(), a.Ratio.document(), a.Note}
}

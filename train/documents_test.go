package train

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// lines returns a corpus whose documents are lines of 2 to 81 bytes.
func lines(t *testing.T, count int) *Documents {
	t.Helper()
	text := bytes.ReplaceAll(synthesize(1<<15), []byte("\n"), []byte(" "))
	var file []byte
	for i := range count {
		n := 1 + (i*37)%80
		file, text = append(append(file, text[:n]...), '\n'), text[n:]
	}
	path := filepath.Join(t.TempDir(), "lines.txt")
	write(t, path, file)
	d, err := OpenDocuments("\n", path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// text returns the bytes of sequences, with their last target, and an underscore for padding.
func text(tokens, targets []int32, length int) (list []string) {
	for i := 0; i < len(tokens); i += length {
		s := string(max(tokens[i], 0))
		for j := i; j < i+length; j++ {
			if targets[j] == Padding {
				s += "_"
				continue
			}
			s += string(targets[j])
		}
		list = append(list, s)
	}
	return list
}

// TestOpenDocuments checks where documents end, how long ones are cut, and which are for validation.
func TestOpenDocuments(t *testing.T) {
	dir := t.TempDir()
	var many strings.Builder
	for i := range 13 {
		fmt.Fprintf(&many, "%c%c\n\n", 'a'+i, 'A'+i) // an empty line is no document
	}
	write(t, filepath.Join(dir, "1.txt"), []byte(many.String()+"no end"))
	write(t, filepath.Join(dir, "2.txt"), []byte("0123456789\nlast"))
	d, err := OpenDocuments("\n", dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := []int{len(d.ends[0]), len(d.ends[1])}; got[0] != 15 || got[1] != 1 {
		t.Fatalf("got %v documents, want 15 and 1", got)
	}
	if d.Bytes() != 13*3+6+11+4 {
		t.Errorf("got %d bytes", d.Bytes())
	}
	tokens, targets, err := d.Validation(10, 4)
	if got := text(tokens, targets, 4); err != nil || len(got) != 1 || got[0] != "last_" {
		t.Errorf("validation: got %q, %v", got, err)
	}
	seen := map[string]int{}
	const draws = 400
	for step := range draws {
		tokens, targets, err := d.Training(1, step, 2, 4)
		if err != nil || len(tokens) != 8 {
			t.Fatal(len(tokens), err)
		}
		for _, s := range text(tokens, targets, 4) {
			seen[s]++
		}
	}
	for _, s := range []string{"aA\n__", "mM\n__", "no en", "nd___", "01234", "45678", "89\n__"} {
		if n := seen[s]; n < 2*draws/18/2 || n > 2*draws/18*2 {
			t.Errorf("%q: drawn %d of %d times, want one in 18", s, n, 2*draws)
		}
	}
	if len(seen) != 18 {
		t.Errorf("got %d different sequences, want 18: %v", len(seen), seen)
	}
	clear(seen)
	for step := range draws {
		tokens, targets, err := d.Training(1, step, 2, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range text(tokens, targets, 5) {
			seen[s]++
		}
	}
	if len(seen) != 16 || seen["56789\n"] == 0 || seen["no end"] == 0 {
		t.Errorf("sequences of 5: got %v", seen)
	}
	whole, err := OpenDocuments("", dir, dir, dir, dir, dir, dir, dir, dir)
	if err != nil || len(whole.ends[0]) != 15 || whole.ends[0][0] != 13*4+6 {
		t.Errorf("files as documents: %v, %v", whole.ends, err)
	}
	if whole.Digest() == d.Digest() || d.Digest() == d.Corpus.hashOfText() {
		t.Error("digests of different documents are equal")
	}
	if _, err := OpenDocuments("\n", filepath.Join(dir, "2.txt")); err == nil || !strings.Contains(err.Error(),
		"got 2 documents of more than one byte, want at least 16") {
		t.Errorf("error %v", err)
	}
}

// hashOfText returns the digest of the same text as a corpus without documents.
func (c *Corpus) hashOfText() string {
	return newCorpus(append(append([]byte{}, c.train...), c.validation...)).digest
}

// TestDocumentRanks checks that 2 and 4 ranks have the losses of one rank on sequences of different
// lengths, bit by bit, with and without the distributed optimizer.
func TestDocumentRanks(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	for _, r := range recipes() {
		if r.Name == "delayed" {
			continue // its scales depend on the ranks
		}
		c := tiny(t, r.Name)
		c.Data, c.Steps, c.Batch, c.Microbatches, c.ValidationTokens = lines(t, 200), 3, 8, 4, 1024
		want := mustRun(t, c)
		if want.Tokens >= c.Steps*c.Batch*c.Sequence || want.Tokens < c.Steps*c.Batch {
			t.Errorf("%s: got %d tokens with padding", r.Name, want.Tokens)
		}
		for _, ranks := range []int{2, 4} {
			c.Parallel.DistributedOptimizer = ranks == 4
			got, err := runRanks(ranks, c, nil)
			if err != nil {
				t.Fatalf("%s, %d ranks: %v", r.Name, ranks, err)
			}
			for rank, g := range got {
				if !same(g, want) || g.Tokens != want.Tokens {
					t.Errorf("%s, rank %d of %d: got losses\n%v %v\nwant\n%v %v", r.Name, rank, ranks, g.TrainLoss, g.Validation, want.TrainLoss,
						want.Validation)
				}
			}
		}
	}
}

// TestDocumentTensor has ranks that share every layer, on sequences of different lengths. Rounding
// errors change losses a little, as with sequences of equal length; dividing the tokens changes
// nothing.
func TestDocumentTensor(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	c := divisible(t, "f32")
	c.Data = lines(t, 200)
	want := mustRun(t, c)
	c.Parallel.Tensor = 2
	got, err := runRanks(2, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want.TrainLoss {
		if math.Abs(got[1].TrainLoss[i]-w) > 1e-5 {
			t.Errorf("step %d: loss %v, want %v", i+1, got[1].TrainLoss[i], w)
		}
	}
	c.Parallel.Sequence = true
	divided, err := runRanks(2, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !same(divided[0], got[0]) {
		t.Errorf("with divided tokens: got losses\n%v\nwant\n%v", divided[0].TrainLoss, got[0].TrainLoss)
	}
}

// TestMeanOverTokens checks that the loss and the gradients of a step are means over its tokens, not
// over its microbatches: those of each sequence alone, times its number of tokens.
func TestMeanOverTokens(t *testing.T) {
	c := tiny(t, "f32")
	c.Data, c.Batch, c.Microbatches, c.Sequence, c.Model.MaxPositionEmbeddings = lines(t, 200), 8, 4, 64, 64
	r, err := newRun(c, groups{})
	if err != nil {
		t.Fatal(err)
	}
	losses, err := r.backward(r.scope(0), false)
	if err != nil {
		t.Fatal(err)
	}
	got := (&status{losses: losses}).mean()
	tokens, targets, err := c.Data.Training(c.Seed, 0, c.Batch, c.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := newRun(c, groups{})
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	total, counts := float64(counted(targets)), map[float64]bool{}
	for i := range c.Batch {
		scope, at := alone.scope(0), i*c.Sequence
		own, wanted := tokens[at:at+c.Sequence], targets[at:at+c.Sequence]
		scope.Lengths = lengths(own, c.Sequence)
		n := float64(counted(wanted))
		counts[n] = true
		loss, err := alone.model.Train(&scope, own, wanted, 1, float32(n/total))
		if err != nil {
			t.Fatal(err)
		}
		sum += loss * n
	}
	if len(counts) < 4 {
		t.Fatalf("sequences have only the lengths %v", counts)
	}
	if want := sum / total; math.Abs(got-want) > 1e-9 {
		t.Errorf("loss %v, want %v", got, want)
	}
	for i, p := range alone.params {
		var e, norm float64
		for j, v := range p.Grad.Data {
			d := float64(v - r.params[i].Grad.Data[j])
			e, norm = e+d*d, norm+float64(v)*float64(v)
		}
		if e > 1e-10*norm {
			t.Errorf("gradient of %s: relative error %g", p.Name, math.Sqrt(e/norm))
		}
	}
}

// badBatches returns the given data.
type badBatches struct {
	Batches
	tokens, targets []int32
}

func (b badBatches) Training(uint64, int, int, int) (tokens, targets []int32, err error) {
	return b.tokens, b.targets, nil
}

// TestPaddingChecked has batches with padding that is not at the end, and with targets in padding.
func TestPaddingChecked(t *testing.T) {
	c := tiny(t, "bf16")
	for want, change := range map[string]func(tokens, targets []int32){
		"training data: token 3 of sequence 1 is 1 after padding": func(tokens, targets []int32) {
			tokens[32+2], targets[32+2] = Padding,
				Padding
		},
		"training data: token 31 of sequence 0 is padding, but its targ": func(tokens, _ []int32) { tokens[31] = Padding },
	} {
		tokens, targets := make([]int32, 4*32), make([]int32, 4*32)
		for i := range tokens {
			tokens[i] = 1
		}
		change(tokens, targets)
		own := c
		own.Data = badBatches{c.Data, tokens, targets}
		r, err := newRun(own, groups{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.backward(r.scope(0), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

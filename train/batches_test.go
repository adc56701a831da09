package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A counting is Batches of an outside program: sequences that count modulo the vocabulary, with
// every fourth target masked. wrong changes what it returns.
type counting struct {
	vocabulary int
	wrong      string
}

func (c counting) batch(start, sequences, length int) (tokens, targets []int32, err error) {
	for s := range sequences {
		for i := range length {
			at := start + 7*s + i
			tokens, targets = append(tokens, int32(at%c.vocabulary)), append(targets, int32((at+1)%c.vocabulary))
			if i%4 == 3 {
				targets[len(targets)-1] = -1
			}
		}
	}
	switch c.wrong {
	case "short":
		tokens = tokens[1:]
	case "error":
		err = errors.New("the source failed")
	}
	return tokens, targets, err
}

func (c counting) Training(seed uint64, step, sequences, length int) (tokens, targets []int32, err error) {
	return c.batch(int(seed)+31*step, sequences, length)
}

func (c counting) Validation(sequences, length int) (tokens, targets []int32, err error) {
	return c.batch(5, sequences, length)
}

func (c counting) Digest() string { return fmt.Sprintf("counting %d", c.vocabulary) }

// TestOwnBatches trains on the tokens of an outside program with a vocabulary that is not bytes, and
// checks that an interrupted and resumed run has the same losses.
func TestOwnBatches(t *testing.T) {
	c := tiny(t, "mxfp8")
	c.Model.VocabSize, c.Data = 50, counting{vocabulary: 50}
	c.Steps, c.LearningRate = 12, 2e-2
	want := mustRun(t, c)
	if first, last := want.TrainLoss[0], want.TrainLoss[c.Steps-1]; first < 3.5 || last > 0.8*first {
		t.Errorf("the loss goes from %.3f to %.3f, want a decrease from about ln 50", first, last)
	}
	c.Out = filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.Progress = onStep(3, cancel)
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c.Resume, c.Progress = true, nil
	other := c
	other.Data = counting{vocabulary: 40}
	if _, err := Run(context.Background(), other); err == nil || !strings.Contains(err.Error(), `data is "counting 50" in the checkpoint`) {
		t.Errorf("resume with other data: got %v", err)
	}
	if got := mustRun(t, c); !same(got, want) {
		t.Errorf("resumed: got losses\n%v\nwant\n%v", got.TrainLoss, want.TrainLoss)
	}
}

func TestBadBatches(t *testing.T) {
	for wrong, want := range map[string]string{
		"short": "validation data: got 255 tokens and 256 targets, want 1 to 8 sequences of 32",
		"error": "validation data: the source failed",
	} {
		c := tiny(t, "bf16")
		c.Data = counting{256, wrong}
		if _, err := Run(context.Background(), c); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", wrong, err, want)
		}
	}
	c := tiny(t, "bf16")
	c.Data = nil
	var invalid *ConfigError
	if _, err := Run(context.Background(), c); !errors.As(err, &invalid) || invalid.Field != "Data" {
		t.Errorf("no data: got %v", err)
	}
	c = tiny(t, "bf16")
	c.Model.VocabSize, c.Data = 50, counting{vocabulary: 60}
	if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "want 0 to 49") {
		t.Errorf("tokens outside the vocabulary: got %v", err)
	}
}

package windows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/internal/parallel"
)

// A Base is a file that llama.cpp's llama-perplexity writes with --kl-divergence-base: the tokens of a text, and the log-probabilities
// of a model for the scored tokens of its windows, by Method llama.cpp. All numbers are little-endian:
//
//	"_logits_", then int32: context, vocabulary, windows
//	int32 × context·windows          the tokens
//	rows, window by window, row by row: float32 step, float32 least, uint16 × vocabulary (rounded up to an even number)
//
// where the log-probability of token i is least + step·code. Codes have a range of 16 nats below the most probable token.
// Source: log_softmax and perplexity in llama.cpp's tools/perplexity/perplexity.cpp.
type Base struct {
	Context, Vocabulary int

	file   *os.File
	tokens []int32
	data   int64 // where the rows begin
}

const (
	baseMagic = "_logits_"
	baseRange = 16 // nats below the largest logit that codes express
	baseFloor = -baseRange
	baseHead  = len(baseMagic) + 3*4
	baseTop   = math.MaxUint16 // the code of the largest logit
)

// IsBase reports whether a file is a Base, by its first bytes.
func IsBase(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, len(baseMagic))
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == baseMagic
}

// OpenBase opens a Base, and reads its tokens. The caller closes it.
func OpenBase(path string) (*Base, error) {
	f, info, err := limits.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, limits.Cause(err))
	}
	b := &Base{file: f}
	if err := b.read(info); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, limits.Cause(err)), f.Close())
	}
	return b, nil
}

func (b *Base) read(info fs.FileInfo) error {
	head := make([]byte, baseHead)
	if _, err := io.ReadFull(b.file, head); err != nil || string(head[:len(baseMagic)]) != baseMagic {
		return errors.New("not a file of llama.cpp's --kl-divergence-base")
	}
	var numbers [3]int32
	for i := range numbers {
		numbers[i] = int32(binary.LittleEndian.Uint32(head[len(baseMagic)+4*i:]))
	}
	context, vocabulary, windows := int64(numbers[0]), int64(numbers[1]), int64(numbers[2])
	const most = 1 << 28 // windows then have less than 2⁶³ bytes
	if context < 3 || context > most || vocabulary < 1 || vocabulary > most || windows < 1 {
		return fmt.Errorf("got %d windows of %d tokens of a vocabulary of %d: the file is damaged", windows, context, vocabulary)
	}
	b.Context, b.Vocabulary = int(context), int(vocabulary)
	window := 4*context + (context-1-context/2)*int64(b.rowBytes())
	if want := (info.Size() - int64(baseHead)) / window; want != windows || (info.Size()-int64(baseHead))%window != 0 {
		return fmt.Errorf("got %d bytes, want %d and %d for each of %d windows of %d tokens: the file is incomplete or damaged", info.Size(),
			baseHead, window, windows, context)
	}
	tokens := make([]byte, 4*context*windows)
	if _, err := io.ReadFull(b.file, tokens); err != nil {
		return err
	}
	b.tokens = make([]int32, context*windows)
	_, err := binary.Decode(tokens, binary.LittleEndian, b.tokens)
	b.data = int64(baseHead + len(tokens))
	return err
}

// Close closes the file.
func (b *Base) Close() error { return b.file.Close() }

// rowBytes returns the bytes of a row.
func (b *Base) rowBytes() int { return 2*4 + 2*(b.Vocabulary+b.Vocabulary%2) }

// Tokens returns the tokens of the text.
func (b *Base) Tokens() []int32 { return b.tokens }

// Windows returns the windows. bos is the token that begins a text, or a negative number if the vocabulary adds none.
func (b *Base) Windows(bos int32) (windows []Window) {
	for at := 0; at < len(b.tokens); at += b.Context {
		w := Window{Tokens: append([]int32(nil), b.tokens[at:at+b.Context]...), First: b.Context/2 + 1}
		if bos >= 0 {
			w.Tokens[0] = bos
		}
		windows = append(windows, w)
	}
	return windows
}

// rows reads rows of a window from one on, as many as buf has.
func (b *Base) rows(buf []byte, window, from int) error {
	scored := b.Context - 1 - b.Context/2
	_, err := b.file.ReadAt(buf, b.data+(int64(window)*int64(scored)+int64(from))*int64(b.rowBytes()))
	if err != nil {
		return fmt.Errorf("%s: %w", b.file.Name(), limits.Cause(err))
	}
	return nil
}

// baseTile is the number of scored tokens whose rows, or whose logits, are in memory at once.
const baseTile = 64

// compareBase adds the tokens of a window that one model reads, by the log-probabilities of its original in a Base. head returns the
// Head of some of the scored tokens.
func (s scorer) compareBase(to *Comparison, b *Base, window int, head func(from, to int) (Head, error), targets []int32) error {
	buf := make([]byte, min(baseTile, len(targets))*b.rowBytes())
	for from := 0; from < len(targets); from += baseTile {
		tile := targets[from:min(from+baseTile, len(targets))]
		rows := buf[:len(tile)*b.rowBytes()]
		if err := b.rows(rows, window, from); err != nil {
			return err
		}
		pairs := make([]basePair, len(tile))
		for i := range pairs {
			p, err := newBasePair(rows[i*b.rowBytes() : (i+1)*b.rowBytes()])
			if err != nil {
				return fmt.Errorf("%s: scored token %d: %w", b.file.Name(), from+i, err)
			}
			pairs[i] = p
		}
		model, err := head(from, from+len(tile))
		if err != nil {
			return err
		}
		err = s.blocks(func(begin, end int) error {
			logits, err := model(begin, end)
			if err != nil {
				return err
			}
			s.rows(len(tile), func(i int) { pairs[i].add(begin, logits.Row(i), tile[i]) })
			return nil
		})
		if err != nil {
			return err
		}
		for i := range pairs {
			if err := pairs[i].addTo(to, from+i); err != nil {
				return err
			}
		}
	}
	return nil
}

// A basePair compares the logits of a model for one token with a row of a Base, as llama.cpp does:
//
//	KL = Σ p·(ln p − ln q) over the tokens with ln p > −16
//
// p are not normalized again: codes below the range of the row stand for its least value, which is less than −16 unless a token has
// almost all of the probability.
type basePair struct {
	model       softmax
	step, least float32
	codes       []byte
	shift, mass float64 // Σ p·(ln p − logit), Σ p
	nll         float64 // of the original
	top         int     // of the original
	code        uint16  // of top
}

func newBasePair(row []byte) (basePair, error) {
	p := basePair{model: newSoftmax(), step: math.Float32frombits(binary.LittleEndian.Uint32(row)),
		least: math.Float32frombits(binary.LittleEndian.Uint32(row[4:])), codes: row[8:], top: -1, nll: math.NaN()}
	if largest := p.least + baseTop*p.step; !(p.step >= 0 && largest < 1e-3) || math.IsInf(float64(p.least), 0) {
		return p, fmt.Errorf("got log-probabilities from %g to %g: the file is damaged", p.least, largest)
	}
	return p, nil
}

// add accumulates a block of the model's logits that starts at token from.
func (p *basePair) add(from int, logits []float32, right int32) {
	p.model.add(from, logits, right)
	for i, v := range logits {
		code := binary.LittleEndian.Uint16(p.codes[2*(from+i):])
		if p.top < 0 || code > p.code {
			p.top, p.code = from+i, code
		}
		ln := p.least + float32(p.step*float32(code))
		if from+i == int(right) {
			p.nll = -float64(ln)
		}
		if ln > baseFloor {
			e := math.Exp(float64(ln))
			p.mass += e
			p.shift += e * (float64(ln) - float64(v))
		}
	}
}

// addTo appends the result for scored token i of a window.
func (p *basePair) addTo(c *Comparison, i int) error {
	if err := c.Model.add(&p.model, i); err != nil {
		return err
	}
	c.Original.NLL = append(c.Original.NLL, p.nll)
	c.KL = append(c.KL, p.shift+p.mass*p.model.logSum())
	c.SameTop = append(c.SameTop, p.top == p.model.top)
	return nil
}

// BaseBytes returns the bytes of the Base of windows.
func BaseBytes(vocabulary int, windows []Window) int64 {
	b := Base{Vocabulary: vocabulary}
	n := int64(baseHead)
	for _, w := range windows {
		n += 4*int64(len(w.Tokens)) + int64(w.Scored())*int64(b.rowBytes())
	}
	return n
}

// writeBaseHead writes what precedes the rows of a Base.
func writeBaseHead(w io.Writer, vocabulary int, windows []Window) error {
	head := binary.LittleEndian.AppendUint32([]byte(baseMagic), uint32(len(windows[0].Tokens)))
	head = binary.LittleEndian.AppendUint32(head, uint32(vocabulary))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(windows)))
	for _, window := range windows {
		for _, token := range window.Tokens {
			head = binary.LittleEndian.AppendUint32(head, uint32(token))
		}
	}
	_, err := w.Write(head)
	return err
}

// writeBase writes the rows of a window.
func (s scorer) writeBase(w io.Writer, head func(from, to int) (Head, error), scored int) error {
	b := Base{Vocabulary: s.vocabulary}
	all, buf := make([]float32, min(baseTile, scored)*s.vocabulary), make([]byte, min(baseTile, scored)*b.rowBytes())
	for from := 0; from < scored; from += baseTile {
		n := min(baseTile, scored-from)
		h, err := head(from, from+n)
		if err != nil {
			return err
		}
		err = s.blocks(func(begin, end int) error {
			logits, err := h(begin, end)
			for i := 0; err == nil && i < n; i++ {
				copy(all[i*s.vocabulary+begin:], logits.Row(i))
			}
			return err
		})
		if err != nil {
			return err
		}
		parallel.For(n, 1, s.threads, func(begin, end int) {
			for i := begin; i < end; i++ {
				encodeBaseRow(buf[i*b.rowBytes():(i+1)*b.rowBytes()], all[i*s.vocabulary:(i+1)*s.vocabulary])
			}
		})
		if _, err := w.Write(buf[:n*b.rowBytes()]); err != nil {
			return err
		}
	}
	return nil
}

// encodeBaseRow encodes the logits of a token, which are finite, in the arithmetic of llama.cpp.
func encodeBaseRow(row []byte, logits []float32) {
	s := newSoftmax()
	s.add(0, logits, 0)
	largest, least := float32(s.max), float32(s.max)
	for _, v := range logits {
		least = min(least, v)
	}
	least = max(least, largest-baseRange)
	step := (largest - least) / baseTop
	binary.LittleEndian.PutUint32(row, math.Float32bits(step))
	binary.LittleEndian.PutUint32(row[4:], math.Float32bits(least-largest-float32(math.Log(s.sum))))
	clear(row[8:])
	if step == 0 {
		return
	}
	for i, v := range logits {
		if v > least {
			binary.LittleEndian.PutUint16(row[8+2*i:], uint16(math.RoundToEven(float64(1/step*(v-least)))))
		}
	}
}

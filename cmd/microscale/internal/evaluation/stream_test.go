package evaluation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// TestStream interrupts an evaluation with one layer in memory, resumes it, and compares its bits with
// those of one in memory. A calibration does the same.
func TestStream(t *testing.T) {
	e := newEvaluation(t)
	e.Layers, e.Formats = true, []quant.Format{quant.NVFP4, quant.MXFP8}
	want := run(t, e).Document()
	var messages bytes.Buffer
	e.Stream, e.Stderr = filepath.Join(t.TempDir(), "scratch"), &messages
	got := run(t, e).Document()
	got.Seconds = want.Seconds
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with one layer in memory: %+v, in memory: %+v", got, want)
	}
	if !strings.Contains(messages.String(), "predicted: at most ") {
		t.Errorf("got %q", messages.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.Stderr = writerFunc(func(p []byte) (int, error) { // the forecast: nothing is measured yet
		cancel()
		return len(p), nil
	})
	if _, err := e.Run(ctx); err == nil || err.Error() != "interrupted: to resume, repeat the command" {
		t.Fatalf("got %v", err)
	}
	e.Stderr = io.Discard
	for what, change := range map[string]func(*Evaluation){
		"list of formats": func(e *Evaluation) { e.Formats = e.Formats[:1] }, "choice of --layers": func(e *Evaluation) { e.Layers = false },
	} {
		other := e
		change(&other)
		if _, err := other.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
			"holds an interrupted evaluation with another "+what+": ") {
			t.Errorf("got %v", err)
		}
	}
	if got = run(t, e).Document(); got.Formats[1].KL != want.Formats[1].KL {
		t.Errorf("resumed: %+v, want %+v", got, want)
	}
	low := filepath.Join(t.TempDir(), "low")
	quantize(t, e.Model, low, quant.MXFP4, nil)
	e.Model, e.Reference, e.Formats, e.Activations = low, e.Model, nil, true
	got = run(t, e).Document()
	e.Stream = ""
	if want := run(t, e).Document(); *got.DivergenceDocument != *want.DivergenceDocument {
		t.Errorf("beside a reference: %+v, in memory: %+v", got, want)
	}
	amaxes := map[string]*convert.Calibration{}
	for _, stream := range []string{"", filepath.Join(t.TempDir(), "scratch")} {
		c := Calibration{Evaluation: newEvaluation(t), Out: filepath.Join(t.TempDir(), "amax.toml")}
		c.Stream = stream
		if _, err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		if amaxes[stream], err = convert.ReadCalibration(c.Out); err != nil {
			t.Fatal(err)
		}
	}
	if len(amaxes) != 2 {
		t.Fatal("one calibration")
	}
	for _, a := range amaxes {
		if !reflect.DeepEqual(a, amaxes[""]) {
			t.Errorf("calibrations %v and %v", a, amaxes[""])
		}
	}
}

// TestForecast checks the arithmetic of a forecast that does not depend on the machine.
func TestForecast(t *testing.T) {
	e := newEvaluation(t)
	e.Layers, e.Formats = true, []quant.Format{quant.NVFP4}
	r := run(t, e)
	runs := &windows.Run{Local: true, Original: newFakeStack(), Models: []windows.Stack{newFakeStack()},
		Windows: []windows.Window{{Tokens: make([]int32, 64), First: 33}}}
	f := r.forecast(runs, 1)
	const linear, head = 2 * (64*(64+32+32+64) + 3*64*96), 256 * 64
	const attention = 2 * 2 * 64 // keys and values of two layers
	if want := 2.0*linear*64*3 + 2*attention*64*64*2 + 2*head*31*2; f.operations != want {
		t.Errorf("%g operations, want %g", f.operations, want)
	}
	if want := 2.0 * 4 * 64 * 64 * 2; f.disk != want {
		t.Errorf("%g bytes of disk, want %g", f.disk, want)
	}
	if err := comm.Run(3, comm.Options{}, func(g *comm.Group) error {
		ranked := *r
		ranked.Ranks = g
		if got := ranked.forecast(runs, 1).disk; got != 2*f.disk { // two layers of each rank, and those of the two before
			t.Errorf("3 ranks: %g bytes of disk, want %g", got, 2*f.disk)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if f.memory < 32<<20 || f.memory > 128<<20 {
		t.Errorf("%g bytes of memory", f.memory)
	}
	if want := int64(2*linear + 2*2*2*64); r.held.layers != want {
		t.Errorf("layers take %d bytes, want %d", r.held.layers, want)
	}
	r.held.layers, r.held.rest = r.held.layers+1<<30, r.held.rest+1<<30 // of two layers, and of the rest
	if more := r.forecast(runs, 1).memory - f.memory; more != 1.25*(1+1)*(1<<30) {
		t.Errorf("2 GiB of weights take %g bytes more", more)
	}
}

// A layered is a stack of which only the number of layers is known.
type layered struct {
	windows.Stack
	layers int
}

func (l layered) Layers() int { return l.layers }

// TestPredict checks the time of runs from that of a window of 64 tokens, 32 of them scored: a new one, one
// bound by reading, and one that resumes after 3 of 4 layers.
func TestPredict(t *testing.T) {
	run := &windows.Run{Models: []windows.Stack{layered{layers: 4}}, Stream: &windows.Stream{Dir: t.TempDir(),
		Key: map[string]string{"model": "m"}},
		Windows: []windows.Window{{Tokens: make([]int32, 64), First: 32}, {Tokens: make([]int32, 32), First: 16}}}
	pace := windows.Pace{Load: time.Second, Layer: 2 * time.Second, Head: 4 * time.Second}
	check := func(what string, p windows.Pace, want float64) {
		t.Helper()
		var f forecast
		if f.predict(run, p, 1); f.seconds != want {
			t.Errorf("%s: got %g s, want %g", what, f.seconds, want)
		}
	}
	check("new", pace, 1+4*3+6)
	slow := pace
	slow.Load = 10 * time.Second
	check("slow disk", slow, 10+4*10+6)
	const document = `{"key": {"model": "m"}, "layers": 3}`
	if err := os.WriteFile(filepath.Join(run.Stream.Dir, "state.json"), fmt.Appendf(nil, "%016x %s", checksum.Of([]byte(document)), document),
		0o600); err != nil {
		t.Fatal(err)
	}
	check("resumed", pace, 1+3+6)
	run.Stream.Key = nil
	check("of something else", pace, 1+4*3+6)
}

// TestFullDisk streams to a filesystem with less space than the activations need: one error before the work,
// and no directory. With the space it runs.
func TestFullDisk(t *testing.T) {
	e := newEvaluation(t)
	e.Stream = filepath.Join(t.TempDir(), "a", "b")
	defer func(f func(string) float64) { freeBytes = f }(freeBytes)
	freeBytes = func(dir string) float64 {
		if want := filepath.Dir(filepath.Dir(e.Stream)); dir != want {
			t.Errorf("asks for %s, want %s", dir, want)
		}
		return 1000
	}
	if _, err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the activations take ") || !strings.Contains(err.Error(),
		"has 1.00 kB free: name a directory of another filesystem") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Dir(e.Stream)); err == nil {
		t.Error("the directory was made")
	}
	freeBytes = func(string) float64 { return 1 << 20 } // too little with the state
	if _, err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the activations take ") {
		t.Errorf("got %v", err)
	}
	freeBytes = func(string) float64 { return 1e12 }
	run(t, e)
}

// TestTime prints the time of all runs and of the last one.
func TestTime(t *testing.T) {
	if got := (&Evaluated{seconds: 5}).time(); got != "5 s" {
		t.Errorf("one run: got %q", got)
	}
	if got := (&Evaluated{seconds: 5, earlier: 60}).time(); got != "1 min 5 s in all, 5 s of it in this run" {
		t.Errorf("two runs: got %q", got)
	}
}

func newFakeStack() windows.Stack { return &stack{} }

// TestContent checks that the content of a checkpoint changes with its weights and configuration, and not with
// other files, its name or times.
func TestContent(t *testing.T) {
	dir := writeModel(t, 1)
	of := func(path string) string {
		t.Helper()
		c, err := hf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		content, err := (&stack{source: c}).content(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	before := of(dir)
	weights := filepath.Join(dir, "model.safetensors")
	then := time.Unix(1, 0)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600), os.Chtimes(weights, time.Time{}, then)); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if of(dir) != before || of(other) != before {
		t.Error("another file, name or time changes the content")
	}
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1]++
	if err := errors.Join(os.WriteFile(weights, data, 0o600), os.Chtimes(weights, time.Time{}, then)); err != nil {
		t.Fatal(err)
	}
	if of(dir) == before {
		t.Error("other weights of the same size and time do not change the content")
	}
	config := filepath.Join(other, "config.json")
	if data, err = os.ReadFile(config); err == nil {
		err = os.WriteFile(config, append(data, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if of(other) == before {
		t.Error("another configuration does not change the content")
	}
}

// TestStreamHere resumes an evaluation whose directory is below the working directory, as the default one, and
// below that of the model.
func TestStreamHere(t *testing.T) {
	e := newEvaluation(t)
	want := run(t, e).Document()
	t.Chdir(t.TempDir())
	for _, dir := range []string{"eval.microscale-partial", filepath.Join(e.Model, "scratch")} {
		e.Stream = dir
		ctx, cancel := context.WithCancel(t.Context())
		e.Stderr = writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
		if _, err := e.Run(ctx); err == nil || err.Error() != "interrupted: to resume, repeat the command" {
			t.Fatalf("got %v", err)
		}
		e.Stderr = io.Discard
		if _, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		}
		if got := run(t, e).Document(); got.LossDocument != want.LossDocument {
			t.Errorf("%s: resumed: %+v, want %+v", dir, got, want)
		}
	}
}

// TestPreview predicts an evaluation of a long text from its beginning.
func TestPreview(t *testing.T) {
	e := newEvaluation(t)
	e.Text = writeText(t, strings.Repeat("Not all those who wander are lost\n", 100_000))
	e.Stream = filepath.Join(t.TempDir(), "scratch")
	var messages bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	e.Stderr = writerFunc(func(p []byte) (int, error) { // the first line
		cancel()
		return messages.Write(p)
	})
	if _, err := e.Run(ctx); err == nil {
		t.Fatal("the evaluation was not interrupted")
	}
	const disk = 2 * 4 * 3_400_000 * 64
	if text := messages.String(); !strings.HasPrefix(text, "predicted: at most ") || !strings.Contains(text,
		show.BytesText(disk)+" of disk") || strings.Count(text, "predicted") != 1 {
		t.Errorf("got %q, want %s of disk", text, show.BytesText(disk))
	}
}

// TestStatisticsCanceled collects statistics layer by layer: the modules of a checkpoint have those of their inputs, and
// an interrupted run resumes to the same bytes.
func TestStatisticsCanceled(t *testing.T) {
	dir := t.TempDir()
	c := Calibration{Evaluation: newEvaluation(t), Out: filepath.Join(dir, "whole.safetensors"), Hessian: true}
	c.Stream = filepath.Join(dir, "scratch")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := calibration.Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, ok := s.Of("model.layers.1.self_attn.q_proj")
	v, _ := s.Of("model.layers.1.self_attn.v_proj")
	if !ok || q != v || len(s.Inputs) != 8 || len(s.Amaxes()) != 14 || !q.HasHessian() || q.Tokens == 0 {
		t.Errorf("got %d inputs of %d modules, and %+v", len(s.Inputs), len(s.Amaxes()), q)
	}
	for _, in := range s.Inputs {
		if in.Tokens != 4*64 { // not those of the forecast, too
			t.Errorf("%s: %d tokens, want 256", in.Modules[0], in.Tokens)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v are left (%v)", entries, err)
	}
	want, err := os.ReadFile(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	c.Out = filepath.Join(dir, "resumed.safetensors")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // as soon as a layer is complete
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(c.Stream, "layer-00000.safetensors")); err == nil {
				cancel()
			}
		}
	}()
	if _, err := c.Run(ctx); err == nil || !strings.Contains(err.Error(), "to resume, repeat the command") {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(c.Out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a resumed run gives other bytes (%v)", err)
	}
}

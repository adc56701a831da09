// This file is part of a program in another module, which TestOutsideModule builds and runs. Each function does one
// of the things that the documents behind this module are about, in less than 30 lines.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/generation/sampling"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/train"
)

// tasks runs all tasks in a directory with the checkpoint quantized.safetensors.
func tasks(dir string) error {
	for _, task := range []func(string) error{readWeights, readGGUF, linear, gather, trainTwoRanks, generate, loss, facts, name} {
		if err := task(dir); err != nil {
			return err
		}
	}
	return nil
}

// readWeights reads the weights of a quantized checkpoint, and asks what a client says of it.
func readWeights(dir string) error {
	source, err := convert.Open(filepath.Join(dir, "quantized.safetensors"))
	if err != nil {
		return err
	}
	defer source.Close()
	m := checkpoint.Read(source)
	for _, w := range m.Weights {
		rows, cols := w.Matrix()
		x, err := w.Read(0, rows)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s, %d×%d, the last value is %v\n", w.Name, w.Format, rows, cols, x.Data[len(x.Data)-1])
	}
	vllm, err := client.Lookup("vllm")
	if err == nil {
		fmt.Println("vLLM reads it:", vllm.Reads(m.Convention.Name, m.Scheme))
	}
	return err
}

// readGGUF writes a GGUF file and reads it.
func readGGUF(dir string) error {
	layout, err := gguf.NewLayout([]gguf.Spec{{Name: "x", Type: gguf.F32, Shape: []int64{2, 2}}},
		[]gguf.Pair{{Key: "general.name", Value: "two"}})
	if err != nil {
		return err
	}
	path, data := filepath.Join(dir, "x.gguf"), make([]byte, layout.FileSize())
	copy(data, layout.HeaderBytes())
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, t := range f.Tensors {
		fmt.Println(f.Value("general.name"), t.Name, t.Type, t.Shape, t.Bytes())
	}
	return nil
}

// linear runs a linear layer forward and backward under a recipe.
func linear(string) error {
	r, err := recipe.Lookup("mxfp8")
	if err != nil {
		return err
	}
	l := nn.NewLinear("proj", 64, 32, true)
	l.Weight.InitNormal(0.02, 1)
	scope := nn.Scope{Recipe: r}
	x, dy := tensor.New(32, 64), tensor.New(32, 32)
	y, saved, err := l.Forward(&scope, x)
	if err != nil {
		return err
	}
	dx, err := l.Backward(&scope, saved, dy)
	fmt.Printf("y %d×%d, dx %d×%d\n", y.Rows, y.Cols, dx.Rows, dx.Cols)
	return err
}

// gather gathers bytes of two ranks.
func gather(string) error {
	return comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		all, err := g.GatherAll([]byte{byte(g.Rank())})
		if err == nil && g.Rank() == 0 {
			fmt.Println("gathered", all)
		}
		return err
	})
}

// trainTwoRanks trains a small model on two ranks and saves it.
func trainTwoRanks(dir string) error {
	c := train.DefaultConfig()
	c.Model = decoder.Config{VocabSize: 256, HiddenSize: 32, IntermediateSize: 64, NumHiddenLayers: 1, NumAttentionHeads: 2}
	c.Steps, c.Batch, c.Microbatches, c.Sequence, c.ValidationTokens, c.LearningRate = 20, 4, 2, 32, 512, 1e-2
	c.Out = filepath.Join(dir, "trained")
	var err error
	if c.Recipe, err = recipe.Lookup("mxfp8"); err != nil {
		return err
	}
	if c.Data, err = train.OpenCorpus("synthetic:"); err != nil {
		return err
	}
	return comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		c := c
		c.Parallel = train.Parallel{Group: g, GradReduce: comm.BF16, DistributedOptimizer: true}
		result, err := train.Run(context.Background(), c)
		if err == nil && g.Rank() == 0 {
			_, last := result.FinalLoss()
			fmt.Printf("trained: from %.1f to %.1f nats per byte\n", result.TrainLoss[0], last)
		}
		return err
	})
}

// generate writes text with the trained model.
func generate(dir string) error {
	source, err := hf.Open(filepath.Join(dir, "trained"))
	if err != nil {
		return err
	}
	defer source.Close()
	m, err := generation.Load(context.Background(), "trained", source, generation.Options{Cache: quant.MXFP8})
	if err != nil {
		return err
	}
	c, err := m.NewContext(m.Positions(0), 1)
	if err != nil {
		return err
	}
	a, err := m.Begin(c, generation.Request{Prompt: m.Text.Completion("The "), MaxTokens: 8, Sampling: sampling.Options{Temperature: 0}})
	if err != nil {
		return err
	}
	var text strings.Builder
	err = a.Write(context.Background(), func(part generation.Part) error {
		text.WriteString(part.Text)
		return nil
	})
	fmt.Println("generated", a.Tokens, "tokens,", a.Finish == generation.Length, text.Len() > 0)
	return err
}

// loss computes the loss of the trained model on a text.
func loss(dir string) error {
	m, err := decoder.Load(context.Background(), filepath.Join(dir, "trained"), decoder.LoadOptions{})
	if err != nil {
		return err
	}
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		return err
	}
	text := []int32{84, 104, 101, 32, 101, 110, 100, 46, 10}
	nats, err := m.Loss(&decoder.Scope{Recipe: bf16}, text[:len(text)-1], text[1:], 1)
	fmt.Println("the loss is below that of uniform bytes:", nats < 5.6)
	return err
}

// facts asks whether a device computes a layer, and what training costs on it.
func facts(string) error {
	d, err := device.Lookup("b200")
	if err != nil {
		return err
	}
	answer, err := device.Check(device.Request{Device: d, Input: quant.MXFP8, Weight: quant.MXFP8, Grad: quant.MXFP8, M: 4096, N: 4096,
		K: 4096})
	if err != nil {
		return err
	}
	r, err := recipe.Lookup("mxfp8")
	if err != nil {
		return err
	}
	e, err := cost.New(cost.Config{Params: 8e9, Recipe: r, Device: d, Tokens: 1 << 20, Width: 4096})
	if err == nil {
		fmt.Println(d.Name, len(answer.Products), "products,", len(e.Sections), "sections of costs")
	}
	return err
}

// name names the constants that fields of public structs take.
func name(string) error {
	q := quant.Quantizer{
		Format: quant.NVFP4, Arithmetic: quant.DecodeFirst, NonFinite: quant.Poison, NegativeZero: quant.DropNegativeZero,
		ElementNaN: format.KeepSign,
	}
	if _, err := q.Rowwise(tensor.New(1, 16), quant.With{}); err != nil {
		return err
	}
	if len(checkpoint.Conventions()) == 0 || len(client.All()) == 0 {
		return errors.New("there are no conventions")
	}
	return nil
}

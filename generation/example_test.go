package generation_test

import (
	"context"
	"fmt"
	"log"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/generation"
	"github.com/microscale-go/microscale/tokenizer"
)

// A model of random weights writes eight bytes.
func Example() {
	d, err := decoder.New(decoder.Config{HiddenSize: 32, IntermediateSize: 32, NumHiddenLayers: 1, NumAttentionHeads: 1}, decoder.Options{}, 1)
	if err != nil {
		log.Fatal(err)
	}
	m, err := generation.New("random", d, generation.Text{Tokenizer: tokenizer.Bytes()})
	if err != nil {
		log.Fatal(err)
	}
	c, err := m.NewContext(64, 1)
	if err != nil {
		log.Fatal(err)
	}
	a, err := m.Begin(c, generation.Request{Prompt: m.Text.Completion("The "), MaxTokens: 8})
	if err != nil {
		log.Fatal(err)
	}
	err = a.Write(context.Background(), func(generation.Part) error { return nil })
	fmt.Println(a.PromptTokens, a.Tokens, a.Finish, err)
	// Output: 4 8 length <nil>
}

package main

import (
	"context"
	"syscall/js"

	"github.com/microscale-go/microscale/cmd/microscale/internal/playground"
)

// main defines the function ask(request, done) of the page's worker: done gets the answer.
func main() {
	js.Global().Set("ask", js.FuncOf(func(_ js.Value, args []js.Value) any {
		request, done := args[0].String(), args[1]
		go func() { done.Invoke(string(playground.Ask(context.Background(), []byte(request)))) }() // reading files blocks
		return nil
	}))
	js.Global().Call("ready")
	select {}
}

// Package serve serves a language model over HTTP with the endpoints of OpenAI's API that clients
// use:
//
//	GET  /v1/models, /v1/models/NAME   the model
//	POST /v1/chat/completions          the answer to a conversation, streamed on request
//	POST /v1/completions               the continuation of texts or token ids, streamed on request
//	GET  /health                       200 while the server accepts requests
//
// Each request runs in its own goroutine. A request waits for one of a few contexts, and then takes
// turns with the other running requests: a turn is one forward pass. A pass over one token takes the
// next token of every request that waits, up to eight, so that they read the weights together. Turns are
// granted in the order of asking, so all running requests advance at the same rate. A request beyond the queue is
// answered with 503 and Retry-After.
//
// What a request costs before it runs is bounded: its body has a size, a time to arrive, and a share of a budget of all
// bodies. Templates are rendered and texts encoded by running requests only, and a text that cannot fit into a context
// is rejected by its length. Every read and write has a deadline. An [Access] says which clients are admitted.
package serve

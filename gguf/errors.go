package gguf

// Remedies, by the cause of a fault.
const (
	fixDamaged   = "the file is damaged or was not written for llama.cpp; fetch it again"
	fixTruncated = "the file is incomplete; fetch it again"
	fixForeign   = "check that this is a GGUF file"
	fixSpec      = "correct it before writing"
)

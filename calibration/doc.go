// Package calibration quantizes weights by what flows into them. A linear layer computes Y = X·Wᵀ; of all
// quantized weights Q, the best has the least error of the outputs over a text,
//
//	‖X·(W−Q)ᵀ‖² = tokens · Σ over rows d of (W−Q) of d·H·dᵀ,   H = Xᵀ·X / tokens, in × in
//
// so that all that is needed of the text is H, or its diagonal, of each distinct input. A Collector sums them
// while a model reads the text, Statistics are their file, and a Method uses them:
//
//	Nearest   each element to the nearest code: H is the identity
//	Search    scales of blocks with the least error of the output, by the mean square and the mean of each column
//	GPTQ      scales by the mean squares alone; then column by column, in the order of falling diagonal, what rounding
//	          loses is made up for in the columns that are still to be rounded
//
// Rows are independent, and a weight's error counts as much in one as in another: layers that read the same
// input (q, k and v; gate and up) share H, and may be quantized together or apart.
//
// Sources: Frantar et al., GPTQ (arXiv 2210.17323); Chen et al., GPTQ as Babai's nearest plane (arXiv
// 2507.18553), which has the factorization of the reversed H.
package calibration

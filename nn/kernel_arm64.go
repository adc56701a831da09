//go:build !purego

package nn

var rowKernels = []rowKernel{{expNEONNeeds, 4, roundNEON, expNEON, sigmoidNEON, largestNEON, scoresNEON, addRowsNEON}}

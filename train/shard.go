package train

import (
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/nn"
)

// A span is rows [From, To) of a parameter.
type span struct{ From, To int }

// divide returns for each parameter where the rows of each rank begin.
func divide(params []*nn.Param, ranks int) [][]int {
	cuts := make([][]int, len(params))
	for i, p := range params {
		cuts[i] = comm.Cut(p.Grad.Rows, ranks, 1)
	}
	return cuts
}

package measure

import (
	"fmt"

	"github.com/microscale-go/microscale/tensor"
)

// defaultBlock is the block size of a Comparison that does not set one.
const defaultBlock = 32

// A Comparison has the operands of [Compare].
type Comparison struct {
	Got  tensor.Dense // the result
	Want tensor.Dense // the reference; errors are relative to it
	// Block is the number of elements along a row that form a block of Result.MeanBlockSQNR. 0 means
	// 32.
	Block int
}

// Compare returns the error of c.Got against c.Want. It returns an error if their shapes differ, if a
// matrix is invalid, or if c.Block is negative. For rows that arrive one by one, for BF16 sources and
// for saturation, use an [Accumulator].
func Compare(c Comparison) (Result, error) {
	if err := c.Got.Validate(); err != nil {
		return Result{}, fmt.Errorf("compare: Got: %w", err)
	}
	if err := c.Want.Validate(); err != nil {
		return Result{}, fmt.Errorf("compare: Want: %w", err)
	}
	if c.Got.Rows != c.Want.Rows || c.Got.Cols != c.Want.Cols {
		return Result{}, fmt.Errorf("compare: Got is %d×%d and Want is %d×%d, want the same shape", c.Got.Rows, c.Got.Cols, c.Want.Rows,
			c.Want.Cols)
	}
	if c.Block < 0 {
		return Result{}, fmt.Errorf("compare: Block: got %d, want a positive number, or 0 for %d", c.Block, defaultBlock)
	}
	if c.Block == 0 {
		c.Block = defaultBlock
	}
	a := New(c.Block)
	for i := range c.Got.Rows {
		a.AddRow(Row{Want: c.Want.Row(i), Got: c.Got.Row(i)})
	}
	return a.Result(), nil
}

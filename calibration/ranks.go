package calibration

import (
	"fmt"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/memory"
)

// neighbors are the groups of two in which the sums of a pass go from rank to rank: the last rank reads the first windows of the text
// and begins, each further one adds its own to what it receives, and rank 0 has the sums of all. They are added in the order of one
// process, and have its bits. A rank works on a layer while the one below works on the layer before.
type neighbors struct {
	above, below *comm.Group // nil: none
}

// connect finds the ranks before and after this one.
func (c *Collector) connect() (err error) {
	if c.Ranks == nil || c.ranks != nil {
		return nil
	}
	rank, pairs := c.Ranks.Rank(), [2]*comm.Group{}
	for i := range pairs {
		if pairs[i], err = c.Ranks.Split("statistics", (rank+i)/2); err != nil {
			return err
		}
	}
	c.ranks = &neighbors{above: pairs[rank%2], below: pairs[(rank+1)%2]}
	for _, g := range []**comm.Group{&c.ranks.above, &c.ranks.below} {
		if (*g).Size() == 1 {
			*g = nil
		}
	}
	return nil
}

// sends reports whether the sums go to another rank, which writes them.
func (c *Collector) sends() bool { return c.Ranks != nil && c.Ranks.Rank() > 0 }

// receive begins a pass with the sums of the windows before those of this rank, if it has not begun.
func (c *Collector) receive(layer int) error {
	if c.begun {
		return nil
	}
	c.begun = true
	if err := c.connect(); err != nil || c.ranks == nil || c.ranks.above == nil {
		return err
	}
	if err := c.ranks.above.Barrier(); err != nil { // no rank runs further ahead
		return err
	}
	group := c.groups(layer)[c.pass]
	counts := make([]float64, 2*len(group))
	if err := transfer(c.ranks.above, counts); err != nil {
		return err
	}
	for i, l := range group {
		if counts[2*i] == 0 {
			continue
		}
		s := c.newSums(l.Width, c.pairs(l))
		s.tokens, s.amax = int64(counts[2*i]), counts[2*i+1]
		if err := transfer(c.ranks.above, s.vectors()...); err != nil {
			return err
		}
		c.layer[l.Name] = s
	}
	return nil
}

// send gives the sums of a pass to the next rank.
func (c *Collector) send(group []Linear) error {
	if err := c.ranks.below.Barrier(); err != nil {
		return err
	}
	counts := make([]float64, 2*len(group))
	for i, l := range group {
		if s := c.layer[l.Name]; s != nil {
			counts[2*i], counts[2*i+1] = float64(s.tokens), s.amax
		}
	}
	if err := transfer(c.ranks.below, counts); err != nil {
		return err
	}
	for _, l := range group {
		if s := c.layer[l.Name]; s != nil {
			if err := transfer(c.ranks.below, s.vectors()...); err != nil {
				return err
			}
		}
	}
	return nil
}

// vectors returns the sums that ranks transfer.
func (s *sums) vectors() [][]float64 {
	return [][]float64{s.square, s.mean, s.peak, s.hessian, s.drift, s.driftSquare}
}

// transfer copies vectors from the upper rank of a pair to the lower one. All ranks of a job have one byte order.
func transfer(pair *comm.Group, vectors ...[]float64) error {
	for _, x := range vectors {
		if err := pair.Broadcast(memory.Bytes(x), 1); err != nil {
			return fmt.Errorf("add the statistics of ranks: %w", err)
		}
	}
	return nil
}

package convert

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/internal/checkpoint"
)

// A worker is one of several runs that carry one plan out together, each on a
// machine of its own. Zero workers: one run does everything.
type worker struct{ Index, Count int }

// mostWorkers bounds the number of workers: what a typing error asks for would fill
// the memory.
const mostWorkers = 1 << 16

// Worker returns the plan of one of count workers, who count from 0. They share
// the files of the result among them, about equal in bytes of the source; one
// may get none. Each writes its own into DST.microscale-part-INDEX-of-COUNT,
// whatever the others do, and Merge joins them. What all need of weights that
// others convert (the amax of fused siblings), each finds for itself, so that
// the result has the bytes that one run writes.
func (p *Plan) Worker(index, count int) (*Plan, error) {
	if count > mostWorkers {
		return nil, fmt.Errorf("%d workers are more than the %d that may share a plan", count, mostWorkers)
	}
	if count < 1 || index < 0 || index >= count {
		return nil, fmt.Errorf("there is no worker %d of %d: they count from 0 to %d", index, count, count-1)
	}
	one := *p
	one.worker = worker{index, count}
	one.workers = map[string]int{}
	bytes := map[string]int64{}
	var total int64
	for _, d := range p.Decisions {
		bytes[d.File] += d.Weight.StoredBytes()
		total += d.Weight.StoredBytes()
	}
	var before int64
	for _, f := range p.Files {
		middle := float64(before) + float64(bytes[f.Name])/2
		one.workers[f.Name] = min(int(middle/float64(max(total, 1))*float64(count)), count-1)
		before += bytes[f.Name]
	}
	return &one, nil
}

// Part returns which of how many workers the plan is for; ok is false where one run
// does everything.
func (p *Plan) Part() (index, count int, ok bool) {
	return p.worker.Index, p.worker.Count, p.worker.Count > 0
}

// writes reports whether a file of the result is the run's to write.
func (p *Plan) writes(file string) bool {
	return p.worker.Count == 0 || p.workers[file] == p.worker.Index
}

// mine reports whether a weight is the run's to convert.
func (p *Plan) mine(decision int) bool { return p.writes(p.Decisions[decision].File) }

// group returns the name under which weights share their extremes.
func (p *Plan) group(decision int) string {
	name := p.Decisions[decision].Weight.Name
	if p.Format.Global {
		name, _ = checkpoint.Joined(name)
	}
	return name
}

// groups returns the weights of which the run needs the extremes, by group:
// those that it converts, and those that share theirs with one of them.
func (p *Plan) groups() map[string][]int {
	if !p.Format.NeedsAmax() {
		return nil
	}
	groups, needed := map[string][]int{}, map[string]bool{}
	for i, d := range p.Decisions {
		if d.Action == Quantize {
			name := p.group(i)
			groups[name] = append(groups[name], i)
			needed[name] = needed[name] || p.mine(i)
		}
	}
	for name := range groups {
		if !needed[name] {
			delete(groups, name)
		}
	}
	return groups
}

// partFiles returns the files of the whole result and who writes them.
func (p *Plan) partFiles() (files []partFile) {
	for _, f := range p.Files {
		files = append(files, partFile{f.Name, f.Layout.FileSize(), p.workers[f.Name]})
	}
	for _, o := range p.Companions() {
		files = append(files, partFile{o.Name, -1, 0})
	}
	slices.SortFunc(files, func(a, b partFile) int { return cmp.Compare(a.Name, b.Name) })
	return files
}

// smallest returns the smallest weights that are quantized or decoded.
func (p *Plan) smallest(most int) (weights []int) {
	for i, d := range p.Decisions {
		if d.Action != Copy {
			weights = append(weights, i)
		}
	}
	slices.SortStableFunc(weights, func(a, b int) int {
		return cmp.Compare(p.Decisions[a].Weight.StoredBytes(), p.Decisions[b].Weight.StoredBytes())
	})
	return weights[:min(most, len(weights))]
}

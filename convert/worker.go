package convert

import (
	"cmp"
	"fmt"
	"slices"
)

// A worker is one of several runs that execute one plan together, each on a separate machine.
// With zero workers, one run does everything.
type worker struct{ Index, Count int }

// maxWorkers is the maximum number of workers. A mistyped number could exhaust the memory.
const maxWorkers = 1 << 16

// Worker returns the plan of worker index, 0 to count-1. Workers divide the files of the
// result, by bytes of the source; a worker may get none. Each writes its files to
// DST.microscale-part-INDEX-of-COUNT, independently of the others. [Merge] joins them to the
// bytes that one run writes: a worker finds the amax of fused siblings itself, even if another
// worker converts them.
func (p *Plan) Worker(index, count int) (*Plan, error) {
	if count > maxWorkers {
		return nil, fmt.Errorf("%d workers: at most %d can share a plan", count, maxWorkers)
	}
	if count < 1 || index < 0 || index >= count {
		return nil, fmt.Errorf("worker %d of %d: workers are numbered from 0 to count-1", index, count)
	}
	one := *p
	one.worker = worker{index, count}
	one.workers = map[string]int{}
	bytes := map[string]int64{}
	var total int64
	for _, d := range p.decisions {
		bytes[d.file] += d.StoredBytes()
		total += d.StoredBytes()
	}
	var before int64
	for _, f := range p.files {
		middle := float64(before) + float64(bytes[f.name])/2
		one.workers[f.name] = min(int(middle/float64(max(total, 1))*float64(count)), count-1)
		before += bytes[f.name]
	}
	return &one, nil
}

// Part returns the worker that the plan is for, and the number of workers. ok is false if one
// run does everything.
func (p *Plan) Part() (index, count int, ok bool) {
	return p.worker.Index, p.worker.Count, p.worker.Count > 0
}

// Idle returns the workers without files to write: there may be fewer files than workers.
func (p *Plan) Idle() (workers []int) {
	busy := map[int]bool{}
	for _, worker := range p.workers {
		busy[worker] = true
	}
	for i := range p.worker.Count {
		if !busy[i] {
			workers = append(workers, i)
		}
	}
	return workers
}

// writes reports whether the run writes a file of the result.
func (p *Plan) writes(file string) bool {
	return p.worker.Count == 0 || p.workers[file] == p.worker.Index
}

// mine reports whether the run converts a weight.
func (p *Plan) mine(decision int) bool { return p.writes(p.decisions[decision].file) }

// group returns the name of the group of weights that share their extremes.
func (p *Plan) group(decision int) string {
	d := p.decisions[decision]
	if d.action == Quantize && d.quantizer.Format.Global {
		matrix, _ := p.source.Family().Joined(cmp.Or(d.origin, d.Name))
		return matrix + "\x00" + d.quantizer.Format.Name
	}
	return d.Name
}

// groups returns the weights whose extremes the run needs, by group: those that it converts
// and those that share extremes with them.
func (p *Plan) groups() map[string][]int {
	groups, needed := map[string][]int{}, map[string]bool{}
	for i, d := range p.decisions {
		if d.action == Quantize && d.quantizer.Format.NeedsAmax() {
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
	if len(groups) == 0 {
		return nil
	}
	return groups
}

// partFiles returns the files of the whole result and their writers.
func (p *Plan) partFiles() (files []partFile) {
	for _, f := range p.files {
		files = append(files, partFile{f.name, f.layout.FileSize(), p.workers[f.name]})
	}
	for _, o := range p.Companions() {
		files = append(files, partFile{o.Name, -1, 0})
	}
	slices.SortFunc(files, func(a, b partFile) int { return cmp.Compare(a.Name, b.Name) })
	return files
}

// smallest returns the smallest weights that are converted.
func (p *Plan) smallest(count int) (weights []int) {
	for i, d := range p.decisions {
		if d.action != Copy {
			weights = append(weights, i)
		}
	}
	slices.SortStableFunc(weights, func(a, b int) int {
		return cmp.Compare(p.decisions[a].Weight.StoredBytes(), p.decisions[b].Weight.StoredBytes())
	})
	return weights[:min(count, len(weights))]
}

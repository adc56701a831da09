package verify

import "github.com/microscale-go/microscale/checkpoint"

// progress counts the bytes of a comparison and reports them. It is not safe for concurrent
// use.
type progress struct {
	Progress
	report func(Progress) // may be nil
}

// newProgress returns the progress of comparing pairs, and then the bytes of dst with its
// checksums.
func newProgress(pairs []pair, dst *checkpoint.Model, report func(Progress)) *progress {
	p := &progress{report: report}
	for _, pair := range pairs {
		p.Total += pair.want.StoredBytes()
	}
	for _, t := range dst.Source.Tensors() {
		p.Total += t.Bytes()
	}
	return p
}

// add counts n more bytes of a stage.
func (p *progress) add(stage string, n int64) {
	p.Stage, p.Done = stage, min(p.Done+n, p.Total)
	if p.report != nil {
		p.report(p.Progress)
	}
}

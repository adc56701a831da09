package train

import (
	"encoding/json"

	"github.com/microscale-go/microscale/nn"
)

// Purposes of transfers in Result.Traffic.
const (
	trafficGradients  = "gradients"
	trafficWeights    = "quantized weights"
	trafficParameters = "parameters" // that are not quantized

	trafficAmax    = nn.TrafficAmaxes
	trafficControl = "" // losses, errors, norms: not counted
)

// traffic returns the bytes that all ranks sent per step of this job, by purpose.
func (r *run) traffic() (map[string]int64, error) {
	sent := r.Parallel.group(trafficControl).Traffic()
	for purpose, n := range r.before {
		sent[purpose] -= n
	}
	own, err := json.Marshal(sent)
	if err != nil {
		return nil, err
	}
	all, err := r.Parallel.group(trafficControl).GatherAll(own)
	if err != nil {
		return nil, err
	}
	total := map[string]int64{}
	for _, text := range all {
		var sent map[string]int64
		if err := json.Unmarshal(text, &sent); err != nil {
			return nil, err
		}
		for purpose, n := range sent {
			total[purpose] += n
		}
	}
	for purpose, n := range total {
		if total[purpose] = n / int64(max(1, r.state.Step-r.first)); n == 0 {
			delete(total, purpose)
		}
	}
	return total, nil
}

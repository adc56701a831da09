package family

import "strconv"

// A Fold is a place where a factor of each column of the input of linear layers may be moved into them from what is before: the weights
// of a norm, or the rows of the linear layer that makes the columns. The model computes the same.
type Fold struct {
	Norm     string   // "" if Producer makes the columns
	Producer string   // a linear layer without bias, whose outputs are multiplied by something before they are the columns
	Readers  []string // all linear layers that read them
	PlusOne  bool     // the weights of the norm are stored as differences from one
}

// Folds returns the folds of a model, by the names of weights of language models (Model.Stored returns those of a checkpoint): norms
// before Q, K and V, and before gate and up; up before down. Inputs that routers or several experts read are not among them, nor those of
// latent attention.
func (f *Family) Folds(s *Settings) (folds []Fold) {
	n := f.Names
	for i := range s.NumHiddenLayers {
		weight := func(module string) string { return "model.layers." + strconv.Itoa(i) + "." + module + weightSuffix }
		fold := func(norm, producer string, readers ...string) {
			if norm == "" && producer == "" || n.AttentionInput == n.MLPInput {
				return
			}
			one := Fold{PlusOne: f.PlusOne && norm != ""}
			if norm != "" {
				one.Norm = weight(norm)
			} else {
				one.Producer = weight(producer)
			}
			for _, r := range readers {
				one.Readers = append(one.Readers, weight(r))
			}
			folds = append(folds, one)
		}
		if !f.Latent {
			fold(n.AttentionInput, "", n.QKV...)
		}
		if f.Experts != nil && s.HasExperts(i) {
			continue
		}
		fold(n.MLPInput, "", n.GateUp...)
		if len(n.GateUp) == 2 && !f.Clamped() && !f.MLPBias(s) {
			fold("", n.GateUp[1], n.Down)
		}
	}
	return folds
}

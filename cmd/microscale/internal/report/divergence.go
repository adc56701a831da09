package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// A Divergence is how models differ from the original that they were quantized from.
type Divergence struct {
	Title, Subtitle string
	Results         Table // a row for each model
	Models          []Diverging
	How             []Fact
}

// A Diverging is a model with the errors of its layers.
type Diverging struct {
	Name   string
	Layers []LayerError
}

// A LayerError has relative squared errors, ‖S−T‖²/‖T‖².
type LayerError struct {
	Output  float64 // of the layer's output, accumulated from all layers before
	Linears []LinearError
}

// A LinearError is the error of the output of a linear layer for the input of the original.
type LinearError struct {
	Name  string // within the layer
	Error float64
}

// A divergenceView holds the data of the template of a Divergence.
type divergenceView struct {
	*Divergence
	frame
	Verdict []string
	Table   pageTable
	Output  []figure
	Linears []figure
	Layers  []layerTable
}

// A layerTable has the errors of a model.
type layerTable struct {
	Name  string
	Table pageTable
}

// HTML returns the page, with the properties of Comparison.HTML.
func (d *Divergence) HTML() ([]byte, error) {
	v := divergenceView{Divergence: d, frame: newFrame("eval"), Table: pageTable{Table: d.Results}}
	names := d.linears()
	for i, m := range d.Models {
		v.Keys = append(v.Keys, key{Name: m.Name, Color: keyColor(i)})
		v.Layers = append(v.Layers, layerTable{m.Name, pageTable{Table: m.table(names)}})
	}
	output, err := d.errorPanel("Output of each layer, dB", func(l LayerError) float64 { return l.Output })
	if err != nil {
		return nil, err
	}
	if v.Output, err = figures([]panel{output}); err != nil {
		return nil, err
	}
	var panels []panel
	for _, name := range names {
		p, err := d.errorPanel(name+", dB", func(l LayerError) float64 { return l.linear(name) })
		if err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	if v.Linears, err = figures(panels); err != nil {
		return nil, err
	}
	return render("divergence.html", &v)
}

// linears returns the names of the linear layers of all layers, in the order of the computation.
func (d *Divergence) linears() (names []string) {
	seen := map[string]bool{}
	for _, m := range d.Models {
		for _, l := range m.Layers {
			for _, e := range l.Linears {
				if !seen[e.Name] {
					seen[e.Name] = true
					names = append(names, e.Name)
				}
			}
		}
	}
	return names
}

// linear returns the error of a linear layer: NaN if the layer does not have it.
func (l LayerError) linear(name string) float64 {
	for _, e := range l.Linears {
		if e.Name == name {
			return e.Error
		}
	}
	return math.NaN()
}

// table returns the errors of a model by layer.
func (m *Diverging) table(names []string) Table {
	t := Table{Columns: []Column{{"layer", "", "", false}, {"output", "", "of the layer, accumulated", true}}}
	for _, name := range names {
		t.Columns = append(t.Columns, Column{name, "", "for the input of the original", true})
	}
	for i, l := range m.Layers {
		row := []string{fmt.Sprint(i), relativeText(l.Output)}
		for _, name := range names {
			row = append(row, relativeText(l.linear(name)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// relativeText returns a relative error with three digits, or "–" if there is none.
func relativeText(e float64) string {
	if math.IsNaN(e) {
		return "–"
	}
	return fmt.Sprintf("%.2e", e)
}

// errorPanel draws an error over the layers, in decibels. Errors of zero have no mark.
func (d *Divergence) errorPanel(title string, of func(LayerError) float64) (panel, error) {
	p := newPlot("layer", horizontal)
	p.X.Tick.Marker = plot.TickerFunc(wholeTicks)
	result := panel{title: title, plot: p, width: chartWidth, height: chartHeight}
	for i, m := range d.Models {
		var xys plotter.XYs
		for l, e := range m.Layers {
			xys = append(xys, plotter.XY{X: float64(l), Y: 10 * math.Log10(of(e))})
		}
		if err := addMarked(p, i, finiteOnly(xys)); err != nil {
			return result, err
		}
	}
	if !result.empty() {
		widen(&p.Y)
	}
	return result, nil
}

// finiteOnly returns the points with finite values.
func finiteOnly(points plotter.XYs) (list plotter.XYs) {
	for _, run := range finiteRuns(points) {
		list = append(list, run...)
	}
	return list
}

package planning

import "github.com/microscale-go/microscale/hardware/device"

type figureDocument struct {
	Value  *float64 `json:"value"` // null: unknown
	Unit   string   `json:"unit"`
	Note   string   `json:"note,omitempty"`
	Source *string  `json:"source"`
}

type deviceDocument struct {
	Name         string                    `json:"name"`
	Product      string                    `json:"product"`
	Architecture string                    `json:"architecture"`
	Target       string                    `json:"target"`
	Figures      map[string]figureDocument `json:"figures"`
}

// DevicesDocument is all devices, or the one that is given.
func DevicesDocument(only *device.Device) any {
	devices := device.All()
	if only != nil {
		devices = []*device.Device{only}
	}
	var list []deviceDocument
	for _, d := range devices {
		doc := deviceDocument{Name: d.Name, Product: d.Product, Architecture: d.Arch.Name, Target: d.Arch.Target,
			Figures: map[string]figureDocument{}}
		for _, r := range rates(d) {
			f := figureDocument{Unit: r.unit, Note: r.Note}
			if r.Known() {
				value := r.Value / 1e12
				f.Value, f.Source = &value, &r.Source.Ref
			}
			doc.Figures[r.name] = f
		}
		list = append(list, doc)
	}
	return map[string]any{"devices": list}
}

type operandDocument struct {
	Name       string `json:"name"`
	Format     string `json:"format"`
	Scales     string `json:"scales"`
	Columnwise bool   `json:"columnwise"`
	Transposed bool   `json:"transposed"`
	Requantize bool   `json:"requantized"`
}

type productDocument struct {
	Name     string            `json:"name"`
	Rows     int               `json:"rows"`
	Cols     int               `json:"cols"`
	Sum      int               `json:"sum"`
	Operands []operandDocument `json:"operands"`
	Library  *string           `json:"library"` // null: none
	Layout   *device.Layout    `json:"layout"`
	Problems []problemDocument `json:"problems"`
}

type problemDocument struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
	Source string `json:"source"`
}

type optionDocument struct {
	Operand   string `json:"operand"`
	Option    string `json:"option"`
	Available bool   `json:"available"`
	Why       string `json:"why,omitempty"`
	Reads     int64  `json:"read_bytes"`
	Writes    int64  `json:"written_bytes"`
	Kept      int64  `json:"kept_bytes"`
}

type statementDocument struct {
	Library string `json:"library"`
	Recipe  string `json:"recipe"`
	OK      bool   `json:"available"`
	Says    string `json:"says"`
	Source  string `json:"source"`
}

// AnswerDocument is the JSON document of an answer.
func AnswerDocument(a device.Answer) any {
	doc := struct {
		Device    string              `json:"device"`
		OK        bool                `json:"runs"`
		Products  []productDocument   `json:"products"`
		Copies    []optionDocument    `json:"copies"`
		Libraries []statementDocument `json:"libraries"`
	}{Device: a.Device.Name, OK: a.OK, Copies: []optionDocument{}, Libraries: []statementDocument{}}
	for _, p := range a.Products {
		d := productDocument{Name: p.Name, Rows: p.Rows, Cols: p.Cols, Sum: p.Sum, Problems: []problemDocument{}}
		for _, o := range []device.Operand{p.A, p.B} {
			d.Operands = append(d.Operands, operandDocument{o.Name, o.Format.Name, o.Scaling, o.Columnwise, o.Transposed, o.Requantize})
		}
		if p.Mode != nil {
			d.Library, d.Layout = &p.Mode.Library, &p.Layout
		}
		for _, problem := range p.Problems {
			d.Problems = append(d.Problems, problemDocument{problem.What, problem.Remedy, problem.Source.Ref})
		}
		doc.Products = append(doc.Products, d)
	}
	for _, c := range a.Copies {
		for _, o := range c.Options {
			doc.Copies = append(doc.Copies, optionDocument{c.Operand, o.Name, o.Available, o.Why, o.Reads, o.Writes, o.Kept})
		}
	}
	for _, s := range a.Libraries {
		doc.Libraries = append(doc.Libraries, statementDocument{s.Library, s.Recipe, s.OK, s.Says, s.Source.Ref})
	}
	return doc
}

package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
)

var (
	//go:embed *.html
	pages embed.FS
	//go:embed page.css
	// Style is the style sheet of all pages.
	Style string

	templates = template.Must(template.ParseFS(pages, "*.html"))
)

// Generator begins the tag that is in every page, to distinguish pages from other files.
const Generator = `<meta name="generator" content="microscale`

// A frame is what all pages have.
type frame struct {
	Mark  template.HTML
	Style template.CSS
	Keys  []key
}

// newFrame returns the frame of a page that a command makes.
func newFrame(command string) frame {
	return frame{Mark: template.HTML(Generator + " " + command + `">`), Style: template.CSS(Style)}
}

// render executes the template of a page.
func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return b.Bytes(), nil
}

// HTML returns the page. It is self-contained (no scripts, fonts or external images), supports
// phones and printing, and has a light and a dark mode.
func (c *Comparison) HTML() ([]byte, error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	return render("page.html", v)
}

// A view holds the data of the page template.
type view struct {
	*Comparison
	frame
	Verdict  []string
	Table    pageTable
	Curves   []figure
	SQNR     pageTable
	Amax     []figure
	Scales   []figure
	Formats  []figure
	Quantize pageTable
	Memory   pageTable
	Parts    []figure // of the memory
	PartKeys []key
}

// A key is the legend entry of a recipe.
type key struct {
	Name, Doc string
	Color     template.CSS
	Failed    string
}

// A figure is a chart of the page.
type figure struct {
	Title, Note string
	SVG         template.HTML
}

// A pageTable is a table with optional colors of its rows.
type pageTable struct {
	Table
	Colors []template.CSS
}

// view computes the data of the template.
func (c *Comparison) view() (*view, error) {
	v := &view{Comparison: c, frame: newFrame("compare"), Verdict: c.Verdict()}
	v.Table.Table, v.Quantize.Table, v.Memory.Table = c.Table(), c.FormatTable(), c.MemoryTable()
	for i := range c.Recipes {
		r := &c.Recipes[i]
		v.Keys = append(v.Keys, key{r.Name, r.Doc, keyColor(i), r.Failed})
		v.Table.Colors = append(v.Table.Colors, keyColor(i))
	}
	curves, err := c.curves()
	if err != nil {
		return nil, err
	}
	amax, scales, err := c.histograms()
	if err != nil {
		return nil, err
	}
	bars, err := c.formatPanel()
	if err != nil {
		return nil, err
	}
	sqnr, recipes := c.SQNRTable()
	v.SQNR.Table = sqnr
	for _, i := range recipes {
		v.SQNR.Colors = append(v.SQNR.Colors, keyColor(i))
	}
	memory, parts, err := c.memoryPanel()
	if err != nil {
		return nil, err
	}
	v.PartKeys = parts
	for _, f := range []struct {
		to     *[]figure
		panels []panel
	}{{&v.Curves, curves}, {&v.Amax, amax}, {&v.Scales, scales}, {&v.Formats, []panel{bars}}, {&v.Parts, []panel{memory}}} {
		if *f.to, err = figures(f.panels); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// figures draws the panels that have data.
func figures(panels []panel) ([]figure, error) {
	var list []figure
	for i := range panels {
		p := &panels[i]
		if p.empty() {
			continue
		}
		svg, err := p.svg()
		if err != nil {
			return nil, err
		}
		list = append(list, figure{p.title, p.note, svg})
	}
	return list, nil
}

func keyColor(i int) template.CSS { return template.CSS(fmt.Sprintf("var(--c%d)", i%hues)) }

package report

// A speedView holds the data of the template of a Speed.
type speedView struct {
	*Speed
	frame
	Verdict  []string
	Charts   []figure
	Roofline []figure
	Table    pageTable
	Pays     pageTable
}

// HTML returns the page, with the properties of Comparison.HTML.
func (s *Speed) HTML() ([]byte, error) {
	v := speedView{Speed: s, frame: newFrame("bench all"), Verdict: s.Verdict()}
	v.Table.Table, v.Pays.Table = s.Table(), s.PaysTable()
	for i := range s.Series {
		v.Keys = append(v.Keys, key{Name: s.Series[i].Name, Color: keyColor(i)})
		if quantizes(&s.Series[i]) {
			v.Pays.Colors = append(v.Pays.Colors, keyColor(i))
		}
	}
	charts, err := s.charts()
	if err != nil {
		return nil, err
	}
	roofline, err := s.roofline()
	if err != nil {
		return nil, err
	}
	if v.Charts, err = figures(charts); err != nil {
		return nil, err
	}
	if v.Roofline, err = figures([]panel{roofline}); err != nil {
		return nil, err
	}
	return render("speed.html", &v)
}

package lint

import (
	"net/url"
	"path"
	"path/filepath"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A SARIF is a report in the Static Analysis Results Interchange Format 2.1.0 of OASIS, which services for continuous
// integration show beside a change.
type SARIF struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver sarifDriver `json:"driver"`
	} `json:"tool"`
	Results []sarifResult `json:"results"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	Rules   []sarifRule `json:"rules"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifRule struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Short         sarifText `json:"shortDescription"`
	Full          sarifText `json:"fullDescription"`
	Help          sarifText `json:"help"`
	Configuration struct {
		Level string `json:"level"`
	} `json:"defaultConfiguration"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	RuleIndex int             `json:"ruleIndex"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations"`

	Properties sarifProperties `json:"properties"`
}

// sarifProperties are those that a property bag of SARIF holds for one tool alone.
type sarifProperties struct {
	Repairable bool `json:"repairable"`
}

type sarifLocation struct {
	Physical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
	} `json:"physicalLocation"`
	Logical []sarifName `json:"logicalLocations,omitempty"`
}

type sarifName struct {
	Name string `json:"fullyQualifiedName"`
}

// NewSARIF returns a report of the SRC that was opened as arg. It lists every rule, so that a service knows those that hold.
func NewSARIF(arg string, r *Report) SARIF {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "microscale", Version: show.Version()}
	index := map[string]int{}
	for i, rule := range rules {
		index[rule.ID] = i
		s := sarifRule{ID: rule.ID, Name: rule.Name, Short: sarifText{rule.What}, Full: sarifText{rule.What + ": " + rule.Why},
			Help: sarifText{rule.Remedy}}
		s.Configuration.Level = rule.Severity.String()
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, s)
	}
	for _, f := range r.Findings {
		result := sarifResult{RuleID: f.Rule.ID, RuleIndex: index[f.Rule.ID], Level: f.Rule.Severity.String(), Message: sarifText{f.String()},
			Properties: sarifProperties{f.Repairable}}
		var at sarifLocation
		if at.Physical.Artifact.URI = artifactURI(arg, f.File); f.Tensor != "" {
			at.Logical = []sarifName{{f.Tensor}}
		}
		result.Locations = []sarifLocation{at}
		run.Results = append(run.Results, result)
	}
	return SARIF{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// artifactURI returns a file of the SRC that was opened as arg as a reference that RFC 3986 allows: relative to the working directory
// if arg is.
func artifactURI(arg, file string) string {
	u, err := url.Parse(arg)
	if err != nil || u.Host == "" { // a path
		u = &url.URL{Path: filepath.ToSlash(arg)}
	}
	if path.Base(u.Path) != file { // else arg is that file
		u = u.JoinPath(file)
	}
	return u.String()
}

package flags

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/convert"
)

// Rules is the value of a repeatable flag of rules, PATTERN=FORMAT, PATTERN=FORMAT:SCHEME or PATTERN=keep. The quantizers have
// a format and no behavior.
type Rules []convert.Rule

func (r *Rules) String() string {
	var texts []string
	for _, rule := range *r {
		texts = append(texts, rule.String())
	}
	return strings.Join(texts, " ")
}

// Type returns the placeholder of the value in the help.
func (r *Rules) Type() string { return "REGEXP=FORMAT" }

// Set parses s and adds it.
func (r *Rules) Set(s string) error {
	at := strings.LastIndexByte(s, '=')
	if at < 1 {
		return fmt.Errorf("%q is not a rule: write REGEXP=FORMAT, REGEXP=FORMAT:SCHEME or REGEXP=%s", s, convert.Keep)
	}
	rule, err := convert.ParseRule(s[:at], s[at+1:])
	if err != nil {
		return err
	}
	*r = append(*r, rule)
	return nil
}

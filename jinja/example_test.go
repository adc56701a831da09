package jinja_test

import (
	"fmt"

	"github.com/microscale-go/microscale/jinja"
)

func Example() {
	t, err := jinja.Compile("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{{ tools | tojson }}")
	if err != nil {
		fmt.Println(err)
		return
	}
	tools, err := jinja.ParseJSON([]byte(`[{"name": "add", "strict": true}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := t.Render(map[string]any{
		"messages": []any{jinja.NewDict("role", "user", "content", " What is 1 + 1? ")},
		"tools":    tools,
	})
	fmt.Println(text, err)
	// Output: <user>What is 1 + 1?[{"name": "add", "strict": true}] <nil>
}

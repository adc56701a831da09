package windows

import (
	"fmt"
	"strings"
	"testing"
)

// TestWindows spells windows out: scored tokens in brackets.
func TestWindows(t *testing.T) {
	for _, tc := range []struct {
		method          string
		tokens, context int
		bos             int32
		want            string
	}{
		{"llama.cpp", 9, 4, -1, "0 1 2 [3] | 4 5 6 [7]"},
		{"llama.cpp", 7, 4, 99, "99 0 1 [2] | 99 4 5 [6]"},
		{"llama.cpp", 10, 5, -1, "0 1 2 [3 4] | 5 6 7 [8 9]"},
		{"llama.cpp", 6, 3, -1, "0 1 [2] | 3 4 [5]"},
		{"all", 4, 2, -1, "0 [1] | 2 [3]"},
		{"all", 9, 4, -1, "0 [1 2 3] | 4 [5 6 7]"},
		{"all", 9, 4, 99, "99 [0 1 2] | 99 [4 5 6]"},
		{"gptq", 9, 4, -1, "0 [1 2 3] | 4 [5 6 7]"},
		{"gptq", 9, 4, 99, "99 [0 1 2] | 3 [4 5 6]"},
		{"strided", 9, 4, -1, "0 [1 2 3] | 2 3 [4 5] | 4 5 [6 7] | 6 7 [8]"},
		{"strided", 8, 4, 99, "99 [0 1 2] | 1 2 [3 4] | 3 4 [5 6] | 5 6 [7]"},
		{"strided", 3, 4, -1, "0 [1 2]"},
		{"strided", 6, 3, -1, "0 [1 2] | 1 2 [3] | 2 3 [4] | 3 4 [5]"},
	} {
		m, err := LookupMethod(tc.method)
		if err != nil {
			t.Fatal(err)
		}
		tokens := make([]int32, tc.tokens)
		for i := range tokens {
			tokens[i] = int32(i)
		}
		windows, err := m.Windows(tokens, tc.context, tc.bos)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		scored := 0
		for _, w := range windows {
			before, after := fmt.Sprint(w.Tokens[:w.First]), fmt.Sprint(w.Tokens[w.First:])
			got = append(got, strings.Trim(before, "[]")+" "+after)
			scored += w.Scored()
		}
		if text := strings.Join(got, " | "); text != tc.want {
			t.Errorf("%s of %d by %d: got %s, want %s", tc.method, tc.tokens, tc.context, text, tc.want)
		}
	}
}

func TestWindowsErrors(t *testing.T) {
	for _, tc := range []struct {
		method          string
		tokens, context int
		want            string
	}{
		{"llama.cpp", 7, 4, "the text has 7 tokens, want at least 8"},
		{"gptq", 3, 4, "the text has 3 tokens, want at least 4"},
		{"all", 0, 4, "the text has 0 tokens, want at least 4"},
		{"strided", 1, 4, "the text has 1 token, want at least 2"},
		{"all", 9, 1, "a window of 1 token: want at least 2"},
		{"llama.cpp", 9, 2, "a window of 2 tokens: want at least 3"},
	} {
		m, _ := LookupMethod(tc.method)
		if _, err := m.Windows(make([]int32, tc.tokens), tc.context, -1); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s of %d by %d: got %v, want %q", tc.method, tc.tokens, tc.context, err, tc.want)
		}
	}
	if _, err := LookupMethod("lm-eval"); err == nil || !strings.Contains(err.Error(), "use one of llama.cpp, gptq, strided, all") {
		t.Errorf("got %v", err)
	}
}

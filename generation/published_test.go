package generation

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// A publishedRow has facts of a published model: special tokens, the members of its generation_config.json, and the
// tokens that its tokenizer_config.json names. Its source is one of
//
//	xinference 4.1.0   that package's table of models, of which the ends are
//	github.com/…       a copy of generation_config.json there, of the model or of one trained from it
//	fastmindapi 0.0.9  the copy in DEVELOPMENT.md of that package's source
//	transformers       convert_gemma3_weights.py, which writes the file
//	config NAME        the model has the ids of its config.json alone, which package family has as NAME
//	memory             knowledge of the files without a copy; xinference confirms the ends where it has the model, except
//	                   for gpt-oss and the Llama distillation of R1, which it serves with others
type publishedRow struct {
	Model, Source, BOS, EOS string
	Tokens                  map[string]uint32
	Generation              json.RawMessage
	Stop                    []int32
	Sampling                string
	Reasoning               string // the tag or token that begins it
}

func published(t *testing.T) (rows []publishedRow) {
	t.Helper()
	f, err := os.Open("testdata/published.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row publishedRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestPublishedSources: rows from the configurations of package family have their ids, and no sampling.
func TestPublishedSources(t *testing.T) {
	configs := map[string]map[string]any{}
	data, err := os.ReadFile("../family/testdata/published.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var row struct {
			Model  string
			Config map[string]any
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		configs[row.Model] = row.Config
	}
	found := 0
	for _, row := range published(t) {
		name, ok := strings.CutPrefix(row.Source, "config ")
		if !ok {
			continue
		}
		found++
		var declared map[string]any
		if err := json.Unmarshal(row.Generation, &declared); err != nil {
			t.Fatal(err)
		}
		for key, value := range declared {
			if !strings.HasSuffix(key, "_token_id") || fmt.Sprint(value) != fmt.Sprint(configs[name][key]) {
				t.Errorf("%s: %s is %v, in the configuration of %s %v", row.Model, key, value, name, configs[name][key])
			}
		}
	}
	if found == 0 {
		t.Error("no row is from a configuration")
	}
}

// files returns the files of a directory with the row's facts: all of them, or the tokenizer alone.
func (r *publishedRow) files(t *testing.T, declared bool) map[string]string {
	t.Helper()
	var added []string
	for _, name := range slices.Sorted(maps.Keys(r.Tokens)) {
		added = append(added, fmt.Sprintf(`{"id": %d, "content": %q, "special": %t}`, r.Tokens[name], name, !strings.Contains(name, "think")))
	}
	id := uint32(0) // of a token of text
	for slices.Contains(slices.Collect(maps.Values(r.Tokens)), id) {
		id++
	}
	files := map[string]string{
		"tokenizer.json": fmt.Sprintf(`{"model": {"type": "BPE", "vocab": {"H": %d}, "merges": []}, "decoder": {"type": "ByteLevel"},
		"pre_tokenizer": {"type": "ByteLevel"}, "added_tokens": [%s]}`, id, strings.Join(added, ", "))}
	if declared {
		config, err := json.Marshal(map[string]any{"bos_token": r.BOS, "eos_token": r.EOS})
		if err != nil {
			t.Fatal(err)
		}
		files["generation_config.json"], files["tokenizer_config.json"] = string(r.Generation), string(config)
	}
	return files
}

// TestPublished reads what published models declare: ends of answers, the tokens that begin and end a text, sampling.
// If the files declared no end, one of them would be guessed by its name.
func TestPublished(t *testing.T) {
	rows := published(t)
	if len(rows) < 60 {
		t.Errorf("%d models, want at least 60", len(rows))
	}
	for _, row := range rows {
		dir := t.TempDir()
		writeFiles(t, dir, row.files(t, true))
		got, err := read(t, dir, false)
		if err != nil {
			t.Errorf("%s: %v", row.Model, err)
			continue
		}
		if !slices.Equal(got.Stop, row.Stop) || got.BOS != row.BOS || got.EOS != row.EOS || got.Sampling.String() != row.Sampling ||
			len(got.Notes) > 0 {
			t.Errorf("%s: got stop %v, BOS %q, EOS %q, sampling %q, notes %q, want %+v", row.Model, got.Stop, got.BOS, got.EOS, got.Sampling,
				got.Notes, row)
		}
		for _, id := range row.Stop {
			if name, err := got.Tokenizer.Token(uint32(id)); err != nil || row.Tokens[name] != uint32(id) {
				t.Errorf("%s: the end %d is the token %q", row.Model, id, name)
			}
		}
		if row.Reasoning != "" {
			row.checkReasoning(t, got)
		}

		dir = t.TempDir()
		writeFiles(t, dir, row.files(t, false))
		if got, err = read(t, dir, false); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(got.Stop, func(id int32) bool { return slices.Contains(row.Stop, id) }) || slices.Contains(got.Stop,
			int32(row.Tokens[row.BOS])) && row.BOS != row.EOS {
			t.Errorf("%s: guessed %v, declared %v", row.Model, got.Stop, row.Stop)
		}
	}
}

// checkReasoning checks that reasoning is found by the row's tag: in the vocabulary, or in the template.
func (r *publishedRow) checkReasoning(t *testing.T, text Text) {
	t.Helper()
	if text.has(r.Reasoning) {
		if text.separator(nil) == nil {
			t.Errorf("%s: the vocabulary has %s, but no reasoning is found", r.Model, r.Reasoning)
		}
		return
	}
	at := slices.IndexFunc(reasoningTags, func(tag tags) bool { return tag.open == r.Reasoning })
	if at < 0 {
		t.Errorf("%s: %q begins no reasoning", r.Model, r.Reasoning)
		return
	}
	text.Template = reasoningTags[at].close
	if s, ok := text.separator(nil).(*thoughts); !ok || s.tags != reasoningTags[at] {
		t.Errorf("%s: got %+v, want %+v", r.Model, s, reasoningTags[at])
	}
}

package flags

import (
	"strings"
	"testing"
)

// TestShard checks values of --shard: one worker of one is the whole.
func TestShard(t *testing.T) {
	for text, want := range map[string]string{
		"0/1": "", "3/4": "", "0/0": "want I/N or auto/N", "1": "want I/N or auto/N", "1/x": "want I/N or auto/N",
		"1/1": "want 0 to 0", "4/4": "want 0 to 3", "-1/4": "want 0 to 3", "x/4": "want 0 to 3",
	} {
		var s ShardFlag
		err := s.Set(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && s.String() != text {
			t.Errorf("%s: got %s, error %v, want %q", text, s.String(), err, want)
		}
	}
}

// TestShardVariables checks that launchers that agree set the worker, and that the error
// names both if they do not.
func TestShardVariables(t *testing.T) {
	for _, tc := range []struct {
		values   [3]string // of indexVariables
		worker   string
		rejected []string
	}{
		{[3]string{"", "1", ""}, "1/4", nil},
		{[3]string{"2", "", "2"}, "2/4", nil},
		{[3]string{"0", "3", ""}, "", []string{`JOB_COMPLETION_INDEX is "0"`, `SLURM_PROCID is "3"`}},
		{[3]string{"", "0", "1"}, "", []string{"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "use --shard I/N"}},
		{[3]string{}, "", []string{"none of JOB_COMPLETION_INDEX"}},
	} {
		for i, name := range IndexVariables {
			t.Setenv(name, tc.values[i])
		}
		var s ShardFlag
		err := s.Set("auto/4")
		if (err != nil) != (tc.rejected != nil) || s.String() != tc.worker {
			t.Errorf("%q: %q, error %v", tc.values, s.String(), err)
		}
		for _, want := range tc.rejected {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q", tc.values, err, want)
			}
		}
		if s = (ShardFlag{}); s.Set("3/4") != nil || s.index != 3 {
			t.Errorf("%q: 3/4 is taken for %s", tc.values, s.String())
		}
	}
}

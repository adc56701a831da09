package family

import "testing"

// TestJoined: which weights engines fuse into one matrix.
func TestJoined(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"l.0.attn.q_proj.weight", "l.0.attn.v_proj.weight", true},
		{"l.0.attn.q_proj.weight", "l.1.attn.q_proj.weight", false},
		{"l.0.attn.q_proj.weight", "l.0.attn.o_proj.weight", false},
		{"l.0.attn.q_proj.weight", "l.0.attn.q_a_proj.weight", false},
		{"l.0.attn.q_a_proj.weight", "l.0.attn.kv_a_proj_with_mqa.weight", true},
		{"l.0.mlp.gate_proj.weight", "l.0.mlp.up_proj.weight", true},
		{"l.0.mlp.gate_proj.weight", "l.0.mlp.down_proj.weight", false},
		{"l.0.experts.3.gate_proj.weight", "l.0.experts.3.up_proj.weight", true},
		{"l.0.experts.3.gate_proj.weight", "l.0.experts.4.up_proj.weight", false},
		{"l.0.experts.3.gate_proj.weight", "l.0.shared_experts.up_proj.weight", false},
		{"e.0.w1.weight", "e.0.w3.weight", true},
		{"e.0.w1.weight", "e.0.w2.weight", false},
		{"b.attention.self.query.weight", "b.attention.self.key.weight", true},
		{"q_proj.weight", "k_proj.weight", true},
		{"q_proj.bias", "k_proj.bias", false},
		{"fc1.weight", "fc2.weight", false},
	} {
		a, _ := (*Model)(nil).Joined(tc.a)
		b, part := (*Model)(nil).Joined(tc.b)
		if (a == b) != tc.same || tc.same && part == 0 {
			t.Errorf("%s and %s: of %q and %q, part %d; want the same: %v", tc.a, tc.b, a, b, part, tc.same)
		}
	}
}

package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/generation"
)

// TestGather checks which tickets one pass takes.
func TestGather(t *testing.T) {
	b := newBatch()
	var tickets []*ticket
	for range 10 {
		tickets = append(tickets, b.add(&generation.Answer{}))
	}
	if !b.withdraw(tickets[1]) || b.withdraw(tickets[1]) {
		t.Error("a ticket was not withdrawn once")
	}
	first := b.gather()
	if len(first) != mostTogether || first[0] != tickets[0] || first[1] != tickets[2] {
		t.Errorf("%d tickets in the first pass", len(first))
	}
	if b.withdraw(tickets[0]) {
		t.Error("the ticket of a running pass was withdrawn")
	}
	for _, ticket := range tickets {
		if ticket != tickets[9] {
			b.leave(ticket.answer)
		}
	}
	if last := b.gather(); len(last) != 1 || last[0] != tickets[9] {
		t.Errorf("%d tickets in the second pass", len(last))
	}
	if len(b.active) != 1 {
		t.Errorf("%d active answers, want 1", len(b.active))
	}
	// An active answer that arrives while others are gathered joins them; one that does not ends the wait.
	other := &generation.Answer{}
	b.add(tickets[9].answer)
	b.active[other] = true
	if alone := b.gather(); len(alone) != 1 {
		t.Errorf("%d tickets after a wait", len(alone))
	}
	for _, wait := range []time.Duration{time.Minute, 0} {
		b.wait = wait
		first := b.add(tickets[9].answer)
		time.AfterFunc(10*time.Millisecond, func() { b.add(other) })
		start := time.Now()
		got := b.gather()
		if together := wait > 0; got[0] != first || (len(got) == 2) != together || together && time.Since(start) > wait/2 {
			t.Errorf("waiting for at most %v: %d tickets after %v", wait, len(got), time.Since(start))
		}
	}
}

// TestTogether checks that answers that run together share passes, and have the text that each has
// alone.
func TestTogether(t *testing.T) {
	const clients = 5
	s := start(t, Config{Parallel: clients})
	request := func(i int) string {
		status, body := s.post(t, "/v1/completions", fmt.Sprintf(`{"prompt": "Client %d", "max_tokens": 40, "temperature": 2, "seed": %d}`, i, i))
		if status != 200 {
			t.Errorf("client %d: %d %s", i, status, body)
		}
		return parse(t, body).Choices[0].Text
	}
	var want, got [clients]string
	for i := range clients {
		want[i] = request(i)
	}
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { got[i] = request(i) })
	}
	wg.Wait()
	if got != want {
		t.Errorf("together: %q, alone: %q", got, want)
	}
	if len(s.batch.active) != 0 || len(s.batch.waiting) != 0 {
		t.Errorf("%d answers are active and %d wait at the end", len(s.batch.active), len(s.batch.waiting))
	}

	// While somebody has the turn, answers queue up. Whoever gets it next computes the passes of all.
	s.turn <- struct{}{}
	var answers [clients]*generation.Answer
	for i := range answers {
		c, err := s.model.NewContext(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		if answers[i], err = s.model.Begin(c, generation.Request{Prompt: []int32{'x'}, MaxTokens: 2}); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := s.step(t.Context(), answers[i]); err != nil {
				t.Error(err)
			}
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	c, err := s.model.NewContext(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	hungUp, err := s.model.Begin(c, generation.Request{Prompt: []int32{'x'}, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if _, err := s.step(canceled, hungUp); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that hung up: %v", err)
		}
		s.batch.leave(hungUp)
	})
	for waiting := 0; waiting < clients+1; time.Sleep(time.Millisecond) {
		s.batch.mutex.Lock()
		waiting = len(s.batch.waiting)
		s.batch.mutex.Unlock()
	}
	cancel()
	for waiting := clients + 1; waiting > clients; time.Sleep(time.Millisecond) {
		s.batch.mutex.Lock()
		waiting = len(s.batch.waiting)
		s.batch.mutex.Unlock()
	}
	passes := s.passes
	s.end()
	wg.Wait()
	if s.passes != passes+1 {
		t.Errorf("%d passes for %d answers that waited, want 1", s.passes-passes, clients)
	}
	for i, a := range answers {
		if a.Tokens != 1 {
			t.Errorf("answer %d has %d tokens, want 1", i, a.Tokens)
		}
	}
}
